"""Every example in a docstring runs."""

import doctest
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import dtpt

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = ["dtpt", *(found.name for found in pkgutil.walk_packages(dtpt.__path__, "dtpt."))]
SCRIPTS = ["pages", "dataset_trees", "made_parts"]  # of docs/
WITH_EXAMPLES = [
    name
    for name in MODULES
    if ">>>" in Path(importlib.util.find_spec(name).origin).read_text("utf-8")
]


@pytest.mark.parametrize("name", [*WITH_EXAMPLES, *SCRIPTS])
def test_the_examples_of_a_module_hold(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.failed == 0


def test_examples_are_found_in_every_part():
    parts = {name.split(".")[1] for name in WITH_EXAMPLES if "." in name}
    assert {"methods", "metrics", "clip", "data", "runs", "tuning", "prediction", "web"} <= parts
