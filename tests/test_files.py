"""Reading takes regular files only, writing is all or nothing, every path can be printed."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtpt.files import (
    FileTooLarge,
    NotARegularFile,
    canonical_json,
    digest,
    open_atomically,
    open_regular,
    printable,
    read_limited,
    write_atomically,
)


def special_file(folder, kind):
    """Make something that is no regular file and return its path."""
    path = folder / kind
    if kind == "named pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["named pipe", "folder", "socket", "device"])
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_regular_file_is_refused_at_once_and_called_what_it_is(tmp_path, kind, linked):
    path = special_file(tmp_path, kind)
    if linked:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    for read in (open_regular, lambda p: read_limited(p, 10)):
        with pytest.raises(NotARegularFile) as caught:
            read(path)
        assert caught.value.strerror == f"is a {kind}, not a regular file"
        assert caught.value.filename == str(path)


def test_a_pipe_that_replaces_the_file_after_the_first_look_is_refused_too(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    open_file, closed, close = os.open, [], os.close

    def swap(name, flags):
        path.unlink()
        os.mkfifo(path)
        return open_file(name, flags)

    monkeypatch.setattr(os, "open", swap)
    monkeypatch.setattr(os, "close", lambda fd: (closed.append(fd), close(fd)))
    with pytest.raises(NotARegularFile, match="named pipe"):
        open_regular(path)
    assert len(closed) == 1


def test_regular_files_and_links_to_them_are_read_whole(tmp_path):
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_bytes(b"content")
    link.symlink_to(path)
    for name in (path, str(path), link):
        with open_regular(name) as stream:
            assert stream.read() == b"content"
            assert not os.get_inheritable(stream.fileno())
        assert read_limited(name, 7) == b"content"


def test_the_limit_is_exact_and_holds_for_files_without_end(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345678")
    assert read_limited(path, 8) == b"12345678"
    with pytest.raises(FileTooLarge, match="7"):
        read_limited(path, 7)
    os.truncate(path, 1 << 40)  # a terabyte of holes
    with pytest.raises(FileTooLarge, match="1,000"):
        read_limited(path, 1000)


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_impossible_paths_are_an_os_error(path):
    with pytest.raises(OSError, match="path"):
        open_regular(path)


def test_a_missing_file_keeps_its_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "gone")


@given(st.binary(max_size=40))
def test_every_file_name_can_be_printed_and_stored(name):
    text = printable(name)
    assert text == printable(os.fsdecode(name)) == printable(text)
    assert text.encode("utf-8").decode("utf-8") == text


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_ordinary_text_stays_as_it_is(text):
    assert printable(text) == text


@given(st.text(st.characters(categories=["Cc", "Zl", "Zp"]), min_size=1))
def test_control_characters_are_escaped(text):
    assert printable(text).isprintable()
    assert json.loads(f'"{printable(text)}"') == text
    assert printable(text, keep=text) == text


def test_family_of_emoji_stays_whole_and_marks_that_reorder_a_line_do_not():
    assert printable("👩‍👩‍👧") == "👩‍👩‍👧"
    assert printable("gpj.\u202etac") == "gpj.\\u202etac"


def test_bytes_that_are_not_utf8_are_shown_in_hexadecimal(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9\xff.jpg")
    assert printable(path) == f"{tmp_path}/caf\\xe9\\xff.jpg"
    assert printable("lone \ud800") == "lone \\ud800"


def test_files_need_no_other_package():
    code = "import sys, dtpt.files; sys.exit('numpy' in sys.modules or 'PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


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


def test_a_stream_appears_whole_at_its_end(tmp_path):
    path = tmp_path / "rows.csv"
    write_atomically(path, b"old")
    with open_atomically(path) as stream:
        for _ in range(1000):
            stream.write(b"x" * 1000)
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"x" * 1_000_000
    assert os.listdir(tmp_path) == ["rows.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_streaming_keeps_the_old_content(tmp_path, error):
    path = tmp_path / "rows.csv"
    write_atomically(path, b"old")

    def write_some():
        with open_atomically(path) as stream:
            stream.write(b"new")
            raise error

    with pytest.raises(error):
        write_some()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_equal_content_has_one_digest():
    content = {"b": ["ä", None, 1.5], "a": {"y": 1, "x": True}}
    assert canonical_json(content) == '{"a":{"x":true,"y":1},"b":["ä",null,1.5]}'
    assert digest(content) == digest(dict(reversed(content.items())))
    assert digest(content) != digest({**content, "c": 0})
    assert len(digest(content)) == 64


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
