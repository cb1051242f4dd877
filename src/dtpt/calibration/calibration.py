"""A calibration as a file: for which setup it holds, its guarantees, its data, and a digest.

The file is JSON. Its digest detects damage and edits by hand; it is not a signature and does not
prove who made the file.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue, ValidationError, model_validator

from dtpt.calibration.drift import BINS, Drift, confidence_counts, drift
from dtpt.calibration.fitting import Fit, Record, SetKind, Targets, apply
from dtpt.calibration.statements import OTHERWISE
from dtpt.errors import CalibrationError, explain, os_error, short_repr
from dtpt.files import (
    AnyPath,
    as_path,
    digest,
    parse_json,
    printable,
    read_limited,
    write_atomically,
)

FORMAT = 2
MOST_BYTES = 2**24


class Setup(Record):
    """Everything that decides a probability: what a calibration is valid for."""

    model: str  # a name for people; the fingerprint counts
    fingerprint: str  # sha256 of the model
    precision: str
    method: str  # with modifiers
    lambda_: float | None = Field(validation_alias="lambda", serialization_alias="lambda")
    learning_rate: float | None  # of the method, where it is not that of the tuning settings
    template: str
    context: str | None  # sha256 of a trained initial context
    classes: Annotated[tuple[str, ...], Field(min_length=2)]  # in label order, blanks for `_`
    views: dict[str, JsonValue]  # the view recipe
    tuning: dict[str, JsonValue]  # optimiser and selection

    def differences(self, other: "Setup") -> list[str]:
        """Return `setting here, not there` for every setting that differs, but for names."""
        here, there = self._settings(), other._settings()
        return [
            f"{name} {_short(here.get(name, 'absent'))}, not {_short(there.get(name, 'absent'))}"
            for name in {**here, **there}
            if here.get(name, "absent") != there.get(name, "absent")
        ]

    def _settings(self) -> dict[str, Any]:
        content = self.model_dump(mode="json", by_alias=True, exclude={"model"})
        flat: dict[str, Any] = {"model": content.pop("fingerprint")}
        classes = content.pop("classes")
        for name, value in content.items():
            if isinstance(value, dict):
                flat |= {f"{name}.{key}": inner for key, inner in value.items()}
            else:
                flat[name] = value
        return flat | {"classes": f"{len(classes)} ({digest(classes)[:8]})"}


class Provenance(Record):
    """The labelled images behind a calibration."""

    dataset: str
    fingerprint: str  # sha256 over its class names and sample labels
    run: str  # hash of the run whose rows were used
    seed: int  # of the random views
    images: int  # in total
    temperature_images: int  # for temperature and order of thresholds; the others for the rest
    clusters: int  # of all images; those of one are not independent, such as copies of an image
    temperature_clusters: int
    cluster_noun: str = "clusters"
    split: str = "by sha256 of the cluster, about one quarter for the temperature"
    selection: str | None = None  # what else the first part selected, such as a fraction of views


@dataclass(frozen=True)
class CalibratedPrediction:
    """What a calibration adds to one prediction."""

    confidence: float  # calibrated
    prediction_set: tuple[int, ...]  # classes, the most probable first
    abstained: bool  # whether the guarantee on errors does not cover it


class Calibration(Record):
    """Fitted temperature, prediction sets and abstention for one model, method and class list."""

    format: int = FORMAT
    setup: Setup
    provenance: Provenance
    targets: Targets
    fit: Fit
    sets: SetKind = "lac"
    guarantees: tuple[str, ...]  # in words
    assumption: str
    otherwise: str = OTHERWISE
    notes: tuple[str, ...] = ()
    # ECE, its noise floor, signed gap and NLL, on images that were not used for the temperature
    before_and_after: dict[str, tuple[float, float]]
    # labelled images by calibrated confidence, see `dtpt.calibration.drift`; empty in older files
    confidences: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        for limit in (self.fit.lac, self.fit.aps):
            if isinstance(limit, tuple) and len(limit) != len(self.setup.classes):
                text = f"fit has limits of {len(limit)} classes, setup {len(self.setup.classes)}"
                raise ValueError(text)
        if len(self.confidences) not in (0, BINS) or min(self.confidences, default=0) < 0:
            raise ValueError(f"confidences has {self.confidences}, expected {BINS} counts")
        return self

    @property
    def digest(self) -> str:
        """sha256 over the whole content."""
        return digest(self.model_dump(mode="json", by_alias=True))

    def check(self, setup: Setup) -> None:
        """Raise `CalibrationError` with what differs if this calibration is for another setup."""
        differing = self.setup.differences(setup)
        if differing:
            raise CalibrationError(
                f"The calibration is for {'; '.join(differing)}. Use the same settings "
                "(`dtpt predict --calibration` takes them from the file), or calibrate again."
            )

    def drift(self, confidences: npt.ArrayLike) -> Drift:
        """Compare the calibrated confidences of new images with those of the labelled ones.

        Raises:
            CalibrationError: the file was written before this was stored, or there is no image.
        """
        if not self.confidences:
            raise CalibrationError("The calibration has no confidences: calibrate again.")
        return drift(self.confidences, confidence_counts(confidences))

    def apply_one(self, logits: npt.ArrayLike, *, index: int) -> CalibratedPrediction:
        """Calibrate one prediction of this setup.

        Args:
            logits: (C,) behind the prediction; an array, or a tensor on any device.
            index: the predicted class.
        """
        values = np.asarray(logits.cpu() if hasattr(logits, "cpu") else logits, dtype=np.float64)
        shifted = values - values.max()
        logs = shifted - np.log(np.exp(shifted).sum())  # (C,), computed as a run stores it
        applied = apply(self.fit, logs[None], predictions=[index], sets=self.sets)
        order = np.argsort(-logs, kind="stable")
        members = tuple(int(k) for k in order if applied.members[0, k])
        return CalibratedPrediction(
            float(applied.confidence[0]), members, bool(applied.abstained[0])
        )

    def document(self) -> dict[str, Any]:
        """Return the content of the file, digest included."""
        return {**self.model_dump(mode="json", by_alias=True), "digest": self.digest}

    def save(self, path: AnyPath) -> None:
        """Write the file atomically; raise `CalibrationError` if it cannot be written."""
        text = json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n"
        try:
            write_atomically(path, text.encode())
        except OSError as error:
            raise CalibrationError(
                f"{printable(path)} cannot be written: {os_error(error)}."
            ) from None


def read_calibration(path: AnyPath) -> Calibration:
    """Read a calibration file.

    Raises:
        CalibrationError: it is missing, damaged, edited or of another format.
    """
    name = printable(path)
    try:
        content = parse_json(read_limited(path, MOST_BYTES))
    except OSError as error:
        raise CalibrationError(f"{name} cannot be read: {os_error(error)}.") from None
    except ValueError:
        raise CalibrationError(f"{name} is damaged or not JSON.") from None
    if not isinstance(content, dict) or not {"format", "digest", "fit"} <= content.keys():
        raise CalibrationError(f"{name} is not a calibration file; `dtpt calibrate` makes one.")
    if content["format"] != FORMAT:
        raise CalibrationError(
            f"{name} has format {short_repr(content['format'])}, this dtpt reads {FORMAT}: update "
            "dtpt, or calibrate again."
        )
    if content.pop("digest") != _digest_of_json(content):
        raise CalibrationError(
            f"{name} was changed after it was written (wrong digest): calibrate again."
        )
    try:
        return Calibration.model_validate(content)
    except ValidationError as error:
        raise CalibrationError(f"{name} is not a calibration file: {explain(error)}.") from None


def _digest_of_json(content: dict[str, Any]) -> str | None:
    """Return the digest of what a file holds; None for what no file of ours can hold."""
    try:
        return digest(content)
    except (ValueError, RecursionError):  # half of a surrogate pair; nested too deep
        return None


def as_calibration(calibration: Calibration | AnyPath) -> Calibration:
    """Return a calibration, read from its file if a path is given."""
    if isinstance(calibration, Calibration):
        return calibration
    return read_calibration(as_path(calibration, "calibration"))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] + "…" if len(text) == 64 and " " not in text else text  # a fingerprint
