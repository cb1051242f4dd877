"""Named pipes, devices and names that are not UTF-8: wherever a data set may meet them."""

import json
import os
import pickle
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtpt.cli.main import call
from dtpt.data import FileRef, check_dataset, expand_names, load_dataset
from dtpt.data.dataset import sample_id
from dtpt.data.wds import TarRef
from dtpt.errors import DatasetError, ImageError

ODD = os.fsdecode(b"caf\xe9.jpg")  # Latin-1, not UTF-8


def test_a_pipe_or_device_as_image_is_one_unreadable_image(tmp_path, put):
    put(tmp_path / "fox" / "a.jpg")
    os.mkfifo(tmp_path / "fox" / "pipe.jpg")
    (tmp_path / "fox" / "zero.jpg").symlink_to("/dev/zero")
    report = check_dataset(f"folder:{tmp_path}", deep=True)
    assert set(report.unreadable) == {"fox/pipe.jpg", "fox/zero.jpg"}
    assert "named pipe" in report.unreadable["fox/pipe.jpg"]
    for name in ("pipe.jpg", "zero.jpg"):
        with pytest.raises(ImageError, match=f"{name}.*(pipe|device)"):
            FileRef(tmp_path / "fox" / name).key()


@pytest.mark.parametrize("scheme", ["folder", "manifest", "wds"])
def test_a_pipe_as_class_list_is_refused_at_once_and_not_overlooked(scheme, tmp_path, put):
    put(tmp_path / "fox" / "a.jpg")
    (tmp_path / "list.csv").write_text("path,label\nfox/a.jpg,fox\n")
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tmp_path / "fox" / "a.jpg", "a.jpg")
        archive.add(tmp_path / "list.csv", "a.cls")
    os.mkfifo(tmp_path / "classes.txt")
    path = {"folder": tmp_path, "manifest": tmp_path / "list.csv", "wds": tmp_path / "x.tar"}
    with pytest.raises(DatasetError, match=r"classes\.txt.*named pipe"):
        load_dataset(f"{scheme}:{path[scheme]}")


@pytest.mark.parametrize(
    "name", ["manifest:{}/pipe.csv", "manifest:{}/pipe.jsonl", "wds:{}/pipe.tar", "@{}/pipe.txt"]
)
def test_a_pipe_as_manifest_shard_or_list_is_refused_at_once(name, tmp_path):
    text = name.format(tmp_path)
    os.mkfifo(text.lstrip("@").partition(":")[2] or text[1:])
    with pytest.raises(DatasetError, match="named pipe"):
        load_dataset(expand_names(text)[0])


def test_a_shard_that_became_a_pipe_is_an_image_error(tmp_path):
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(ImageError, match=r"a\.tar:x\.jpg"):
        TarRef(tmp_path / "a.tar", "x.jpg", 0, 10).read()


def test_lists_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dtpt.data.layouts._MOST_LIST_BYTES", 100)
    (tmp_path / "list.csv").write_text("path,label\n" + "a.jpg,fox\n" * 50)
    with pytest.raises(DatasetError, match="100 bytes"):
        load_dataset(f"manifest:{tmp_path / 'list.csv'}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder:~nobody-of-this-name/x", "home"),
        ("folder:" + "x" * 5000, "folder"),
        ("manifest:" + "x" * 5000 + ".csv", "File name too long"),
        ("manifest:a\0b.csv", "path"),
    ],
)
def test_impossible_paths_are_refused_in_words(name, message):
    with pytest.raises(DatasetError, match=message):
        load_dataset(name)


# ------------------------------------------------------------------------ names that are not UTF-8


def test_an_image_whose_name_is_not_utf8_is_an_ordinary_sample(tmp_path, put, capsys):
    put(tmp_path / "fox" / ODD)
    put(tmp_path / "fox" / "plain.jpg")
    dataset = load_dataset(f"folder:{tmp_path}")
    ids = [sample.id for sample in dataset.samples]
    assert ids == [r"fox/caf\xe9.jpg", "fox/plain.jpg"]
    assert json.dumps(ids, ensure_ascii=False).encode()
    assert load_dataset(f"folder:{tmp_path}").fingerprint == dataset.fingerprint
    assert dataset.limited(1).samples
    odd = pickle.loads(pickle.dumps(dataset.samples[0].image))
    assert odd.open().size == (12, 8)
    assert odd.key() == dataset.samples[1].image.key()
    (tmp_path / "fox" / ODD).write_bytes(b"broken")
    with pytest.raises(SystemExit):
        call(["datasets", "check", f"folder:{tmp_path}", "--deep"])
    assert r"unreadable: fox/caf\xe9.jpg" in capsys.readouterr().out


def test_a_class_folder_whose_name_is_not_utf8_needs_a_class_list(tmp_path, put):
    put(tmp_path / os.fsdecode(b"caf\xe9") / "a.jpg")
    put(tmp_path / "fox" / "a.jpg")
    with pytest.raises(DatasetError, match=r"caf\\xe9"):
        load_dataset(f"folder:{tmp_path}")
    (tmp_path / "classes.txt").write_text("fox\ncaf\\xe9\tcoffee\n")
    dataset = load_dataset(f"folder:{tmp_path}")
    names = {sample.id: dataset.classes[sample.label] for sample in dataset.samples}
    assert names == {"fox/a.jpg": "fox", r"caf\xe9/a.jpg": "coffee"}


def test_a_folder_at_a_path_that_is_not_utf8_has_a_printable_name(tmp_path, put):
    root = tmp_path / os.fsdecode(b"\xff")
    put(root / "fox" / "a.jpg")
    put(root / "loose.jpg")
    dataset = load_dataset(f"folder:{root}")
    for text in (dataset.name, dataset.source, *dataset.notes):
        assert text.encode("utf-8")
    assert dataset.source == rf"{tmp_path}/\xff"


def test_tar_members_and_json_paths_that_are_not_utf8_have_printable_ids(tmp_path, put):
    put(tmp_path / ODD)
    (tmp_path / "a.cls").write_text("fox")
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tmp_path / ODD, ODD)
        archive.add(tmp_path / "a.cls", ODD.replace(".jpg", ".cls"))
    (tmp_path / "list.jsonl").write_text(json.dumps({"path": ODD, "label": "fox"}))
    shard = load_dataset(f"wds:{tmp_path / 'x.tar'}").samples[0]
    listed = load_dataset(f"manifest:{tmp_path / 'list.jsonl'}").samples[0]
    assert (shard.id, listed.id) == (r"x.tar/caf\xe9", r"caf\xe9.jpg")
    assert shard.image.open().size == listed.image.open().size == (12, 8)


def test_class_names_that_are_no_text_are_refused(tmp_path, put):
    put(tmp_path / "a.jpg")
    (tmp_path / "list.jsonl").write_text('{"path": "a.jpg", "label": "\\ud800"}')
    with pytest.raises(DatasetError, match="UTF-8"):
        load_dataset(f"manifest:{tmp_path / 'list.jsonl'}")


def test_a_run_stores_rows_for_odd_names_and_failures_for_pipes(tmp_path, put, tiny_clip):
    from dtpt.runs import EvalOptions, run_options

    put(tmp_path / "set" / "fox" / ODD)
    put(tmp_path / "set" / "wolf" / "b.jpg")
    os.mkfifo(tmp_path / "set" / "wolf" / "pipe.jpg")
    dataset = load_dataset(f"folder:{tmp_path / 'set'}")
    options = EvalOptions(
        model="tiny",
        dataset=(dataset.name,),
        method=("zero-shot",),
        views=2,
        threads=1,
        quiet=True,
        cache=False,
        output=tmp_path / "run",
    )
    run = run_options(options, model=tiny_clip, datasets=[dataset])
    assert sorted(run.rows(method="zero-shot").sample) == [r"fox/caf\xe9.jpg", "wolf/b.jpg"]
    (failure,) = run.failures()
    assert "pipe.jpg: is a named pipe" in str(failure)


NAMES = st.binary(min_size=1, max_size=12) | st.text(r"\xeu9", min_size=1).map(os.fsencode)


@given(st.lists(NAMES, unique=True, max_size=20))
def test_different_paths_have_different_printable_ids(names):
    ids = [sample_id(os.fsdecode(name)) for name in names]
    assert len(set(ids)) == len(names)
    assert all(text.encode("utf-8") for text in ids)
