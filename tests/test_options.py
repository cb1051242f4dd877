"""Option classes: lists, bounds, what was given; methods with their λ."""

import pytest

from dtpt.cli.eval import with_grids
from dtpt.errors import OptionError, UnknownName
from dtpt.options import EvalOptions, PredictOptions
from dtpt.runs.evaluation import expand_methods


def test_lists_are_split_and_repetitions_dropped():
    options = EvalOptions(dataset="dtd", method="tpt,d-tpt,tpt", seed=["0,1", "2"], lambda_="1e4,5")
    assert options.method == ("tpt", "d-tpt")
    assert options.seed == (0, 1, 2)
    assert options.lambda_ == (1e4, 5.0)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"dataset": "dtd", "views": 0}, "views"),
        ({"dataset": "dtd", "seed": "zero"}, "seed"),
        ({"dataset": "dtd", "max_failures": 2}, "max_failures"),
        ({"dataset": "dtd", "lambda": "many"}, "lambda"),
        ({"dataset": "dtd", "viewz": 8}, "viewz"),
        ({}, "dataset"),
    ],
)
def test_invalid_values_are_named(given, field):
    with pytest.raises(OptionError, match=field):
        EvalOptions.parse(given)


def test_every_option_has_a_description():
    for kind in (EvalOptions, PredictOptions):
        for name, field in kind.model_fields.items():
            assert field.description, name


def test_given_values_are_kept_apart_from_defaults():
    options = PredictOptions(views="8", lambda_=3)
    assert options.given() == {"views": 8, "lambda_": 3.0}
    assert options.tuning.steps == 1


def labels(names, lambdas=(), protocol="fine-grained"):
    return [(m.name, m.lambda_) for m in expand_methods(names, lambdas, protocol=protocol)]


def test_lambdas_apply_to_regularised_methods_without_their_own():
    found = labels(["zero-shot", "tpt+sals", "c-tpt", "d-tpt@7", "d-tpt-static"], [1.0, 2.0])
    assert found == [
        ("zero-shot", None),
        ("tpt+sals", None),
        ("c-tpt", 1.0),
        ("c-tpt", 2.0),
        ("d-tpt", 7.0),
        ("d-tpt-static", None),
    ]


def test_default_lambda_follows_the_family_and_repetitions_are_one():
    assert labels(["c-tpt", "c-tpt@50"]) == [("c-tpt", 50.0)]
    assert labels(["c-tpt"], protocol="natural-shifts") != labels(["c-tpt"])


def test_unknown_method_is_found_before_anything_is_loaded():
    with pytest.raises(UnknownName, match="d-tpt"):
        labels(["d-tppt"])


def test_sweep_gives_each_method_its_grid():
    options = EvalOptions(dataset="dtd", method="tpt,d-tpt,c-tpt@3,d-tpt:mean-kl")
    swept = with_grids(options).method
    assert swept[0] == "tpt"
    assert "c-tpt@3" in swept
    assert {"d-tpt@1e3", "d-tpt@1e5", "d-tpt@1e6"} <= set(swept)
    assert len([name for name in swept if name.startswith("d-tpt:mean-kl@")]) == 7
    explicit = options.model_copy(update={"lambda_": (1.0,)})
    assert with_grids(explicit) == explicit
