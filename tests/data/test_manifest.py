"""`manifest:FILE`: CSV and JSONL lists of images."""

import json

import pytest

from dtpt.data import check_dataset, load_dataset
from dtpt.errors import DatasetError


def named(dataset) -> dict[str, str]:
    return {sample.id: dataset.classes[sample.label] for sample in dataset.samples}


def test_csv_manifest_with_names(tmp_path, put):
    put(tmp_path / "i" / "a.jpg")
    (tmp_path / "list.csv").write_text(
        'label,path,extra\nred_fox,i/a.jpg,1\n"wolf, grey",i/b.jpg,2\n'
    )
    dataset = load_dataset(f"manifest:{tmp_path / 'list.csv'}")
    assert named(dataset) == {"i/a.jpg": "red fox", "i/b.jpg": "wolf, grey"}
    assert dataset.samples[0].image.open().size == (12, 8)
    report = check_dataset(f"manifest:{tmp_path / 'list.csv'}", deep=True)
    assert list(report.unreadable) == ["i/b.jpg"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_samples_of_one_cluster_are_named_in_a_column(kind, tmp_path):
    lines = ["path,label,cluster", "a.jpg,fox,7", "b.jpg,fox,7", "c.jpg,fox,film 2", "d.jpg,fox,"]
    if kind == "jsonl":
        given = {"a.jpg": 7, "b.jpg": "7", "c.jpg": "film 2", "d.jpg": None}
        rows = [{"path": name, "label": "fox", "cluster": given[name]} for name in given]
        lines = [json.dumps(row) for row in rows]
    path = tmp_path / f"list.{kind}"
    path.write_text("\n".join(lines))
    dataset = load_dataset(f"manifest:{path}")
    assert [s.cluster for s in dataset.samples] == ["7", "7", "film 2", "d.jpg"]


def test_absent_files_are_noted_and_stay_samples(tmp_path, put):
    put(tmp_path / "a.jpg")
    (tmp_path / "list.csv").write_text("path,label\na.jpg,fox\nb.jpg,fox\nc.jpg,wolf\n")
    dataset = load_dataset(f"manifest:{tmp_path / 'list.csv'}")
    assert len(dataset) == 3
    assert dataset.notes == ("Absent: 2 listed files (b.jpg, c.jpg).",)


def test_labels_that_are_wordnet_ids_get_imagenets_names(tmp_path, put):
    put(tmp_path / "a.jpg")
    put(tmp_path / "b.jpg")
    (tmp_path / "list.csv").write_text("path,label\nb.jpg,n01443537\na.jpg,n01440764\n")
    dataset = load_dataset(f"manifest:{tmp_path / 'list.csv'}")
    assert named(dataset) == {"a.jpg": "tench", "b.jpg": "goldfish"}
    assert "n01440764 is 'tench'" in dataset.notes[0]


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
        ("l.csv", "path,label\na.jpg,x\na.jpg,y\n", "a.jpg"),
        ("l.csv", "file,class\na.jpg,x\n", "path and label"),
        ("l.csv", "path,label\na.jpg\n", "line 2"),
        ("l.csv", "path,label\na.jpg,\n", "line 2"),
        ("l.csv", "path,label\n", "no images"),
        ("l.csv", "path,label\na.jpg,0\nb.jpg,1\n", "classes.txt"),
        ("l.jsonl", '{"path": "a.jpg", "label": "x"}\n{"path"\n', "line 2"),
        ("l.jsonl", '{"path": "a.jpg", "label": 1.5}\n', "line 1"),
        ("l.jsonl", '["a.jpg", "x"]\n', "line 1"),
        ("l.jsonl", '{"path": "a.jpg", "label": "x", "cluster": ["y"]}\n', "line 1"),
        (  # 1 would be the second class in order, which is "x" itself
            "l.jsonl",
            '{"path": "a.jpg", "label": "x"}\n{"path": "b.jpg", "label": 1}\n',
            "classes.txt",
        ),
        ("l.txt", "a.jpg x\n", ".csv or .jsonl"),
        ("l.csv", "path,label\na.jpg," + "x" * 200_000, "line 1"),
        ("l.jsonl", "[" * 100_000, "line 1"),
    ],
)
def test_wrong_manifests_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=message):
        load_dataset(f"manifest:{tmp_path / name}")


def test_labels_outside_of_the_class_list_are_refused(tmp_path):
    (tmp_path / "classes.txt").write_text("fox\nwolf\n")
    for label in ("2", "bear", "-1", "9" * 5000):
        (tmp_path / "l.csv").write_text(f"path,label\na.jpg,{label}\n")
        with pytest.raises(DatasetError, match=label):
            load_dataset(f"manifest:{tmp_path / 'l.csv'}")
