"""Image towers that open_clip builds, its own and those of timm. Needs the extra `towers`.

A checkpoint gives the tower's settings and weights; its code is open_clip's, and a tower of timm
has one of timm's registered names. Nothing is downloaded.
"""

import importlib
import warnings
from typing import Any

from torch import nn

from dtpt.clip.config import OpenClipVisionConfig
from dtpt.errors import CheckpointError

EXTRA = "pip install 'dtpt[towers]'"


def open_clip_models() -> Any:
    """Return the module `open_clip.model`; a CheckpointError with the remedy if it is not here."""
    try:
        return importlib.import_module("open_clip.model")
    except (ImportError, RuntimeError) as error:  # torchvision raises the latter
        reason = str(error).partition("\n")[0]
        raise CheckpointError(
            f"This model's image tower is built by open_clip, which cannot be imported ({reason}). "
            f"Install it: {EXTRA}"
        ) from None


def build_open_clip_tower(
    config: OpenClipVisionConfig, embed_dim: int, *, quick_gelu: bool
) -> nn.Module:
    """Return a tower with random weights: (N, 3, S, S) pixels -> (N, D) features."""
    models = open_clip_models()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = models.CLIPVisionCfg(**config.settings)
            tower: nn.Module = models._build_vision_tower(embed_dim, settings, quick_gelu)
    except Exception as error:  # of either library, for settings that do not fit each other
        name = config.settings.get("timm_model_name") or "a ViT"
        raise CheckpointError(
            f"open_clip cannot build the image tower {name!r}: {error}"
        ) from error
    return tower
