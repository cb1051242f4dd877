"""`dtpt calibrate`: from a run to a calibration file, or one line with the reason."""

import json
import re

import numpy as np
import pytest
from probability_runs import write_probabilities

from dtpt.calibration import read_calibration
from dtpt.calibration.conformal import LOG_FLOOR, as_stored
from dtpt.calibration.fitting import temperature_part
from dtpt.metrics import Predictions, score
from dtpt.runs import open_run
from dtpt.runs.calibrate import labelled_predictions
from dtpt.runs.rows import pack, unpack
from dtpt.runs.store import SelectedLambda, Store


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_probabilities(tmp_path_factory.mktemp("run"))


def test_scores_have_the_digits_that_runs_store():
    log_p = np.log(np.random.default_rng(0).dirichlet(np.full(100, 0.1), size=20))
    stored = unpack([pack(row) for row in log_p], 100)
    np.testing.assert_array_equal(as_stored(stored), as_stored(log_p))
    assert as_stored(log_p).min() >= np.float16(LOG_FLOOR)


def test_a_calibration_is_written_and_shown(dtpt, run, tmp_path):
    output = tmp_path / "calibration.json"
    done = dtpt("calibrate", run, "--method", "d-tpt@1e6", "--error", 0.2, "--output", output)
    assert done.returncode == 0, done.stderr
    calibration = read_calibration(output)
    shown = " ".join(done.stdout.split())
    assert "400 labelled images" in shown
    for text in (*calibration.guarantees, calibration.assumption, calibration.otherwise):
        assert text in shown
    assert (calibration.setup.method, calibration.setup.lambda_) == ("d-tpt", 1e6)
    assert calibration.setup.classes == ("cat", "dog", "bird", "sea lion")
    assert calibration.setup.views["count"] == 64
    assert calibration.provenance.images == 400
    assert calibration.fit.temperature == pytest.approx(1.0, abs=0.3)


def test_json_is_the_file(dtpt, run, tmp_path):
    output = tmp_path / "calibration.json"
    done = dtpt("calibrate", run, "--method", "zero-shot", "--output", output, "--json")
    assert json.loads(done.stdout) == json.loads(output.read_text())


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--method", "tpt"], "no rows of tpt"),
        (["--method", "d-tpt@much"], "'d-tpt@much'"),
        (["--method", "d-tpt"], "--method: d-tpt@1e5, d-tpt@1e6"),
        (["--method", "zero-shot", "--dataset", "pets"], "zero-shot on pets"),
        (["--method", "zero-shot", "--seed", "3"], "seeds 0"),
        (["--method", "zero-shot", "--coverage", "0.999"], "999"),
        (["--method", "zero-shot", "--error", "5"], "--error: must be less than 1"),
        (["--method", "zero-shot", "--output", "absent/p.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_in_one_line(dtpt, run, flags, reason):
    done = dtpt("calibrate", run, *flags)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_rows_without_all_probabilities_are_refused(dtpt, tmp_path):
    done = dtpt("calibrate", write_probabilities(tmp_path, samples=5, keep=False),
                "--method", "zero-shot")  # fmt: skip
    assert done.returncode == 2
    assert "without all probabilities" in done.stderr


@pytest.mark.parametrize("flags", [[], ["--check", 5], ["--output", "absent.json"]])
def test_an_unfinished_run_is_refused(dtpt, tmp_path, flags):
    folder = write_probabilities(tmp_path, samples=96, written=33)
    done = dtpt("calibrate", folder, "--method", "zero-shot", *flags)
    assert done.returncode == 2
    assert "33 of 96 images" in done.stderr
    assert "dtpt eval" in done.stderr
    assert done.stderr.count("\n") == 1


def test_copies_of_an_image_count_once(dtpt, tmp_path):
    """Twelve images with twenty copies each are no evidence for a guarantee."""
    folder = write_probabilities(tmp_path, samples=240, keys=[f"k{n % 12}" for n in range(240)])
    made = dtpt("calibrate", folder, "--method", "zero-shot", "--coverage", 0.5, "--json")
    content = json.loads(made.stdout)
    data = content["provenance"]
    assert (data["images"], data["clusters"], data["cluster_noun"]) == (240, 12, "clusters")
    assert data["temperature_clusters"] * 20 == data["temperature_images"]
    assert content["fit"]["temperature"] == 1.0
    assert content["fit"]["threshold"] is None  # 59 right ones would be needed
    done = dtpt("calibrate", folder, "--method", "zero-shot", "--coverage", 0.95)
    assert done.returncode == 2


def test_images_of_one_cluster_are_named_in_counts_guarantees_and_assumption(dtpt, tmp_path):
    clusters = [f"thing {n // 2}" for n in range(600)]
    folder = write_probabilities(tmp_path, samples=600, clusters=clusters)
    done = dtpt("calibrate", folder, "--method", "zero-shot", "--error", 0.3)
    assert "600 labelled images of 300 clusters" in " ".join(done.stdout.split())
    made = dtpt("calibrate", folder, "--method", "zero-shot", "--error", 0.3, "--json")
    content = json.loads(made.stdout)
    tested = 300 - content["provenance"]["temperature_clusters"]
    coverage, errors = content["guarantees"]
    assert f"{2 * tested} labelled images of {tested} clusters" in coverage
    assert f"of {tested} clusters, one image each, {content['fit']['accepted']} " in errors
    assert "at most 5 % of all calibrations, those without a threshold included" in errors
    assert "New clusters are exchangeable" in content["assumption"]
    assert content["fit"]["accepted"] <= tested


def test_metrics_before_and_after_are_of_images_apart_from_the_temperature(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, overconfidence={"zero-shot": 3.0})
    content = json.loads(dtpt("calibrate", folder, "--method", "zero-shot", "--json").stdout)
    with open_run(folder) as run:
        (cell,) = run.select(method="zero-shot")
        names, rows = labelled_predictions(run, cell)
    late = rows.take(~temperature_part(names))
    logs = late.log_probabilities.astype(float)
    for column, temperature in enumerate((1.0, content["fit"]["temperature"])):
        p = np.exp(logs / temperature)
        expected = score(Predictions.from_probabilities(p / p.sum(axis=1)[:, None], late.labels))
        found = {key: pair[column] for key, pair in content["before_and_after"].items()}
        assert set(found) == {"ece", "floor", "signed_gap", "nll"}
        assert found == pytest.approx({key: expected[key] for key in found}, rel=1e-5)
    for key in ("ece", "signed_gap", "nll"):
        before, after = content["before_and_after"][key]
        assert abs(after) < before


def test_without_a_threshold_the_error_that_passes_and_the_labels_needed_are_noted(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, samples=120)
    made = dtpt("calibrate", folder, "--method", "zero-shot", "--error", 0.03, "--json")
    content = json.loads(made.stdout)
    assert content["fit"]["threshold"] is None
    (percent,) = (int(m[1]) for n in content["notes"] if (m := re.search(r"is (\d+) %", n)))
    for error, passes in ((percent, True), (percent - 1, False)):
        again = dtpt("calibrate", folder, "--method", "zero-shot", "--error", error / 100, "--json")
        assert (json.loads(again.stdout)["fit"]["threshold"] is not None) == passes
    assert any("labelled images" in note and "estimate" in note for note in content["notes"])


def test_class_conditional_sets_are_written_and_applied(dtpt, run, tmp_path):
    output = tmp_path / "calibration.json"
    flags = ("--method", "zero-shot", "--class-conditional", "--output", output)
    assert dtpt("calibrate", run, *flags).returncode == 0
    calibration = read_calibration(output)
    assert calibration.targets.class_conditional
    assert len(calibration.fit.lac) == len(calibration.fit.aps) == 4
    assert len(set(calibration.fit.lac)) == 4
    logs = np.log([0.4, 0.3, 0.2, 0.1])
    found = calibration.apply_one(logs, index=0).prediction_set
    p = np.exp(logs / calibration.fit.temperature)
    limits = np.array(calibration.fit.lac)
    assert set(found) == {0, *np.flatnonzero(1 - p / p.sum() <= limits + 1e-3).tolist()}


def test_classes_with_too_few_images_are_counted(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, samples=60)
    flags = ("--method", "zero-shot", "--class-conditional", "--coverage", 0.92, "--json")
    content = json.loads(dtpt("calibrate", folder, *flags).stdout)
    full = content["fit"]["lac"].count(1.0)
    assert 0 < full < 4
    assert any(note.startswith(f"{full} of 4 classes") for note in content["notes"])


def test_a_temperature_can_be_fixed(dtpt, run):
    flags = ("--method", "zero-shot", "--temperature", 1, "--json")
    assert json.loads(dtpt("calibrate", run, *flags).stdout)["fit"]["temperature"] == 1.0
    refused = dtpt("calibrate", run, "--method", "zero-shot", "--temperature", 0)
    assert refused.returncode == 2
    assert "temperature" in refused.stderr


def test_calibrate_loads_no_torch(run):
    import subprocess
    import sys

    code = f"""
import sys
from dtpt.cli.main import call
call(["calibrate", {str(run)!r}, "--method", "zero-shot"])
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True)


def test_check_splits_the_rows_into_fitted_and_held_out_halves(dtpt, run, tmp_path):
    figure = tmp_path / "valid.svg"
    flags = ("--method", "zero-shot,d-tpt@1e6", "--check", 30, "--error", 0.2)
    done = dtpt("calibrate", run, *flags, "--figure", figure, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["method"] for row in found["rows"]] == ["zero-shot", "d-tpt@1e6"]
    for row in found["rows"]:
        assert row["coverage"] == pytest.approx(0.9, abs=0.03)
        assert row["valid"] >= 0.9
        assert row["low_classes"] <= row["coverage"]
    assert figure.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--check", "0"], "--check"),
        (["--check", "100001"], "--check"),
        (["--check", "99999999999"], "--check"),
        (["--check", "5", "--figure", "valid.png"], "svg"),
        (["--check", "5", "--output", "p.json"], "--output"),
        (["--figure", "valid.svg"], "--check SPLITS"),
    ],
)
def test_flags_that_would_be_ignored_are_refused(dtpt, run, flags, reason):
    done = dtpt("calibrate", run, "--method", "zero-shot", *flags)
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_check_of_too_few_images_is_refused_in_one_line(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, samples=3)
    done = dtpt("calibrate", folder, "--method", "zero-shot", "--check", 5)
    assert done.returncode == 2
    assert "3 labelled images" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_check_names_sets_as_they_are(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, name="folder:my [red]images")
    done = dtpt("calibrate", folder, "--method", "zero-shot", "--check", 3)
    assert "folder:my [red]images" in done.stdout


def test_a_selected_lambda_is_part_of_the_setup(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, methods=[("d-tpt@auto=0.9", None)])
    with open_run(folder) as run:
        spec, (cell,) = run.spec, run.cells
    with Store(folder / "run.sqlite", spec) as store:
        store.write_lambdas({cell: SelectedLambda(272099.5, 32)})
    done = dtpt("calibrate", folder, "--method", "d-tpt@auto", "--json")
    setup = json.loads(done.stdout)["setup"]
    assert (setup["method"], setup["lambda"]) == ("d-tpt", 272099.5)


def test_the_fraction_of_views_is_selected_by_likelihood(dtpt, tmp_path):
    temperatures = {"tpt+views=0.1": 3.0, "tpt+views=0.3": 1.0, "tpt+views=0.8": 0.3}
    folder = write_probabilities(
        tmp_path, methods=[(name, None) for name in temperatures], overconfidence=temperatures
    )
    done = dtpt("calibrate", folder, "--method", "tpt+views=auto", "--json")
    calibration = json.loads(done.stdout)
    assert calibration["setup"]["method"] == "tpt+views=0.3"
    count = calibration["provenance"]["temperature_images"]
    assert calibration["provenance"]["selection"].startswith("tpt+views=0.3, of 3 ")
    assert f"{count} images" in calibration["provenance"]["selection"]


def test_a_run_without_fractions_of_views_has_none_to_select(dtpt, run):
    done = dtpt("calibrate", run, "--method", "tpt+views=auto")
    assert done.returncode == 2
    assert "no rows of tpt+views=auto" in done.stderr


def test_the_benchmark_of_guarantees_compares_procedures_on_drawn_clusters(tmp_path, capsys):
    from benchmarks.__main__ import main

    clusters = [f"thing {n // 4}" for n in range(400)]
    folder = write_probabilities(tmp_path, clusters=clusters)
    main(["guarantees", str(folder), "--clusters", "60", "--draws", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["population"], found["draws"]) == (400, 100, 4)
    names = [row["procedure"] for row in found["rows"]]
    assert names == ["by image", "by cluster", "one image", "betting"]
    by_image, by_cluster, one_image, betting = found["rows"]
    assert by_image["accepted"] >= by_cluster["accepted"]
    assert by_cluster["coverage"] == betting["coverage"]
    assert by_cluster["with_threshold"] == one_image["with_threshold"]
