"""Tiny random checkpoints that the loading tests write."""

import json
from pathlib import Path

import torch

from dtpt.clip.config import ClipConfig, ResNetConfig, TextConfig, VitConfig
from dtpt.clip.loading.build import model_weights
from dtpt.clip.model import Clip, initialise
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer

TEXTS = ["a photo of a cat.", "a photo of a dog.", "x", "a blurry picture of 17 striped chairs!"]
PREPROCESSOR = {
    "crop_size": 32,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
    "resample": 3,
    "size": {"shortest_edge": 32},
}
OPEN_CLIP = {
    "model_cfg": {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8},
        "text_cfg": {"width": 64, "heads": 1, "layers": 2},
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}


def tiny_config(tower: str = "vit", activation: str = "gelu") -> ClipConfig:
    vision = {
        "vit": VitConfig(image_size=32, patch_size=8, width=64, layers=2, heads=1, mlp_width=256),
        "resnet": ResNetConfig(image_size=32, width=8, layers=(1, 1, 2, 1), heads=4),
    }[tower]
    text = TextConfig(
        context_length=77, vocab_size=49408, width=64, layers=2, heads=1, mlp_width=256
    )
    return ClipConfig(embed_dim=32, activation=activation, vision=vision, text=text)


def tiny_model(tower: str = "vit", activation: str = "gelu") -> Clip:
    model = Clip(
        tiny_config(tower, activation),
        tokenizer=Tokenizer.clip_default(),
        preprocessing=Preprocess.openai(32),
    )
    generator = torch.Generator().manual_seed(0)
    initialise(model, generator)
    return model.eval().requires_grad_(False)


def tiny_weights(tower: str = "vit") -> dict[str, torch.Tensor]:
    return {name: t.detach().clone() for name, t in model_weights(tiny_model(tower)).items()}


def shake(module: torch.nn.Module, seed: int = 0) -> None:
    """Make every parameter and running statistic matter: no zero bias, no unit gain stays."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if not tensor.is_floating_point() or name.endswith("logit_scale"):
                continue
            noise = torch.randn(tensor.shape, generator=generator) * 0.02
            tensor.add_(noise.abs() if name.endswith("running_var") else noise)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def padded_ids(model: Clip, texts: list[str]) -> torch.Tensor:
    ids = torch.zeros(len(texts), 77, dtype=torch.long)
    for row, tokens in enumerate(model.tokenize(texts)):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    return ids
