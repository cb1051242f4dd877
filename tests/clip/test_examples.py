"""The examples in the docstrings of the model run."""

import doctest
import importlib
import pkgutil

import pytest

import dtpt.clip

NAMES = [module.name for module in pkgutil.walk_packages(dtpt.clip.__path__, "dtpt.clip.")]


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_the_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found():
    finder = doctest.DocTestFinder()
    tests = [test for name in NAMES for test in finder.find(importlib.import_module(name))]
    assert sum(len(test.examples) > 0 for test in tests) > 15
