"""The examples in the docstrings run, and every public function has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

from dtpt import metrics

MODULES = [f"dtpt.metrics.{found.name}" for found in pkgutil.iter_modules(metrics.__path__)]


@pytest.mark.parametrize("name", [*MODULES, "dtpt.report.figures.reliability"])
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
