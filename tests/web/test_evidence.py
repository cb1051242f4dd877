"""Evidence from runs, and calibrations, apply to their own setup only."""

import numpy as np
import pytest
from live_server import LIMITS, png, running
from PIL import Image

import dtpt
from dtpt.calibration import Targets
from dtpt.cli.serve import serve
from dtpt.data import load_dataset
from dtpt.errors import CalibrationError
from dtpt.metrics import binomial_interval
from dtpt.runs import EvalOptions, open_run, run_options
from dtpt.runs.calibrate import calibrate_cell, one_cell
from dtpt.web.evidence import read_evidence
from dtpt.web.options import ServeOptions
from dtpt.web.playground import Playground

CLASSES = ["bird", "cat", "dog"]
SETTINGS = {"classes": CLASSES, "methods": ["zero-shot", "tpt", "d-tpt"], "views": 4}


@pytest.fixture(scope="module")
def run(tiny_clip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    generator = np.random.default_rng(0)
    for name in CLASSES:
        (folder / "images" / name).mkdir(parents=True)
        for index in range(40):
            values = generator.integers(0, 255, (36, 44, 3), dtype=np.uint8)
            Image.fromarray(values).save(folder / "images" / name / f"{index:03d}.png")
    options = EvalOptions(
        model="tiny",
        dataset=("own",),
        method=("zero-shot", "tpt", "d-tpt"),
        views=4,
        threads=1,
        quiet=True,
        output=folder / "run",
    )
    data = load_dataset(f"folder:{folder / 'images'}")
    run_options(options, model=tiny_clip, datasets=[data])
    return folder / "run"


@pytest.fixture(scope="module")
def informed(tiny_clip, run):
    cells = read_evidence(run)
    with open_run(run) as opened:
        made = calibrate_cell(opened, one_cell(opened, "tpt"), targets=Targets(error=0.8))
    playground = Playground(
        tiny_clip, name="tiny", limits=LIMITS, evidence=cells, calibrations=[made]
    )
    with running(playground) as started:
        yield started


def predictions(server, **change):
    status, response = server.predict(png(), {**SETTINGS, "show": ["evidence"], **change})
    assert status == 200, response
    return {prediction["method"]: prediction for prediction in response["predictions"]}


def test_the_nearest_hundred_predictions_are_counted(informed, run):
    prediction = predictions(informed)["tpt"]
    (evidence,) = prediction["evidence"]
    with open_run(run) as opened:
        rows = opened.rows(method="tpt")
    nearest = np.argsort(np.abs(rows.confidence - prediction["confidence"]), kind="stable")[:100]
    correct = int(rows.correct[nearest].sum())
    assert (evidence["correct"], evidence["count"]) == (correct, 100)
    assert evidence["lowest_confidence"] == rows.confidence[nearest].min()
    assert evidence["mean_confidence"] == rows.confidence[nearest].mean()
    assert (evidence["low"], evidence["high"]) == binomial_interval(correct, 100)


def test_every_method_of_the_run_has_evidence_whatever_the_order_of_classes(informed):
    reordered = predictions(informed, classes=CLASSES[::-1]).values()
    assert all(prediction["evidence"] for prediction in reordered)


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["bird", "cat"]},
        {"classes": ["bird", "cat", "dog", "fox"]},
        {"template": "a drawing of a {}."},
        {"views": 5},
        {"augmix": False},
        {"steps": 2},
        {"rho": 0.5},
        {"methods": ["d-tpt@7", "c-tpt"]},
        {"dropped": [2]},
    ],
)
def test_another_setup_has_none(informed, change):
    others = predictions(informed, **change).values()
    assert [prediction["evidence"] for prediction in others] == [[]] * len(others)


def test_another_model_has_none(make_clip, run):
    playground = Playground(
        make_clip(seed=1), name="other", limits=LIMITS, evidence=read_evidence(run)
    )
    with running(playground) as other:
        assert all(prediction["evidence"] == [] for prediction in predictions(other).values())


def calibrated(server, **change):
    found = predictions(server, **change)
    return {method: prediction["calibrated"] for method, prediction in found.items()}


def test_a_calibration_gives_what_the_classifier_gives_with_it(informed, tiny_clip):
    (made,) = informed.service.playground.calibrations
    expected = dtpt.Classifier(tiny_clip, CLASSES, method="tpt", views=4, calibration=made).predict(
        png()
    )
    found = calibrated(informed)
    assert found["zero-shot"] is None
    assert found["d-tpt"] is None
    tpt = found["tpt"]
    assert tpt["confidence"] == expected.calibrated_confidence
    assert tpt["prediction_set"] == list(expected.prediction_set)
    assert tpt["abstained"] is expected.abstained
    assert tpt["provenance"]["images"] == 120
    assert (tpt["targets"]["coverage"], tpt["targets"]["error"]) == (0.9, 0.8)


@pytest.mark.parametrize(
    "change",
    [{"classes": CLASSES[::-1]}, {"views": 5}, {"dropped": [2]}, {"methods": ["tpt+sals"]}],
)
def test_a_calibration_is_not_applied_to_another_setup(informed, change):
    assert set(calibrated(informed, **change).values()) == {None}


def test_a_calibration_for_another_model_is_refused_at_the_start(informed, tmp_path):
    (made,) = informed.service.playground.calibrations
    made.save(tmp_path / "calibration.json")
    given = {"port": 0, "calibration": (tmp_path / "calibration.json",), "device": "cpu"}
    with pytest.raises(CalibrationError, match=r"calibration\.json.*tiny"):
        serve(options=ServeOptions(model="pocket", **given))


def test_the_server_lists_evidence_and_calibrations(informed, server):
    about = informed.get("/v1/models")
    assert len(about["evidence"]) == 1
    assert about["calibrations"][0].startswith("tpt on ")
    assert server.get("/v1/models")["evidence"] == []
