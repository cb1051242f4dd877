"""The examples in the docstrings of the service run."""

import doctest
import importlib
import pkgutil

import pytest

import dtpt.web

MODULES = [module.name for module in pkgutil.iter_modules(dtpt.web.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name):
    module = importlib.import_module(f"dtpt.web.{name}")
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    assert doctest.testmod(module, optionflags=flags).failed == 0
