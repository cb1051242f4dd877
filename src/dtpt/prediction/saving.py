"""A classifier in a folder: JSON and safetensors, nothing that could run code when it is read.

    classifier.json          classes, template, method, views, settings, and which model
    classifier.safetensors   the text features of the classes, and a context that is not words
    calibration.json         the calibration, if there is one, as `dtpt calibrate` writes it
    model/                   the weights, if they were asked for, as `save_model` writes them

The text features are why loading is fast: the text tower does not run. Without its weights the
model is found by the name it was loaded by, and its fingerprint must be the same.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

import dtpt
from dtpt.calibration import Calibration, read_calibration
from dtpt.clip.config import Activation, Precision
from dtpt.clip.loading import load_model
from dtpt.clip.loading.formats import read_json
from dtpt.clip.loading.save import save_model
from dtpt.clip.model import Clip
from dtpt.errors import (
    CheckpointError,
    DtptError,
    MethodError,
    OptionError,
    explain,
    os_error,
    short_repr,
)
from dtpt.files import AnyPath, as_path, printable, read_limited, write_atomically
from dtpt.methods import ResolvedMethod, parse_label, resolve_method
from dtpt.tuning.settings import TuningSettings
from dtpt.views.recipe import ViewRecipe

FORMAT = 1
DOCUMENT = "classifier.json"
TENSORS = "classifier.safetensors"
CALIBRATION = "calibration.json"
WEIGHTS = "model"
MOST_TENSOR_BYTES = 1 << 30  # 20,000 classes of 1,024 numbers have 80 MB


@dataclass(frozen=True, eq=False)
class Parts:
    """What a classifier is made of."""

    model: Clip
    classes: tuple[str, ...]  # as the caller wrote them
    template: str
    method: ResolvedMethod  # with a λ that was selected
    recipe: ViewRecipe
    seed: int
    settings: TuningSettings | None = None
    context: Tensor | None = None  # (n, W) initial context instead of the template's words
    text_features: Tensor | None = None  # (C, D) at the initial context, where they are known
    calibration: Calibration | None = None


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SavedMethod(_Record):
    """A method by its name, with what may differ from its defaults."""

    name: str
    lambda_: float | None
    learning_rate: float | None


class SavedModel(_Record):
    """Which model: its name for `load_model`, if it has one, and what else decides its numbers."""

    name: str
    fingerprint: str
    precision: str
    activation: Activation
    weights: bool


class SavedClassifier(_Record):
    """The content of `classifier.json`; `tensors` is the sha256 of `classifier.safetensors`."""

    format: int
    dtpt: str
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    template: str
    method: SavedMethod
    views: ViewRecipe
    seed: int
    settings: TuningSettings
    model: SavedModel
    calibration: bool
    tensors: str


def save_parts(parts: Parts, folder: AnyPath, *, weights: bool = False) -> None:
    """Write a classifier to a folder, which is made if it is missing; the document comes last.

    Raises:
        MethodError: the method has functions of the caller's own, which no file can hold.
        CheckpointError: the folder cannot be written, or the model is in half precision and its
            weights were asked for.
    """
    _check_method(parts.method)
    home = as_path(folder, "folder")
    tensors = save_tensors(_stored(parts))
    document = _describe(parts, hashlib.sha256(tensors).hexdigest(), weights=weights)
    try:
        home.mkdir(parents=True, exist_ok=True)
        if weights:
            save_model(parts.model, home / WEIGHTS)
        if parts.calibration is not None:
            parts.calibration.save(home / CALIBRATION)
        write_atomically(home / TENSORS, tensors)
        write_atomically(home / DOCUMENT, (document.model_dump_json(indent=2) + "\n").encode())
    except OSError as error:
        reason = os_error(error)
        raise CheckpointError(f"{printable(home)} cannot be written: {reason}.") from error


def load_parts(folder: AnyPath, model: Clip | None = None, *, device: str = "auto") -> Parts:
    """Read what `save_parts` wrote.

    Raises:
        CheckpointError: a file is missing or damaged, was written by a newer version, or the model
            is another one.
        CalibrationError: the calibration is damaged.
    """
    home = as_path(folder, "folder")
    saved = _read_document(home)
    if model is None:
        model = _load_model(home, saved.model, device=device)
    if not isinstance(model, Clip):
        raise OptionError(f"The model must come from load_model, not {short_repr(model)}.")
    if model.fingerprint != saved.model.fingerprint:
        raise CheckpointError(
            f"{printable(home)} was saved with another model: its fingerprint is "
            f"{saved.model.fingerprint[:12]}, this one's {model.fingerprint[:12]}."
        )
    tensors = _read_tensors(home, saved, model=model)
    is_same = model.precision == saved.model.precision
    return Parts(
        model=model,
        classes=saved.classes,
        template=saved.template,
        method=_method(saved.method),
        recipe=saved.views,
        seed=saved.seed,
        settings=saved.settings,
        context=tensors.get("context"),
        text_features=tensors["text_features"].to(model.log_logit_scale) if is_same else None,
        calibration=read_calibration(home / CALIBRATION) if saved.calibration else None,
    )


def _stored(parts: Parts) -> dict[str, Tensor]:
    tensors = {"context": parts.context, "text_features": parts.text_features}
    return {k: v.detach().cpu().contiguous() for k, v in tensors.items() if v is not None}


def _describe(parts: Parts, digest: str, *, weights: bool) -> SavedClassifier:
    model, method = parts.model, parts.method
    return SavedClassifier(
        format=FORMAT,
        dtpt=dtpt.__version__,
        classes=parts.classes,
        template=parts.template,
        method=SavedMethod(
            name=method.name, lambda_=method.lambda_, learning_rate=method.learning_rate
        ),
        views=parts.recipe,
        seed=parts.seed,
        settings=parts.settings or TuningSettings(),
        model=SavedModel(
            name=model.name,
            fingerprint=model.fingerprint,
            precision=model.precision,
            activation=model.config.activation,
            weights=weights,
        ),
        calibration=parts.calibration is not None,
        tensors=digest,
    )


def _method(saved: SavedMethod) -> ResolvedMethod:
    # a rule such as @auto=0.9 is part of the name
    lambda_ = None if parse_label(saved.name).rule else saved.lambda_
    method = resolve_method(saved.name, lambda_=lambda_)
    return replace(method, lambda_=saved.lambda_, learning_rate=saved.learning_rate)


def _check_method(method: ResolvedMethod) -> None:
    # its name must give it back
    saved = SavedMethod(
        name=method.name, lambda_=method.lambda_, learning_rate=method.learning_rate
    )
    try:
        named = _method(saved)
    except DtptError as error:
        raise _own_functions(method) from error
    if named.method != method.method or _numbers(named) != _numbers(method):
        raise _own_functions(method)


def _numbers(method: ResolvedMethod) -> list[tuple[Any, ...]]:
    # what distinguishes modifiers: names, and the numbers inside (`+ts=1.16`)
    return [
        (m.name, m.learning_rate, *(getattr(f, "keywords", f) for f in (m.logits, m.read_out)))
        for m in method.modifiers
    ]


def _own_functions(method: ResolvedMethod) -> MethodError:
    return MethodError(
        f"{method.name} is not what `dtpt methods` knows by this name, and a file holds no "
        "functions: make it a plug-in (entry point dtpt.methods), or save another method."
    )


def _read_document(home: Path) -> SavedClassifier:
    path = home / DOCUMENT
    if not home.is_dir():
        raise CheckpointError(f"{printable(home)}: no such folder; Classifier.save makes one.")
    content = read_json(path)
    version = content.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise CheckpointError(
            f"{printable(path)} has format {version}, this dtpt reads {FORMAT}: it was saved by a "
            f"newer version ({content.get('dtpt')})."
        )
    try:
        return SavedClassifier.model_validate(content)
    except ValidationError as error:
        raise CheckpointError(f"{printable(path)} is damaged: {explain(error)}.") from error


def _read_tensors(home: Path, saved: SavedClassifier, *, model: Clip) -> dict[str, Tensor]:
    path = home / TENSORS
    try:
        data = read_limited(path, MOST_TENSOR_BYTES)
    except OSError as error:
        raise CheckpointError(f"{printable(path)} cannot be read: {os_error(error)}.") from error
    if hashlib.sha256(data).hexdigest() != saved.tensors:
        raise CheckpointError(
            f"{printable(path)} is damaged or belongs to another {DOCUMENT}: save it again."
        )
    try:
        tensors = load_tensors(data)
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{printable(path)} is not a safetensors file: {error}.") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = (len(saved.classes), model.config.embed_dim)
    if shapes.get("text_features") != expected or set(shapes) - {"context", "text_features"}:
        raise CheckpointError(f"{printable(path)} does not fit {DOCUMENT}: save it again.")
    return tensors


def _load_model(home: Path, saved: SavedModel, *, device: str) -> Clip:
    if saved.weights:
        name = f"local-dir:{home.resolve() / WEIGHTS}"
    elif saved.name:
        name = saved.name
    else:
        raise CheckpointError(
            f"{printable(home)} was saved with a model that has no name to load it by: pass it "
            "(Classifier.load(folder, model)), or save with weights=True."
        )
    return load_model(
        name, device=device, activation=saved.activation, precision=cast(Precision, saved.precision)
    )
