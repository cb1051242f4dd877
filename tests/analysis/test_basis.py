"""Rotations of the joint space: what they change and what they must not."""

import pytest
import torch
import torch.nn.functional as F

from dtpt.analysis.basis import (
    common_bases,
    dominant_share,
    first_axis_along,
    random_rotation,
    rotated,
)
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods import resolve_method
from dtpt.tuning import Tuner

NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "tropical drink"]
INVARIANT = ["zero-shot", "tpt", "c-tpt", "o-tpt", "a-tpt", "d-tpt:aligned", "tpt+sals", "r-tpt"]
INVARIANT += ["mean-views", "mta", "vte", "zero"]
INVARIANT += ["zero-shot+no-tdd:aligned", "tpt+no-tdd:aligned"]


@pytest.fixture(scope="module")
def model(make_clip):
    return make_clip(dtype=torch.float64)


def views_of(seed):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(64, 32, generator=generator, dtype=torch.float64), dim=-1)


def answers(model, rotation, names, *, seed=1):
    tuner = Tuner(rotated(model, rotation), PromptSet.build(model, NAMES))
    outcomes = tuner.predict(views_of(seed) @ rotation, [resolve_method(name) for name in names])
    return [outcome.probabilities for outcome in outcomes]


@pytest.mark.parametrize("seed", range(4))
def test_only_d_tpt_depends_on_the_basis(model, seed):
    rotation = random_rotation(32, generator=torch.Generator().manual_seed(seed))
    names = [*INVARIANT, "d-tpt"]
    *before, own = answers(model, torch.eye(32, dtype=torch.float64), names)
    *after, turned = answers(model, rotation, names)
    for name, one, other in zip(INVARIANT, before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=name)
    assert float((own - turned).abs().max()) > 1e-6


def test_shifts_of_the_text_depend_on_the_basis_too(model):
    """A signed step per dimension is not the same step in another basis."""
    rotation = random_rotation(32, generator=torch.Generator().manual_seed(0))
    (own,) = answers(model, torch.eye(32, dtype=torch.float64), ["tps+lr=0.05"])
    (turned,) = answers(model, rotation, ["tps+lr=0.05"])
    assert float((own - turned).abs().max()) > 1e-6


def test_the_model_itself_is_left_alone(model):
    before = model.encode_text(["a photo of a cat."])
    turned = rotated(model, random_rotation(32, generator=torch.Generator().manual_seed(3)))
    after = turned.encode_text(["a photo of a cat."])
    assert not torch.allclose(before, after)
    assert torch.equal(before, model.encode_text(["a photo of a cat."]))
    assert turned.visual is model.visual


def test_bases_are_orthogonal_and_do_what_their_names_say():
    generator = torch.Generator().manual_seed(0)
    text = F.normalize(torch.randn(9, 16, generator=generator, dtype=torch.float64) + 0.5, dim=-1)
    image = torch.randn(16, generator=generator, dtype=torch.float64)
    found = {basis.name: basis.rotation for basis in common_bases(text, image)}
    assert list(found) == ["own", "random 0", "random 1", "gap", "mean text"]
    identity = torch.eye(16, dtype=torch.float64)
    for rotation in found.values():
        torch.testing.assert_close(rotation @ rotation.T, identity, atol=1e-12, rtol=0)
    mean = F.normalize(text.mean(0), dim=0)
    torch.testing.assert_close((text @ found["mean text"])[:, 0], text @ mean)
    assert dominant_share(text @ found["mean text"]) > dominant_share(text @ found["random 0"])
    gap = F.normalize(text.mean(0) - image, dim=0)
    torch.testing.assert_close((text @ found["gap"])[:, 0], text @ gap)


def test_an_axis_along_itself_and_along_nothing():
    first = torch.tensor([2.0, 0.0, 0.0])
    assert torch.equal(first_axis_along(first), torch.eye(3))
    with pytest.raises(MethodError, match="length zero"):
        first_axis_along(torch.zeros(3))
