"""OpenAI's CLIP ViT-B/16 from parts, against a forward pass in NumPy that shares no code with ours.

`DTPT_REAL_CLIP` names a feature-model folder whose image tower has transformers' names and
QuickGELU (docs/clip_inputs.py makes one), `DTPT_REAL_IMAGES` a folder with `imagenet/val`.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from dtpt.clip.loading import load_model
from dtpt.data import load_dataset
from dtpt.prediction import Classifier

PARENTS = Path(__file__).resolve().parents
HOME = next((up / "clip" for up in PARENTS if (up / "clip" / "models").is_dir()), Path("clip"))
MODEL = Path(os.environ.get("DTPT_REAL_CLIP") or HOME / "models" / "imagenet-photo")
IMAGES = Path(os.environ.get("DTPT_REAL_IMAGES") or HOME / "data")
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
COUNT = 4

pytestmark = [
    pytest.mark.skipif(not MODEL.is_dir(), reason=f"DTPT_REAL_CLIP: {MODEL} is not there"),
    pytest.mark.skipif(
        not (IMAGES / "imagenet" / "val").is_dir(), reason=f"DTPT_REAL_IMAGES: none in {IMAGES}"
    ),
]


def pixels_of(path):
    """Resize the shorter side to 224 (bicubic), crop the centre, normalise: (3, 224, 224)."""
    image = Image.open(path).convert("RGB")
    scale = 224 / min(image.size)
    size = tuple(224 if side == min(image.size) else int(side * scale) for side in image.size)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (round((side - 224) / 2) for side in size)
    values = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32) / 255
    return ((values - MEAN) / STD).transpose(2, 0, 1)


def layer_norm(x, weights, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def attention(x, weights, name, *, heads=12):
    n, width = x.shape
    q, k, v = (
        linear(x, weights, f"{name}.{part}_proj").reshape(n, heads, width // heads)
        for part in "qkv"
    )  # (n, heads, 64)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(width // heads)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v)
    return linear(mixed.reshape(n, width), weights, f"{name}.out_proj")


def image_feature(pixels, weights):
    """Return the unit feature (512,) of one image (3, 224, 224)."""
    patches = pixels.reshape(3, 14, 16, 14, 16).transpose(1, 3, 0, 2, 4).reshape(196, -1)
    kernel = weights["vision_model.embeddings.patch_embedding.weight"].reshape(768, -1)
    first = weights["vision_model.embeddings.class_embedding"][None]
    x = np.concatenate([first, patches @ kernel.T])
    x = x + weights["vision_model.embeddings.position_embedding.weight"]
    x = layer_norm(x, weights, "vision_model.pre_layrnorm")
    for block in range(12):
        name = f"vision_model.encoder.layers.{block}"
        normed = layer_norm(x, weights, f"{name}.layer_norm1")
        x = x + attention(normed, weights, f"{name}.self_attn")
        hidden = linear(layer_norm(x, weights, f"{name}.layer_norm2"), weights, f"{name}.mlp.fc1")
        x = x + linear(hidden / (1 + np.exp(-1.702 * hidden)), weights, f"{name}.mlp.fc2")
    feature = layer_norm(x[0], weights, "vision_model.post_layernorm")
    feature = weights["visual_projection.weight"] @ feature
    return feature / np.linalg.norm(feature)


def test_features_and_predictions_equal_a_forward_pass_in_numpy():
    samples = load_dataset("imagenet", data_root=IMAGES, partial=True).samples
    chosen = samples[:: len(samples) // COUNT][:COUNT]
    weights = load_file(MODEL / "image_tower.safetensors")
    text = load_file(MODEL / "text_features.safetensors")["text_features"].astype(np.float64)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    model = load_model(f"features:{MODEL}", device="cpu")
    made = Classifier(model, model.fixed_text.classes, method="zero-shot")
    correct = 0
    for sample in chosen:
        path = sample.image.path
        theirs = image_feature(pixels_of(path), weights)
        ours = made.view_features(path)[0].numpy()
        assert np.abs(ours - theirs).max() < 1e-4
        logits = 100 * text @ theirs.astype(np.float64)
        expected = np.exp(logits - logits.max())
        expected /= expected.sum()
        found = made.predict(path)
        assert found.index == expected.argmax()
        np.testing.assert_allclose(found.probabilities, expected, rtol=0, atol=2e-3)
        correct += found.index == sample.label
    assert correct >= 1  # 69 % on all of them
