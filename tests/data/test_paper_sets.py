import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtpt.data import check_dataset, list_datasets, load_dataset, loading
from dtpt.data.catalog import PAPER_SETS, catalog_entry
from dtpt.errors import DatasetError, UnknownName

PLACES = [(name, i) for name in PAPER_SETS for i in range(len(catalog_entry(name).layouts))]
SPLIT_SETS = [name for name in PAPER_SETS if catalog_entry(name).kind == "split"]


def true_label(sample_id: str) -> int:
    return int(Path(sample_id).name.partition("_")[0])


def test_catalogue_has_the_paper_s_sets():
    sizes = {name: catalog_entry(name).images for name in PAPER_SETS}
    counts = {name: len(catalog_entry(name).classes) for name in PAPER_SETS}
    assert len(PAPER_SETS) == 15
    assert counts["imagenet_a"] == counts["imagenet_r"] == 200
    assert counts["caltech101"] == 100
    assert sizes["dtd"] == 1692
    for name in PAPER_SETS:
        entry = catalog_entry(name)
        assert entry.augmix is (name != "imagenet")
        assert (entry.family == "natural-shifts") is (name.startswith("imagenet_"))


def test_shift_sets_take_names_and_wnids_from_the_same_imagenet_rows():
    imagenet = catalog_entry("imagenet")
    names = dict(zip(imagenet.folders, imagenet.classes, strict=True))
    assert imagenet.folders == tuple(sorted(imagenet.folders))
    for name in ("imagenet_a", "imagenet_r", "imagenet_sketch"):
        entry = catalog_entry(name)
        assert entry.classes == tuple(names[wnid] for wnid in entry.folders)
    numbered = catalog_entry("imagenet_v2")
    assert numbered.folders == tuple(str(n) for n in range(1000))
    assert numbered.classes == imagenet.classes


@pytest.mark.parametrize(("name", "index"), PLACES)
def test_each_layout_is_recognised_and_labelled_by_name(name, index, tmp_path, plant):
    entry = catalog_entry(name)
    count = plant(entry, entry.layouts[index], tmp_path)
    (tmp_path / "unrelated").mkdir()
    dataset = load_dataset(name, data_root=tmp_path, partial=True)
    assert len(dataset) == count
    assert all(sample.label == true_label(sample.id) for sample in dataset.samples)
    assert dataset.classes == tuple(c.replace("_", " ") for c in entry.classes)
    assert (dataset.family, dataset.augmix) == (entry.family, entry.augmix)
    assert dataset.protocol == ("imagenet" if name == "imagenet" else dataset.family)
    assert check_dataset(name, data_root=tmp_path).layout == entry.layouts[index].layout
    assert dataset.samples[0].image.open().size == (12, 8)


@pytest.mark.parametrize("name", ["dtd", "imagenet_a"])
def test_a_part_of_a_set_is_refused_unless_asked_for(name, tmp_path, plant, monkeypatch):
    entry = catalog_entry(name)
    count = plant(entry, entry.layouts[0], tmp_path)
    with pytest.raises(DatasetError, match=f"{entry.images:,}.*--partial"):
        load_dataset(name, data_root=tmp_path)
    part = load_dataset(name, data_root=tmp_path, partial=True)
    assert any(f"{entry.images:,}" in note for note in part.notes)
    assert (part.whole, part.is_partial) == (entry.images, True)
    smaller = entry.model_copy(update={"images": count})
    monkeypatch.setattr(loading, "catalog_entry", lambda _: smaller)
    whole = load_dataset(name, data_root=tmp_path)
    assert (whole.notes, whole.whole, whole.is_partial) == ((), count, False)
    limited = load_dataset(name, data_root=tmp_path, limit=10)
    assert (len(limited), limited.whole, limited.is_partial) == (10, count, True)


@pytest.mark.parametrize("name", ["flowers102", "oxford_pets", "fgvc_aircraft"])
def test_a_part_of_a_flat_set_is_labelled_by_its_split_file(name, tmp_path, plant):
    entry = catalog_entry(name)
    plant(entry, entry.layouts[0], tmp_path)
    images = sorted((tmp_path / entry.layouts[0].folder).rglob("*.jpg"))
    for image in images[3:]:
        image.unlink()
    part = load_dataset(name, data_root=tmp_path, partial=True)
    assert [s.image.path for s in sorted(part.samples, key=lambda s: s.id)] == images[:3]
    assert all(sample.label == true_label(sample.id) for sample in part.samples)
    assert part.classes == tuple(c.replace("_", " ") for c in entry.classes)
    assert any(r.startswith(f"Without images: {len(entry.classes) - 3}") for r in part.notes)


def test_more_images_than_the_set_has_are_never_taken_for_it(tmp_path, plant, monkeypatch):
    entry = catalog_entry("imagenet_r")
    count = plant(entry, entry.layouts[0], tmp_path, per_class=2)
    smaller = entry.model_copy(update={"images": count - 1})
    monkeypatch.setattr(loading, "catalog_entry", lambda _: smaller)
    for partial in (False, True):
        with pytest.raises(DatasetError, match="folder:PATH"):
            load_dataset("imagenet_r", data_root=tmp_path, partial=partial)


def test_a_split_file_that_is_a_named_pipe_is_refused_at_once(tmp_path):
    (tmp_path / "dtd" / "images").mkdir(parents=True)
    os.mkfifo(tmp_path / "dtd" / catalog_entry("dtd").split)
    with pytest.raises(DatasetError, match="named pipe"):
        load_dataset("dtd", data_root=tmp_path)


@pytest.mark.parametrize("name", SPLIT_SETS)
def test_split_file_may_lie_in_tpt_s_data_splits_folder(name, tmp_path, plant):
    entry = catalog_entry(name)
    place = entry.layouts[1]
    plant(entry, place, tmp_path)
    elsewhere = tmp_path / "data" / "data_splits"
    elsewhere.mkdir(parents=True)
    (tmp_path / place.folder / entry.split).rename(elsewhere / entry.split)
    dataset = load_dataset(name, data_root=tmp_path, partial=True)
    assert len(dataset) == len(entry.classes)


def test_clips_of_one_group_of_ucf101_are_one_cluster(tmp_path, put):
    entry = catalog_entry("ucf101")
    place = entry.layouts[0]
    clips = [
        ("Apply_Eye_Makeup/v_ApplyEyeMakeup_g01_c01.jpg", 0),
        ("Apply_Eye_Makeup/v_ApplyEyeMakeup_g01_c02.jpg", 0),
        ("Apply_Eye_Makeup/v_ApplyEyeMakeup_g12_c01.jpg", 0),
        ("Apply_Lipstick/v_ApplyLipstick_g01_c01.jpg", 1),
    ]
    for path, _ in clips:
        put(tmp_path / place.folder / place.images / path)
    rows = [[path, label, entry.classes[label]] for path, label in clips]
    (tmp_path / place.folder / entry.split).write_text(json.dumps({"test": rows}))
    dataset = load_dataset("ucf101", data_root=tmp_path, partial=True)
    assert dataset.cluster_noun == "clip groups"
    assert [sample.cluster for sample in dataset.samples] == [
        "Apply_Eye_Makeup/v_ApplyEyeMakeup_g01",
        "Apply_Eye_Makeup/v_ApplyEyeMakeup_g01",
        "Apply_Eye_Makeup/v_ApplyEyeMakeup_g12",
        "Apply_Lipstick/v_ApplyLipstick_g01",
    ]


def test_without_its_split_file_a_set_is_missing_and_the_file_is_named(tmp_path, plant):
    entry = catalog_entry("ucf101")
    plant(entry, entry.layouts[0], tmp_path)
    (tmp_path / "ucf101" / entry.split).unlink()
    with pytest.raises(DatasetError, match=r"split_zhou_UCF101\.json"):
        load_dataset("ucf101", data_root=tmp_path)
    report = check_dataset("ucf101", data_root=tmp_path)
    assert report.status == "missing"
    assert any("UCF-101-midframes" in place for place in report.missing)


def test_the_layout_that_holds_the_images_wins_over_an_empty_one(tmp_path, plant):
    entry = catalog_entry("oxford_pets")
    plant(entry, entry.layouts[1], tmp_path)
    (tmp_path / "oxford_pets" / "images").mkdir(parents=True)
    dataset = load_dataset("oxford_pets", data_root=tmp_path, partial=True)
    assert dataset.source == str(tmp_path / "OxfordPets")
    assert len(dataset) == 37


def test_missing_images_are_named_with_their_place(tmp_path, plant):
    entry = catalog_entry("dtd")
    plant(entry, entry.layouts[0], tmp_path)
    gone = tmp_path / "dtd" / "images" / "sub" / "5_0.jpg"
    gone.unlink()
    report = check_dataset("dtd", data_root=tmp_path)
    assert report.missing == (str(gone),)
    assert (report.status, report.found_images, report.expected_images) == ("partial", 46, 1692)
    assert dict(report.class_counts)[entry.classes[5]] == 0


@pytest.mark.parametrize("path", ["../x.jpg", "/etc/passwd", "a/../../x.jpg", "a\\..\\x.jpg", ""])
def test_split_paths_that_leave_the_folder_are_refused(path, tmp_path, put):
    entry = catalog_entry("dtd")
    put(tmp_path / "dtd" / "x.jpg")
    (tmp_path / "dtd" / "images").mkdir()
    split = tmp_path / "dtd" / entry.split
    split.write_text(json.dumps({"test": [[path, 0, "banded"]]}))
    with pytest.raises(DatasetError, match="inside"):
        load_dataset("dtd", data_root=tmp_path, partial=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "JSON"),
        ('{"train": []}', "test"),
        ("[]", "split_zhou"),
        ('{"test": {"a.jpg": 0}}', "test"),
        ("[" * 100_000, "split_zhou"),
        ('{"test": [["a.jpg", 0]]}', "test.0"),
        ('{"test": [["a.jpg", true, "banded"]]}', "test.0"),
        ('{"test": [["a.jpg", 1, "banded"]]}', "label 1"),
        ('{"test": [["a.jpg", 99, "banded"]]}', "label 99"),
        ('{"test": [["a.jpg", 0, "banded"], ["a.jpg", 0, "banded"]]}', "a.jpg"),
    ],
)
def test_wrong_split_files_are_refused(content, message, tmp_path):
    (tmp_path / "dtd" / "images").mkdir(parents=True)
    (tmp_path / "dtd" / catalog_entry("dtd").split).write_text(content)
    with pytest.raises(DatasetError, match=message):
        load_dataset("dtd", data_root=tmp_path, partial=True)


def test_unknown_aircraft_variant_is_refused(tmp_path):
    (tmp_path / "fgvc_aircraft" / "images").mkdir(parents=True)
    (tmp_path / "fgvc_aircraft" / "images_variant_test.txt").write_text("0034309 707-321\n")
    with pytest.raises(DatasetError, match="707-321"):
        load_dataset("fgvc_aircraft", data_root=tmp_path, partial=True)


def test_aircraft_variants_with_blanks_are_read_whole(tmp_path, put):
    put(tmp_path / "fgvc_aircraft" / "images" / "1.jpg")
    (tmp_path / "fgvc_aircraft" / "images_variant_test.txt").write_text("1 Cessna 172\n\n")
    dataset = load_dataset("fgvc_aircraft", data_root=tmp_path, partial=True)
    assert dataset.classes[dataset.samples[0].label] == "Cessna 172"


@pytest.mark.parametrize("name", ["imagenet_a", "imagenet_r", "imagenet_v2"])
def test_stray_folders_and_files_are_reported_and_never_labelled(name, tmp_path, plant, put):
    entry = catalog_entry(name)
    folder = tmp_path / entry.layouts[0].folder
    plant(entry, entry.layouts[0], tmp_path)
    put(folder / "README_images" / "a.jpg")
    put(folder / "00" / "zero-padded.jpg")
    put(folder / "loose.jpg")
    put(folder / entry.folders[7] / "._7_0.JPEG")
    put(folder / ".cache" / "hidden.jpg")
    (folder / "README.txt").write_text("hello")
    (folder / entry.folders[3] / "notes.txt").write_text("hello")
    dataset = load_dataset(name, data_root=tmp_path, partial=True)
    assert all(sample.label == true_label(sample.id) for sample in dataset.samples)
    assert len(dataset) == len(entry.classes)
    assert dataset.notes[:3] == (
        "Left out: 2 folders without class (00, README_images).",
        "Left out: 1 image outside of the class folders (loose.jpg).",
        f"Left out: 1 file of another kind or linked folder ({entry.folders[3]}/notes.txt).",
    )


def test_missing_class_folders_do_not_move_the_others(tmp_path, plant):
    entry = catalog_entry("imagenet_r")
    plant(entry, entry.layouts[1], tmp_path)
    folder = tmp_path / "imagenet-r" / entry.folders[0]
    (folder / "0_0.JPEG").unlink()
    folder.rmdir()
    dataset = load_dataset("imagenet_r", data_root=tmp_path, partial=True)
    assert {s.label for s in dataset.samples} == set(range(1, 200))
    assert all(sample.label == true_label(sample.id) for sample in dataset.samples)
    report = check_dataset("imagenet_r", data_root=tmp_path)
    assert report.missing == (str(folder),)
    assert report.class_names_agree is False


def test_imagenet_val_of_all_classes_is_no_imagenet_a(tmp_path, plant):
    """The 200-class sets must not take in the other 800 folders."""
    entry = catalog_entry("imagenet")
    wrong = entry.layouts[0].model_copy(update={"folder": "imagenet-a", "images": ""})
    plant(entry, wrong, tmp_path)
    dataset = load_dataset("imagenet_a", data_root=tmp_path, partial=True)
    assert len(dataset) == 200
    assert "800 folders" in dataset.notes[0]


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("name", ["imagenet_v2", "imagenet_a", "oxford_pets"])
def test_labels_do_not_depend_on_the_listing_order(name, seed, tmp_path, plant, shuffled):
    entry = catalog_entry(name)
    if not (tmp_path / entry.layouts[0].folder).exists():
        plant(entry, entry.layouts[0], tmp_path)
    plain = load_dataset(name, data_root=tmp_path, partial=True)
    with shuffled(seed):
        mixed = load_dataset(name, data_root=tmp_path, partial=True)
    assert mixed.fingerprint == plain.fingerprint
    assert [s.id for s in mixed.samples] == [s.id for s in plain.samples]
    assert all(sample.label == true_label(sample.id) for sample in mixed.samples)


def test_deep_check_names_every_damaged_image(tmp_path, plant, jpeg):
    entry = catalog_entry("eurosat")
    plant(entry, entry.layouts[0], tmp_path)
    folder = tmp_path / "eurosat" / "2750" / "sub"
    (folder / "1_0.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (folder / "2_0.jpg").write_bytes(b"")
    (folder / "3_0.jpg").write_text("not an image")
    seen = []
    report = check_dataset(
        "eurosat", data_root=tmp_path, deep=True, progress=lambda *step: seen.append(step)
    )
    assert seen == [(n, 10) for n in range(1, 11)]
    assert set(report.unreadable) == {f"sub/{n}_0.jpg" for n in (1, 2, 3)}
    assert report.checked_images == 10
    assert not report.ok
    assert check_dataset("eurosat", data_root=tmp_path).unreadable == {}


def test_list_tells_what_is_there(tmp_path, plant):
    for name in ("dtd", "imagenet_sketch"):
        plant(catalog_entry(name), catalog_entry(name).layouts[1], tmp_path)
    found = {s.name for s in list_datasets(tmp_path) if s.found and "openmoji" not in s.name}
    assert found == {"dtd", "imagenet_sketch"}
    nowhere = {s.name: s for s in list_datasets()}
    assert "imagenet/images/val" in nowhere["imagenet"].where


def test_data_root_comes_from_the_environment(tmp_path, plant, monkeypatch):
    entry = catalog_entry("eurosat")
    plant(entry, entry.layouts[0], tmp_path)
    monkeypatch.setenv("DTPT_DATA", str(tmp_path))
    assert len(load_dataset("eurosat", partial=True)) == 10
    monkeypatch.delenv("DTPT_DATA")
    with pytest.raises(DatasetError, match="DTPT_DATA"):
        load_dataset("eurosat")
    with pytest.raises(DatasetError, match="nowhere"):
        load_dataset("eurosat", data_root=tmp_path / "nowhere")


def test_unknown_set_gets_a_suggestion(tmp_path):
    with pytest.raises(UnknownName, match="oxford_pets"):
        load_dataset("oxfordpets", data_root=tmp_path)


@pytest.fixture(autouse=True)
def _no_data_root(monkeypatch):
    monkeypatch.delenv("DTPT_DATA", raising=False)
