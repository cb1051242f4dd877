"""What a checkpoint's own config files say about its shapes and its activation.

A setting that our towers do not have is refused by name. Fields that a file leaves out have the
defaults which its format documents; nothing is guessed from weights here.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from dtpt.clip.config import Activation, ClipConfig
from dtpt.errors import CheckpointError, explain

FORMAT_VERSION = 1  # of our own folders: dtpt_config.json, model.safetensors, tokenizer.json
LARGEST_ID = "largest"  # the text feature is read at the largest token id of a text

# Settings of open_clip's towers that must keep their neutral value (None and {} always are).
_OPEN_CLIP_VISION: dict[str, Any] = {
    "ls_init_value": None, "attentional_pool": False, "no_ln_pre": False,
    "pos_embed_type": "learnable", "final_ln_after_pool": False, "pool_type": "tok",
    "act_kwargs": None, "norm_kwargs": None, "qk_norm": False, "scaled_cosine_attn": False,
    "scale_heads": False, "scale_attn_inner": False, "scale_attn": False, "scale_fc": False,
    "timm_model_name": None, "block_type": "default",
}  # fmt: skip
_OPEN_CLIP_TEXT: dict[str, Any] = {
    "ls_init_value": None, "embed_cls": False, "no_causal_mask": False,
    "final_ln_after_pool": False, "proj_bias": False, "proj_type": "linear", "act_kwargs": None,
    "norm_kwargs": None, "qk_norm": False, "scaled_cosine_attn": False, "scale_heads": False,
    "scale_attn_inner": False, "scale_attn": False, "scale_fc": False, "hf_model_name": None,
    "block_type": "default",
}  # fmt: skip
# Read by us, or without any influence on features.
_OPEN_CLIP_FREE = {
    "layers", "width", "head_width", "mlp_ratio", "patch_size", "image_size", "patch_dropout",
    "output_tokens", "attn_pooler_queries", "attn_pooler_heads", "timm_model_pretrained",
    "timm_pool", "timm_proj", "timm_proj_bias", "timm_drop", "timm_drop_path", "context_length",
    "vocab_size", "heads", "pad_id", "eos_id", "pool_type", "hf_tokenizer_name", "tokenizer_mode",
    "tokenizer_kwargs", "hf_model_pretrained", "hf_proj_type", "hf_pooler_type",
}  # fmt: skip

# transformers leaves out what equals these documented defaults of its CLIP config classes.
_HF_TEXT = {
    "vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}  # fmt: skip
_HF_VISION = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_channels": 3, "image_size": 224, "patch_size": 32,
    "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
}  # fmt: skip
_HF_ACTIVATIONS: dict[str, Activation] = {"quick_gelu": "quick_gelu", "gelu": "gelu"}


def from_open_clip(model_cfg: Mapping[str, Any], *, origin: str) -> ClipConfig:
    """Read the `model_cfg` of an `open_clip_config.json`, or a file of open_clip's `model_configs`.

    Raises:
        CheckpointError: a tower that is not CLIP's, or a malformed entry.
    """
    vision, text = (_section(model_cfg, name, origin=origin) for name in ("vision_cfg", "text_cfg"))
    if model_cfg.get("multimodal_cfg"):
        raise CheckpointError(f"{origin}: multimodal_cfg belongs to CoCa, which is no CLIP.")
    _refuse_foreign(vision, _OPEN_CLIP_VISION, origin=f"{origin}: vision_cfg")
    _refuse_foreign(text, _OPEN_CLIP_TEXT, origin=f"{origin}: text_cfg")
    try:
        width = _number(text, "width", default=512)
        fields = {
            "embed_dim": model_cfg.get("embed_dim"),
            "activation": "quick_gelu" if model_cfg.get("quick_gelu", False) else "gelu",
            "vision": _open_clip_vision(vision),
            "text": {
                "context_length": text.get("context_length", 77),
                "vocab_size": text.get("vocab_size", 49408),
                "width": width,
                "layers": text.get("layers", 12),
                "heads": text.get("heads", 8),
                "mlp_width": int(width * _number(text, "mlp_ratio", default=4.0)),
            },
        }
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise CheckpointError(f"{origin} is malformed: {error}") from error
    return build_config(fields, origin=origin)


def from_dtpt(document: Mapping[str, Any], *, origin: str) -> ClipConfig:
    """Read the `model` entry of our own `dtpt_config.json`.

    Raises:
        CheckpointError: another version of the format, or a malformed entry.
    """
    if document.get("format") != FORMAT_VERSION:
        raise CheckpointError(
            f"{origin}: format {document.get('format')!r}; this dtpt reads {FORMAT_VERSION}."
        )
    return build_config(_section(document, "model", origin=origin), origin=origin)


def _open_clip_vision(vision: Mapping[str, Any]) -> dict[str, Any]:
    width, layers = _number(vision, "width", default=768), vision.get("layers", 12)
    image_size, head_width = (
        vision.get("image_size", 224),
        _number(vision, "head_width", default=64),
    )
    if isinstance(image_size, list):
        image_size = image_size[0] if len(set(image_size)) == 1 else image_size
    if isinstance(layers, list):
        heads = width * 32 // head_width
        return {"kind": "resnet", "image_size": image_size, "width": width, "layers": layers,
                "heads": heads}  # fmt: skip
    return {
        "kind": "vit",
        "image_size": image_size,
        "patch_size": vision.get("patch_size", 16),
        "width": width,
        "layers": layers,
        "heads": width // head_width,
        "mlp_width": int(width * _number(vision, "mlp_ratio", default=4.0)),
    }


def _number(section: Mapping[str, Any], name: str, *, default: float) -> float:
    """Return a number to compute with; a text here could be repeated without end."""
    value = section.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} {value!r} is no number")
    return value


def from_transformers(config: Mapping[str, Any], *, origin: str) -> ClipConfig:
    """Read the `config.json` of a transformers `CLIPModel`.

    Raises:
        CheckpointError: another kind of model, or towers with different activations.
    """
    if config.get("model_type") != "clip":
        raise CheckpointError(f"{origin}: model_type {config.get('model_type')!r} is not 'clip'.")
    text = {**_HF_TEXT, **_hf_section(config, "text_config", origin=origin)}
    vision = {**_HF_VISION, **_hf_section(config, "vision_config", origin=origin)}
    if vision["num_channels"] != 3:
        raise CheckpointError(f"{origin}: images of {vision['num_channels']!r} channels, not 3.")
    fields = {
        "embed_dim": config.get("projection_dim", 512),
        "activation": _hf_activation(text["hidden_act"], vision["hidden_act"], origin=origin),
        "vision": {
            "kind": "vit",
            "image_size": vision["image_size"],
            "patch_size": vision["patch_size"],
            **_hf_tower(vision),
        },
        "text": {
            "context_length": text["max_position_embeddings"],
            "vocab_size": text["vocab_size"],
            **_hf_tower(text),
        },
    }
    return build_config(fields, origin=origin)


def transformers_states_activation(config: Mapping[str, Any], *, origin: str) -> bool:
    """Tell whether a `config.json` says its activation rather than leaving it to the default."""
    towers = ("text_config", "vision_config")
    return any("hidden_act" in _hf_section(config, tower, origin=origin) for tower in towers)


def open_clip_end(text_cfg: Mapping[str, Any]) -> object:
    """Return the id of the token where open_clip reads the text feature, or LARGEST_ID."""
    pooling = text_cfg.get("pool_type", "argmax")
    places = {"argmax": LARGEST_ID, "eos": text_cfg.get("eos_id", 2)}
    known = isinstance(pooling, str) and pooling in places
    return places[pooling] if known else f"of pool_type {pooling!r}"


def transformers_end(config: Mapping[str, Any], *, origin: str) -> object:
    """Return the id of the token where transformers reads the text feature, or LARGEST_ID.

    The latter is its old rule, which configs ask for by the id 2.
    """
    end = _hf_section(config, "text_config", origin=origin).get("eos_token_id", 49407)
    return LARGEST_ID if end == 2 else end


def _hf_tower(section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "width": section["hidden_size"],
        "layers": section["num_hidden_layers"],
        "heads": section["num_attention_heads"],
        "mlp_width": section["intermediate_size"],
        "norm_eps": section["layer_norm_eps"],
    }


def _hf_activation(text: Any, vision: Any, *, origin: str) -> Activation:
    if text != vision or not isinstance(text, str) or text not in _HF_ACTIVATIONS:
        raise CheckpointError(
            f"{origin}: hidden_act {text!r} (text) and {vision!r} (vision); both towers must have "
            "'quick_gelu' or both 'gelu'."
        )
    return _HF_ACTIVATIONS[text]


def _hf_section(config: Mapping[str, Any], name: str, *, origin: str) -> dict[str, Any]:
    """Return one tower's settings; old files repeat them under `<name>_dict`, which then counts."""
    return {
        **_section(config, name, origin=origin),
        **_section(config, f"{name}_dict", origin=origin),
    }


def _section(config: Mapping[str, Any], name: str, *, origin: str) -> Mapping[str, Any]:
    value = config.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{origin}: {name} is no JSON object.")
    return value


def _refuse_foreign(section: Mapping[str, Any], neutral: Mapping[str, Any], *, origin: str) -> None:
    for name, value in section.items():
        if name in neutral:
            if value not in (None, {}, neutral[name]):
                raise CheckpointError(f"{origin}: {name}={value!r} is not a CLIP of OpenAI's kind.")
        elif name not in _OPEN_CLIP_FREE:
            raise CheckpointError(f"{origin}: the setting {name!r} is unknown.")


def build_config(fields: Mapping[str, Any], *, origin: str) -> ClipConfig:
    """Validate fields and refuse sizes no CLIP has, before anything is built from them.

    Raises:
        CheckpointError: a field is missing, malformed, too large or does not divide.
    """
    try:
        config = ClipConfig.model_validate(fields)
    except ValidationError as error:
        raise CheckpointError(f"{origin}: {explain(error)}.") from error
    check_limits(config, origin=origin)
    return config


def check_limits(config: ClipConfig, *, origin: str) -> None:
    """Bound the sizes (a billion layers would take for ever) and check that heads divide widths."""
    text, widths, layers = config.text, [config.text.mlp_width], [config.text.layers]
    split, epsilons = [(text.width, text.heads)], [text.norm_eps]
    vision = config.vision
    if vision.kind == "vit":
        widths, layers = [*widths, vision.mlp_width, vision.patch_size], [*layers, vision.layers]
        split, epsilons = [*split, (vision.width, vision.heads)], [*epsilons, vision.norm_eps]
    elif vision.kind == "resnet":
        layers, split = [*layers, *vision.layers], [*split, (32 * vision.width, vision.heads)]
    else:
        widths, layers = [*widths, vision.stem_width, *vision.widths], [*layers, *vision.layers]
    widths += [config.embed_dim, *(width for width, _ in split)]
    limits = [
        ("layers", max(layers), 256),
        ("number of stages", len(layers), 16),
        ("width", max(widths), 65536),
        ("image_size", vision.image_size, 4096),
        ("vocab_size", text.vocab_size, 4_000_000),
        ("context_length", text.context_length, 65536),
        *(("norm_eps", epsilon, 1) for epsilon in epsilons),
    ]
    for name, value, limit in limits:
        if not 0 < value <= limit:
            raise CheckpointError(f"{origin}: {name} {value} is beyond any CLIP ({limit}).")
    if any(width % heads for width, heads in split):
        raise CheckpointError(f"{origin}: the number of heads does not divide the width.")
