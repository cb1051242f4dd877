"""From a name to a model."""

import logging
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from dtpt.clip.config import Activation, ClipConfig, Precision
from dtpt.clip.device import choose_device
from dtpt.clip.loading.added import AddedModel, added_models
from dtpt.clip.loading.catalog import architecture, catalog
from dtpt.clip.loading.checkpoint import Checkpoint
from dtpt.clip.loading.checks import compare, expected_weights, read_all, skeleton
from dtpt.clip.loading.files import read_file
from dtpt.clip.loading.folders import agreed, read_folder
from dtpt.clip.loading.hub import fetch
from dtpt.clip.loading.names import EMBEDDED, ModelName, parse_name
from dtpt.clip.model import Clip
from dtpt.errors import CheckpointError, UnknownName, short_repr

log = logging.getLogger("dtpt.clip")


def load_model(
    name: str,
    *,
    device: str = "auto",
    activation: Activation | None = None,
    precision: Precision = "float32",
) -> Clip:
    """Load a CLIP for inference, frozen and in eval mode.

    What had to be assumed, because the checkpoint does not say it, is in the model's `notes`.

    Args:
        name: `ViT-B-16/openai`, `pocket`, a name that you gave with `dtpt models add`,
            `hf-hub:org/repo[@revision]`, `local-dir:PATH` or `local-file:PATH`; `dtpt models` lists
            the known ones.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps" (see `choose_device`).
        activation: "quick_gelu" (OpenAI's models) or "gelu" (most others), for files and folders
            that do not state it; weights do not show it. One that contradicts is an error.
        precision: "float32", "bfloat16" or "float16": in which both towers compute. Features are
            float32 always, and so are losses. Half precision is for accelerators.

    Raises:
        UnknownName: no such model, or no such precision.
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
    model = assemble(open_checkpoint(parsed, activation), device=device, precision=precision)
    if parsed.kind == "added":
        _check_unchanged(model, added_models()[parsed.value], name=parsed.value)
    model.name = str(_from_anywhere(parsed))
    log.info("Loaded %s, fingerprint %s, on %s", model.name, model.fingerprint[:12], model.device)
    return model


def _check_choice(value: object, known: tuple[str, ...], *, what: str) -> None:
    if not isinstance(value, str) or value not in known:
        name = value if isinstance(value, str) else short_repr(value)
        raise UnknownName(what, name, known, f"Use {', '.join(known)}.")


def _from_anywhere(name: ModelName) -> ModelName:
    """Return the name in a form that does not depend on the current folder."""
    if name.kind not in ("file", "folder"):
        return name
    return replace(name, value=str(Path(name.value).expanduser().absolute()))


def open_checkpoint(name: ModelName, activation: Activation | None = None) -> Checkpoint:
    """Find (and download, if need be) what a name stands for; no weight is read yet."""
    path = Path(name.value).expanduser()
    if name.kind == "file":
        return read_file(path, activation)
    if name.kind == "folder":
        return read_folder(path, activation)
    if name.kind == "embedded":
        return read_folder(_embedded(), activation)
    if name.kind == "hub":
        return read_folder(fetch(name), activation)
    entry = catalog().get(name.value)
    known = architecture(entry.architecture) if entry else None
    if name.kind == "added":
        return _open_added(name.value, activation, expected=known)
    return read_folder(fetch(name), activation, expected=known)


def read_path(
    path: Path, activation: Activation | None = None, *, expected: ClipConfig | None = None
) -> Checkpoint:
    """Open a file or a folder, whichever is there; arguments as for `read_folder`."""
    if path.is_dir():
        return read_folder(path, activation, expected=expected)
    if expected is None:
        return read_file(path, activation)
    checkpoint = read_file(path, activation or expected.activation)
    return replace(checkpoint, description=agreed(checkpoint.description, expected))


def assemble(checkpoint: Checkpoint, *, device: str, precision: Precision = "float32") -> Clip:
    """Check everything, then read the weights into a model.

    The fingerprint is that of the float32 weights, whatever the precision.

    Raises:
        CheckpointError: names, shapes, dtypes or values do not fit.
        DeviceError: no such device here.
    """
    target = choose_device(device)
    model = skeleton(checkpoint.description)
    expected = expected_weights(model)
    compare(checkpoint.weights, expected, origin=checkpoint.origin)
    state, fingerprint = read_all(checkpoint, expected)
    model.load_state_dict({**state, **_counters(model)}, assign=True)
    model.fingerprint = fingerprint
    model.requires_grad_(False).in_precision(precision)
    if precision != "float32" and target.type == "cpu":
        model.notes += (f"{precision} on a CPU is slower than float32, and less exact.",)
    return model.to(target)


def _counters(model: Clip) -> dict[str, Tensor]:
    """Return batch norm's step counters, which only training reads."""
    names = [name for name in model.state_dict() if name.endswith("num_batches_tracked")]
    return {name: torch.zeros((), dtype=torch.int64) for name in names}


def _embedded() -> Path:
    folder = Path(str(resources.files("dtpt"))) / EMBEDDED
    if not folder.is_dir():
        raise CheckpointError(f"This dtpt was built without its embedded model ({folder}).")
    return folder


def _open_added(
    name: str, activation: Activation | None, *, expected: ClipConfig | None
) -> Checkpoint:
    added = added_models()[name]
    checkpoint = read_path(Path(added.path), activation or added.activation, expected=expected)
    if added.status != "trusted":
        return checkpoint
    note = f"{name} is read from {added.path}: trusted by you, not verified."
    description = checkpoint.description
    description = replace(description, notes=(*description.notes, note))
    return replace(checkpoint, description=description)


def _check_unchanged(model: Clip, added: AddedModel, *, name: str) -> None:
    if model.fingerprint != added.fingerprint:
        raise CheckpointError(
            f"{name}: {added.path} holds another model than when it was added. If that is meant, "
            f"add it again: dtpt models add {name} {added.path}"
        )
