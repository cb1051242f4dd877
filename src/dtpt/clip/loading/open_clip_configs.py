"""Configs of open_clip: a checkpoint's `model_cfg`, or a file of its `model_configs`. No torch.

The text tower is always ours. The image tower is ours where it is OpenAI's ViT or ResNet, or
SigLIP's; any other is kept unchanged, and open_clip builds it (`dtpt.clip.foreign`).
"""

import re
from collections.abc import Mapping
from typing import Any

from dtpt.clip.loading.formats import (
    LARGEST_ID,
    ParsedConfig,
    build_config,
    foreign_format,
    section,
)
from dtpt.errors import CheckpointError, short_repr

_TEXT_FIELDS = ("context_length", "vocab_size", "layers", "heads")
_NOT_OURS = "is not a text tower that dtpt has"
_SIGLIP = re.compile(r"vit_(base|large|so400m|giantopt)_patch(\d+)_siglip_(\d+)")
_TANH = {"approximate": "tanh"}


def parse_open_clip(model_cfg: Mapping[str, Any], *, origin: str) -> ParsedConfig:
    """Read the towers' settings; refuse a text tower that is not ours by what makes it so."""
    for name in ("vision_cfg", "text_cfg"):
        if model_cfg.get(name) is None:  # the library's defaults are for what a tower leaves out
            others = [key for key in model_cfg if key.endswith("_cfg") and len(key) < 40]
            there = f" (it has {', '.join(sorted(others))})" if others else ""
            raise CheckpointError(f"{origin} has no {name}{there}: not a CLIP of images and texts.")
    if model_cfg.get("multimodal_cfg"):
        raise CheckpointError(f"{origin}: multimodal_cfg belongs to CoCa, which is not a CLIP.")
    _check_tokenizer(section(model_cfg, "text_cfg", origin=origin), origin=origin)
    quick = bool(model_cfg.get("quick_gelu", False))
    vision, text = (_tower(model_cfg, name, origin=origin) for name in ("vision", "text"))
    tanh = text.get("act_kwargs") == _TANH and not quick
    pooling = str(text.get("pool_type", "argmax"))
    try:
        fields = {
            "embed_dim": model_cfg.get("embed_dim"),
            "activation": "quick_gelu" if quick else "gelu_tanh" if tanh else "gelu",
            "vision": _vision(vision, section(model_cfg, "vision_cfg", origin=origin)),
            "text": {
                **{name: text[name] for name in _TEXT_FIELDS},
                **_widths(text),
                "norm_eps": (text.get("norm_kwargs") or {}).get("eps", 1e-5),
                "is_causal": not text.get("no_causal_mask"),
                "reads": "last" if pooling == "last" else "end",
                "projection_bias": bool(text.get("proj_bias")),
            },
        }
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise CheckpointError(f"{origin} is malformed: {error}") from error
    ends = {"argmax": LARGEST_ID, "eos": text.get("eos_id", 2), "last": None}
    end = ends.get(pooling, f"of pool_type {pooling!r}")
    states_activation = "quick_gelu" in model_cfg or tanh
    return ParsedConfig(build_config(fields, origin=origin), end, states_activation)


def _check_tokenizer(text: Mapping[str, Any], *, origin: str) -> None:
    """Refuse what open_clip does to tokens besides cleaning, such as CLIPA's."""
    others = {f"tokenizer_kwargs.{name}" for name in text.get("tokenizer_kwargs") or {}}
    others -= {"tokenizer_kwargs.clean"}
    others |= {"tokenizer_mode"} if text.get("tokenizer_mode") else set()
    if others:
        raise CheckpointError(f"{origin}: text_cfg.{min(others)} {_NOT_OURS}.")


def _tower(model_cfg: Mapping[str, Any], tower: str, *, origin: str) -> dict[str, Any]:
    """Return a tower's settings with their defaults; refuse unknown ones, and texts not ours."""
    settings, name = foreign_format("open_clip"), f"{tower}_cfg"
    stated = section(model_cfg, name, origin=origin)
    neutral = settings["neutral"] | settings[f"neutral_{tower}"]
    for field, value in stated.items():
        where = f"{origin}: {name}.{field}"
        if field not in neutral and field not in settings["other"]:
            raise CheckpointError(f"{where} is an unknown setting.")
        accepted = _is_neutral(field, value, neutral=neutral) or _is_read(field, value)
        if tower == "text" and not accepted:
            raise CheckpointError(f"{where}={short_repr(value)} {_NOT_OURS}.")
    return {**settings[name], **stated}


def _is_neutral(field: str, value: Any, *, neutral: Mapping[str, Any]) -> bool:
    return field not in neutral or value in (None, {}, neutral[field])


def _is_read(field: str, value: Any) -> bool:
    if field == "norm_kwargs":
        return isinstance(value, Mapping) and value.keys() == {"eps"}
    return field == "act_kwargs" and value == _TANH


def _vision(vision: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    image_size, name = vision["image_size"], vision.get("timm_model_name")
    if isinstance(image_size, list):
        image_size = image_size[0] if len(set(image_size)) == 1 else image_size
    if name:
        siglip = _siglip(str(name), vision)
        if siglip is not None:
            return {**siglip, "image_size": image_size}
    else:
        ours = {**_our_vision(vision), "image_size": image_size}
        settings = foreign_format("open_clip")
        neutral = settings["neutral"] | settings["neutral_vision"]
        if all(_is_neutral(field, value, neutral=neutral) for field, value in stated.items()):
            return ours
    built = {**stated, "timm_model_pretrained": False}
    return {"kind": "open_clip", "image_size": image_size, "settings": built}


def _our_vision(vision: Mapping[str, Any]) -> dict[str, Any]:
    layers, widths, head_width = vision["layers"], _widths(vision), _number(vision, "head_width")
    shape = {"layers": layers, "width": widths["width"]}
    if isinstance(layers, list):
        return {"kind": "resnet", **shape, "heads": widths["width"] * 32 // head_width}
    heads, patch_size = widths["width"] // head_width, vision["patch_size"]
    return {"kind": "vit", **shape, **widths, "heads": heads, "patch_size": patch_size}


def _siglip(name: str, vision: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return SigLIP's tower if a timm name means it, with its attention pool as the feature."""
    found = _SIGLIP.fullmatch(name)
    if not found or (vision.get("timm_pool"), vision.get("timm_proj")) != ("map", "none"):
        return None
    settings = foreign_format("timm_siglip")
    width, layers, heads, mlp_width = settings["widths"][found[1]]
    return {
        "kind": "siglip_vit",
        "patch_size": int(found[2]),
        "width": width,
        "layers": layers,
        "heads": heads,
        "mlp_width": mlp_width,
        "norm_eps": 1e-6,
        "activation": "gelu_tanh" if name in settings["tanh"] else "gelu",
    }


def _widths(tower: Mapping[str, Any]) -> dict[str, float]:
    width = _number(tower, "width")
    return {"width": width, "mlp_width": int(width * _number(tower, "mlp_ratio"))}


def _number(values: Mapping[str, Any], name: str) -> float:
    """Return a number to compute with; multiplying a text would repeat it without end."""
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} {short_repr(value)} is not a number")
    return value
