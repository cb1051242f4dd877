"""Atomic writes: old or new content, nothing in between, nothing left behind."""

import os
import threading

import pytest

from dtpt.files import write_atomically


def test_makes_and_replaces_a_file(tmp_path):
    path = tmp_path / "a.json"
    for data in (b"one", b"", b"x" * 100_000):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_keeps_the_old_content_and_leaves_no_temporary_file(
    tmp_path, monkeypatch, failing
):
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_content_is_synced_before_the_rename_and_the_folder_after(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("sync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("rename"), replace(a, b)))
    write_atomically(tmp_path / "a", b"data")
    assert steps == ["sync", "rename", "sync"]


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "no" / "a", b"data")


def test_a_symbolic_link_keeps_pointing_at_its_target(tmp_path):
    target = tmp_path / "target"
    link = tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_readers_never_see_a_partial_file(tmp_path):
    path = tmp_path / "a"
    contents = [bytes([n]) * 50_000 for n in range(4)]
    write_atomically(path, contents[0])
    done = threading.Event()
    seen = set()

    def read():
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(200):
        write_atomically(path, contents[n % 4])
    done.set()
    reader.join()
    assert seen <= set(contents)


def test_long_names_are_possible(tmp_path):
    path = tmp_path / ("n" * 250)
    write_atomically(path, b"data")
    assert path.read_bytes() == b"data"
