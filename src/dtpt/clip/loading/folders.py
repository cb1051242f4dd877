"""Checkpoint folders: transformers', open_clip's and our own."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dtpt.clip.config import Activation, ClipConfig
from dtpt.clip.loading import configs
from dtpt.clip.loading.checkpoint import Checkpoint, Description, find_tokenizer, is_there
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
from dtpt.errors import CheckpointError, explain, os_error
from dtpt.files import printable


def read_folder(
    folder: Path, activation: Activation | None = None, *, expected: ClipConfig | None = None
) -> Checkpoint:
    """Open a folder, whichever of the known libraries saved it.

    Args:
        folder: with one of the known config files and its weights.
        activation: counts where the config does not state it; must agree where it does.
        expected: what the catalogue knows about the model; shapes must agree, and its activation
            counts, because OpenAI's models are known to use QuickGELU.

    Raises:
        CheckpointError: nothing known is there, or it is incomplete or contradictory.
    """
    origin = printable(folder)
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise CheckpointError(f"{origin} cannot be read: {os_error(error)}.") from error
    kind, weights = config_file(names), weight_file(names)
    if kind is None:
        raise CheckpointError(f"{origin} holds none of {', '.join(CONFIGS)}: no known checkpoint.")
    if weights is None:
        raise CheckpointError(f"{origin} has {kind} but no weights that belong to it.")
    description = describe(folder / kind, kind)
    if expected is not None:
        description = agreed(description, expected)
    description = description.with_activation(activation)
    tensors = to_openai_names(read_weights(folder / weights), origin=printable(folder / weights))
    return Checkpoint(origin, description, tensors)


def read_weights(path: Path) -> Weights:
    """Open a weight file of a folder, by its name."""
    if path.name.endswith(".index.json"):
        return read_shards(path)
    return read_safetensors(path)[0] if path.suffix == ".safetensors" else read_state_dict(path)


def describe(path: Path, kind: str) -> Description:
    """Return all that is not weights.

    Args:
        path: the config file; tokenizer and image processor lie beside it.
        kind: whose format it has, as the name that such a file has in a folder.
    """
    document, origin = read_json(path), printable(path)
    if kind == OWN_CONFIG:
        config = configs.from_dtpt(document, origin=origin)
        preprocessing = _own_preprocessing(document, origin=origin)
        return Description(origin, config, find_tokenizer(path.parent, config), preprocessing)
    if kind == OPEN_CLIP_CONFIG:
        return _describe_open_clip(path.parent, document, origin=origin)
    return _describe_transformers(path.parent, document, origin=origin)


def agreed(description: Description, expected: ClipConfig) -> Description:
    """Return the description with the catalogue's config; only the activation may differ from it.

    Raises:
        CheckpointError: the shapes are others.
    """
    activation = description.config.activation
    if description.config != expected.model_copy(update={"activation": activation}):
        raise CheckpointError(
            f"{description.origin} has other shapes than the catalogue says: {description.config}."
        )
    return replace(description, config=expected, states_activation=True)


def _own_preprocessing(document: Mapping[str, Any], *, origin: str) -> Preprocess:
    try:
        return Preprocess.model_validate(document.get("preprocess"))
    except ValidationError as error:
        raise CheckpointError(f"{origin}: preprocess is malformed: {explain(error)}.") from error


def _describe_open_clip(folder: Path, document: Mapping[str, Any], *, origin: str) -> Description:
    """Read `open_clip_config.json`, or a bare model config like those in open_clip's package."""
    model = document.get("model_cfg", document)
    if not isinstance(model, Mapping):
        raise CheckpointError(f"{origin}: model_cfg is no JSON object.")
    config = configs.from_open_clip(model, origin=origin)
    text = model.get("text_cfg") or {}
    tokenizer = find_tokenizer(folder, config, named=text.get("hf_tokenizer_name"))
    check_end(configs.open_clip_end(text), tokenizer, origin=origin)
    size, pixels = config.vision.image_size, document.get("preprocess_cfg")
    if pixels is not None and not isinstance(pixels, Mapping):
        raise CheckpointError(f"{origin}: preprocess_cfg is no JSON object.")
    return Description(
        origin,
        config,
        tokenizer,
        Preprocess.openai(size) if pixels is None else Preprocess.from_open_clip(pixels, size=size),
        states_activation="quick_gelu" in model,
        notes=assumed_pixels(f"{origin} has no preprocess_cfg") if pixels is None else (),
    )


def _describe_transformers(
    folder: Path, document: Mapping[str, Any], *, origin: str
) -> Description:
    config = configs.from_transformers(document, origin=origin)
    tokenizer = find_tokenizer(folder, config)
    check_end(configs.transformers_end(document, origin=origin), tokenizer, origin=origin)
    pixels = _image_processor(folder)
    missing = f"{printable(folder)} has no preprocessor_config.json"
    return Description(
        origin,
        config,
        tokenizer,
        Preprocess.openai(config.vision.image_size)
        if pixels is None
        else Preprocess.from_hf(pixels),
        states_activation=configs.transformers_states_activation(document, origin=origin),
        notes=assumed_pixels(missing) if pixels is None else (),
    )


def assumed_pixels(reason: str) -> tuple[str]:
    """Return the note on a checkpoint that does not say how it wants its pictures."""
    return (
        f"{reason}: pictures are prepared as for OpenAI's CLIP (bicubic, its mean and spread).",
    )


def check_end(place: object, tokenizer: Tokenizer, *, origin: str) -> None:
    """Check that the checkpoint reads the text feature at the token that ends texts."""
    expected = tokenizer.vocab_size - 1 if place == configs.LARGEST_ID else place
    if expected != tokenizer.end_id:
        raise CheckpointError(
            f"{origin}: the text feature is read at token {expected!r}, but the tokenizer ends "
            f"texts with {tokenizer.end_id}."
        )


def _image_processor(folder: Path) -> Mapping[str, Any] | None:
    """Return the image processor's settings, from the file of either generation, or None."""
    if is_there(folder / "preprocessor_config.json"):
        return read_json(folder / "preprocessor_config.json")
    if is_there(folder / "processor_config.json"):
        settings = read_json(folder / "processor_config.json").get("image_processor")
        return settings if isinstance(settings, Mapping) else None
    return None
