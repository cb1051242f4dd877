"""`wds:PATTERN`: tar shards, read in place."""

import io
import os
import pickle
import tarfile
from pathlib import Path

import pytest

from dtpt.data import load_dataset
from dtpt.data.wds import TarRef, expand_braces
from dtpt.errors import DatasetError, ImageError


def named(dataset) -> dict[str, str]:
    return {sample.id: dataset.classes[sample.label] for sample in dataset.samples}


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_shards_are_read_in_place(tmp_path, jpeg):
    for shard in range(3):
        members = {}
        for k in range(2):
            members[f"s{k}.cls"] = str((shard + k) % 3).encode()
            members[f"s{k}.jpg"] = jpeg + bytes([shard, k])
        write_tar(tmp_path / "test" / f"x-{shard:06d}.tar", members)
    (tmp_path / "classnames.txt").write_text("fox\nwolf\nbear\n")
    before = sorted(tmp_path.rglob("*"))
    dataset = load_dataset(f"wds:{tmp_path}/test/x-{{000000..000002}}.tar")
    assert dataset.classes == ("fox", "wolf", "bear")
    assert [s.label for s in dataset.samples] == [0, 1, 1, 2, 2, 0]
    assert dataset.samples[3].id == "x-000001.tar/s1"
    reference = pickle.loads(pickle.dumps(dataset.samples[3].image))
    assert reference.read() == jpeg + bytes([1, 1])
    assert reference.open().size == (12, 8)
    stamp = reference.stamp()
    os.utime(reference.path, ns=(0, 0))
    assert reference.stamp() != stamp
    assert len({sample.image.key() for sample in dataset.samples}) == 6
    assert sorted(tmp_path.rglob("*")) == before


def test_labels_in_json_members_and_by_name(tmp_path, jpeg):
    members = {
        "d/1.json": b'{"label": "red_fox", "width": 3}',
        "d/1.jpg": jpeg,
        "d/2.png": jpeg,
        "d/2.cls": b"wolf\n",
        "d/2.json": b'{"width": 3}',
        "README.md": b"hello",
    }
    dataset = load_dataset(f"wds:{write_tar(tmp_path / 'a.tar', members)}")
    assert named(dataset) == {"a.tar/d/1": "red fox", "a.tar/d/2": "wolf"}


@pytest.mark.parametrize(
    "members",
    [
        {"a.jpg": b"x"},
        {"a.cls": b"fox"},
        {"a.jpg": b"x", "a.png": b"x", "a.cls": b"fox"},
        {"a.jpg": b"x", "a.json": b"{"},
        {"../a.jpg": b"x", "../a.cls": b"fox"},
        {"/a.jpg": b"x", "/a.cls": b"fox"},
        {"notes.md": b"x"},
    ],
)
def test_wrong_shards_are_refused(members, tmp_path):
    with pytest.raises(DatasetError, match=r"a\.tar"):
        load_dataset(f"wds:{write_tar(tmp_path / 'a.tar', members)}")


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_devices_and_sparse_members_are_refused(kind, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("a.jpg")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(DatasetError, match="sparse"):
        load_dataset(f"wds:{tmp_path / 'a.tar'}")


def test_absent_compressed_and_truncated_shards_are_refused(tmp_path, jpeg):
    with pytest.raises(DatasetError, match=r"none\.tar"):
        load_dataset(f"wds:{tmp_path}/none.tar")
    with tarfile.open(tmp_path / "z.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
    with pytest.raises(DatasetError, match="uncompressed"):
        load_dataset(f"wds:{tmp_path}/z.tar.gz")
    whole = write_tar(tmp_path / "a.tar", {"a.cls": b"fox", "a.jpg": jpeg}).read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[: 3 * 512 + 100])
    with pytest.raises((DatasetError, ImageError), match=r"a\.tar"):
        load_dataset(f"wds:{tmp_path}/a.tar").samples[0].image.open()


def test_tar_reference_past_the_end_is_an_image_error(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"0" * 100)
    with pytest.raises(ImageError, match="ends before"):
        TarRef(tmp_path / "a.tar", "x.jpg", 90, 20).read()
    with pytest.raises(ImageError, match="too many"):
        TarRef(tmp_path / "a.tar", "x.jpg", 0, 1 << 40).read()


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("a.tar", ["a.tar"]),
        ("{0..2}.tar", ["0.tar", "1.tar", "2.tar"]),
        ("x-{008..011}.tar", ["x-008.tar", "x-009.tar", "x-010.tar", "x-011.tar"]),
        ("{9..11}", ["9", "10", "11"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
    ],
)
def test_brace_patterns(pattern, paths):
    assert expand_braces(pattern) == paths


@pytest.mark.parametrize("pattern", ["{3..1}", "{0..999999999}", "{0..9999}{0..9999}"])
def test_brace_patterns_without_end_are_refused(pattern):
    with pytest.raises(DatasetError):
        expand_braces(pattern)
