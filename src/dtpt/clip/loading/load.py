"""From a name to a model."""

from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from dtpt.clip.config import Activation
from dtpt.clip.loading.catalog import architecture, catalog
from dtpt.clip.loading.checkpoint import Checkpoint
from dtpt.clip.loading.checks import compare, expected_weights, read_all, skeleton
from dtpt.clip.loading.files import read_file
from dtpt.clip.loading.folders import read_folder
from dtpt.clip.loading.hub import fetch
from dtpt.clip.loading.names import EMBEDDED, ModelName, parse_name
from dtpt.clip.model import Clip
from dtpt.errors import CheckpointError


def load_model(
    name: str,
    *,
    device: str = "cpu",
    activation: Activation | None = None,
    image_autocast: bool = False,
) -> Clip:
    """Load a CLIP for inference: float32, frozen, in eval mode.

    Args:
        name: `ViT-B-16/openai`, `pocket`, `hf-hub:org/repo[@revision]`, `local-dir:PATH` or
            `local-file:PATH`; `dtpt models` lists the known ones.
        device: where the weights go, as torch spells it.
        activation: only for single files that do not say which one they were trained with.
        image_autocast: run the image tower in half precision on CUDA.

    Raises:
        UnknownName: no such model.
        CheckpointError: the checkpoint is missing, damaged, unsafe or does not fit its config.

    Example:
        >>> model = load_model("ViT-B-16/openai")  # doctest: +SKIP
    """
    return assemble(
        open_checkpoint(parse_name(name), activation), device=device, image_autocast=image_autocast
    )


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
    known = architecture(catalog()[name.value].architecture)
    return read_folder(fetch(name), activation, expected=known)


def assemble(checkpoint: Checkpoint, *, device: str, image_autocast: bool = False) -> Clip:
    """Check everything, then read the weights into a model.

    Raises:
        CheckpointError: names, shapes, dtypes or values do not fit.
    """
    model = skeleton(checkpoint, image_autocast=image_autocast)
    expected = expected_weights(model)
    compare(checkpoint.weights, expected, origin=checkpoint.origin)
    state, fingerprint = read_all(checkpoint, expected)
    model.load_state_dict({**state, **_counters(model)}, assign=True)
    model.fingerprint = fingerprint
    return model.requires_grad_(False).to(torch.device(device))


def _counters(model: Clip) -> dict[str, Tensor]:
    """Batch norm's step counters, which only training reads."""
    names = [name for name in model.state_dict() if name.endswith("num_batches_tracked")]
    return {name: torch.zeros((), dtype=torch.int64) for name in names}


def _embedded() -> Path:
    folder = Path(str(resources.files("dtpt"))) / EMBEDDED
    if not folder.is_dir():
        raise CheckpointError(f"This dtpt was built without its embedded model ({folder}).")
    return folder
