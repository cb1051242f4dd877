"""How commands end: exit codes, one line instead of a traceback, broken outputs."""

import os
import resource
import subprocess
import sys

import pytest
from processes import PROGRAM

from dtpt.cli.exits import explain


def only_line(text):
    (line,) = text.splitlines()  # a traceback has several
    return line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("eval", "--dataset", "openmoji", "--views", "0"), "--views: "),
        (("eval", "--dataset", "openmoji", "--limit", "1", "--device", "nope"), "nope"),
        (("eval",), "--dataset"),
        (("eval", "--dataset", "folder:"), "'folder:'"),
        (("datasets", "check", "hf: "), "'hf:'"),
        (("sweep", "--dataset", "openmoji", "--lambda", "x"), "--lambda: "),
        (("eval", "--dataset", "dtd", "--viewz", "3"), "--viewz"),
        (("evaluate",), "evaluate"),
        (("export",), "FOLDER"),
        (("export", "/nowhere"), "/nowhere"),
        (("merge", "/nowhere"), "/nowhere"),
        (("merge", "a", "b"), "dtpt compare"),
        (("cache", "prune", "--limit", "many"), "many"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refusals_are_one_line_with_exit_code_2(dtpt, words, message):
    done = dtpt(*words)
    assert done.returncode == 2
    assert message in only_line(done.stderr)
    assert done.stdout == ""


def test_full_output_device_is_one_line(dtpt_process):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        for words in (["--help"], ["methods"], ["cache", "show"]):
            done = dtpt_process(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
            assert done.returncode == 2, words
            assert "No space left on device" in only_line(done.stderr)


@pytest.mark.parametrize("words", [["cache", "show", "--json"], ["datasets"], ["--help"]])
def test_closed_pipe_is_one_line_and_an_error(words):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) <= 1


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))


def test_too_few_file_handles_are_one_line(dtpt_process, tmp_path):
    words = ("eval", "--dataset", "openmoji/food-drink", "--limit", "2", "--views", "2")
    done = dtpt_process(
        *words, "--output", tmp_path, "--view-workers", "8", "--quiet", preexec_fn=few_files
    )
    assert done.returncode != 0
    assert only_line(done.stderr).startswith("dtpt: ")


def test_path_that_is_not_utf8_can_be_printed(dtpt_process, tmp_path):
    strange = os.fsdecode(bytes(tmp_path) + b"/r\xffn")
    done = dtpt_process("export", strange)
    assert done.returncode == 2
    assert "\\udcff" in only_line(done.stderr) or "\\xff" in only_line(done.stderr)


def test_bugs_keep_their_traceback():
    assert explain(ZeroDivisionError("a bug")) is None
    assert "memory" in explain(MemoryError())
    assert "libtorch" in explain(ImportError("libtorch.so: cannot open"))
