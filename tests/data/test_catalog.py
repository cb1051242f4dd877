"""The catalogue: a file in it is a named set, and only the paper's sets are the paper's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dtpt
from dtpt.data import FAMILIES, catalog, family_title
from dtpt.data.catalog import PAPER_SETS, CatalogEntry, catalog_entry, family_protocol
from dtpt.errors import DatasetError, UnknownName

MEDICAL = {
    "name": "tissue",
    "title": "Tissue",
    "family": "medical",
    "kind": "split",
    "images": 3,
    "split": "tissue_split.json",
    "layouts": [{"layout": "original", "folder": "tissue", "images": "jpg"}],
    "classes": ["bone", "skin"],
}


@pytest.fixture
def dropped(tmp_path):
    """A copy of the package with one more file in its catalogue, and a way to run code with it."""
    package = tmp_path / "with_tissue" / "dtpt"
    shutil.copytree(
        Path(dtpt.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc", "pocket")
    )
    (package / "data" / "sets" / "tissue.json").write_text(json.dumps(MEDICAL))

    def run(code: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(package.parent), "COLUMNS": "80"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_file_dropped_into_the_catalogue_is_a_named_set_of_its_own_family(dropped, tmp_path, put):
    rows = [["a.jpg", 0, "bone"], ["b.jpg", 1, "skin"], ["c.jpg", 1, "skin"]]
    for path, _, _ in rows:
        put(tmp_path / "tissue" / "jpg" / path)
    (tmp_path / "tissue" / "tissue_split.json").write_text(json.dumps({"test": rows}))
    out = dropped(
        f"""
from dtpt.data import DATASETS, GROUPS, expand_names, list_datasets, load_dataset
from dtpt.report.load import set_title
from dtpt.report.paper.numbers import paper_sets
from dtpt.report.paper.targets import find_target, target_names
found = load_dataset("tissue", data_root={str(tmp_path)!r})
print(len(found), found.whole, found.family, found.protocol, [s.label for s in found.samples])
print("tissue" in DATASETS, expand_names("tissue"), set_title("tissue"))
print([s.found for s in list_datasets({str(tmp_path)!r}) if s.name == "tissue"])
print(any("tissue" in members for members in GROUPS.values()), len(GROUPS["all"]))
planned = [run for name in target_names() for run in find_target(name).runs]
print(any("tissue" in run.datasets for run in planned))
print("tissue" in paper_sets("fine-grained") | paper_sets("natural-shifts") | paper_sets("medical"))
"""
    ).splitlines()
    assert out[0] == "3 3 medical fine-grained [0, 1, 1]"
    assert out[1:3] == ["True ['tissue'] Tissue", "[True]"]
    assert out[3:] == ["False 15", "False", "False"]


def test_a_dropped_set_is_listed_under_its_own_heading(dropped):
    out = dropped("from dtpt.cli.inventory import datasets; datasets()").splitlines()
    place = next(n for n, line in enumerate(out) if line.split()[:1] == ["tissue"])
    assert out[place - 1].strip() == "Medical"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "fine-grained"}, "family"),
        ({"family": "natural-shifts"}, "family"),
        ({"family": 3}, "tissue.json.*family"),
        ({"kind": "zip"}, "tissue.json.*kind"),
        ({"images": "many"}, "tissue.json.*images"),
        ({"name": "folder:x"}, "tissue.json.*name"),
        ({"layouts": []}, "tissue.json.*layouts"),
        ({"color": "red"}, "tissue.json.*color"),
        ({"name": "bone"}, "'bone'"),
        ({"classes": []}, "classes"),
    ],
)
def test_a_wrong_file_in_the_catalogue_is_refused_by_name(change, message, tmp_path, monkeypatch):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "tissue.json").write_text(json.dumps({**MEDICAL, **change}))
    monkeypatch.setattr(catalog, "files", lambda _: tmp_path)
    monkeypatch.setattr(catalog, "NAMED_SETS", (*PAPER_SETS, "tissue"))
    with pytest.raises(DatasetError, match=message):
        catalog_entry.__wrapped__("tissue")


@pytest.mark.parametrize("protocol", ["fine-grained", "natural-shifts", None])
def test_a_set_takes_the_protocol_of_its_file_or_of_its_family(protocol):
    content = {**MEDICAL, "protocol": protocol} if protocol else MEDICAL
    assert CatalogEntry.model_validate(content).protocol == (protocol or "fine-grained")
    assert catalog_entry("imagenet_a").protocol == "natural-shifts"


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UnknownName, match="eurosat"):
        catalog_entry("eurosatt")


def test_the_table_of_families_says_heading_and_protocol():
    table = {(key, *family) for key, family in FAMILIES.items()}
    assert table == {
        ("fine-grained", "Fine-grained classification", "fine-grained"),
        ("natural-shifts", "Natural distribution shifts", "natural-shifts"),
        ("emoji-colour", "Colour drawings", "fine-grained"),
        ("emoji-line", "Line art", "natural-shifts"),
        ("own", "Own images", "fine-grained"),
    }
    assert (family_title("medical"), family_protocol("medical")) == ("Medical", "fine-grained")
