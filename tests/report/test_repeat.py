"""The commands that a report prints give the runs they came from."""

import shlex
from pathlib import Path

import pytest
from handmade import FIVE, SHIFTED, TUNING, dataset, write_run

from dtpt.commands import method_words
from dtpt.methods import resolve_method
from dtpt.report import Variant, load_runs
from dtpt.report.compose import report_command
from dtpt.report.facts import Resampling
from dtpt.runs.spec import MethodSpec


def spec_of(tmp_path, sets, **named):
    with load_runs([write_run(tmp_path, sets, lambda cell, i: (True, 0.5), **named)]) as loaded:
        return loaded.sources[0]


def asked(words, protocol):
    """What `dtpt eval --method` makes of words on a set of a protocol."""
    found = (resolve_method(word, protocol=protocol) for word in words)
    return tuple(dict.fromkeys(MethodSpec(name=m.name, lambda_=m.lambda_) for m in found))


BOTH = (("d-tpt", 1e5), ("d-tpt", 1e6), ("d-tpt@auto=0.9", None))
CASES = {
    "defaults that differ between families": (FIVE, SHIFTED),
    "and a λ beside the default": ((*FIVE, ("d-tpt", 1e6)), (*SHIFTED, ("d-tpt", 1e6))),
    "several λ and a rule": ((FIVE[2], *BOTH), (SHIFTED[2], *BOTH)),
    "the default of one family written out": (
        (("c-tpt", 50.0),),
        (("c-tpt", 20.0), ("c-tpt", 50.0)),
    ),
    "the same everywhere": (FIVE, FIVE),
}


@pytest.mark.parametrize("name", CASES)
def test_methods_of_the_command_are_those_of_the_run(tmp_path, name) -> None:
    fine, shifted = CASES[name]
    sets = [dataset(methods=fine), dataset("sketches", family="natural-shifts", methods=shifted)]
    spec = spec_of(tmp_path, sets).spec
    words = method_words(spec)
    for entry, protocol in zip(spec.datasets, ("fine-grained", "natural-shifts"), strict=True):
        assert asked(words, protocol) == entry.methods


def test_a_lambda_that_was_given_is_in_the_command(tmp_path) -> None:
    sets = [
        dataset(methods=(*FIVE, ("d-tpt", 1e6))),
        dataset("sketches", family="natural-shifts", methods=(*SHIFTED, ("d-tpt", 1e6))),
    ]
    assert "c-tpt,o-tpt,d-tpt@1e5,d-tpt@1e6 " in spec_of(tmp_path, sets).command


def test_settings_limits_parts_and_places_are_in_the_command(tmp_path) -> None:
    source = spec_of(
        tmp_path,
        [dataset(whole=100).model_copy(update={"cluster_level": 2})],
        tuning={**TUNING, "weight_decay": 0.5, "entropy": "mean-of"},
        template="art of a {}.",
        session={"data_root": "/my data", "environment": {}},
    )
    words = shlex.split(source.command)
    for flag, value in (
        ("--weight-decay", "0.5"),
        ("--entropy", "mean-of"),
        ("--template", "art of a {}."),
        ("--data-root", "/my data"),
        ("--output", str(tmp_path)),
        ("--cluster-level", "2"),
    ):
        assert words[words.index(flag) + 1] == value
    assert "--partial" in words
    assert "--limit" not in words
    assert "--steps" not in words  # as by default


def test_one_row_can_be_computed_by_itself(five_methods) -> None:
    (condition,) = five_methods.conditions
    text = condition.row_command(["pets", "cars"], Variant("d-tpt", 1e5))
    assert "--dataset pets,cars --method d-tpt@1e5 --seed 0,1" in text


def test_precision_and_batch_are_in_the_commands(tmp_path) -> None:
    run = write_run(
        tmp_path, [dataset()], lambda cell, i: (True, 0.5), precision="bfloat16", batch=4
    )
    with load_runs([run]) as loaded:
        (condition,) = loaded.conditions
        commands = (
            loaded.sources[0].command,
            condition.row_command(["pets"], Variant("tpt")),
        )
    for command in commands:
        assert "--precision bfloat16 --batch 4" in command


def test_a_part_is_taken_where_any_set_lacks_images(tmp_path) -> None:
    source = spec_of(tmp_path, [dataset(), dataset("cars", whole=100)])
    assert "--partial" in source.command


@pytest.mark.parametrize("typed", [True, False])
def test_a_part_is_taken_under_a_limit_where_that_was_typed(tmp_path, typed) -> None:
    command = ["dtpt", "eval", *(["--partial"] if typed else [])]
    session = {"command": command, "environment": {}}
    source = spec_of(tmp_path, [dataset(whole=100, limit=4)], session=session)
    assert ("--partial" in source.command) is typed
    assert "--limit 4" in source.command


@pytest.mark.parametrize(("failed", "allowed"), [(0, None), (1, None), (2, 0.21), (9, 0.91)])
def test_as_many_failures_as_there_were_are_let_pass(tmp_path, failed, allowed) -> None:
    source = spec_of(
        tmp_path,
        [dataset(samples=10)],
        done=lambda cell, index: "failed" if index < failed else "ok",
    )
    words = shlex.split(source.command)
    found = float(words[words.index("--max-failures") + 1]) if "--max-failures" in words else None
    assert found == allowed


def test_the_report_is_made_again_with_its_own_options(five_methods) -> None:
    (source,) = five_methods.sources
    unset = {"analysis": None, "intervals": False, "data_root": None}
    plain = report_command(five_methods, Path("out"), resampling=Resampling(), options=unset)
    assert plain == f"dtpt report {source.folder} --output out"
    own = report_command(
        five_methods,
        Path("out"),
        resampling=Resampling(resamples=50, level=0.9),
        options={"analysis": "FILE", "intervals": True, "data_root": Path("/my data")},
    )
    words = shlex.split(own.removeprefix(plain))
    assert words == [
        *("--analysis", "FILE", "--intervals", "--data-root", "/my data"),
        *("--level", "0.9", "--resamples", "50"),
    ]
