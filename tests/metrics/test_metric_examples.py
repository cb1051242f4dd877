"""The examples in the docstrings run, and every public function has one."""

import doctest
import importlib
import inspect

import pytest

from dtpt import metrics

MODULES = [
    *(
        f"dtpt.metrics.{name}"
        for name in (
            "binning",
            "bootstrap",
            "calibration",
            "reading",
            "report",
            "scores",
            "validation",
        )
    ),
    "dtpt.metrics.selective",
    "dtpt.report.figures.reliability",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_docstrings_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_function_has_an_example() -> None:
    functions = [getattr(metrics, name) for name in metrics.__all__]
    missing = [
        function.__name__
        for function in functions
        if inspect.isfunction(function) and ">>>" not in (function.__doc__ or "")
    ]
    assert missing == []
