"""Agreement of the regularisers' first steps."""

import pytest
import torch

from dtpt.analysis.gradients import gradient_agreement
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods import METHODS, regularised, resolve_method
from dtpt.tuning import Tuner

NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "tropical drink"]


@pytest.fixture(scope="module")
def tuner(make_clip):
    model = make_clip(dtype=torch.float64)
    return Tuner(model, PromptSet.build(model, NAMES))


def agreement(tuner, *names):
    methods = [resolve_method(name) for name in names]
    return gradient_agreement(tuner, methods, model="tiny", class_list="five")


def test_every_pair_occurs_once_with_its_norms(tuner):
    found = agreement(tuner, "c-tpt", "o-tpt", "d-tpt")
    assert [(p.first, p.second) for p in found.pairs] == [
        ("c-tpt", "o-tpt"),
        ("c-tpt", "d-tpt"),
        ("o-tpt", "d-tpt"),
    ]
    assert found.coordinates == 4 * 48
    gradient = tuner.regulariser_gradient(METHODS["d-tpt"])
    assert found.norms["d-tpt"] == pytest.approx(float(gradient.norm()))


def test_a_multiple_agrees_and_a_negative_disagrees_completely(tuner, monkeypatch):
    plain = METHODS["c-tpt"].regulariser
    double = regularised("double", lambda text: 2 * plain(text), lambda_=1.0)
    opposite = regularised("opposite", lambda text: -plain(text), lambda_=1.0)
    monkeypatch.setitem(METHODS, "double", double)
    monkeypatch.setitem(METHODS, "opposite", opposite)
    same, against, _ = agreement(tuner, "c-tpt", "double", "opposite").pairs
    assert (same.cosine, same.same_signs) == (pytest.approx(1), 1)
    assert (against.cosine, against.same_signs) == (pytest.approx(-1), 0)


def test_one_method_or_one_without_regulariser_is_refused(tuner):
    with pytest.raises(MethodError, match="at least two"):
        agreement(tuner, "c-tpt")
    with pytest.raises(MethodError, match="no regulariser"):
        agreement(tuner, "c-tpt", "tpt")
