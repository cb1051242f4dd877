"""Memory is what a fresh process grew by while the work was done."""

import os

import pytest

from dtpt.bench.memory import grown_mb
from dtpt.errors import BenchmarkError

HERE = os.path.dirname(__file__)


@pytest.fixture
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", HERE)


def test_the_work_is_counted_and_its_preparation_is_not(importable):
    small = grown_mb("memory_hogs:hog", {"before": 0, "during": 60})
    prepared = grown_mb("memory_hogs:hog", {"before": 200, "during": 60})
    assert 50 < small < 90
    assert 50 < prepared < 90


def test_memory_that_was_given_back_before_does_not_hide_growth(importable):
    assert 50 < grown_mb("memory_hogs:hog", {"before": 0, "during": 60, "freed": 300}) < 90


def test_a_failure_in_the_other_process_is_one_line(importable):
    with pytest.raises(BenchmarkError, match="no such hog") as caught:
        grown_mb("memory_hogs:hog", {"before": -1, "during": 0})
    assert "\n" not in str(caught.value)
