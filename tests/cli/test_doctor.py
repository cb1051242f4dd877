"""`dtpt doctor`: facts without secrets, a self-test that can fail, exit codes."""

import json

import pytest

from dtpt.cli import doctor as command
from dtpt.cli.doctor import doctor
from dtpt.errors import DatasetError

PASSED = {"status": "passed", "answers": 8, "problems": []}


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DTPT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def quick(monkeypatch):
    """The facts are looked at, and the self-test passes at once."""
    monkeypatch.setattr(command, "self_test", lambda: PASSED)


@pytest.fixture
def patient(monkeypatch):
    """The self-test runs to its end, however busy this machine is."""
    run = command.self_test
    monkeypatch.setattr(command, "self_test", lambda: run(600))


def exit_code(**options):
    try:
        doctor(**options)
    except SystemExit as stop:
        return stop.code
    return 0


@pytest.fixture
def report(capsys):
    """Return the exit code and the facts of the command."""

    def run(**options):
        code = exit_code(as_json=True, **options)
        return code, json.loads(capsys.readouterr().out)

    return run


def test_whole_installation_passes(report, patient):
    code, found = report()
    assert code == 0
    assert found["self_test"]["status"] == "passed"
    assert found["self_test"]["answers"] == 8
    assert found["self_test"]["largest_difference"] < 1e-5
    assert found["packages"]["torch"]
    assert found["cores"] > 0
    assert "cpu" in found["computing"]["devices"]


def test_text_fits_80_columns_and_ends_with_the_verdict(capsys, quick):
    assert exit_code() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "No problems found."
    paths = [line for line in lines if "/" in line and " " not in line.strip()]
    assert all(len(line) <= 80 for line in lines if line not in paths)
    assert {line.split()[0] for line in lines} >= {"dtpt", "system", "packages", "cache"}


@pytest.mark.parametrize("as_json", [False, True])
def test_values_of_variables_are_never_shown(capsys, monkeypatch, quick, as_json):
    for name in ("DTPT_TOKEN", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "sesame-open")
    doctor(as_json=as_json)
    shown = capsys.readouterr().out
    assert "sesame-open" not in shown
    assert "DTPT_TOKEN" in shown
    assert "AWS_SECRET_ACCESS_KEY" not in shown


def test_wrong_prediction_fails_the_test(report, monkeypatch, patient):
    monkeypatch.setattr(command, "DRAWINGS", {"1F42B": "pizza"})
    code, found = report()
    assert (code, found["self_test"]["status"], len(found["errors"])) == (2, "failed", 2)
    assert "camel" in found["errors"][0]


def test_engine_that_disagrees_with_algorithm_1_fails_the_test(monkeypatch, patient):
    import torch

    from dtpt.methods import algorithm_1

    monkeypatch.setattr(algorithm_1, "algorithm_1", lambda *_, **__: torch.full((8,), 0.125))
    found = command.self_test()
    assert found["status"] == "failed"
    assert "Algorithm 1" in found["problems"][0]


def test_without_drawings_only_the_engine_is_tested(report, monkeypatch, patient):
    def missing():
        raise DatasetError("The emoji benchmark needs the package resvg-py.")

    monkeypatch.setattr("dtpt.data.openmoji.require_packages", missing)
    code, found = report()
    assert (code, found["self_test"]["status"], found["self_test"]["answers"]) == (1, "partial", 2)
    assert "resvg-py" in found["warnings"][0]


def test_no_further_image_is_begun_when_time_is_up():
    found = command.self_test(most_seconds=0)
    assert (found["status"], found["answers"]) == ("partial", 0)
    assert len(found["problems"]) == 1


def test_cache_that_cannot_be_written_is_a_warning(report, monkeypatch, tmp_path, quick):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path / "file"))
    code, found = report()
    assert (code, found["cache"]["writable"]) == (1, False)
    assert str(tmp_path / "file") in found["warnings"][0]


def test_broken_torch_is_reported_beside_all_other_facts(report, monkeypatch):
    def broken():
        raise ImportError("libtorch.so:\n cannot open")

    monkeypatch.setattr(command, "describe_computing", broken)
    code, found = report()
    assert (code, found["computing"], found["self_test"]) == (2, None, "not run")
    assert "libtorch.so: cannot open" in found["errors"][0]
    assert found["packages"]


def test_crash_of_the_self_test_and_missing_packages_are_errors(report, monkeypatch):
    def crash():
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(command, "self_test", crash)
    monkeypatch.setattr(
        command, "package_versions", lambda: ({"rich": ""}, {"parquet": {"pyarrow": ""}})
    )
    code, found = report()
    assert (code, len(found["errors"])) == (2, 2)
    assert "rich" in found["errors"][0]
    assert "ZeroDivisionError" in found["errors"][1]
    assert found["extras"] == {"parquet": {"pyarrow": ""}}


def test_description_alone_runs_nothing(report, monkeypatch):
    monkeypatch.setattr(command, "self_test", None)  # calling it would fail
    code, found = report(no_self_test=True)
    assert (code, found["self_test"]) == (0, "not run")
