"""Options: command line over environment over file over default; methods with their λ."""

from pathlib import Path

import pytest

from dtpt.cli.sweep import with_grids
from dtpt.errors import MethodError, OptionError, UnknownName
from dtpt.runs import EvalOptions
from dtpt.runs.setup import expand_methods


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'dataset = "dtd"\nviews = 8\nseed = [0, 1]\nlambda = 3\n[eval]\nlimit = 7\nrho = 0.3\n'
        "[sweep]\nlimit = 9\n"
    )
    return path


def test_each_source_wins_over_the_next(config):
    environment = {"DTPT_VIEWS": "16", "DTPT_SEED": "4,5", "DTPT_DATA": "/data"}
    options = EvalOptions.layered({"views": 32}, config=config, environment=environment)
    assert options.views == 32  # command line over environment and file
    assert options.seed == (4, 5)  # environment over file
    assert options.lambda_ == (3.0,)  # file
    assert options.limit == 7
    assert options.rho == 0.3
    assert options.data_root == Path("/data")
    assert options.steps == 1  # default


def test_each_command_reads_its_own_table(config):
    options = EvalOptions.layered({}, config=config, environment={}, table="sweep")
    assert options.limit == 9
    assert options.rho == 0.1


def test_default_of_a_command_loses_against_the_file(config):
    defaults = {"views": 2, "workers": 3}
    options = EvalOptions.layered({}, config=config, environment={}, defaults=defaults)
    assert (options.views, options.workers) == (8, 3)


def test_lists_are_split_and_repetitions_dropped():
    options = EvalOptions(dataset="dtd", method="tpt,d-tpt,tpt", seed=["0,1", "2"], lambda_="1e4,5")
    assert options.method == ("tpt", "d-tpt")
    assert options.seed == (0, 1, 2)
    assert options.lambda_ == (1e4, 5.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "dtd", "views": 0}, "--views"),
        ({"dataset": "dtd", "seed": "zero"}, "--seed"),
        ({"dataset": "dtd", "max_failures": 2}, "--max-failures"),
        ({"dataset": "dtd", "lambda": "many"}, "--lambda"),
        ({}, "--dataset is not given"),
    ],
)
def test_values_that_make_no_sense_are_named(given, message):
    with pytest.raises(OptionError, match=message):
        EvalOptions.layered(given, environment={})


def test_unknown_option_and_bad_file_are_named(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("viewz = 8")
    with pytest.raises(OptionError, match=r"run\.toml: unknown option 'viewz'"):
        EvalOptions.layered({"dataset": "dtd"}, config=path, environment={})
    path.write_text("views = ")
    with pytest.raises(OptionError, match="not TOML"):
        EvalOptions.layered({"dataset": "dtd"}, config=path, environment={})
    with pytest.raises(OptionError, match="Cannot read"):
        EvalOptions.layered({"dataset": "dtd"}, config=tmp_path / "none", environment={})


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
    with pytest.raises(MethodError, match="lambda"):
        labels(["c-tpt"], [-1.0])


def test_sweep_gives_each_method_its_grid():
    options = EvalOptions(dataset="dtd", method="tpt,d-tpt,c-tpt@3,d-tpt:mean-kl")
    swept = with_grids(options).method
    assert swept[0] == "tpt"
    assert "c-tpt@3" in swept
    assert {"d-tpt@1000", "d-tpt@100000", "d-tpt@1e+06"} <= set(swept)
    assert len([name for name in swept if name.startswith("d-tpt:mean-kl@")]) == 7
    explicit = options.model_copy(update={"lambda_": (1.0,)})
    assert with_grids(explicit) == explicit
