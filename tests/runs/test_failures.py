"""Images that cannot be read: how many are tolerated, what is stored about them and the others."""

from pathlib import Path

import pytest
from tiny_runs import draw_images

from dtpt.data import load_dataset
from dtpt.errors import RunError
from dtpt.runs import open_run, score_methods
from dtpt.runs.schedule import FailureLimit


@pytest.mark.parametrize("fraction", [0.0, 0.01])
def test_too_many_damaged_images_stop_the_run_with_their_names(
    run_tiny, tmp_path, images, fraction
):
    bad = [sample for sample in images.samples if sample.id.startswith("cat")][:3]
    for sample in bad:
        sample.image.path.write_text("no image")
    with pytest.raises(RunError, match="--max-failures") as stop:
        run_tiny(max_failures=fraction)
    assert bad[0].id in str(stop.value)
    with open_run(tmp_path / "run") as run:  # the failures so far are stored
        assert len(run.failures()) == (1 if fraction == 0 else 2)
        assert run.failures()[0].reason


def test_failure_limit_tolerates_one_image_of_a_small_set_but_none_at_zero():
    assert FailureLimit("x", 10, 0.01).allowed == 1
    assert FailureLimit("x", 300, 0.01).allowed == 3
    assert FailureLimit("x", 300, 0.0).allowed == 0


def test_repaired_image_is_evaluated_when_the_run_is_repeated(run_tiny, images):
    path = images.samples[4].image.path
    original = path.read_bytes()
    path.write_bytes(b"")
    with run_tiny() as broken:
        assert [failure.sample for failure in broken.failures()] == [images.samples[4].id]
        assert set(broken.counts().values()) == {(29, 1)}
    path.write_bytes(original)
    with run_tiny() as repaired:
        assert repaired.failures() == []
        assert set(repaired.counts().values()) == {(30, 0)}


def damage(path: Path, kind: str) -> None:
    data = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("this is not an image")
    elif kind == "bomb":
        header = bytearray(data)  # a PNG that claims 60000 x 60000 pixels
        header[16:24] = (60000).to_bytes(4, "big") * 2
        path.write_bytes(header)
    elif kind == "wrong suffix":
        path.write_bytes(b"%PDF-1.4 \n" + data)
    elif kind == "missing":
        path.unlink()


def test_damaged_images_leave_the_metrics_of_the_good_ones(run_tiny, tmp_path):
    kinds = ["truncated", "empty", "text", "bomb", "wrong suffix", "missing"]
    draw_images(tmp_path / "many", per_class=10)
    dataset = load_dataset(f"folder:{tmp_path / 'many'}")
    bad = {sample.id: kind for sample, kind in zip(dataset.samples[::5], kinds, strict=True)}
    for sample in dataset.samples:
        if sample.id in bad:
            damage(sample.image.path, bad[sample.id])
    run = run_tiny(dataset_object=dataset, max_failures=0.2)
    assert {failure.sample for failure in run.failures()} == set(bad)
    assert str(tmp_path) in run.failures()[0].reason
    good = [sample for sample in dataset.samples if sample.id not in bad]
    subset = type(dataset)(dataset.name, dataset.classes, good)
    alone = run_tiny(dataset_object=subset, output=tmp_path / "good", cache=False)
    for mixed, clean in zip(score_methods(run), score_methods(alone), strict=True):
        assert mixed.mean == clean.mean
        assert (mixed.seeds[0, None].effective, mixed.seeds[0, None].failed) == (24, 6)
