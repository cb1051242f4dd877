"""A trained initial context (CoOp's `ctx`) from a file, read without running anything in it."""

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from dtpt.errors import PromptError

NAMES = ("ctx", "prompt_learner.ctx")


def load_context(path: Path) -> tuple[Tensor, str]:
    """Return the (n, W) context in a file and the sha256 of its numbers.

    Args:
        path: `.safetensors`, or a CoOp checkpoint (`model.pth.tar-50`) that holds plain tensors.

    Raises:
        PromptError: The file is missing, unsafe, or has no tensor named ctx.
    """
    try:
        content = _read(path)
    except OSError as error:
        raise PromptError(f"Cannot read the context {path}: {error.strerror}.") from error
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, ValueError, EOFError) as error:
        raise PromptError(f"{path} is no file of plain tensors that can be read safely.") from error
    found = next((content[name] for name in NAMES if name in content), None)
    if not isinstance(found, Tensor) or found.ndim != 2:
        raise PromptError(f"{path} has no tensor ctx of shape (n, W).")
    context = found.detach().to("cpu", torch.float32).contiguous()
    digest = hashlib.sha256(f"{tuple(context.shape)}:".encode() + context.numpy().tobytes())
    return context, digest.hexdigest()


def _read(path: Path) -> Mapping[str, object]:
    if path.suffix == ".safetensors":
        return load_safetensors(path.read_bytes())
    content = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    return content if isinstance(content, Mapping) else {}
