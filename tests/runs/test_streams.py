"""Methods that carry state from image to image: one pass in order, never in shards."""

import numpy as np
import pytest
from tiny_runs import exported

from dtpt.errors import CalibrationError, RunError
from dtpt.methods import METHODS, Method
from dtpt.runs import open_run
from dtpt.runs.calibrate import one_cell
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
    run = run_stream()
    assert run.is_complete
    assert run.spec.order
    first = images.samples[0].id
    rows, zero_shot = run.rows(method="sum"), run.rows(method="zero-shot")
    equal = np.isclose(rows.confidence, zero_shot.confidence, atol=1e-6)
    assert equal[rows.sample == first].all()
    assert not equal.all()
    assert exported(run_stream(output=tmp_path / "again", cache=False)) == exported(run)


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
