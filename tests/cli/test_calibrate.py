"""`dtpt calibrate`: from a run to a promise, or one line that says why not."""

import json

import numpy as np
import pytest
from promised_runs import write_probabilities

from dtpt.calibration import read_promise
from dtpt.calibration.scores import LOG_FLOOR, as_stored
from dtpt.runs import open_run
from dtpt.runs.probabilities import pack, unpack
from dtpt.runs.queries import Weight
from dtpt.runs.store import Store


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_probabilities(tmp_path_factory.mktemp("run"))


def test_scores_have_the_digits_that_runs_store():
    log_p = np.log(np.random.default_rng(0).dirichlet(np.full(100, 0.1), size=20))
    stored = np.stack([unpack(pack(row)) for row in log_p])
    np.testing.assert_array_equal(as_stored(stored), as_stored(log_p))
    assert as_stored(log_p).min() >= np.float16(LOG_FLOOR)


def test_a_promise_is_written_and_told(dtpt, run, tmp_path):
    output = tmp_path / "promise.json"
    done = dtpt("calibrate", run, "--method", "d-tpt@1e6", "--error", 0.2, "--output", output)
    assert done.returncode == 0, done.stderr
    assert "400 labelled pictures" in done.stdout
    assert "at least 90 % of new pictures" in done.stdout
    assert "at most 20 % of the answers given" in done.stdout
    assert "Otherwise: On pictures of another kind" in done.stdout
    promise = read_promise(output)
    assert (promise.subject.method, promise.subject.lambda_) == ("d-tpt", 1e6)
    assert promise.subject.classes == ("cat", "dog", "bird", "sea lion")
    assert promise.subject.views["count"] == 64
    assert promise.basis.pictures == 400
    assert promise.fit.temperature == pytest.approx(1.0, abs=0.3)


def test_json_is_the_file(dtpt, run, tmp_path):
    output = tmp_path / "promise.json"
    done = dtpt("calibrate", run, "--method", "zero-shot", "--output", output, "--json")
    assert json.loads(done.stdout) == json.loads(output.read_text())


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--method", "tpt"], "has no rows of tpt"),
        (["--method", "d-tpt@much"], "'much' in 'd-tpt@much' is not a number"),
        (["--method", "d-tpt"], "choose one with --method: d-tpt@100000, d-tpt@1000000"),
        (["--method", "zero-shot", "--dataset", "pets"], "has no rows of zero-shot on pets"),
        (["--method", "zero-shot", "--seed", "3"], "with seeds 0"),
        (["--method", "zero-shot", "--coverage", "0.999"], "needs at least 999"),
        (["--method", "zero-shot", "--error", "5"], "error: "),
        (["--method", "zero-shot", "--output", "absent/p.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_promised_is_told_in_one_line(dtpt, run, flags, reason):
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
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


def test_check_judges_rows_that_promises_were_not_fitted_on(dtpt, run, tmp_path):
    figure = tmp_path / "kept.svg"
    flags = ("--method", "zero-shot,d-tpt@1e6", "--check", 30, "--error", 0.2)
    done = dtpt("calibrate", run, *flags, "--figure", figure, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["method"] for row in found["rows"]] == ["zero-shot", "d-tpt@1000000"]
    for row in found["rows"]:
        assert row["coverage"] == pytest.approx(0.9, abs=0.03)
        assert row["kept"] >= 0.9
    assert figure.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--check", "0"], "--check is 0; expected a number of splits"),
        (["--check", "5", "--figure", "kept.png"], "expected a name that ends in .svg"),
        (["--check", "5", "--output", "p.json"], "--check makes no promise to write"),
        (["--figure", "kept.svg"], "give --check SPLITS as well"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused(dtpt, run, flags, reason):
    done = dtpt("calibrate", run, "--method", "zero-shot", *flags)
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_check_of_hardly_any_pictures_is_refused_in_one_line(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, samples=3)
    done = dtpt("calibrate", folder, "--method", "zero-shot", "--check", 5)
    assert done.returncode == 2
    assert done.stderr == (
        "dtpt: 3 labelled pictures are too few to fit on one half and judge the other.\n"
    )


def test_a_check_names_sets_as_they_are(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, name="folder:my [red]pictures")
    done = dtpt("calibrate", folder, "--method", "zero-shot", "--check", 3)
    assert "folder:my [red]pictures" in done.stdout


def test_a_weight_that_was_found_is_part_of_the_promise(dtpt, tmp_path):
    folder = write_probabilities(tmp_path, methods=[("d-tpt@auto=0.9", None)])
    with open_run(folder) as run:
        spec, (cell,) = run.spec, run.cells
    with Store(folder / "run.sqlite", spec) as store:
        store.write_weights({cell: Weight(272099.5, 32)})
    done = dtpt("calibrate", folder, "--method", "d-tpt@auto", "--json")
    subject = json.loads(done.stdout)["subject"]
    assert (subject["method"], subject["lambda"]) == ("d-tpt", 272099.5)


def test_the_share_of_views_is_chosen_by_likelihood_on_the_part_for_the_temperature(dtpt, tmp_path):
    shares = {"tpt+views=0.1": 3.0, "tpt+views=0.3": 1.0, "tpt+views=0.8": 0.3}
    folder = write_probabilities(
        tmp_path, methods=[(name, None) for name in shares], overconfidence=shares
    )
    done = dtpt("calibrate", folder, "--method", "tpt+views=auto", "--json")
    promise = json.loads(done.stdout)
    assert promise["subject"]["method"] == "tpt+views=0.3"
    count = promise["basis"]["temperature_pictures"]
    assert promise["basis"]["choice"].startswith("tpt+views=0.3, of 3 shares")
    assert f"on the {count} pictures" in promise["basis"]["choice"]


def test_a_run_without_shares_has_none_to_choose(dtpt, run):
    done = dtpt("calibrate", run, "--method", "tpt+views=auto")
    assert done.returncode == 2
    assert "has no rows of tpt+views=auto: run `dtpt eval` with it" in done.stderr
