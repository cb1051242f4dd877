"""The examples in the docstrings of the views run."""

import doctest
import importlib
import pkgutil

import pytest

import dtpt.views

NAMES = [module.name for module in pkgutil.walk_packages(dtpt.views.__path__, "dtpt.views.")]


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_the_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
