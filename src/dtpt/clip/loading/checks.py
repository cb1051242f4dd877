"""Comparing weights with the config before memory is allocated, and reading them afterwards."""

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from dtpt.clip.loading.checkpoint import Checkpoint, Description
from dtpt.clip.loading.tensors import StoredTensor
from dtpt.clip.model import Clip
from dtpt.errors import CheckpointError

FLOATS = ("float32", "float16", "bfloat16")
SHOWN = 5


def skeleton(description: Description) -> Clip:
    """Build the model without memory (on the `meta` device): shapes to compare with and to fill.

    Raises:
        CheckpointError: the config's numbers do not fit together.
    """
    try:
        with torch.device("meta"):
            model = Clip(
                description.config,
                tokenizer=description.tokenizer,
                preprocessing=description.preprocessing,
                notes=description.notes,
            )
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{description.origin}: no model has this config: {reason}"
        ) from error
    return model.eval().requires_grad_(False)


def expected_weights(model: Clip) -> dict[str, Tensor]:
    """Return names and shapes that the config asks for.

    Batch norm's counters are left out: nothing reads them.
    """
    state = model.state_dict()
    return {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}


def compare(
    weights: Mapping[str, StoredTensor], expected: Mapping[str, Tensor], *, origin: str
) -> None:
    """Check names, shapes and dtypes.

    Raises:
        CheckpointError: lists the first few differences and how many there are.
    """
    problems = [f"{name} is missing" for name in expected if name not in weights]
    problems += [f"{name} is not part of this model" for name in weights if name not in expected]
    for name, tensor in weights.items():
        if name not in expected:
            continue
        shape = tuple(expected[name].shape)
        if tensor.shape != shape:
            problems.append(f"{name} has shape {tensor.shape}, the config asks for {shape}")
        elif tensor.dtype not in FLOATS:
            problems.append(f"{name} is {tensor.dtype}, not one of {', '.join(FLOATS)}")
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        listed = "; ".join(problems[:SHOWN])
        raise CheckpointError(f"{origin} does not fit its config: {listed}{more}.")


def read_weight(name: str, stored: StoredTensor, *, expected: Tensor, origin: str) -> Tensor:
    """Return a weight as float32 in memory of its own, in the memory order that the model wants.

    Raises:
        CheckpointError: the bytes cannot be read or hold NaN or infinity.
    """
    tensor = stored.read()
    if tuple(tensor.shape) != stored.shape:
        raise CheckpointError(f"{origin}: {name} turned out as {tuple(tensor.shape)}.")
    result = torch.empty_strided(expected.shape, expected.stride(), dtype=torch.float32)
    result.copy_(tensor)
    if not bool(torch.isfinite(result).all()):
        raise CheckpointError(f"{origin}: {name} holds NaN or infinity. The weights are damaged.")
    return result


def read_all(
    checkpoint: Checkpoint, expected: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    """Return all weights, and the model's fingerprint.

    The fingerprint is a sha256 over config, tokenizer, preprocessing and weights. Weights count
    under OpenAI's names as the float32 numbers that are computed with, so the same model has the
    same fingerprint in whichever format it was stored.
    """
    digest = hashlib.sha256(_canonical(checkpoint.description))
    state: dict[str, Tensor] = {}
    for name in sorted(expected):
        weight = read_weight(
            name, checkpoint.weights[name], expected=expected[name], origin=checkpoint.origin
        )
        digest.update(f"\n{name} {tuple(weight.shape)}\n".encode())
        digest.update(weight.contiguous().view(-1).view(torch.uint8).numpy().data)
        state[name] = weight
    return state, digest.hexdigest()


def _canonical(description: Description) -> bytes:
    parts = {
        "config": description.config.model_dump(mode="json"),
        "preprocessing": description.preprocessing.model_dump(mode="json"),
        "tokenizer": description.tokenizer.fingerprint,
    }
    return json.dumps(parts, sort_keys=True).encode()
