"""Writing our own checkpoint folder: `dtpt_config.json`, `model.safetensors`, `tokenizer.json`."""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from dtpt.clip.loading.checks import expected_weights
from dtpt.clip.loading.configs import FORMAT_VERSION
from dtpt.clip.loading.filenames import OWN_CONFIG
from dtpt.clip.model import Clip
from dtpt.files import write_atomically


def save_model(
    model: Clip, folder: Path, *, tokenizer_json: bytes | None, dtype: torch.dtype = torch.float32
) -> None:
    """Write a model so that `local-dir:` loads it back.

    Args:
        model: any tower, also those that no foreign format can express.
        folder: made if it is missing.
        tokenizer_json: the model's `tokenizer.json`; None leaves CLIP's own vocabulary.
        dtype: of the stored weights; float16 halves the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "format": FORMAT_VERSION,
        "model": model.config.model_dump(mode="json"),
        "preprocess": model.preprocessing.model_dump(mode="json"),
    }
    weights = {
        name: tensor.detach().to("cpu", dtype).contiguous()
        for name, tensor in expected_weights(model).items()
    }
    write_atomically(folder / "model.safetensors", save(weights))
    if tokenizer_json is not None:
        write_atomically(folder / "tokenizer.json", tokenizer_json)
    write_atomically(folder / OWN_CONFIG, (json.dumps(document, indent=2) + "\n").encode())
