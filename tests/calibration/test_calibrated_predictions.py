"""A classifier with a calibration: confidence, prediction set and abstention."""

import json

import numpy as np
import pytest
from PIL import Image

import dtpt
from dtpt.calibration import Calibration, Fit, Provenance, Targets
from dtpt.cli.predict import predict
from dtpt.errors import CalibrationError
from dtpt.options import PredictOptions

CLASSES = ["cat", "two_hump camel", "tropical drink"]


@pytest.fixture(scope="module")
def image():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def calibration_for(classifier, **numbers):
    found = {"temperature": 2.0, "lac": 0.9, "aps": 0.9, "threshold": 0.0}
    return Calibration(
        setup=classifier.setup,
        provenance=Provenance(
            dataset="none",
            fingerprint="",
            run="",
            seed=0,
            images=400,
            temperature_images=100,
            clusters=400,
            temperature_clusters=100,
        ),
        targets=Targets(),
        fit=Fit(**{**found, **numbers}, accepted=100, wrong=0, bound=0.03),
        guarantees=(),
        assumption="",
        before_and_after={},
    )


@pytest.fixture(scope="module")
def plain(tiny_clip):
    return dtpt.Classifier(tiny_clip, CLASSES, method="d-tpt", views=4)


def calibrated(model, calibration, **changes):
    settings = {"method": "d-tpt", "views": 4} | changes
    return dtpt.Classifier(model, CLASSES, calibration=calibration, **settings)


def test_without_a_calibration_nothing_is_added(plain, image):
    got = plain.predict(image)
    assert (got.calibrated_confidence, got.prediction_set, got.abstained) == (None, None, None)


def test_a_calibration_adds_confidence_set_and_abstention_and_changes_nothing_else(
    plain, image, tiny_clip
):
    got = calibrated(tiny_clip, calibration_for(plain)).predict(image)
    before = plain.predict(image)
    np.testing.assert_array_equal(got.probabilities, before.probabilities)
    p = before.probabilities.astype(float) ** 0.5
    assert got.calibrated_confidence == pytest.approx((p / p.sum()).max(), abs=1e-3)
    assert got.prediction_set[0] == got.label
    assert set(got.prediction_set) <= set(CLASSES)
    assert got.abstained is False


def test_below_the_threshold_the_classifier_abstains(plain, image, tiny_clip):
    for threshold in (0.999, None):
        calibration = calibration_for(plain, threshold=threshold)
        got = calibrated(tiny_clip, calibration).predict(image)
        assert got.abstained is True
        assert got.label == plain.predict(image).label


def test_a_set_always_contains_the_predicted_class(plain, image, tiny_clip):
    got = calibrated(tiny_clip, calibration_for(plain, lac=0.0)).predict(image)
    assert got.prediction_set == (got.label,)


def test_limits_by_class_apply_to_their_classes(plain, image, tiny_clip):
    order = list(plain.predict(image).probabilities.argsort()[::-1])  # the most probable first
    limits = [0.0] * 3
    limits[order[2]] = 1.0  # as for a class with too few labelled images
    got = calibrated(tiny_clip, calibration_for(plain, lac=tuple(limits))).predict(image)
    assert got.prediction_set == (got.classes[order[0]], got.classes[order[2]])


def test_a_calibration_is_read_from_its_file(plain, image, tiny_clip, tmp_path):
    calibration = calibration_for(plain)
    calibration.save(tmp_path / "p.json")
    for given in (tmp_path / "p.json", str(tmp_path / "p.json")):
        assert calibrated(tiny_clip, given).calibration == calibration


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "tpt"}, "method d-tpt, not tpt"),
        ({"lambda_": 7.0}, "not 7.0"),
        ({"views": 5}, "views.count 4, not 5"),
        ({"template": "a drawing of a {}."}, "not a drawing of a {}."),
        ({"settings": dtpt.TuningSettings(steps=2)}, "tuning.steps 1, not 2"),
    ],
)
def test_another_setting_is_refused(plain, tiny_clip, changes, words):
    with pytest.raises(CalibrationError, match="calibration") as refused:
        calibrated(tiny_clip, calibration_for(plain), **changes)
    assert words in str(refused.value)


def test_another_class_list_or_model_is_refused(plain, tiny_clip):
    calibration = calibration_for(plain)
    with pytest.raises(CalibrationError, match="classes 3 "):
        dtpt.Classifier(tiny_clip, CLASSES[:2], views=4, calibration=calibration)
    other = calibration.model_copy(
        update={"setup": calibration.setup.model_copy(update={"fingerprint": "f" * 64})}
    )
    with pytest.raises(CalibrationError, match="model ffffffffffff…"):
        calibrated(tiny_clip, other)


def test_another_seed_of_the_views_is_accepted(plain, tiny_clip):
    assert calibrated(tiny_clip, calibration_for(plain), seed=5).seed == 5


@pytest.fixture
def predicted(image, tmp_path, capsys):
    """Make a calibration for the embedded model, and predict with it on the command line."""
    image.save(tmp_path / "p.png")

    def make(**settings):
        classifier = dtpt.Classifier(dtpt.load_model("pocket"), CLASSES, views=4, **settings)
        made = calibration_for(classifier, threshold=None)
        named = made.setup.model_copy(update={"model": "pocket"})
        made.model_copy(update={"setup": named}).save(tmp_path / "p.json")

        def run(as_json=True, **given):
            options = PredictOptions.model_validate({"calibration": tmp_path / "p.json", **given})
            predict([tmp_path / "p.png"], options=options, as_json=as_json)
            text = capsys.readouterr().out
            return json.loads(text) if as_json else " ".join(text.split())

        return run

    return make


@pytest.mark.parametrize("protocol", ["fine-grained", "natural-shifts"])
def test_predict_takes_the_learning_rate_from_the_calibration(predicted, protocol):
    assert predicted(method="tps", protocol=protocol)()["method"] == "tps"


def test_predict_takes_class_list_and_settings_from_the_calibration(predicted):
    predicted = predicted(method="d-tpt@7", augmix=False)
    row = predicted()
    assert (row["method"], row["lambda"], row["abstained"]) == ("d-tpt", 7.0, True)
    assert row["prediction_set"][0] == row["label"]
    assert 0 < row["calibrated_confidence"] < 1
    for given, words in (
        ({"views": 8}, "views.count 4, not 8"),
        ({"method": "tpt"}, "method d-tpt, not tpt; lambda 7.0, not null"),
        ({"lambda": 9}, "lambda 7.0, not 9.0"),
        ({"classes": "cat,dog"}, "classes 3 "),
    ):
        with pytest.raises(CalibrationError) as refused:
            predicted(**given)
        assert words in str(refused.value)


def test_the_table_marks_abstentions_and_shows_the_set(predicted, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")  # room for the path of the image
    predicted = predicted(method="zero-shot")
    row, shown = predicted(), predicted(as_json=False)
    assert f"abstains ({row['label']}?)" in shown
    assert ", ".join(row["prediction_set"]) in shown
    assert f"{row['calibrated_confidence']:.1%}" in shown


def test_a_calibration_is_saved_and_loaded_with_its_classifier(plain, image, tiny_clip, tmp_path):
    made = calibrated(tiny_clip, calibration_for(plain))
    made.save(tmp_path)
    loaded = dtpt.Classifier.load(tmp_path, tiny_clip)
    assert loaded.calibration == made.calibration
    assert loaded.predict(image).to_dict() == made.predict(image).to_dict()
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(CalibrationError, match=r"calibration\.json"):
        dtpt.Classifier.load(tmp_path, tiny_clip)
