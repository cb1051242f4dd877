"""The formats of CLIP checkpoints: their files, config fields, tensor names and shapes. No torch.

Formats: transformers, open_clip (also a bare file of its `model_configs`), and our own folder;
`foreign_formats.json` has the names and defaults of the first two. A setting that our towers do not
have is refused by name. Only regular files are opened, small ones whole, up to a limit.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pydantic import ValidationError

from dtpt.clip.config import (
    ClipConfig,
    GivenVisionConfig,
    ModelConfig,
    OpenClipVisionConfig,
    SiglipVitConfig,
    VisionConfig,
)
from dtpt.errors import CheckpointError, explain, os_error
from dtpt.files import open_regular, parse_json, printable, read_limited

if TYPE_CHECKING:
    from torch import Tensor

Config = TypeVar("Config", bound=ModelConfig)

MAX_BYTES = 16 << 20  # CLIP's tokenizer.json has 2 MB, the index of a sharded model less
TRANSFORMERS_MODELS = ("clip", "metaclip_2", "siglip")  # `model_type`; SigLIP 2 is "siglip" too
FORMAT_VERSION = 1  # of our own folders
CLIP_VOCABULARY = 49408  # tokens of the vocabulary that every released CLIP shares
LARGEST_ID = "largest"  # the text feature is read at the largest token id of a text
HEAD_WIDTH = 64  # of every attention head in OpenAI's models

OWN_CONFIG = "dtpt_config.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
TRANSFORMERS_CONFIG = "config.json"
CONFIGS = (OWN_CONFIG, OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG)
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
# Safetensors come before pickles: a pickle is neither read nor downloaded where both exist.
_SAFE = ("model.safetensors", "model.safetensors.index.json")
_OPEN_CLIP_PICKLES = ("open_clip_pytorch_model.bin", "pytorch_model.bin")
_WEIGHTS = {
    OWN_CONFIG: ("model.safetensors",),
    OPEN_CLIP_CONFIG: ("open_clip_model.safetensors", *_SAFE, *_OPEN_CLIP_PICKLES),
    TRANSFORMERS_CONFIG: (*_SAFE, "pytorch_model.bin", "pytorch_model.bin.index.json"),
}
WEIGHT_NAMES = frozenset(name for names in _WEIGHTS.values() for name in names)


# ---- files


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, at once or not at all."""
    try:
        return open_regular(path)
    except OSError as error:
        raise CheckpointError(f"{printable(path)} cannot be read: {os_error(error)}.") from error


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    try:
        return read_limited(path, most)
    except OSError as error:
        raise CheckpointError(f"{printable(path)} cannot be read: {os_error(error)}.") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file of at most `MAX_BYTES` holds."""
    try:
        value = parse_json(read_bytes(path))
    except ValueError as error:
        raise CheckpointError(f"{printable(path)} is not valid JSON: {error}") from error
    return section({"content": value}, "content", origin=printable(path))


def section(document: Mapping[str, Any], name: str, *, origin: str) -> dict[str, Any]:
    """Return an entry of a JSON document that must be an object; missing or null is empty."""
    value = document.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise CheckpointError(f"{origin}: {name} must be a JSON object.")
    return dict(value or {})


def config_file(names: Collection[str]) -> str | None:
    """Return the config that decides a folder's format, if there is one."""
    return next((name for name in CONFIGS if name in names), None)


def weight_file(names: Collection[str]) -> str | None:
    """Return the weight file (or the index of shards) that belongs to the folder's config."""
    config = config_file(names)
    return next((name for name in _WEIGHTS.get(config or "", ()) if name in names), None)


def wanted_files(names: Collection[str]) -> Sequence[str]:
    """Return the files to fetch from a repository that holds `names`; shards by usual names."""
    config, weights = config_file(names), weight_file(names)
    if config is None or weights is None:
        return []
    wanted = [config, weights, *(n for n in (*_PROCESSORS, *_TOKENIZERS) if n in names)]
    if weights.endswith(".index.json"):
        stem, suffix = weights.removesuffix(".index.json").rsplit(".", 1)
        shards = [n for n in names if n.startswith(f"{stem}-") and n.endswith(f".{suffix}")]
        wanted += [name for name in shards if "/" not in name]
    return wanted


# ---- configs


@dataclass(frozen=True)
class ParsedConfig:
    """What a config file declares about the towers."""

    config: ClipConfig
    end: object = None  # token id where the text feature is read, LARGEST_ID, or None: not stated
    states_activation: bool = True  # rather than leaving it to the default of the format


@cache
def foreign_format(library: str) -> dict[str, Any]:
    """Return what the files of open_clip or transformers contain.

    Both: the documented defaults of config fields, which files leave out. open_clip: settings that
    must keep their neutral value in both towers or in one (null and {} are always neutral), and
    others, which are read here or do not influence features. transformers: names of tensors.
    """
    text = resources.files("dtpt.clip").joinpath("foreign_formats.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)[library]
    return content


def parse_dtpt(document: Mapping[str, Any], *, origin: str) -> ParsedConfig:
    version = document.get("format")
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{origin}: format {version!r}; this dtpt reads {FORMAT_VERSION}.")
    return ParsedConfig(build_config(section(document, "model", origin=origin), origin=origin))


def parse_transformers(document: Mapping[str, Any], *, origin: str) -> ParsedConfig:
    """Read the `config.json` of a transformers `CLIPModel`, `MetaClip2Model` or `SiglipModel`."""
    kind = document.get("model_type")
    if kind not in TRANSFORMERS_MODELS:
        variable = " (NaFlex: images of variable size)" if kind == "siglip2" else ""
        known = ", ".join(TRANSFORMERS_MODELS)
        raise CheckpointError(f"{origin}: model_type {kind!r}{variable} is not one of {known}.")
    sigmoid = kind == "siglip"
    defaults, stated = foreign_format("transformers"), {}
    defaults = defaults["siglip"] if sigmoid else defaults
    for name in ("text_config", "vision_config"):
        repeated = section(document, f"{name}_dict", origin=origin)  # by old files; then it counts
        stated[name] = section(document, name, origin=origin) | repeated
    text, vision = ({**defaults[name], **given} for name, given in stated.items())
    if vision["num_channels"] != 3:
        raise CheckpointError(f"{origin}: images of {vision['num_channels']!r} channels, not 3.")
    if text["hidden_act"] != vision["hidden_act"]:
        both = f"{text['hidden_act']!r} (text) and {vision['hidden_act']!r} (vision)"
        raise CheckpointError(f"{origin}: hidden_act {both}; both towers must have the same.")
    sizes = {"image_size": vision["image_size"], "patch_size": vision["patch_size"]}
    lengths = {"context_length": text["max_position_embeddings"], "vocab_size": text["vocab_size"]}
    activation = {"gelu_pytorch_tanh": "gelu_tanh"}.get(text["hidden_act"], text["hidden_act"])
    fields: dict[str, Any] = {
        "embed_dim": document.get("projection_dim", 512),
        "activation": activation,
        "vision": {"kind": "vit", **sizes, **_transformers_tower(vision)},
        "text": {**lengths, **_transformers_tower(text)},
    }
    end = text.get("eos_token_id")
    if sigmoid:
        fields["embed_dim"] = text.get("projection_size") or text["hidden_size"]
        fields["vision"] |= {"kind": "siglip_vit", "activation": activation}
        fields["text"] |= {"is_causal": False, "reads": "last", "projection_bias": True}
        end = None
    elif kind == "clip" and end == 2:  # configs select transformers' old rule by this id
        end = LARGEST_ID
    states_activation = any("hidden_act" in given for given in stated.values())
    return ParsedConfig(build_config(fields, origin=origin), end, states_activation or sigmoid)


def _transformers_tower(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "width": values["hidden_size"],
        "layers": values["num_hidden_layers"],
        "heads": values["num_attention_heads"],
        "mlp_width": values["intermediate_size"],
        "norm_eps": values["layer_norm_eps"],
    }


def build_config(fields: Mapping[str, Any], *, origin: str) -> ClipConfig:
    return validated(ClipConfig, fields, origin=origin)


def validated(kind: type[Config], fields: Mapping[str, Any], *, origin: str) -> Config:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise CheckpointError(f"{origin}: {explain(error)}.") from error


# ---- tensors


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint: described by the file's own directory, read only when wanted."""

    shape: tuple[int, ...]
    dtype: str  # torch's name without the prefix, `float32` for example
    read: "Callable[[], Tensor]"  # may raise CheckpointError


Weights = Mapping[str, StoredTensor]

# Not weights: counters, masks and numbers that some savers put beside them.
_IGNORED = re.compile(
    r"(.*\.)?(num_batches_tracked|position_ids|attn_mask)|input_resolution|context_length|vocab_size"
)
_BLOCK = re.compile(r"(vision|text)_model\.encoder\.layers\.(\d+)\.(.+)\.(weight|bias)")
_QKV = re.compile(r"self_attn\.([qkv])_proj")


def to_openai_names(
    weights: Weights, *, origin: str, vision: VisionConfig | None = None
) -> dict[str, StoredTensor]:
    """Translate any known layout into OpenAI's names, which `Clip.state_dict()` has.

    `vision` tells whether the image tower is ours; without it, it is.

    Only descriptions are renamed, transposed and joined; no tensor is read. What cannot be
    translated keeps its name and is reported when weights are compared with the config.
    """
    kept = {name: tensor for name, tensor in weights.items() if not _IGNORED.fullmatch(name)}
    for name in kept.keys() & {"logit_scale", "logit_bias"}:
        kept[name] = _without_ones(kept[name])
    if "vision_model.embeddings.patch_embedding.weight" in kept:
        return _from_transformers(kept)
    if "text.token_embedding.weight" in kept:  # open_clip's newer layout
        kept = {name.removeprefix("text."): tensor for name, tensor in kept.items()}
    if "conv1.weight" in kept:  # the state of an image tower by itself
        kept = {f"visual.{name}": tensor for name, tensor in kept.items()}
    projection = kept.get("text_projection.weight")  # a linear layer, where it has a bias
    if projection is not None and len(projection.shape) == 2:
        kept["text_projection"] = _transposed(kept.pop("text_projection.weight"))
        if "text_projection.bias" in kept:
            kept["text_projection_bias"] = kept.pop("text_projection.bias")
    if isinstance(vision, SiglipVitConfig):
        kept = _from_timm_siglip(kept)
    foreign = isinstance(vision, OpenClipVisionConfig | GivenVisionConfig)
    if not foreign and "visual.conv1.weight" not in kept:
        raise CheckpointError(
            f"{origin} has tensor names of an unknown layout ({', '.join(sorted(kept)[:3])}). "
            "Known are OpenAI's, open_clip's and transformers' CLIP."
        )
    return kept


def _from_transformers(weights: Weights) -> dict[str, StoredTensor]:
    names, result = foreign_format("transformers"), {}
    for name, tensor in weights.items():
        block = _BLOCK.fullmatch(name)
        if name in names["transposed"] and len(tensor.shape) == 2:
            result[names["transposed"][name]] = _transposed(tensor)
        elif name == "vision_model.head.probe":
            result["visual.pool.probe"] = _without_ones(tensor)
        elif block and _QKV.fullmatch(block[3]):
            result |= _join_qkv(block, weights)
        elif block and block[3] in names["block"]:
            result[f"{_block(block)}.{names['block'][block[3]]}.{block[4]}"] = tensor
        else:
            result[names["tensors"].get(name, name)] = tensor
    return result


def _from_timm_siglip(weights: Weights) -> dict[str, StoredTensor]:
    """Rename timm's SigLIP image tower; names of other layouts stay."""
    names, trunk, result = foreign_format("timm_siglip"), "visual.trunk.", {}
    for name, tensor in weights.items():
        new = name.removeprefix(trunk)
        for old, ours in names["tensors"].items():
            if name.startswith(trunk + old):
                new = ours + new.removeprefix(old)
        for old, ours in names["block"].items():
            new = new.replace(f".{old}", f".{ours}") if new.startswith("transformer.") else new
        new = f"visual.{new}" if name.startswith(trunk) else name
        whole = new in ("visual.positional_embedding", "visual.pool.probe")
        result[new] = _without_ones(tensor) if whole else tensor
    for kind in ("weight", "bias"):  # of the pool's projections
        parts = [result.pop(f"visual.attn_pool.{part}.{kind}", None) for part in ("q", "kv")]
        present = [part for part in parts if part is not None]
        if len(present) == 2:
            result[f"visual.pool.attn.in_proj_{kind}"] = _stacked(present)
    return result


def _block(match: re.Match[str]) -> str:
    prefix = "visual." if match[1] == "vision" else ""
    return f"{prefix}transformer.resblocks.{match[2]}"


def _join_qkv(block: re.Match[str], weights: Weights) -> dict[str, StoredTensor]:
    """Stack the three input projections as `in_proj_*`; an incomplete trio keeps its names."""
    names = [_QKV.sub(f"self_attn.{letter}_proj", block[0]) for letter in "qkv"]
    parts = [weights[name] for name in names if name in weights]
    same = len({(part.shape[1:], part.dtype) for part in parts}) == 1
    if len(parts) == 3 and same and all(part.shape for part in parts):
        return {f"{_block(block)}.attn.in_proj_{block[4]}": _stacked(parts)}
    return {block[0]: weights[block[0]]}


def _transposed(tensor: StoredTensor) -> StoredTensor:
    rows, columns = tensor.shape
    return StoredTensor((columns, rows), tensor.dtype, lambda: tensor.read().T)


def _without_ones(tensor: StoredTensor) -> StoredTensor:
    """Drop leading axes of length 1: (1, 1, W) -> (W,)."""
    ones = next((i for i, side in enumerate(tensor.shape) if side != 1), len(tensor.shape))
    shape = tensor.shape[ones:]
    return StoredTensor(shape, tensor.dtype, lambda: tensor.read().reshape(shape))


def _stacked(parts: list[StoredTensor]) -> StoredTensor:
    def read() -> "Tensor":
        import torch

        return torch.cat([part.read() for part in parts])

    rows = sum(part.shape[0] for part in parts)
    return StoredTensor((rows, *parts[0].shape[1:]), parts[0].dtype, read)


# ---- shapes


def infer_config(
    weights: Weights, activation: str, *, origin: str, heads: tuple[int, int] | None = None
) -> ClipConfig:
    """Read the architecture off OpenAI's names and shapes, which show all but heads and activation.

    `heads` are those of the image and of the text tower; None: OpenAI's rule of 64 dimensions each.
    """
    vision_heads, text_heads = heads or (None, None)
    fields = infer_text(weights, activation, origin=origin, heads=text_heads)
    with _shape_errors(origin):
        tower = _vit_shape if "visual.class_embedding" in weights else _resnet_shape
        fields["vision"] = tower(weights, vision_heads)
    return build_config(fields, origin=origin)


def infer_text(
    weights: Weights, activation: str, *, origin: str, heads: int | None = None
) -> dict[str, Any]:
    """Return the fields of a config that do not depend on the image tower."""
    with _shape_errors(origin):
        context, width = weights["positional_embedding"].shape
        vocab_size = weights["token_embedding.weight"].shape[0]
        text = _transformer_shape(weights, "", width=width, heads=heads)
        return {
            "embed_dim": weights["text_projection"].shape[1],
            "activation": activation,
            "text": {"context_length": context, "vocab_size": vocab_size, **text},
        }


def infer_image_config(weights: Weights, activation: str, *, origin: str) -> ModelConfig:
    """Read the architecture of an image tower off its shapes, with 64 dimensions a head."""
    is_vit = "visual.class_embedding" in weights
    projection, axis = ("visual.proj", 1) if is_vit else ("visual.attnpool.c_proj.weight", 0)
    with _shape_errors(origin):
        fields = {
            "embed_dim": weights[projection].shape[axis],
            "activation": activation,
            "vision": (_vit_shape if is_vit else _resnet_shape)(weights, None),
            "text": None,
        }
    return validated(ModelConfig, fields, origin=origin)


@contextmanager
def _shape_errors(origin: str) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"{origin} lacks the tensor {error.args[0]}.") from error
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{origin} has tensors of impossible shapes: {error}.") from error


def _vit_shape(weights: Weights, heads: int | None) -> dict[str, object]:
    patch = weights["visual.conv1.weight"].shape[-1]
    tokens, width = weights["visual.positional_embedding"].shape
    shape = _transformer_shape(weights, "visual.", width=width, heads=heads)
    return {"kind": "vit", "image_size": _side(tokens) * patch, "patch_size": patch, **shape}


def _resnet_shape(weights: Weights, heads: int | None) -> dict[str, object]:
    width = weights["visual.layer1.0.conv1.weight"].shape[0]
    tokens = weights["visual.attnpool.positional_embedding"].shape[0]
    return {
        "kind": "resnet",
        "image_size": 32 * _side(tokens),
        "width": width,
        "layers": [_count(weights, rf"visual\.layer{stage}\.(\d+)\..*") for stage in (1, 2, 3, 4)],
        "heads": heads or _openai_heads(32 * width),
    }


def _transformer_shape(
    weights: Weights, prefix: str, *, width: int, heads: int | None
) -> dict[str, object]:
    pattern = rf"{re.escape(prefix)}transformer\.resblocks\.(\d+)\..*"
    return {
        "width": width,
        "layers": _count(weights, pattern),
        "heads": heads or _openai_heads(width),
        "mlp_width": weights[f"{prefix}transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
    }


def _side(tokens: int) -> int:
    """Return the side of a square grid that has one extra token."""
    side = math.isqrt(max(tokens - 1, 0))
    if side * side != tokens - 1:
        raise ValueError(f"{tokens} image positions are not a square grid")
    return side


def _count(names: Iterable[str], pattern: str) -> int:
    return len({match[1] for name in names if (match := re.fullmatch(pattern, name))})


def _openai_heads(width: int) -> int:
    if width % HEAD_WIDTH:
        reason = f"width {width} is not a multiple of {HEAD_WIDTH}, so the heads are unknown"
        raise ValueError(f"{reason}; put an open_clip_config.json beside the file")
    return width // HEAD_WIDTH
