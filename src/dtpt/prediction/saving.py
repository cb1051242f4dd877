"""A classifier in a folder: JSON and safetensors, nothing that could run code when it is read.

    classifier.json          classes, template, method, views, settings, and which model
    classifier.safetensors   the text features of the classes, and a context that is not words
    calibration.json         the calibration, if there is one, as `dtpt calibrate` writes it
    model/                   the weights, if they were asked for, as `save_model` writes them

The text features are why loading is fast: the text tower does not run. Without its weights the
model is found by the name it was loaded by, and its fingerprint must be the same.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

import dtpt
from dtpt.calibration import read_calibration
from dtpt.clip.config import Activation, Precision
from dtpt.clip.loading import load_model
from dtpt.clip.loading.formats import read_json
from dtpt.clip.loading.save import save_model
from dtpt.clip.model import Clip
from dtpt.clip.prompts import require_clip
from dtpt.errors import CheckpointError, DtptError, MethodError, explain, os_error
from dtpt.files import AnyPath, as_path, printable, read_limited, write_atomically
from dtpt.methods import ResolvedMethod, parse_label, resolve_method
from dtpt.tuning.settings import TuningSettings
from dtpt.views.recipe import ViewRecipe

if TYPE_CHECKING:
    from dtpt.prediction.classifier import Classifier

FORMAT = 1
DOCUMENT = "classifier.json"
TENSORS = "classifier.safetensors"
CALIBRATION = "calibration.json"
WEIGHTS = "model"
MOST_TENSOR_BYTES = 1 << 30  # 20,000 classes of 1,024 numbers have 80 MB


class SavedClassifier(BaseModel):
    """The content of `classifier.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    dtpt: str  # version
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    template: str
    method: str
    lambda_: float | None
    learning_rate: float | None
    views: ViewRecipe
    seed: int
    settings: TuningSettings
    model: str  # name for `load_model`; empty if it has none
    fingerprint: str
    precision: str
    activation: Activation
    has_weights: bool
    has_calibration: bool
    tensors: str  # sha256 of `classifier.safetensors`


def write_classifier(classifier: "Classifier", folder: AnyPath, *, weights: bool = False) -> None:
    """Write a classifier to a folder, which is made if it is missing; the document comes last."""
    home, predictor = as_path(folder, "folder"), classifier.predictor
    method, model = classifier.method, classifier.model
    if not _is_named(method):
        raise MethodError(
            f"{method.name} is not what `dtpt methods` knows by this name, and a file holds no "
            "functions: make it a plug-in (entry point dtpt.methods), or save another method."
        )
    tensors = {"text_features": predictor.tuner.initial_text_features}
    if predictor.context is not None:
        tensors["context"] = predictor.context
    data = save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()})
    document = SavedClassifier(
        format=FORMAT,
        dtpt=dtpt.__version__,
        classes=classifier.classes,
        template=predictor.template,
        method=method.name,
        lambda_=method.lambda_,
        learning_rate=method.learning_rate,
        views=predictor.recipe,
        seed=classifier.seed,
        settings=predictor.tuner.settings,
        model=model.name,
        fingerprint=model.fingerprint,
        precision=model.precision,
        activation=model.config.activation,
        has_weights=weights,
        has_calibration=classifier.calibration is not None,
        tensors=hashlib.sha256(data).hexdigest(),
    )
    try:
        home.mkdir(parents=True, exist_ok=True)
        if weights:
            save_model(model, home / WEIGHTS)
        if classifier.calibration is not None:
            classifier.calibration.save(home / CALIBRATION)
        write_atomically(home / TENSORS, data)
        write_atomically(home / DOCUMENT, (document.model_dump_json(indent=2) + "\n").encode())
    except OSError as error:
        reason = os_error(error)
        raise CheckpointError(f"{printable(home)} cannot be written: {reason}.") from error


def read_classifier(
    folder: AnyPath, model: Clip | None = None, *, device: str = "auto"
) -> dict[str, Any]:
    """Return the arguments of a `Classifier` that `write_classifier` wrote."""
    home = as_path(folder, "folder")
    saved = _read_document(home)
    if model is None:
        model = _load_model(home, saved, device=device)
    if require_clip(model).fingerprint != saved.fingerprint:
        raise CheckpointError(
            f"{printable(home)} was saved with another model: its fingerprint is "
            f"{saved.fingerprint[:12]}, this one's {model.fingerprint[:12]}."
        )
    tensors = _read_tensors(home, saved, model=model)
    if model.precision != saved.precision and model.text is not None:
        del tensors["text_features"]  # computed again
    return {
        "model": model,
        "classes": saved.classes,
        "template": saved.template,
        "method": _method(saved.method, lambda_=saved.lambda_, learning_rate=saved.learning_rate),
        "views": saved.views,
        "seed": saved.seed,
        "settings": saved.settings,
        "calibration": read_calibration(home / CALIBRATION) if saved.has_calibration else None,
        **tensors,
    }


def _method(name: str, *, lambda_: float | None, learning_rate: float | None) -> ResolvedMethod:
    # a rule such as @auto=0.9 is part of the name
    method = resolve_method(name, lambda_=None if parse_label(name).rule else lambda_)
    return replace(method, lambda_=lambda_, learning_rate=learning_rate)


def _is_named(method: ResolvedMethod) -> bool:
    """Check that the method's name and numbers give it back."""
    try:
        named = _method(method.name, lambda_=method.lambda_, learning_rate=method.learning_rate)
    except DtptError:
        return False
    return named.method == method.method and _numbers(named) == _numbers(method)


def _numbers(method: ResolvedMethod) -> list[tuple[Any, ...]]:
    # what distinguishes modifiers: names, and the numbers inside (`+ts=1.16`)
    return [
        (m.name, m.learning_rate, *(getattr(f, "keywords", f) for f in (m.logits, m.read_out)))
        for m in method.modifiers
    ]


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
        tensors = load_tensors(data)
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"{printable(path)} cannot be read: {os_error(error)}.") from error
    if hashlib.sha256(data).hexdigest() != saved.tensors:
        raise CheckpointError(
            f"{printable(path)} is damaged or belongs to another {DOCUMENT}: save it again."
        )
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = (len(saved.classes), model.config.embed_dim)
    if shapes.get("text_features") != expected or set(shapes) - {"context", "text_features"}:
        raise CheckpointError(f"{printable(path)} does not fit {DOCUMENT}: save it again.")
    return tensors


def _load_model(home: Path, saved: SavedClassifier, *, device: str) -> Clip:
    if saved.has_weights:
        name = f"local-dir:{home.resolve() / WEIGHTS}"
    elif saved.model:
        name = saved.model
    else:
        raise CheckpointError(
            f"{printable(home)} was saved with a model that has no name to load it by: pass it "
            "(Classifier.load(folder, model)), or save with weights=True."
        )
    return load_model(
        name, device=device, activation=saved.activation, precision=cast(Precision, saved.precision)
    )
