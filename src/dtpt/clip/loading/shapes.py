"""The architecture that bare weights imply: everything but heads and activation.

Tensor shapes determine both towers except for the number of heads, for which all of OpenAI's CLIPs
follow one rule (64 dimensions each), and the activation, which must come from elsewhere.
"""

import math
import re

from dtpt.clip.config import Activation, ClipConfig
from dtpt.clip.loading.configs import build_config
from dtpt.clip.loading.tensors import Weights
from dtpt.errors import CheckpointError

HEAD_WIDTH = 64


def infer_config(
    weights: Weights,
    activation: Activation,
    *,
    origin: str,
    heads: tuple[int, int] | None = None,
) -> ClipConfig:
    """Read the architecture off canonical names and shapes.

    Args:
        weights: under OpenAI's names.
        activation: of both towers.
        origin: file or model, for messages.
        heads: of the image and of the text tower; None for OpenAI's rule of 64 dimensions each.

    Raises:
        CheckpointError: a tensor that decides is missing, or widths are not multiples of 64.
    """
    vision_heads, text_heads = heads or (None, None)
    try:
        tower = _vit if "visual.class_embedding" in weights else _resnet
        fields = {
            "embed_dim": weights["text_projection"].shape[1],
            "activation": activation,
            "vision": tower(weights, vision_heads),
            "text": _text(weights, text_heads),
        }
    except KeyError as error:
        raise CheckpointError(f"{origin} lacks the tensor {error.args[0]}.") from error
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{origin} has tensors of impossible shapes: {error}") from error
    return build_config(fields, origin=origin)


def _text(weights: Weights, heads: int | None) -> dict[str, object]:
    context, width = weights["positional_embedding"].shape
    return {
        "context_length": context,
        "vocab_size": weights["token_embedding.weight"].shape[0],
        **_transformer(weights, "", width=width, heads=heads),
    }


def _vit(weights: Weights, heads: int | None) -> dict[str, object]:
    patch = weights["visual.conv1.weight"].shape[-1]
    tokens, width = weights["visual.positional_embedding"].shape
    return {
        "kind": "vit",
        "image_size": _side(tokens) * patch,
        "patch_size": patch,
        **_transformer(weights, "visual.", width=width, heads=heads),
    }


def _resnet(weights: Weights, heads: int | None) -> dict[str, object]:
    width = weights["visual.layer1.0.conv1.weight"].shape[0]
    tokens = weights["visual.attnpool.positional_embedding"].shape[0]
    return {
        "kind": "resnet",
        "image_size": 32 * _side(tokens),
        "width": width,
        "layers": [_count(weights, rf"visual\.layer{stage}\.(\d+)\..*") for stage in (1, 2, 3, 4)],
        "heads": heads or _heads(32 * width),
    }


def _transformer(
    weights: Weights, prefix: str, *, width: int, heads: int | None
) -> dict[str, object]:
    pattern = rf"{re.escape(prefix)}transformer\.resblocks\.(\d+)\..*"
    first = f"{prefix}transformer.resblocks.0.mlp.c_fc.weight"
    return {
        "width": width,
        "layers": _count(weights, pattern),
        "heads": heads or _heads(width),
        "mlp_width": weights[first].shape[0],
    }


def _side(tokens: int) -> int:
    """Return the side of a square grid that has one extra token."""
    side = math.isqrt(max(tokens - 1, 0))
    if side * side != tokens - 1:
        raise ValueError(f"{tokens} image positions are no square grid")
    return side


def _count(weights: Weights, pattern: str) -> int:
    return len({match[1] for name in weights if (match := re.fullmatch(pattern, name))})


def _heads(width: int) -> int:
    if width % HEAD_WIDTH:
        raise ValueError(
            f"width {width} is no multiple of {HEAD_WIDTH}, so the number of heads is unknown; put "
            "an open_clip_config.json beside the file"
        )
    return width // HEAD_WIDTH
