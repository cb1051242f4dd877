"""Models from parts (`features:FOLDER`): text features of a class list, and an image tower or none.

    text_features.safetensors    tensor `text_features` (C, D), metadata `dtpt`: the JSON of `Parts`
    image_tower.safetensors      optional: a vision tower in transformers', OpenAI's or open_clip's
                                 names; metadata `activation`, where the JSON does not state it

Shapes show the tower's architecture, with OpenAI's 64 dimensions a head; the JSON states any other.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from safetensors.torch import save
from torch import Tensor, nn

from dtpt.clip.config import MAX_MODEL_SIZE, Activation, ModelConfig, Precision, VisionConfig
from dtpt.clip.device import choose_device
from dtpt.clip.fixed_text import FixedText
from dtpt.clip.loading import formats
from dtpt.clip.loading.build import assemble, model_weights
from dtpt.clip.loading.formats import Weights
from dtpt.clip.loading.read import Checkpoint, in_memory, read_safetensors
from dtpt.clip.model import Clip
from dtpt.clip.preprocess import Preprocess
from dtpt.errors import CheckpointError, ModelError, explain, os_error
from dtpt.files import digest, parse_json, printable, write_atomically

TEXT_FILE, TOWER_FILE = "text_features.safetensors", "image_tower.safetensors"


class Parts(BaseModel):
    """What the metadata key `dtpt` of the text features states."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    prompt: str
    logit_scale: FiniteFloat
    logit_bias: FiniteFloat | None = None
    source: str = ""
    licence: str = ""
    activation: Activation | None = None  # of the image tower
    preprocess: Preprocess | None = None  # None: OpenAI's, at the size that the tower takes
    vision: VisionConfig | None = None  # None: as the shapes of the tower's tensors show it


class NoImageTower(nn.Module):
    """In place of a missing image tower."""

    def forward(self, _pixels: Tensor) -> Tensor:
        raise ModelError(
            "This model has text features only and cannot encode images. Use a feature pack "
            f"(`--dataset pack:FOLDER`), or put the image tower beside them as {TOWER_FILE}."
        )


class FeatureModel(Clip):
    """A model without text tower: text features of one class list, and an image tower or none.

    It runs every method that needs no gradient through a text tower.
    `load_model("features:FOLDER")` reads one from a folder.

    Args:
        classes: Class names; predictions may be among some of them, in any order.
        text_features: (C, D), of any length.
        prompt: What the features are of, for people: "a photo of a {}.".
        logit_scale: Factor of the cosines.
        logit_bias: Of a sigmoid loss, for the record: the softmax cancels it.
        source: Where the features come from.
        licence: Theirs.
        image: A model whose image tower encodes images; None encodes none.

    Raises:
        ModelError: The features do not fit the classes or the image tower.

    Example:
        >>> import dtpt
        >>> pocket, names = dtpt.load_model("pocket", device="cpu"), ["cat", "dog", "fox"]
        >>> features = pocket.encode_text([f"a photo of a {name}." for name in names])
        >>> model = dtpt.FeatureModel(names, features, image=pocket)
        >>> dtpt.Classifier(model, ["fox", "cat"], method="mean-views").classes
        ('fox', 'cat')
    """

    fixed_text: FixedText

    def __init__(
        self,
        classes: Sequence[str],
        text_features: Tensor,
        *,
        prompt: str = "",
        logit_scale: float = 100.0,
        logit_bias: float | None = None,
        source: str = "",
        licence: str = "",
        image: Clip | None = None,
    ) -> None:
        text = FixedText(
            tuple(classes), text_features, prompt, logit_scale, logit_bias, source, licence
        )
        dimensions = text.features.shape[1]
        config = ModelConfig(embed_dim=dimensions, activation="gelu", vision=None, text=None)
        if image is not None:
            config = ModelConfig(**{**dict(image.config), "text": None})
            if config.embed_dim != dimensions:
                raise ModelError(
                    f"The text features have {dimensions} dimensions, the image tower's "
                    f"{config.embed_dim}."
                )
        super().__init__(
            config,
            tokenizer=None,
            preprocessing=Preprocess.openai() if image is None else image.preprocessing,
            visual=NoImageTower() if image is None else image.visual,
            has_logit_bias=logit_bias is not None,
            notes=() if image is None else image.notes,
        )
        self.fixed_text = text
        self._image_fingerprint = "" if image is None else image.image_fingerprint
        self.fingerprint = digest([self._image_fingerprint, text.fingerprint])
        self._half = None if image is None else image._half
        device = "cpu" if image is None else image.device
        scale = torch.tensor(math.log(text.logit_scale), device=device)
        self.log_logit_scale = nn.Parameter(scale)
        if logit_bias is not None:
            self.logit_bias = nn.Parameter(torch.tensor(logit_bias, device=device))
        self.eval().requires_grad_(False)

    @property
    def image_fingerprint(self) -> str:
        """Return what identifies image features: image tower and preprocessing."""
        return self._image_fingerprint

    def save(self, folder: Path) -> None:
        """Write the folder that `features:FOLDER` reads; the tower with its own shapes."""
        text, has_tower = self.fixed_text, self.config.vision is not None
        if self.precision != "float32":
            raise CheckpointError(f"The weights are {self.precision}: load the model in float32.")
        parts = Parts(
            format=1,
            classes=text.classes,
            prompt=text.prompt,
            logit_scale=text.logit_scale,
            logit_bias=text.logit_bias,
            source=text.source,
            licence=text.licence,
            activation=self.config.activation if has_tower else None,
            preprocess=self.preprocessing if has_tower else None,
            vision=self.config.vision,
        )
        tower = {n: t for n, t in model_weights(self).items() if n.startswith("visual.")}
        if tower and not has_tower:
            raise CheckpointError("The image tower is of a kind that no file can hold.")
        metadata = {"dtpt": parts.model_dump_json(exclude_none=True)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if has_tower:
                weights = {n: t.detach().cpu().contiguous() for n, t in tower.items()}
                write_atomically(folder / TOWER_FILE, save(weights))
            data = save({"text_features": text.features}, metadata)
            write_atomically(folder / TEXT_FILE, data)
        except OSError as error:
            reason = os_error(error)
            raise CheckpointError(f"{printable(folder)} cannot be written: {reason}.") from error


def read_features(
    folder: Path,
    activation: Activation | None = None,
    *,
    device: str = "auto",
    precision: Precision = "float32",
    max_model_size: float = MAX_MODEL_SIZE,
) -> FeatureModel:
    """Read a folder of parts; arguments as for `load_model`."""
    path, tower, image = folder / TEXT_FILE, folder / TOWER_FILE, None
    parts, features = _read_text(path, max_model_size=max_model_size)
    if tower.exists() or tower.is_symlink():
        checkpoint = _describe_tower(tower, parts, given=activation, dimensions=features.shape[1])
        image = assemble(
            checkpoint, device=device, precision=precision, max_model_size=max_model_size
        )
    stated = parts.model_dump(exclude={"format", "activation", "preprocess", "vision"})
    try:
        model = FeatureModel(**stated, text_features=features, image=image)
    except ModelError as error:
        raise CheckpointError(f"{printable(path)}: {error}") from error
    return model if image is not None else model.to(choose_device(device))


def _read_text(path: Path, *, max_model_size: float) -> tuple[Parts, Tensor]:
    tensors, metadata = read_safetensors(path)
    origin = printable(path)
    if "dtpt" not in metadata:
        raise CheckpointError(f"{origin} lacks the metadata key 'dtpt': JSON with its classes.")
    try:
        parts = Parts.model_validate(parse_json(metadata["dtpt"].encode()))
    except ValidationError as error:
        raise CheckpointError(f"{origin}: metadata 'dtpt': {explain(error)}.") from error
    except ValueError as error:
        raise CheckpointError(f"{origin}: metadata 'dtpt' is not valid JSON: {error}") from error
    if set(tensors) != {"text_features"}:
        names = ", ".join(sorted(tensors)[:3])
        raise CheckpointError(f"{origin} has the tensors {names}; expected text_features alone.")
    stored = tensors["text_features"]
    if len(stored.shape) != 2 or stored.shape[0] != len(parts.classes):
        raise CheckpointError(
            f"{origin}: text_features has shape {stored.shape}, for {len(parts.classes)} classes."
        )
    if 4 * math.prod(stored.shape) > max_model_size * 2**30:
        raise CheckpointError(f"{origin} declares more than {max_model_size:g} GiB of features.")
    if stored.dtype not in ("float32", "float16", "bfloat16"):
        raise CheckpointError(f"{origin}: text_features is {stored.dtype}; use float32.")
    return parts, stored.read()


def _describe_tower(
    path: Path, parts: Parts, *, given: Activation | None, dimensions: int
) -> Checkpoint:
    origin = printable(path)
    stored, metadata = read_safetensors(path)
    sources = (parts.activation, metadata.get("activation"), given)
    names = {name for name in sources if name is not None}
    if len(names) != 1:
        raise CheckpointError(
            f"{origin}: its activation is {' and '.join(sorted(names)) or 'not stated'}. State "
            "quick_gelu (OpenAI's models) or gelu once, as metadata 'activation' or in the JSON."
        )
    weights = formats.to_openai_names(stored, origin=origin)
    config = _tower_config(
        weights, parts, activation=names.pop(), dimensions=dimensions, origin=origin
    )
    if config.vision is None:
        raise CheckpointError(f"{origin} has no image tower.")
    preprocessing = parts.preprocess or Preprocess.openai(config.vision.image_size)
    # a `Clip` has a logit scale; the one that counts comes with the text
    weights = {**weights, "logit_scale": in_memory(torch.zeros(()))}
    return Checkpoint(origin, config, None, preprocessing, weights)


def _tower_config(
    weights: Weights, parts: Parts, *, activation: str, dimensions: int, origin: str
) -> ModelConfig:
    if parts.vision is None:
        return formats.infer_image_config(weights, activation, origin=origin)
    fields = {"embed_dim": dimensions, "activation": activation, "vision": parts.vision}
    return formats.validated(ModelConfig, {**fields, "text": None}, origin=origin)
