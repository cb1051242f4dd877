"""Run the code of one page, block after block: `python tests/docs/run_page.py docs/data.md`.

Works in the current folder, so start it in an empty one. Blocks of a page belong together: Python
blocks share their names, and all share the folder.

    python    a program, or a session with >>> whose output must agree (`...` matches anything)
    sh        commands for bash; the first that fails ends it
    console   lines with $ are commands; what follows each is its output, `...` as above

Other languages (text, toml, json) are not run, and neither is what `not_run.py` lists.
"""

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from not_run import NOT_RUN

ROOT = Path(__file__).resolve().parents[2]
RUNNABLE = ("python", "sh", "console")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "training" / "README.md")
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(dtpt|make|pip|python|git|mkdocs|ray|curl)\b", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its first code, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        for (page, words), reason in NOT_RUN.items():
            if page == self.page and (words == "*" or words in self.text):
                return reason
        return None


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that hold code; commands without a language count as sh."""
    text = (ROOT / page).read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language = match[1] or ("sh" if _COMMAND.search(match[2]) else "text")
        line = text.count("\n", 0, match.start(2)) + 1
        if language in RUNNABLE:
            found.append(Block(page, line, language, match[2]))
    return found


def run_page(page: str) -> int:
    """Run all blocks that can be run; return how many they were."""
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = [block for block in blocks_of(page) if block.reason is None]
    for block in blocks:
        print(f"{page}:{block.line} ({block.language})", flush=True)
        {"python": run_python, "sh": run_shell, "console": run_console}[block.language](
            block, names
        )
    return len(blocks)


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Execute a program, or compare a session with what it prints."""
    if not block.text.lstrip().startswith(">>>"):
        code = "\n" * (block.line - 1) + block.text  # so that errors have the page's line numbers
        exec(compile(code, block.page, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(
        block.text, names, block.page, block.page, block.line - 1
    )
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(test, clear_globs=False)
    names.update(test.globs)
    if runner.failures:
        raise SystemExit(f"{block.page}:{block.line}: {runner.failures} outputs differ")


def run_shell(block: Block, names: dict[str, Any]) -> None:
    """Run a script; all of its commands must succeed."""
    del names
    subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], check=True)


def run_console(block: Block, names: dict[str, Any]) -> None:
    """Run every command and compare its output, whatever its exit code."""
    del names
    checker = doctest.OutputChecker()
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, wanted = part.partition("\n")
        done = subprocess.run(["bash", "-c", f"{command} 2>&1"], capture_output=True, text=True)
        if not checker.check_output(wanted, done.stdout, OPTIONS):
            raise SystemExit(
                f"{block.page}:{block.line}: $ {command}\nexpected:\n{wanted}\ngot:\n{done.stdout}"
            )


def stay_here() -> None:
    """Keep settings and caches in the current folder, and everything away from the network."""
    here = Path.cwd()
    os.environ |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(here),
        "DTPT_CONFIG": str(here / "config"),
        "DTPT_CACHE": str(here / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }


if __name__ == "__main__":
    stay_here()
    run_page(sys.argv[1])
