"""The real DTD, EuroSAT and Oxford Pets files in ../shared/data."""

import json
import shutil
from pathlib import Path

import pytest

from dtpt.data import check_dataset, load_dataset
from dtpt.data.catalog import catalog_entry

SETS = {"dtd": 470, "eurosat": 1000, "oxford_pets": 370}


def split_rows(shared: Path, name: str) -> list[tuple[str, int, str]]:
    path = shared / "metadata" / catalog_entry(name).split
    return [tuple(row) for row in json.loads(path.read_text())["test"]]


def rebuild(shared: Path, real: Path, root: Path, *, name: str, index: int) -> dict[str, int]:
    """Make CoOp's or TPT's tree from the images at hand; return the true labels."""
    entry = catalog_entry(name)
    place = entry.layouts[index]
    target = root / place.folder / place.images
    at_hand = {path.name: path for path in (real / name).rglob("*.jpg")}
    labels = {}
    for relative, label, _ in split_rows(shared, name):
        source = at_hand.get(Path(relative).name)
        if source is not None:
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            (target / relative).hardlink_to(source)
            labels[relative] = label
    shutil.copy(shared / "metadata" / entry.split, root / place.folder)
    return labels


@pytest.mark.parametrize("index", [0, 1], ids=["coop", "tpt"])
@pytest.mark.parametrize("name", SETS)
def test_real_split_and_images_in_both_layouts(name, index, shared_data, real_tree, tmp_path):
    labels = rebuild(shared_data, real_tree, tmp_path, name=name, index=index)
    assert len(labels) >= 0.97 * SETS[name]
    dataset = load_dataset(name, data_root=tmp_path, partial=True)
    assert {s.id: s.label for s in dataset.samples} == labels
    names = {label: title for _, label, title in split_rows(shared_data, name)}
    assert dataset.classes == tuple(names[i].replace("_", " ") for i in range(len(names)))
    report = check_dataset(name, data_root=tmp_path)
    assert report.layout == ("coop", "tpt")[index]
    assert report.status == "partial"
    assert report.found_images + len(report.missing) == report.expected_images


@pytest.mark.parametrize("index", [0, 1], ids=["coop", "tpt"])
@pytest.mark.parametrize("name", ["dtd", "oxford_pets"])
def test_all_files_of_the_split_make_a_complete_set(name, index, shared_data, tmp_path):
    entry = catalog_entry(name)
    place = entry.layouts[index]
    for relative, _, _ in split_rows(shared_data, name):
        path = tmp_path / place.folder / place.images / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    shutil.copy(shared_data / "metadata" / entry.split, tmp_path / place.folder)
    report = check_dataset(name, data_root=tmp_path)
    assert report.ok
    assert report.class_names_agree
    assert len(load_dataset(name, data_root=tmp_path)) == entry.images


@pytest.mark.parametrize("name", SETS)
def test_class_folders_as_delivered_have_the_paper_s_labels(name, real_tree):
    entry = catalog_entry(name)
    truth = (real_tree / name / "labels.csv").read_text().splitlines()[1:]
    labels = {line.split(",")[0]: int(line.split(",")[1]) for line in truth}
    dataset = load_dataset(name, data_root=real_tree, partial=True)
    assert {s.id: s.label for s in dataset.samples} == labels
    assert len(dataset) == SETS[name]
    own = load_dataset(f"folder:{real_tree / name}")
    assert {s.id for s in own.samples} == set(labels)
    assert len(own.classes) == len(entry.classes)


@pytest.mark.parametrize("form", ["{number} {name}", "{number:03d}\t{name}", "{name}"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", SETS)
def test_real_images_in_number_folders_keep_their_class(name, first, form, real_tree, tmp_path):
    folders = sorted(path for path in (real_tree / name).iterdir() if path.is_dir())
    numbered = list(enumerate(folders, start=first))
    for number, folder in numbered:
        (tmp_path / str(number)).symlink_to(folder)
    lines = [form.format(number=number, name=folder.name) for number, folder in numbered]
    if form != "{name}":
        lines.reverse()  # the number decides, not the line
    (tmp_path / "classes.txt").write_text("\n".join(lines))
    dataset = load_dataset(f"folder:{tmp_path}")
    truth = {str(number): folder.name.replace("_", " ") for number, folder in numbered}
    wrong = [s.id for s in dataset.samples if dataset.classes[s.label] != truth[s.id.split("/")[0]]]
    assert (len(dataset), wrong) == (SETS[name], [])


def test_every_real_image_can_be_opened(real_tree):
    for name in ("dtd", "oxford_pets"):
        report = check_dataset(name, data_root=real_tree, deep=True)
        assert report.checked_images == SETS[name]
        assert report.unreadable == {}


def test_class_folders_are_used_when_a_split_file_fits_no_image(shared_data, real_tree, tmp_path):
    shutil.copytree(real_tree / "eurosat", tmp_path / "eurosat")
    shutil.copy(shared_data / "metadata" / catalog_entry("eurosat").split, tmp_path / "eurosat")
    report = check_dataset("eurosat", data_root=tmp_path)
    assert (report.layout, report.found_images) == ("class-folders", 1000)


@pytest.mark.parametrize("title", ["DTD", "EuroSAT", "OxfordPets"])
def test_catalogue_equals_the_reference_lists(title, shared_data):
    reference = json.loads((shared_data.parent / "reference" / "classnames.json").read_text())
    name = {"DTD": "dtd", "EuroSAT": "eurosat", "OxfordPets": "oxford_pets"}[title]
    assert list(catalog_entry(name).classes) == reference[title]


def test_imagenet_facts_equal_the_metadata_files(shared_data):
    metadata = shared_data / "metadata"
    wnids = json.loads((metadata / "imagenet_wnids.json").read_text())
    names = (metadata / "imagenet_classnames.txt").read_text().splitlines()
    imagenet = catalog_entry("imagenet")
    assert list(imagenet.folders) == wnids
    assert [f"{w} {n}" for w, n in zip(imagenet.folders, imagenet.classes, strict=True)] == names
    mask = json.loads((metadata / "imagenet_r_mask.json").read_text())
    expected = [wnid for wnid, kept in zip(wnids, mask, strict=True) if kept]
    assert list(catalog_entry("imagenet_r").folders) == expected
    table = json.loads((metadata / "thousand_k_to_200.json").read_text())
    chosen = {int(k): v for k, v in table.items() if v >= 0}
    assert {wnids[k]: v for k, v in chosen.items()} == {
        wnid: label for label, wnid in enumerate(catalog_entry("imagenet_a").folders)
    }
