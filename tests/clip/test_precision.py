"""Half precision: the towers only; what enters and leaves them, losses and steps stay float32."""

import pytest
import torch
from test_towers import clip_with

from dtpt.clip.config import ResNetConfig, SmallResNetConfig
from dtpt.clip.device import scale_for_half
from dtpt.clip.loading import load_model
from dtpt.clip.loading.save import save_model
from dtpt.clip.prompts import PromptSet
from dtpt.errors import CheckpointError, UnknownName
from dtpt.methods import resolve_method
from dtpt.tuning import Episode, Tuner

NAMES = ["cat", "dog", "red apple", "house", "tree", "a very large car"]
LIMIT = {"bfloat16": 2e-2, "float16": 2e-3}  # of unit features; 8 and 11 bits of a number
HALF = sorted(LIMIT)

TOWERS = {
    "resnet": ResNetConfig(image_size=64, width=8, layers=(1, 2, 1, 1), heads=4),
    "small_resnet": SmallResNetConfig(
        image_size=64, stem_width=4, widths=(8, 12, 16), layers=(1, 2, 1)
    ),
}


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("tower", ["vit", *TOWERS])
def test_features_are_float32_and_close(make_clip, tower, precision):
    full, half = (make_clip() if tower == "vit" else clip_with(TOWERS[tower]) for _ in range(2))
    half.in_precision(precision)
    assert (half.precision, full.precision) == (precision, "float32")
    size = full.config.vision.image_size
    pixels = torch.randn(9, 3, size, size)
    for features, expected in [
        (half.encode_views(pixels), full.encode_views(pixels)),
        (half.encode_text(NAMES), full.encode_text(NAMES)),
    ]:
        assert features.dtype == torch.float32
        assert 0 < float((features - expected).abs().max()) < LIMIT[precision]


@pytest.mark.parametrize("precision", HALF)
def test_loaded_model_keeps_its_fingerprint_and_notes_that_it_is_slow(precision):
    full, half = load_model("pocket"), load_model("pocket", precision=precision)
    assert half.fingerprint == full.fingerprint
    assert half.logit_scale == full.logit_scale
    assert half.text.positional_embedding.element_size() == 2
    assert full.notes == ()
    (note,) = half.notes
    assert precision in note


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("name", ["tpt", "c-tpt", "o-tpt", "d-tpt"])
def test_tuning_takes_the_same_step(precision, name):
    method, probabilities, gradients = resolve_method(name), [], []
    views = torch.nn.functional.normalize(torch.randn(16, 256), dim=-1)
    for kind in ("float32", precision):
        model = load_model("pocket", precision=kind)
        prompts = PromptSet.build(model, NAMES)
        assert prompts.context.dtype == torch.float32
        tuner = Tuner(model, prompts)
        (outcome,) = tuner.predict(views, [method])
        probabilities.append(outcome.probabilities)
        if method.method.regulariser is None:
            gradients.append(Episode(tuner, views).entropy_gradient(method.method))
        else:
            gradients.append(tuner.regulariser_gradient(method.method))
    assert probabilities[1].dtype == gradients[1].dtype == torch.float32
    assert float((probabilities[0] - probabilities[1]).abs().max()) < 0.03
    same = (gradients[0].sign() == gradients[1].sign()).float().mean()
    assert float(same) > 0.97  # without scaling, float16 loses nine in ten of D-TPT's signs


def test_scaling_a_gradient_rounds_nothing_and_leaves_wide_towers_alone():
    gradient = torch.randn(50, 7) * 1e-9
    scaled, undo = scale_for_half(gradient, torch.float16)
    assert 1 <= float(scaled.abs().max()) < 2
    assert torch.equal(scaled * undo, gradient)
    assert torch.equal(scale_for_half(torch.zeros(3), torch.float16)[0], torch.zeros(3))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert scale_for_half(gradient, dtype) == (gradient, 1.0)


def test_rounded_weights_are_not_saved(tmp_path):
    model = load_model("pocket", precision="bfloat16")
    with pytest.raises(CheckpointError, match="float32"):
        save_model(model, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_unknown_precision_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="bfloat16"):
        load_model("pocket", precision="int8")
