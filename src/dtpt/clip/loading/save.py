"""Writing our own checkpoint folder: `dtpt_config.json`, `model.safetensors`, `tokenizer.json`."""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from dtpt.clip.loading.build import model_weights
from dtpt.clip.loading.formats import FORMAT_VERSION, OWN_CONFIG
from dtpt.clip.model import Clip
from dtpt.clip.pieces import PieceTokenizer
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError
from dtpt.files import write_atomically


def save_model(
    model: Clip,
    folder: Path,
    *,
    tokenizer_json: bytes | None = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model so that `local-dir:` loads it back.

    Args:
        model: with any of our towers, also those that no foreign format can express.
        folder: made if it is missing.
        tokenizer_json: the file to store; None makes one from the model's tokenizer, or none at all
            if that is CLIP's own.
        dtype: of the stored weights; float16 halves the file.
    """
    if model.text is None:
        raise CheckpointError("The model has no text tower: use `FeatureModel.save`.")
    if model.precision in ("bfloat16", "float16"):
        raise CheckpointError(
            f"The weights are {model.precision}: load the model in float32 to save it."
        )
    if model.config.vision is None or model.config.vision.kind == "given":
        raise CheckpointError("The image tower came as a module: no file can hold how it computes.")
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "format": FORMAT_VERSION,
        "model": model.config.model_dump(mode="json"),
        "preprocess": model.preprocessing.model_dump(mode="json"),
    }
    words = model.tokenizer
    if isinstance(words, PieceTokenizer):
        document["tokenizer"] = words.framing.model_dump()
    weights = {
        name: tensor.detach().to("cpu", dtype).contiguous()
        for name, tensor in model_weights(model).items()
    }
    write_atomically(folder / "model.safetensors", save(weights))
    usual = Tokenizer.clip_default(context_length=words.context_length)
    if tokenizer_json is None and words.fingerprint != usual.fingerprint:
        tokenizer_json = words.to_json()
    if tokenizer_json is not None:
        write_atomically(folder / "tokenizer.json", tokenizer_json)
    write_atomically(folder / OWN_CONFIG, (json.dumps(document, indent=2) + "\n").encode())
