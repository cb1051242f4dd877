"""`dtpt.evaluate`, `dtpt.load_run` and `dtpt.compare`: what the commands do, from Python."""

import inspect
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import draw_images, tiny_clip

import dtpt
from dtpt.errors import DtptError, OptionError, ReportError, RunError
from dtpt.options import EvalOptions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    draw_images(folder, per_class=3)
    return dtpt.evaluate(
        dtpt.load_dataset(f"folder:{folder}"),
        model=tiny_clip(),
        method="zero-shot,mean-views",
        views=4,
        view_workers=0,
        output=tmp_path_factory.mktemp("run"),
        quiet=True,
    )


def test_arguments_are_the_options_with_their_defaults():
    given = inspect.signature(dtpt.evaluate).parameters
    assert set(given) == set(EvalOptions.model_fields)
    defaults = {name: one.default for name, one in given.items() if name != "dataset"}
    assert {**defaults, "output": Path(defaults["output"])} == {
        name: field.default for name, field in EvalOptions.model_fields.items() if name != "dataset"
    }


def test_rows_are_plain_dictionaries(run):
    records = run.records()
    assert len(records) == 18
    assert json.loads(json.dumps(records)) == records
    rows = run.rows()
    assert [row["confidence"] for row in records] == rows.confidence.tolist()
    assert {row["method"] for row in records} == {"zero-shot", "mean-views"}
    assert np.mean([row["correct"] for row in records]) == rows.correct.mean()


def test_a_run_is_opened_again_by_its_folder(run):
    for path in (run.path, run.path.parent, str(run.path.parent)):
        with dtpt.load_run(path) as again:
            assert again.records() == run.records()


def test_pandas_gets_the_records(run, monkeypatch):
    table = types.SimpleNamespace(DataFrame=lambda records: ("table", records))
    monkeypatch.setitem(sys.modules, "pandas", table)
    assert run.to_pandas() == ("table", run.records())


def test_without_pandas_the_way_around_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RunError, match=r"Run\.records"):
        run.to_pandas()


def test_methods_are_compared_from_python(run):
    rows = dtpt.compare(run, against=["zero-shot"], resamples=100).rows
    assert rows == dtpt.compare(run.path.parent, against=["zero-shot"], resamples=100).rows
    assert {(row["first"], row["second"]) for row in rows} == {("mean-views", "zero-shot")}
    accuracy = next(row for row in rows if row["metric"] == "accuracy")
    correct = {m: run.rows(method=m).correct.mean() for m in ("zero-shot", "mean-views")}
    assert accuracy["estimate"] == pytest.approx(correct["mean-views"] - correct["zero-shot"])
    assert accuracy["low"] <= accuracy["estimate"] <= accuracy["high"]
    assert json.loads(json.dumps(rows)) == rows
    with pytest.raises(ReportError, match="nothing-like-it"):
        dtpt.compare(run, against=["nothing-like-it"], resamples=100)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dataset", 5),
        ("dataset", ()),
        ("dataset", None),
        ("model", 5),
        ("method", ()),
        ("views", 0),
        ("views", "many"),
        ("seed", -1),
        ("lambda_", "x"),
        ("rho", 2),
        ("keep", "some"),
        ("limit", 0),
        ("output", None),
    ],
)
def test_values_that_make_no_sense_are_named(name, value, tmp_path):
    arguments = {"dataset": "dtd", "output": tmp_path, name: value}
    with pytest.raises(OptionError, match=name):
        dtpt.evaluate(arguments.pop("dataset"), **arguments)


@pytest.mark.parametrize("wrong", [None, 5, b"x", "\0", [], "nowhere"])
def test_paths_that_are_none_are_refused(wrong):
    with pytest.raises(DtptError):
        dtpt.load_run(wrong)
    with pytest.raises(DtptError):
        dtpt.compare(wrong)
    with pytest.raises(DtptError):
        dtpt.compare(against=wrong)
