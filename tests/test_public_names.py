"""Every public name is described, and every public function shows how it is called."""

import inspect

import pytest

import dtpt

PUBLIC = {name: getattr(dtpt, name) for name in dtpt.__all__}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_an_example(name):
    assert ">>> " in inspect.getdoc(FUNCTIONS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_is_described_with_all_its_methods(name):
    assert CLASSES[name].__doc__
    for member, value in vars(CLASSES[name]).items():
        function = getattr(value, "__func__", value)  # not of properties
        if inspect.isfunction(function) and not member.startswith("_"):
            assert function.__doc__, f"{name}.{member}"


def test_functions_and_classes_are_checked():
    assert {"evaluate", "load_run", "compare", "load_model"} <= set(FUNCTIONS)
    assert {"Classifier", "Prediction", "Run"} <= set(CLASSES)
