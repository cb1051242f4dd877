"""The examples in the docstrings of the data package run."""

import doctest
import importlib
import pkgutil

import pytest

import dtpt.data

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = [f"dtpt.data.{module.name}" for module in pkgutil.iter_modules(dtpt.data.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=OPTIONS).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(name) for name in MODULES]
    assert sum(bool(t.examples) for m in modules for t in finder.find(m)) > 15
