"""The examples in the docstrings of the benchmarks run."""

import doctest
import importlib
import pkgutil

import pytest

import dtpt.bench

NAMES = [module.name for module in pkgutil.walk_packages(dtpt.bench.__path__, "dtpt.bench.")]


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_the_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
