"""Calibration files: what is written is read; what was damaged, edited or is newer is refused."""

import json

import numpy as np
import pytest
from simulated import drawn

from dtpt.calibration import Calibration, Provenance, Setup, Targets, fit, read_calibration
from dtpt.calibration.calibration import FORMAT
from dtpt.calibration.checking import temperature_effect
from dtpt.calibration.statements import assumption, guarantees
from dtpt.errors import CalibrationError
from dtpt.files import digest


def setup(**changes):
    settings = {
        "model": "pocket",
        "fingerprint": "a" * 64,
        "precision": "float32",
        "method": "d-tpt",
        "lambda": 1e5,
        "learning_rate": None,
        "template": "a photo of a {}.",
        "context": None,
        "classes": tuple(f"class {k}" for k in range(10)),
        "views": {"count": 64, "augmix": True},
        "tuning": {"steps": 1},
    }
    return Setup.model_validate(settings | changes)


@pytest.fixture(scope="module")
def calibration():
    rows, targets = drawn(400, seed=0), Targets(error=0.1)
    first = np.arange(400) < 100
    found = fit(rows.take(first), rows.take(~first), targets=targets)
    return Calibration(
        setup=setup(),
        provenance=Provenance(
            dataset="drawn",
            fingerprint="b" * 64,
            run="c" * 64,
            seed=0,
            images=400,
            temperature_images=100,
            clusters=400,
            temperature_clusters=100,
        ),
        targets=targets,
        fit=found,
        guarantees=guarantees(found, targets, sets="lac", tested=rows.take(~first), noun="images"),
        assumption=assumption(rows, noun="images"),
        before_and_after=temperature_effect(rows.take(~first), found.temperature),
    )


def test_a_file_is_read_as_it_was_written(calibration, tmp_path):
    calibration.save(tmp_path / "p.json")
    again = read_calibration(tmp_path / "p.json")
    assert again == calibration
    logits = np.random.default_rng(1).normal(size=10)
    index = int(logits.argmax())
    assert calibration.apply_one(logits, index=index) == again.apply_one(logits, index=index)


def test_the_file_states_guarantees_assumption_and_data(calibration, tmp_path):
    calibration.save(tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text())
    assert "exchangeable" in content["assumption"]
    assert len(content["guarantees"]) == 2
    assert "10 %" in content["guarantees"][1]
    assert content["provenance"]["images"] == 400


def test_one_prediction_is_calibrated_like_its_definition(calibration):
    logits = np.array([3.0, 2.5, -1.0] + [-5.0] * 7)
    found = calibration.apply_one(logits, index=0)
    p = np.exp(logits / calibration.fit.temperature)
    assert found.confidence == pytest.approx((p / p.sum())[0], abs=1e-3)  # runs store float16
    members = np.flatnonzero(1 - p / p.sum() <= calibration.fit.lac)
    assert found.prediction_set == tuple(members)
    assert found.abstained == (found.confidence < calibration.fit.threshold)


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["fit"].update(threshold=0.1),
        lambda c: c["setup"].update(method="tpt"),
        lambda c: c["targets"].update(error=0.01),
        lambda c: c.update(guarantees=["Everything is right."]),
    ],
)
def test_an_edited_file_is_refused(calibration, tmp_path, edit):
    content = calibration.document()
    edit(content)
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(CalibrationError, match="digest"):
        read_calibration(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a calibration file"),
        (b'{"format": 1}', "not a calibration file"),
        (b'{"format": 1, "digest": "", "fit": {}}', "format 1"),
        (b'{"format": 99, "digest": "", "fit": {}}', "format 99"),
        (b'{"format": "%d", "digest": "", "fit": {}}' % FORMAT, f"format '{FORMAT}'"),
    ],
)
def test_files_of_another_kind_or_format_are_refused_in_one_line(tmp_path, content, reason):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match=reason) as refused:
        read_calibration(path)
    assert "p.json" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_truncated_file_is_refused(calibration, tmp_path):
    calibration.save(tmp_path / "p.json")
    data = (tmp_path / "p.json").read_bytes()
    (tmp_path / "p.json").write_bytes(data[: len(data) // 2])
    with pytest.raises(CalibrationError, match="damaged"):
        read_calibration(tmp_path / "p.json")


def test_a_fresh_digest_does_not_make_invalid_numbers_valid(calibration, tmp_path):
    content = calibration.model_dump(mode="json", by_alias=True)
    content["fit"]["temperature"] = -1.0
    (tmp_path / "p.json").write_text(json.dumps({**content, "digest": digest(content)}))
    with pytest.raises(CalibrationError, match=r"fit\.temperature"):
        read_calibration(tmp_path / "p.json")


def test_limits_of_another_number_of_classes_are_refused(calibration, tmp_path):
    content = calibration.model_dump(mode="json", by_alias=True)
    content["fit"]["lac"] = [0.5] * 9
    (tmp_path / "p.json").write_text(json.dumps({**content, "digest": digest(content)}))
    with pytest.raises(CalibrationError, match="9 classes"):
        read_calibration(tmp_path / "p.json")


def test_missing_files_and_folders_are_named(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(CalibrationError, match=path.name):
            read_calibration(path)


def test_writing_into_a_missing_folder_is_refused(calibration, tmp_path):
    with pytest.raises(CalibrationError, match="cannot be written"):
        calibration.save(tmp_path / "absent" / "p.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fingerprint": "f" * 64}, "model aaaaaaaaaaaa…, not ffffffffffff…"),
        ({"precision": "bfloat16"}, "precision float32, not bfloat16"),
        ({"method": "tpt", "lambda": None}, "method d-tpt, not tpt; lambda 100000.0, not null"),
        ({"lambda": 50.0}, "lambda 100000.0, not 50.0"),
        ({"template": "a drawing of a {}."}, "template a photo of a {}., not a drawing of a {}."),
        ({"context": "e" * 64}, "context null, not eeeeeeeeeeee…"),
        ({"classes": ("cat", "dog")}, "classes 10 "),
        ({"classes": tuple(f"class {k}" for k in reversed(range(10)))}, "classes 10 "),
        ({"views": {"count": 16, "augmix": True}}, "views.count 64, not 16"),
        ({"tuning": {"steps": 2}}, "tuning.steps 1, not 2"),
    ],
)
def test_another_setup_is_refused_with_the_difference(calibration, change, words):
    with pytest.raises(CalibrationError) as refused:
        calibration.check(setup(**change))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_name_of_the_model_does_not_count(calibration):
    calibration.check(setup(model="my own name"))
