"""Checkpoint folders: transformers', open_clip's and our own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dtpt.clip.config import Activation, ClipConfig
from dtpt.clip.loading import configs
from dtpt.clip.loading.checkpoint import (
    Checkpoint,
    check_activation,
    check_image_size,
    find_tokenizer,
)
from dtpt.clip.loading.documents import read_json
from dtpt.clip.loading.filenames import (
    CONFIGS,
    OPEN_CLIP_CONFIG,
    OWN_CONFIG,
    config_file,
    weight_file,
)
from dtpt.clip.loading.layouts import to_openai_names
from dtpt.clip.loading.tensors import Weights, read_safetensors, read_shards, read_state_dict
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError


def read_folder(
    folder: Path, activation: Activation | None = None, *, expected: ClipConfig | None = None
) -> Checkpoint:
    """Open a folder, whichever of the known libraries saved it.

    Args:
        folder: with one of the known config files and its weights.
        activation: if given, must agree with the config.
        expected: what the catalogue knows about the model; shapes must agree, and its activation
            counts, because OpenAI's models are known to use QuickGELU.

    Raises:
        CheckpointError: nothing known is there, or it is incomplete or contradictory.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror or error}") from error
    kind, weights = config_file(names), weight_file(names)
    if kind is None:
        raise CheckpointError(f"{folder} holds none of {', '.join(CONFIGS)}: no known checkpoint.")
    if weights is None:
        raise CheckpointError(f"{folder} has {kind} but no weights that belong to it.")
    config, tokenizer, preprocessing = describe(folder / kind, kind)
    if expected is not None:
        config = _agreed(config, expected, origin=str(folder))
    check_activation(activation, config, origin=str(folder / kind))
    check_image_size(preprocessing, config, origin=str(folder))
    tensors = to_openai_names(read_weights(folder / weights), origin=str(folder / weights))
    return Checkpoint(str(folder), config, tensors, tokenizer, preprocessing)


def read_weights(path: Path) -> Weights:
    """Open a weight file of a folder, by its name."""
    if path.name.endswith(".index.json"):
        return read_shards(path)
    return read_safetensors(path)[0] if path.suffix == ".safetensors" else read_state_dict(path)


def describe(path: Path, kind: str) -> tuple[ClipConfig, Tokenizer, Preprocess]:
    """Config, tokenizer and preprocessing: all that is not weights.

    Args:
        path: the config file; tokenizer and image processor lie beside it.
        kind: whose format it has, as the name that such a file has in a folder.
    """
    folder, document, origin = path.parent, read_json(path), str(path)
    if kind == OWN_CONFIG:
        config = configs.from_dtpt(document, origin=origin)
        preprocessing = _own_preprocessing(document, origin=origin)
        return config, find_tokenizer(folder, config), preprocessing
    if kind == OPEN_CLIP_CONFIG:
        return _describe_open_clip(folder, document, origin=origin)
    config = configs.from_transformers(document, origin=origin)
    tokenizer = find_tokenizer(folder, config)
    _check_end(configs.transformers_end(document, origin=origin), tokenizer, origin=origin)
    return config, tokenizer, _transformers_preprocessing(folder)


def _own_preprocessing(document: Mapping[str, Any], *, origin: str) -> Preprocess:
    try:
        return Preprocess.model_validate(document.get("preprocess"))
    except ValidationError as error:
        raise CheckpointError(f"{origin}: preprocess is malformed: {error.errors()[0]}") from error


def _describe_open_clip(
    folder: Path, document: Mapping[str, Any], *, origin: str
) -> tuple[ClipConfig, Tokenizer, Preprocess]:
    model, pixels = document.get("model_cfg"), document.get("preprocess_cfg")
    if not isinstance(model, Mapping) or not isinstance(pixels, Mapping):
        raise CheckpointError(f"{origin} needs both model_cfg and preprocess_cfg.")
    config = configs.from_open_clip(model, origin=origin)
    text = model.get("text_cfg") or {}
    tokenizer = find_tokenizer(folder, config, named=text.get("hf_tokenizer_name"))
    _check_end(configs.open_clip_end(text), tokenizer, origin=origin)
    size = config.vision.image_size
    return config, tokenizer, Preprocess.from_open_clip(pixels, size=size)


def _check_end(place: object, tokenizer: Tokenizer, *, origin: str) -> None:
    """The token where the checkpoint reads the text feature must be the one that ends texts."""
    expected = tokenizer.vocab_size - 1 if place == configs.LARGEST_ID else place
    if expected != tokenizer.end_id:
        raise CheckpointError(
            f"{origin}: the text feature is read at token {expected!r}, but the tokenizer ends "
            f"texts with {tokenizer.end_id}."
        )


def _transformers_preprocessing(folder: Path) -> Preprocess:
    """The image processor's settings, from the file of either generation."""
    if (folder / "preprocessor_config.json").is_file():
        return Preprocess.from_hf(read_json(folder / "preprocessor_config.json"))
    if (folder / "processor_config.json").is_file():
        settings = read_json(folder / "processor_config.json").get("image_processor")
        if isinstance(settings, Mapping):
            return Preprocess.from_hf(settings)
    raise CheckpointError(
        f"{folder} has no preprocessor_config.json. Save the model's CLIPImageProcessor there."
    )


def _agreed(config: ClipConfig, expected: ClipConfig, *, origin: str) -> ClipConfig:
    known = expected.model_copy(update={"activation": config.activation})
    if config != known:
        raise CheckpointError(f"{origin} has other shapes than the catalogue says: {config}.")
    return expected
