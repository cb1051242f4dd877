"""`dtpt calibrate`: from a run to a calibration file, or one line with the reason."""

import json

import numpy as np
import pytest
from probability_runs import write_probabilities

from dtpt.calibration import read_calibration
from dtpt.calibration.conformal import LOG_FLOOR, as_stored
from dtpt.runs import open_run
from dtpt.runs.rows import pack, unpack
from dtpt.runs.store import SelectedLambda, Store


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_probabilities(tmp_path_factory.mktemp("run"))


def test_scores_have_the_digits_that_runs_store():
    log_p = np.log(np.random.default_rng(0).dirichlet(np.full(100, 0.1), size=20))
    stored = np.stack([unpack(pack(row)) for row in log_p])
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
        (["--method", "d-tpt"], "--method: d-tpt@100000, d-tpt@1000000"),
        (["--method", "zero-shot", "--dataset", "pets"], "zero-shot on pets"),
        (["--method", "zero-shot", "--seed", "3"], "seeds 0"),
        (["--method", "zero-shot", "--coverage", "0.999"], "999"),
        (["--method", "zero-shot", "--error", "5"], "error: must be less than 1, got 5.0"),
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
    assert [row["method"] for row in found["rows"]] == ["zero-shot", "d-tpt@1000000"]
    for row in found["rows"]:
        assert row["coverage"] == pytest.approx(0.9, abs=0.03)
        assert row["valid"] >= 0.9
    assert figure.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--check", "0"], "--check"),
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
