"""`dtpt bench serve` on tiny settings: what it prints, never how fast it is."""

import json

import pytest

from dtpt.cli.bench import app
from dtpt.errors import BenchmarkError


def test_the_service_is_measured_against_the_library(capsys):
    words = "serve --views 2 --clients 1,2 --answers 2 --requests 5 --crowd 60 --json"
    app(words.split(), result_action="return_value")
    found = json.loads(capsys.readouterr().out)
    assert found["overhead"] == pytest.approx(
        found["service_seconds"] / found["library_seconds"] - 1
    )
    assert [group["clients"] for group in found["groups"]] == [1, 2]
    assert all(group["p50"] <= group["p95"] for group in found["groups"])
    assert found["cache_growth"] > 0  # every picture was a new one
    assert sum(found["crowd_statuses"].values()) == 60
    assert set(found["crowd_statuses"]) <= {"200", "503"}
    assert found["machine"]["processor"]


def test_wrong_numbers_and_models_are_one_line():
    with pytest.raises(BenchmarkError, match="--clients"):
        app(["serve", "--clients", "x"], result_action="return_value")
    with pytest.raises(BenchmarkError, match="pokcet"):
        app(["serve", "--model", "pokcet"], result_action="return_value")
