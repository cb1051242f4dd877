"""Single files: safetensors, OpenAI's TorchScript archives and pickled state dicts.

A bare file of weights does not say which activation the model was trained with. It must come from a
config beside the file, from the file's metadata, from the archive's own class names, or from the
caller; it is never guessed.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from dtpt.clip.config import Activation
from dtpt.clip.loading.archive import is_archive
from dtpt.clip.loading.catalog import catalog
from dtpt.clip.loading.checkpoint import CLIP_VOCABULARY, Checkpoint, Description, is_there
from dtpt.clip.loading.documents import open_file, read_json
from dtpt.clip.loading.filenames import (
    OPEN_CLIP_CONFIG,
    OWN_CONFIG,
    TRANSFORMERS_CONFIG,
    WEIGHT_NAMES,
    config_file,
)
from dtpt.clip.loading.folders import describe
from dtpt.clip.loading.layouts import to_openai_names
from dtpt.clip.loading.shapes import infer_config
from dtpt.clip.loading.tensors import Weights, read_safetensors, read_state_dict
from dtpt.clip.loading.torchscript import is_torchscript, read_torchscript
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError
from dtpt.files import printable

# What a config holds at its top -> whose it is; the second is a bare file of open_clip's package.
_MARKS = {
    "model_cfg": OPEN_CLIP_CONFIG,
    "vision_cfg": OPEN_CLIP_CONFIG,
    "model_type": TRANSFORMERS_CONFIG,
    "format": OWN_CONFIG,
}


@dataclass(frozen=True)
class Opened:
    """Weights under whatever names, and what their file states besides.

    Attributes:
        weights: described, not read.
        stated: the activation, if the file states one.
        is_script: whether it is a TorchScript archive, the form in which OpenAI published.
    """

    weights: Weights
    stated: str | None = None
    is_script: bool = False


def read_file(path: Path, activation: Activation | None = None) -> Checkpoint:
    """Open a single file of weights.

    With a config beside it (`<name>.json`, or the folder's own when the file is named as the
    libraries name it) everything comes from there. Otherwise shapes decide the architecture,
    tokenizer and preprocessing are CLIP's, and the activation must be stated by file or caller.

    Raises:
        CheckpointError: unreadable, unsafe, incomplete, or of unknown activation.
    """
    opened, origin = open_weights(path), printable(path)
    tensors = to_openai_names(opened.weights, origin=origin)
    beside = _config_beside(path)
    if beside is not None:
        return Checkpoint(origin, describe(*beside).with_activation(activation), tensors)
    known = _known_activation(path, opened.stated, asked=activation)
    config = infer_config(tensors, known, origin=origin)
    if config.text.vocab_size != CLIP_VOCABULARY:
        raise CheckpointError(
            f"{origin} embeds {config.text.vocab_size} tokens, CLIP's vocabulary has "
            f"{CLIP_VOCABULARY}. Put its config and tokenizer.json into a folder: local-dir:PATH."
        )
    tokenizer = Tokenizer.clip_default(context_length=config.text.context_length)
    note = f"{origin} holds weights only: tokenizer, preprocessing and heads are OpenAI's."
    description = Description(
        origin,
        config,
        tokenizer,
        Preprocess.openai(config.vision.image_size),
        notes=() if opened.is_script else (note,),
    )
    return Checkpoint(origin, description, tensors)


def open_weights(path: Path) -> Opened:
    """Tell the format by the first bytes, not by the suffix."""
    if is_archive(path):
        if is_torchscript(path):
            script = read_torchscript(path)
            return Opened(script.weights, script.activation, is_script=True)
        return Opened(read_state_dict(path))
    with open_file(path) as file:
        head = file.read(16)
    if head[8:9] != b"{":
        if head[:1] != b"\x80":
            lfs = " It is a Git LFS pointer: run `git lfs pull`." if head[:8] == b"version " else ""
            raise CheckpointError(f"{path} is neither safetensors nor written by torch.{lfs}")
        return Opened(read_state_dict(path))
    weights, metadata = read_safetensors(path)
    return Opened(weights, metadata.get("activation"))


def _config_beside(path: Path) -> tuple[Path, str] | None:
    """Return the config that belongs to the file, and whose format it has."""
    own = path.with_suffix(".json")
    if is_there(own):
        document = read_json(own)
        kind = next((kind for mark, kind in _MARKS.items() if mark in document), None)
        if kind is None:
            raise CheckpointError(f"{own} is no config of open_clip, transformers or dtpt.")
        return own, kind
    if path.name in WEIGHT_NAMES:
        kind = config_file({neighbour.name for neighbour in path.parent.iterdir()})
        return (path.parent / kind, kind) if kind else None
    return None


def _known_activation(path: Path, stated: str | None, *, asked: Activation | None) -> Activation:
    if stated is not None and stated not in ("quick_gelu", "gelu"):
        raise CheckpointError(f"{path} states the activation {stated!r}: unknown.")
    if stated is None and asked is None and _is_openais(path):
        stated = "quick_gelu"
    if stated is not None and asked is not None and stated != asked:
        raise CheckpointError(f"{path} states the activation {stated!r}, not {asked!r}.")
    if stated == "quick_gelu" or asked == "quick_gelu":
        return "quick_gelu"
    if stated == "gelu" or asked == "gelu":
        return "gelu"
    raise CheckpointError(
        f"{path} does not say its activation, and weights do not show it. Pass activation="
        f"'quick_gelu' (OpenAI's models) or 'gelu' (most others), store it as the safetensors "
        f"metadata 'activation', or put an open_clip or transformers config beside it as "
        f"{path.with_suffix('.json').name}."
    )


def _is_openais(path: Path) -> bool:
    """Tell whether the file is one that OpenAI published, bit for bit."""
    if not is_archive(path):
        return False
    digest = file_digest(path)
    return any(entry.torchscript_sha256 == digest for entry in catalog().values())


def file_digest(path: Path) -> str:
    """Return the sha256 (hex) of a file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
