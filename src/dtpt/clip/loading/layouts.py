"""Key layouts of checkpoints, translated into OpenAI's names, which `Clip.state_dict()` speaks.

Known layouts: OpenAI's and open_clip's (the same names), open_clip's newer one with the text tower
under `text.`, and transformers'. Translation only renames, transposes and joins descriptions; no
tensor is read.
"""

import re
from collections.abc import Callable, Iterable
from typing import Literal

import torch

from dtpt.clip.loading.tensors import StoredTensor, Weights
from dtpt.errors import CheckpointError

Layout = Literal["openai", "open_clip_text", "transformers"]

# Not weights: counters, masks and numbers that some savers put beside them.
_IGNORED = re.compile(
    r"(.*\.)?(num_batches_tracked|position_ids|attn_mask)|input_resolution|context_length|vocab_size"
)
_HF_BLOCK = re.compile(r"(vision|text)_model\.encoder\.layers\.(\d+)\.(.+)\.(weight|bias)")
_HF_BLOCK_NAMES = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}
_HF_NAMES = {
    "logit_scale": "logit_scale",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight",
    "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight",
    "vision_model.post_layernorm.bias": "visual.ln_post.bias",
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
}
_HF_TRANSPOSED = {
    "visual_projection.weight": "visual.proj",
    "text_projection.weight": "text_projection",
}
_QKV = re.compile(r"self_attn\.([qkv])_proj")


def recognise(names: Iterable[str], *, origin: str) -> Layout:
    """Say which layout a set of tensor names has.

    Raises:
        CheckpointError: none that is known; the message shows the first names.
    """
    present = set(names)
    if "vision_model.embeddings.patch_embedding.weight" in present:
        return "transformers"
    if "visual.conv1.weight" in present:
        return "open_clip_text" if "text.token_embedding.weight" in present else "openai"
    shown = ", ".join(sorted(present)[:3]) or "none at all"
    raise CheckpointError(
        f"{origin} has tensor names of an unknown layout ({shown}); known are OpenAI's, "
        "open_clip's and transformers' CLIP."
    )


def to_openai_names(weights: Weights, *, origin: str) -> dict[str, StoredTensor]:
    """Translate any known layout; what cannot be translated keeps its name and is reported later.

    Raises:
        CheckpointError: the layout is unknown.
    """
    layout = recognise(weights, origin=origin)
    kept = {name: tensor for name, tensor in weights.items() if not _IGNORED.fullmatch(name)}
    if layout == "transformers":
        return _from_transformers(kept)
    if layout == "open_clip_text":
        return {name.removeprefix("text."): tensor for name, tensor in kept.items()}
    return kept


def _from_transformers(weights: Weights) -> dict[str, StoredTensor]:
    result: dict[str, StoredTensor] = {}
    for name, tensor in weights.items():
        block = _HF_BLOCK.fullmatch(name)
        if name in _HF_TRANSPOSED and len(tensor.shape) == 2:
            result[_HF_TRANSPOSED[name]] = _transposed(tensor)
        elif block and _QKV.fullmatch(block[3]):
            _join_qkv(result, block, weights=weights)
        elif block and block[3] in _HF_BLOCK_NAMES:
            result[f"{_block(block)}.{_HF_BLOCK_NAMES[block[3]]}.{block[4]}"] = tensor
        else:
            result[_HF_NAMES.get(name, name)] = tensor
    return result


def _block(match: re.Match[str]) -> str:
    prefix = "visual." if match[1] == "vision" else ""
    return f"{prefix}transformer.resblocks.{match[2]}"


def _join_qkv(result: dict[str, StoredTensor], block: re.Match[str], *, weights: Weights) -> None:
    """Stack the three input projections as `in_proj_*`; an incomplete trio stays missing."""
    names = [_QKV.sub(f"self_attn.{letter}_proj", block[0]) for letter in "qkv"]
    parts = [weights[name] for name in names if name in weights]
    same = len({(part.shape[1:], part.dtype) for part in parts}) == 1
    if len(parts) == 3 and same and all(part.shape for part in parts):
        result[f"{_block(block)}.attn.in_proj_{block[4]}"] = _stacked(parts)
    else:
        result[block[0]] = weights[block[0]]


def _transposed(tensor: StoredTensor) -> StoredTensor:
    rows, columns = tensor.shape
    return StoredTensor((columns, rows), tensor.dtype, lambda: tensor.read().T)


def _stacked(parts: list[StoredTensor]) -> StoredTensor:
    rows = sum(part.shape[0] for part in parts)
    read: Callable[[], torch.Tensor] = lambda: torch.cat([part.read() for part in parts])  # noqa: E731
    return StoredTensor((rows, *parts[0].shape[1:]), parts[0].dtype, read)
