"""Folders, manifests, tar shards and hub data sets of people's own."""

import io
import json
import pickle
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtpt.data import check_dataset, hf, load_dataset
from dtpt.data.wds import TarRef, expand_braces
from dtpt.errors import DatasetError, ImageError

# ---------------------------------------------------------------------------------- folder:PATH


def named(dataset) -> dict[str, str]:
    return {sample.id: dataset.classes[sample.label] for sample in dataset.samples}


def test_folder_names_are_the_classes_in_code_point_order(tmp_path, put):
    for leaf in (
        "b_cat/1.jpg",
        "a dog/x/2.png",
        "Zebra/3.JPEG",
        "b_cat/.hidden.jpg",
        "b_cat/n.txt",
    ):
        put(tmp_path / leaf)
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.classes == ("Zebra", "a dog", "b cat")
    assert named(dataset) == {
        "Zebra/3.JPEG": "Zebra",
        "a dog/x/2.png": "a dog",
        "b_cat/1.jpg": "b cat",
    }


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_folder_labels_do_not_depend_on_the_listing_order(seed, tmp_path, put, shuffled):
    for number in range(12):
        for leaf in ("a.jpg", "b.jpg", "deeper/c.jpg"):
            put(tmp_path / f"class{number}" / leaf)
    plain = load_dataset(f"folder:{tmp_path}")
    with shuffled(seed):
        mixed = load_dataset(f"folder:{tmp_path}")
    assert mixed == plain


def test_class_list_fixes_order_and_names_and_strays_are_reported(tmp_path, put):
    for folder in ("n01", "n02", "n03", "stray"):
        put(tmp_path / folder / "a.jpg")
    (tmp_path / "classes.txt").write_text("# order of the labels\nn03\tred fox\n\nn01 wolf\nn02\n")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.classes == ("red fox", "wolf", "n02")
    assert named(dataset) == {"n03/a.jpg": "red fox", "n01/a.jpg": "wolf", "n02/a.jpg": "n02"}
    assert "stray" in dataset.remarks[0]


def test_number_folders_need_a_class_list_and_are_read_as_numbers(tmp_path, put):
    for number in range(12):
        put(tmp_path / str(number) / f"{number}.jpg")
    with pytest.raises(DatasetError, match=r"classes\.txt"):
        load_dataset(f"folder:{tmp_path}")
    (tmp_path / "classes.txt").write_text("\n".join(f"class {n}" for n in range(12)))
    dataset = load_dataset(f"folder:{tmp_path}")
    assert named(dataset) == {f"{n}/{n}.jpg": f"class {n}" for n in range(12)}


def test_class_list_about_other_folders_is_refused(tmp_path, put):
    put(tmp_path / "cat" / "a.jpg")
    (tmp_path / "classes.txt").write_text("tench\ngoldfish\n")
    with pytest.raises(DatasetError, match="No line"):
        load_dataset(f"folder:{tmp_path}")


def test_a_listed_class_without_folder_is_remarked(tmp_path, put):
    put(tmp_path / "cat" / "a.jpg")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.classes == ("cat", "dog")
    assert "dog" in dataset.remarks[0]
    assert check_dataset(f"folder:{tmp_path}").class_counts == (("cat", 1), ("dog", 0))


@pytest.mark.parametrize("content", ["absent", "empty", "file"])
def test_no_folder_of_class_folders_is_refused(content, tmp_path):
    path = tmp_path / content
    if content == "empty":
        path.mkdir()
    if content == "file":
        path.write_text("x")
    with pytest.raises(DatasetError, match=content):
        load_dataset(f"folder:{path}")


# --------------------------------------------------------------------------------- manifest:FILE


def test_csv_manifest_with_names(tmp_path, put):
    put(tmp_path / "i" / "a.jpg")
    (tmp_path / "list.csv").write_text(
        'label,path,extra\nred_fox,i/a.jpg,1\n"wolf, grey",i/b.jpg,2\n'
    )
    dataset = load_dataset(f"manifest:{tmp_path / 'list.csv'}")
    assert named(dataset) == {"i/a.jpg": "red fox", "i/b.jpg": "wolf, grey"}
    assert dataset.samples[0].image.open().size == (12, 8)
    report = check_dataset(f"manifest:{tmp_path / 'list.csv'}", deep=True)
    assert [image.id for image in report.unreadable] == ["i/b.jpg"]


def test_jsonl_manifest_with_numbers_and_a_class_list(tmp_path):
    rows = [
        {"path": "a.jpg", "label": 1},
        {"path": "b.jpg", "label": "0"},
        {"path": "c.jpg", "label": "fox"},
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    (tmp_path / "classes.txt").write_text("fox\nwolf\n")
    dataset = load_dataset(f"manifest:{tmp_path / 'list.jsonl'}")
    assert named(dataset) == {"a.jpg": "wolf", "b.jpg": "fox", "c.jpg": "fox"}


def test_class_names_that_occur_twice_can_be_used_by_number_only(tmp_path):
    (tmp_path / "classes.txt").write_text("missile\nfox\nmissile\n")
    (tmp_path / "good.csv").write_text("path,label\na.jpg,0\nb.jpg,2\n")
    (tmp_path / "bad.csv").write_text("path,label\na.jpg,missile\n")
    labels = [s.label for s in load_dataset(f"manifest:{tmp_path / 'good.csv'}").samples]
    assert labels == [0, 2]
    with pytest.raises(DatasetError, match="2 classes"):
        load_dataset(f"manifest:{tmp_path / 'bad.csv'}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.csv", "path,label\n../secret.jpg,a\n", "inside"),
        ("l.csv", "path,label\n/etc/passwd,a\n", "inside"),
        ("l.csv", "path,label\nC:/x.jpg,a\n", "inside"),
        ("l.csv", "path,label\na.jpg,x\na.jpg,y\n", "repeated"),
        ("l.csv", "file,class\na.jpg,x\n", "label and path"),
        ("l.csv", "path,label\na.jpg\n", "line 2"),
        ("l.csv", "path,label\na.jpg,\n", "line 2"),
        ("l.csv", "path,label\n", "no images"),
        ("l.csv", "path,label\na.jpg,0\nb.jpg,1\n", "classes.txt"),
        ("l.jsonl", '{"path": "a.jpg", "label": "x"}\n{"path"\n', "line 2"),
        ("l.jsonl", '{"path": "a.jpg", "label": 1.5}\n', "line 1"),
        ("l.jsonl", '["a.jpg", "x"]\n', "line 1"),
        ("l.txt", "a.jpg x\n", ".csv or .jsonl"),
    ],
)
def test_wrong_manifests_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=message):
        load_dataset(f"manifest:{tmp_path / name}")


def test_labels_outside_of_the_class_list_are_refused(tmp_path):
    (tmp_path / "classes.txt").write_text("fox\nwolf\n")
    for label in ("2", "bear", "-1"):
        (tmp_path / "l.csv").write_text(f"path,label\na.jpg,{label}\n")
        with pytest.raises(DatasetError, match=label):
            load_dataset(f"manifest:{tmp_path / 'l.csv'}")


# ---------------------------------------------------------------------------------- wds:PATTERN


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
    with pytest.raises(DatasetError, match="link, device or sparse"):
        load_dataset(f"wds:{tmp_path / 'a.tar'}")


def test_absent_compressed_and_truncated_shards_are_refused(tmp_path, jpeg):
    with pytest.raises(DatasetError, match="does not exist"):
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


# -------------------------------------------------------------------------------------- hf:NAME


class Image:
    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class ClassLabel:
    names = ("red_fox", "wolf")


class Table:
    """As much of a hub data set as the reader touches."""

    def __init__(self, rows: list[dict], features: dict) -> None:
        self.rows, self.features = rows, features

    def __getitem__(self, item):
        return self.rows[item] if isinstance(item, int) else [row[item] for row in self.rows]

    def cast_column(self, column: str, feature: Image) -> "Table":
        assert feature.decode is False
        return self


def fake_hub(monkeypatch: pytest.MonkeyPatch, table: Table) -> list[tuple[str, str]]:
    calls = []

    def load(name: str, *, split: str) -> Table:
        calls.append((name, split))
        return table

    module = ModuleType("datasets")
    module.load_dataset, module.Image = load, Image
    monkeypatch.setitem(sys.modules, "datasets", module)
    hf._open.cache_clear()
    return calls


def test_hub_rows_become_samples(monkeypatch, jpeg):
    rows = [{"img": {"bytes": jpeg, "path": None}, "label": 1}, {"img": {}, "label": 0}]
    calls = fake_hub(monkeypatch, Table(rows, {"img": Image(), "label": ClassLabel()}))
    dataset = load_dataset("hf:someone/foxes:validation")
    assert calls == [("someone/foxes", "validation")]
    assert named(dataset) == {"0": "wolf", "1": "red fox"}
    assert dataset.samples[0].image.open().size == (12, 8)
    with pytest.raises(ImageError, match="someone/foxes"):
        dataset.samples[1].image.open()


def test_hub_sets_without_class_names_or_images_are_refused(monkeypatch):
    fake_hub(monkeypatch, Table([], {"img": Image(), "label": object()}))
    with pytest.raises(DatasetError, match="ClassLabel"):
        load_dataset("hf:someone/foxes")
    fake_hub(monkeypatch, Table([], {"label": ClassLabel()}))
    with pytest.raises(DatasetError, match="no image column"):
        load_dataset("hf:someone/foxes")


def test_missing_hub_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    hf._open.cache_clear()
    with pytest.raises(DatasetError, match=r"dtpt\[hub-datasets\]"):
        load_dataset("hf:someone/foxes")
