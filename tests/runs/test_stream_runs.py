"""Methods that carry state from image to image: orders, parts of streams, taking them up again."""

import json
import random

import numpy as np
import pytest
from tiny_runs import exported, named_options

from dtpt.errors import CalibrationError, MethodError, OptionError, RunError
from dtpt.methods import METHODS, Method
from dtpt.runs import EvalOptions, open_run, run_options, score_methods
from dtpt.runs.calibrate import one_cell
from dtpt.runs.progress import Silent
from dtpt.runs.store import Store


def start(text, *, logit_scale):
    return text.new_zeros(len(text))  # (C,) sum of the logits so far


def add(state, views, *, text, logit_scale):
    logits = logit_scale * text @ views[0]  # (C,)
    return logits + state, state + logits


@pytest.fixture
def run_stream(run_tiny, monkeypatch):
    method = Method("sum", "", parameter="nothing", initial=start, step=add)
    monkeypatch.setitem(METHODS, "sum", method)
    return lambda **changes: run_tiny(**{"method": ("zero-shot", "sum"), **changes})


def test_later_rows_depend_on_earlier_images(run_stream, images, tmp_path):
    run = run_stream(order="given")
    assert run.is_complete
    assert (run.spec.order.kind, run.spec.order.methods) == ("given", ("sum",))
    first = images.samples[0].id
    rows, zero_shot = run.rows(method="sum"), run.rows(method="zero-shot")
    equal = np.isclose(rows.confidence, zero_shot.confidence, atol=1e-6)
    assert equal[rows.sample == first].all()
    assert not equal.all()
    again = run_stream(output=tmp_path / "again", cache=False, order="given")
    assert exported(again) == exported(run)
    ids = [sample.id for sample in images.samples]
    assert dict(zip(rows.sample, rows.position, strict=True)) == {n: k for k, n in enumerate(ids)}
    assert set(zero_shot.position) == {-1}


def test_incomplete_pass_is_repeated_whole(run_stream, images, tmp_path):
    whole = exported(run_stream(output=tmp_path / "whole"))
    broken = images.samples[5].image.path
    original = broken.read_bytes()
    broken.write_text("no image")
    with run_stream(max_failures=0.5) as run:
        assert set(run.counts().values()) == {(29, 1)}
    broken.write_bytes(original)
    with run_stream() as run:  # the rows after the repaired image were of another pass
        assert exported(run) == whole


def test_failed_write_keeps_the_rows_of_the_pass_before(run_stream, images, tmp_path, monkeypatch):
    images.samples[5].image.path.write_text("no image")
    with run_stream(max_failures=0.5) as run:
        before = run.rows(method="sum").confidence
    monkeypatch.setattr(Store, "write", lambda *_, **__: pytest.fail("stop"))
    with pytest.raises(pytest.fail.Exception):
        run_stream(max_failures=0.5)
    with open_run(tmp_path / "run") as run:
        np.testing.assert_array_equal(run.rows(method="sum").confidence, before)


def test_shards_and_calibration_are_refused(run_stream):
    with pytest.raises(RunError, match="shards"):
        run_stream(shard="1/2")
    with run_stream() as run, pytest.raises(CalibrationError, match="sum"):
        one_cell(run, "sum")


# ---- orders


def test_every_order_is_a_stream_of_its_own(run_stream, images):
    with run_stream(order="by-class", order_seeds=(3, 5), seed=(0, 1)) as run:
        assert [str(cell.repeat) for cell in run.select(method="sum")] == [
            *("0 order 3", "0 order 5", "1 order 3", "1 order 5")
        ]
        assert [str(cell.repeat) for cell in run.select(method="zero-shot")] == ["0", "1"]
        labels = {}
        for order in (3, 5):
            rows = run.rows(method="sum", seed=0, order=order)
            assert sorted(rows.position) == list(range(len(images)))
            labels[order] = rows.label[np.argsort(rows.position)].tolist()
            assert len(set(zip(labels[order], labels[order][1:], strict=False))) == 3 + 2
        (result,) = (r for r in score_methods(run) if r.label == "sum")
        assert len(result.seeds) == 4
        assert {r["order"] for r in run.records()} == {None, 3, 5}
    assert labels[3] != labels[5]


def test_the_order_belongs_to_the_run(run_stream):
    run_stream(order_seeds=(0, 1)).close()
    for other in ({"order": "by-class"}, {"order_seeds": (0, 2)}):
        with pytest.raises(RunError, match="order"):
            run_stream(**{"order_seeds": (0, 1), **other})
    run_stream(method=("zero-shot",), order="by-class", fresh=True).close()
    with run_stream(method=("zero-shot",), order="given") as run:  # nothing depends on it
        assert run.spec.order is None


@pytest.mark.parametrize("order", ["sorted", "dirichlet", "dirichlet=-1", "dirichlet=nan"])
def test_other_orders_are_refused(order):
    with pytest.raises(OptionError, match="order"):
        EvalOptions.parse({"dataset": "dtd", "order": order})


# ---- streams that are interrupted


class Interrupts(Silent):
    """Ends the run after some images."""

    def __init__(self, after):
        self.left = after

    def advance(self, title, *, worker=0):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.setattr("dtpt.runs.schedule.ROWS_OF_PART", 7)


STREAMS = {"method": ("zero-shot", "tda", "tda:views"), "order_seeds": (0, 1), "seed": (0, 1)}


@pytest.fixture(scope="module")
def whole(home, tmp_path_factory):
    """The rows of streams that were not interrupted, each in one part."""
    folder = tmp_path_factory.mktemp("whole")
    return exported(run_options(named_options(home, folder, **STREAMS)))


@pytest.mark.usefixtures("parts")
def test_interrupted_streams_go_on_with_the_same_bits(home, tmp_path, whole):
    options = named_options(home, tmp_path / "killed", **STREAMS)
    generator, interruptions = random.Random(0), 0
    while True:
        try:
            run = run_options(options, reporter=Interrupts(generator.randrange(8, 60)))
        except KeyboardInterrupt:
            interruptions += 1
        else:
            break
    assert interruptions > 5
    assert exported(run) == whole
    assert run.query("SELECT count(*) FROM states") == [(0,)]
    assert sum(session["rows"] for session in run.sessions()) == sum(
        ok for ok, _ in run.counts().values()
    )


@pytest.mark.usefixtures("parts")
def test_number_of_workers_changes_no_bit(home, tmp_path, whole):
    options = named_options(home, tmp_path / "many", **STREAMS)
    with pytest.raises(KeyboardInterrupt):
        run_options(options, reporter=Interrupts(100))
    with run_options(options.model_copy(update={"workers": 2})) as run:
        assert exported(run) == whole


def test_a_damaged_state_is_refused(home, tmp_path, parts):
    options = named_options(home, tmp_path / "run", method=("tda",))
    with pytest.raises(KeyboardInterrupt):
        run_options(options, reporter=Interrupts(9))
    with Store(tmp_path / "run" / "run.sqlite", open_run(tmp_path / "run").spec) as store:
        store.query("UPDATE states SET data = x'00'")
    with pytest.raises(MethodError, match="state"):
        run_options(options)


def test_exports_know_order_and_position(run_stream, tmp_path):
    from dtpt.runs import export

    with run_stream() as run:
        export(run, tmp_path / "out", formats=("jsonl", "results"), scores=score_methods(run))
    (path,) = (tmp_path / "out").glob("samples_*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    stream = [row for row in rows if row["method"] == "sum"]
    assert sorted(row["position"] for row in stream) == list(range(30))
    assert {row["order"] for row in stream} == {0}
    assert {(row["order"], row["position"]) for row in rows if row["method"] != "sum"} == {
        (None, None)
    }
