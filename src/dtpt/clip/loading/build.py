"""From a name to a model: open the checkpoint, compare it with its config, read the weights."""

import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from dtpt.clip.config import (
    MAX_MODEL_SIZE,
    Activation,
    ClipConfig,
    OpenClipVisionConfig,
    Precision,
)
from dtpt.clip.device import choose_device
from dtpt.clip.loading.formats import StoredTensor, Weights
from dtpt.clip.loading.hub import fetch
from dtpt.clip.loading.names import (
    EMBEDDED,
    PATHS,
    ModelName,
    added_models,
    parse_name,
    published_config,
)
from dtpt.clip.loading.read import Checkpoint, read_file, read_folder
from dtpt.clip.model import Clip, image_tower
from dtpt.errors import CheckpointError, UnknownName, short_repr

DTYPES = ("float32", "float16", "bfloat16")
MAX_PROBLEMS = 5  # that a message lists

log = logging.getLogger("dtpt.clip")


def load_model(
    name: str,
    *,
    device: str = "auto",
    activation: Activation | None = None,
    precision: Precision = "float32",
    max_model_size: float = MAX_MODEL_SIZE,
) -> Clip:
    """Load a CLIP for inference, frozen and in eval mode.

    What had to be assumed, because the checkpoint does not state it, is in the model's `notes`.

    Args:
        name: `ViT-B-16/openai`, `pocket`, a name that you gave with `dtpt models add`,
            `hf-hub:org/repo[@revision]`, `local-dir:PATH`, `local-file:PATH` or `features:PATH`;
            `dtpt models` lists the known ones.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps" (see `choose_device`).
        activation: "quick_gelu" (OpenAI's models) or "gelu" (most others), for files and folders
            that do not state it; weights do not show it. One that contradicts is an error.
        precision: "float32", "bfloat16" or "float16": in which both towers compute. Features are
            float32 always, and so are losses. Half precision is for accelerators.
        max_model_size: GiB of weights in float32; a checkpoint that declares more is refused before
            any of it is read.

    Raises:
        UnknownName: no such model, activation or precision.
        CheckpointError: the checkpoint is missing, damaged, unsafe or does not fit its config.
        DeviceError: no such device here.

    Example:
        >>> model = load_model("pocket", device="cpu")
        >>> model.encode_text(["a photo of a cat."]).shape
        torch.Size([1, 256])
    """
    _check_choice(precision, get_args(Precision), what="precision")
    if activation is not None:
        _check_choice(activation, get_args(Activation), what="activation")
    parsed = parse_name(name)
    model = _load(
        parsed, activation, device=device, precision=precision, max_model_size=max_model_size
    )
    added = added_models().get(parsed.value) if parsed.kind == "added" else None
    if added is not None and model.fingerprint != added.fingerprint:
        raise CheckpointError(
            f"{name}: the weights at {added.path} have changed since they were added. To use the "
            f"new ones: dtpt models add {name} {added.path}"
        )
    if parsed.kind in PATHS.values():  # a name that does not depend on the current folder
        parsed = replace(parsed, value=str(Path(parsed.value).expanduser().absolute()))
    model.name = str(parsed)
    log.info("Loaded %s, fingerprint %s, on %s", model.name, model.fingerprint[:12], model.device)
    return model


def _load(
    name: ModelName,
    activation: Activation | None,
    *,
    device: str,
    precision: Precision,
    max_model_size: float,
) -> Clip:
    from dtpt.clip.loading.features import read_features

    if name.kind != "features":
        checkpoint = open_checkpoint(name, activation)
        return assemble(
            checkpoint, device=device, precision=precision, max_model_size=max_model_size
        )
    return read_features(
        Path(name.value).expanduser(),
        activation,
        device=device,
        precision=precision,
        max_model_size=max_model_size,
    )


def _check_choice(value: object, choices: tuple[str, ...], *, what: str) -> None:
    if not isinstance(value, str) or value not in choices:
        name = value if isinstance(value, str) else short_repr(value)
        raise UnknownName(what, name, choices, f"Use {', '.join(choices)}.")


def open_checkpoint(name: ModelName, activation: Activation | None = None) -> Checkpoint:
    """Find (and download, if need be) the checkpoint of a name; no weight is read yet."""
    path = Path(name.value).expanduser()
    if name.kind == "file":
        return read_file(path, activation)
    if name.kind == "folder":
        return read_folder(path, activation)
    if name.kind == "embedded":
        return read_folder(Path(str(resources.files("dtpt"))) / EMBEDDED, activation)
    expected = published_config(name.value)
    if name.kind != "added":
        return read_folder(fetch(name), activation, expected=expected)
    added = added_models()[name.value]
    checkpoint = read_path(Path(added.path), activation or added.activation, expected=expected)
    if added.status != "trusted":
        return checkpoint
    return checkpoint.with_note(f"{name.value} is read from {added.path}: trusted, not verified.")


def read_path(
    path: Path, activation: Activation | None = None, *, expected: ClipConfig | None = None
) -> Checkpoint:
    """Open a file or a folder, whichever is there; arguments as for `read_folder`."""
    if path.is_dir():
        return read_folder(path, activation, expected=expected)
    if expected is None:
        return read_file(path, activation)
    return read_file(path, activation or expected.activation).matched(expected)


def assemble(
    checkpoint: Checkpoint,
    *,
    device: str,
    precision: Precision = "float32",
    max_model_size: float = MAX_MODEL_SIZE,
) -> Clip:
    """Check everything, then read the weights into a model.

    The fingerprint is that of the float32 weights, whatever the precision.
    """
    target = choose_device(device)
    model = empty_model(checkpoint)
    expected = model_weights(model)
    _check_size(expected, max_model_size, origin=checkpoint.origin)
    _compare(checkpoint.weights, expected, origin=checkpoint.origin)
    state, model.fingerprint = _read_all(checkpoint, expected)
    if isinstance(checkpoint.config.vision, OpenClipVisionConfig):
        model.visual = image_tower(checkpoint.config).eval()  # with what no checkpoint holds
    for name in model.state_dict().keys() - state.keys():  # batch norm's counters
        state[name] = torch.zeros((), dtype=torch.int64)
    model.load_state_dict(state, assign=True)
    model.requires_grad_(False).in_precision(precision)
    if precision != "float32" and target.type == "cpu":
        model.notes += (f"{precision} on a CPU is slower than float32, and less exact.",)
    return model.to(target)


def empty_model(checkpoint: Checkpoint) -> Clip:
    """Build the model without memory (on the `meta` device): shapes to compare with and to fill."""
    try:
        with torch.device("meta"):
            model = Clip(
                checkpoint.config,
                tokenizer=checkpoint.tokenizer,
                preprocessing=checkpoint.preprocessing,
                visual=checkpoint.visual,
                has_logit_bias="logit_bias" in checkpoint.weights,
                notes=checkpoint.notes,
            )
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.origin}: {error}") from error
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{checkpoint.origin}: impossible config: {reason}") from error
    return model.eval().requires_grad_(False)


def model_weights(model: Clip) -> dict[str, Tensor]:
    """Return the weights under OpenAI's names, without batch norm's counters, which are unused."""
    state = model.state_dict()
    return {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}


def _check_size(expected: Mapping[str, Tensor], allowed: float, *, origin: str) -> None:
    declared = sum(4 * weight.numel() for weight in expected.values()) / 2**30
    if not declared <= allowed:
        raise CheckpointError(
            f"{origin} declares {declared:,.1f} GiB of weights in float32, more than the "
            f"{allowed:,.1f} GiB allowed. Pass `max_model_size={math.ceil(declared)}` "
            f"(--max-model-size {math.ceil(declared)}) if you trust it and have the memory."
        )


def _compare(weights: Weights, expected: Mapping[str, Tensor], *, origin: str) -> None:
    """Check names, shapes and dtypes, before any memory is allocated."""
    problems = [f"{name} is missing" for name in expected if name not in weights]
    problems += [f"{name} is not part of this model" for name in weights if name not in expected]
    for name in weights.keys() & expected.keys():
        tensor, shape = weights[name], tuple(expected[name].shape)
        if tensor.shape != shape:
            problems.append(f"{name} has shape {tensor.shape}, the config needs {shape}")
        elif tensor.dtype not in DTYPES:
            problems.append(f"{name} is {tensor.dtype}, not one of {', '.join(DTYPES)}")
    if problems:
        more = len(problems) - MAX_PROBLEMS
        listed = "; ".join(problems[:MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
        raise CheckpointError(f"{origin} does not fit its config: {listed}.")


def _read_all(
    checkpoint: Checkpoint, expected: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    """Return all weights, and a sha256 over config, tokenizer, preprocessing and weights.

    Weights count under OpenAI's names as the float32 numbers that are computed with, so the same
    model has the same fingerprint in whichever format it was stored.
    """
    parts = {
        "config": checkpoint.config.model_dump(mode="json"),
        "preprocessing": checkpoint.preprocessing.model_dump(mode="json"),
        "tokenizer": checkpoint.tokenizer and checkpoint.tokenizer.fingerprint,
    }
    if checkpoint.visual is not None:  # its weights do not tell how it computes
        parts["visual"] = re.sub(r" at 0x\w+", "", repr(checkpoint.visual))
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    state: dict[str, Tensor] = {}
    for name in sorted(expected):
        stored, what = checkpoint.weights[name], f"{checkpoint.origin}: {name}"
        weight = _read_weight(stored, expected[name], what=what)
        digest.update(f"\n{name} {tuple(weight.shape)}\n".encode())
        digest.update(weight.contiguous().view(-1).view(torch.uint8).numpy().data)
        state[name] = weight
    return state, digest.hexdigest()


def _read_weight(stored: StoredTensor, expected: Tensor, *, what: str) -> Tensor:
    """Return a weight as float32 in memory of its own, in the memory order of the model."""
    tensor = stored.read()
    if tuple(tensor.shape) != stored.shape:
        raise CheckpointError(f"{what} was declared as {stored.shape}, is {tuple(tensor.shape)}.")
    result = torch.empty_strided(expected.shape, expected.stride(), dtype=torch.float32)
    result.copy_(tensor)
    if not bool(torch.isfinite(result).all()):
        raise CheckpointError(f"{what} holds NaN or infinity. The weights are damaged.")
    return result
