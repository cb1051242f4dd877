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


def test_whole_installation_passes(capsys, patient):
    assert exit_code(as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["self_test"]["status"] == "passed"
    assert found["self_test"]["answers"] == 8
    assert found["self_test"]["largest_difference"] < 1e-5
    assert found["packages"]["torch"]
    assert found["system"]["cores"] > 0
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


def test_wrong_answer_fails_the_test(capsys, monkeypatch, patient):
    monkeypatch.setattr(command, "DRAWINGS", {"1F42B": "pizza"})
    assert exit_code() == 2
    assert "'camel' for the drawing of a pizza" in capsys.readouterr().out


def test_engine_that_disagrees_with_algorithm_1_fails_the_test(monkeypatch, patient):
    import torch

    from dtpt.methods import algorithm_1

    monkeypatch.setattr(algorithm_1, "algorithm_1", lambda *_, **__: torch.full((8,), 0.125))
    found = command.self_test()
    assert found["status"] == "failed"
    assert "Algorithm 1" in found["problems"][0]


def test_without_drawings_only_the_engine_is_tested(capsys, monkeypatch, patient):
    def missing():
        raise DatasetError("The emoji benchmark needs the package resvg-py.")

    monkeypatch.setattr("dtpt.data.openmoji.require_packages", missing)
    assert exit_code() == 1
    out = capsys.readouterr().out
    assert "status partial" in out
    assert "warning: No drawing was classified" in out


def test_no_further_picture_is_begun_when_time_is_up():
    found = command.self_test(most_seconds=0)
    assert (found["status"], found["answers"]) == ("partial", 0)
    assert len(found["problems"]) == 1


def test_cache_that_cannot_be_written_is_a_warning(capsys, monkeypatch, tmp_path, quick):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path / "file"))
    assert exit_code() == 1
    out = capsys.readouterr().out
    assert f"warning: {tmp_path / 'file' / 'features'} is not writable" in out


def test_broken_torch_is_reported_beside_all_other_facts(capsys, monkeypatch):
    def broken():
        raise ImportError("libtorch.so:\n cannot open")

    monkeypatch.setattr(command, "describe_computing", broken)
    assert exit_code() == 2
    out = capsys.readouterr().out
    assert "ImportError: libtorch.so: cannot open" in out
    assert "self_test    not run" in out
    assert "packages" in out


def test_crash_of_the_self_test_and_missing_packages_are_errors(capsys, monkeypatch):
    def crash():
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(command, "self_test", crash)
    monkeypatch.setattr(
        command, "package_versions", lambda: ({"rich": ""}, {"parquet": {"pyarrow": ""}})
    )
    assert exit_code() == 2
    out = capsys.readouterr().out
    assert "ZeroDivisionError: a bug" in out
    assert "error: The package rich is missing." in out
    assert "pyarrow missing" in out


def test_description_alone_runs_nothing(capsys, monkeypatch):
    monkeypatch.setattr(command, "self_test", None)  # calling it would fail
    assert exit_code(no_self_test=True) == 0
    assert "self_test    not run" in capsys.readouterr().out
