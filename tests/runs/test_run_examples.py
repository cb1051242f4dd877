"""The examples in the docstrings of runs and of the command line's frame hold."""

import doctest
import importlib
import pkgutil

import pytest

import dtpt.cli
import dtpt.runs

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (dtpt.runs, dtpt.cli)
    for module in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    failed, _ = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert failed == 0
