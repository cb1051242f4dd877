"""`hf:NAME`: rows of a hub data set, with as much of the library as the reader touches."""

import os
import sys
from types import ModuleType

import pytest

from dtpt.data import hf, load_dataset
from dtpt.errors import DatasetError, ImageError


def named(dataset) -> dict[str, str]:
    return {sample.id: dataset.classes[sample.label] for sample in dataset.samples}


class Image:
    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class ClassLabel:
    names = ("red_fox", "wolf")


class Table:
    """As much of a hub data set as the reader touches."""

    _fingerprint = "state of the table"

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
    assert dataset.samples[0].image.stamp() == "state of the table"
    with pytest.raises(ImageError, match="someone/foxes"):
        dataset.samples[1].image.open()


def test_rows_that_are_files_are_read_when_they_are_regular(monkeypatch, tmp_path, put):
    os.mkfifo(tmp_path / "pipe.jpg")
    paths = [put(tmp_path / "a.jpg"), tmp_path / "pipe.jpg"]
    rows = [{"img": {"bytes": None, "path": str(path)}, "label": 0} for path in paths]
    fake_hub(monkeypatch, Table(rows, {"img": Image(), "label": ClassLabel()}))
    dataset = load_dataset("hf:someone/foxes")
    assert dataset.samples[0].image.open().size == (12, 8)
    with pytest.raises(ImageError, match="pipe"):
        dataset.samples[1].image.open()


def test_hub_sets_without_class_names_or_images_are_refused(monkeypatch):
    fake_hub(monkeypatch, Table([], {"img": Image(), "label": object()}))
    with pytest.raises(DatasetError, match="ClassLabel"):
        load_dataset("hf:someone/foxes")
    fake_hub(monkeypatch, Table([], {"label": ClassLabel()}))
    with pytest.raises(DatasetError, match="column"):
        load_dataset("hf:someone/foxes")


def test_missing_hub_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    hf._open.cache_clear()
    with pytest.raises(DatasetError, match=r"dtpt\[hub-datasets\]"):
        load_dataset("hf:someone/foxes")
