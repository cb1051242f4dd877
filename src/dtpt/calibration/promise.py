"""A promise as a file: for what it holds, what it says, on what it rests, and a digest over all.

The file is JSON that people can read. Its digest finds damage and edits by hand; it is no signature
and does not prove who made the file.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import numpy.typing as npt
from pydantic import Field, JsonValue, ValidationError

from dtpt.calibration.fitting import Fit, Frozen, Levels, SetKind, Statement, state
from dtpt.errors import PromiseError, explain, os_error
from dtpt.files import AnyPath, as_path, printable, read_limited, write_atomically

FORMAT = 1
MOST_BYTES = 2**24

ASSUMPTION = (
    "New pictures are of the same kind as the labelled ones: drawn from the same source, with the "
    "same shares of classes and difficulties, in any order (exchangeable)."
)
OTHERWISE = (
    "On pictures of another kind (another camera, style, mix of classes, or things outside the "
    "class list) nothing is promised: coverage can be lower and errors more frequent, and the file "
    "cannot notice it. Calibrate again on labelled pictures of that kind."
)


class Subject(Frozen):
    """What a promise is about: everything that decides a probability.

    Attributes:
        model: name for people; it is the fingerprint that counts.
        fingerprint: sha256 of the model.
        precision: in which its towers compute.
        method: with modifiers.
        lambda_: weight of its regulariser; None where there is none.
        learning_rate: of the method, where it is not that of the tuning settings.
        template: prompt with {} for the class name.
        context: sha256 of a trained initial context; None where the template's words are used.
        classes: names in label order, with blanks for `_`.
        views: the recipe, as data.
        tuning: optimiser and selection, as data.
    """

    model: str
    fingerprint: str
    precision: str
    method: str
    lambda_: float | None = Field(validation_alias="lambda", serialization_alias="lambda")
    learning_rate: float | None
    template: str
    context: str | None
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    views: dict[str, JsonValue]
    tuning: dict[str, JsonValue]

    def differences(self, other: "Subject") -> list[str]:
        """Return, per setting that differs, `setting: here, there` in few words.

        Names of the model do not count.
        """
        mine, theirs = _leaves(self), _leaves(other)
        names = [*mine, *(name for name in theirs if name not in mine)]
        absent = "absent"
        return [
            f"{name} {_shown(mine.get(name, absent))}, not {_shown(theirs.get(name, absent))}"
            for name in names
            if mine.get(name, absent) != theirs.get(name, absent)
        ]


class Basis(Frozen):
    """The labelled pictures on which a promise rests.

    Attributes:
        dataset: name.
        fingerprint: sha256 over its class names and sample labels.
        run: hash of the run whose rows were used.
        seed: of the random views.
        pictures: how many, together.
        temperature_pictures: how many of them gave temperature and the order of thresholds; the
            others gave sets and threshold.
        division: how the two parts were divided.
        choice: what was chosen on the first part beside the temperature, such as a share of views.
    """

    dataset: str
    fingerprint: str
    run: str
    seed: int
    pictures: int
    temperature_pictures: int
    division: str = "by sha256 of the sample id, about one quarter for the temperature"
    choice: str | None = None


class Promise(Frozen):
    """What may be relied on, for one model, method and class list.

    Attributes:
        format: version of this record.
        subject: what it is about.
        basis: on what it rests.
        levels: what was asked for.
        fit: the numbers.
        sets: which kind of prediction sets is shown.
        promised: in words, one sentence each.
        assumption: under which it holds.
        otherwise: what happens when the assumption does not hold.
        remarks: what readers should know.
    """

    format: int = FORMAT
    subject: Subject
    basis: Basis
    levels: Levels
    fit: Fit
    sets: SetKind = "lac"
    promised: tuple[str, ...]
    assumption: str = ASSUMPTION
    otherwise: str = OTHERWISE
    remarks: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 over the whole content."""
        return content_digest(self.model_dump(mode="json", by_alias=True))

    def check(self, subject: Subject) -> None:
        """Refuse to speak about anything else.

        Raises:
            PromiseError: it differs; the message names what, in one line.
        """
        found = self.subject.differences(subject)
        if found:
            raise PromiseError(f"The promise is for {'; '.join(found)}.")

    def state(self, log_probabilities: npt.ArrayLike, *, predictions: npt.ArrayLike) -> Statement:
        """Say what is promised about n pictures (see `dtpt.calibration.state`).

        Args:
            log_probabilities: (n, C).
            predictions: (n,) predicted classes.
        """
        return state(self.fit, log_probabilities, predictions=predictions, sets=self.sets)

    def document(self) -> dict[str, Any]:
        """Return the content of the file, digest included."""
        return {**self.model_dump(mode="json", by_alias=True), "digest": self.digest}

    def save(self, path: AnyPath) -> None:
        """Write the file, whole or not at all.

        Raises:
            PromiseError: it cannot be written.
        """
        text = json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n"
        try:
            write_atomically(Path(path), text.encode())
        except OSError as error:
            name, reason = printable(path), os_error(error)
            raise PromiseError(f"{name} cannot be written: {reason}.") from None


def read_promise(path: AnyPath) -> Promise:
    """Read a promise file, and refuse one that is damaged, edited or newer than this program.

    Raises:
        PromiseError: with the reason in one line.
    """
    name = printable(path)
    try:
        content = json.loads(read_limited(path, MOST_BYTES))
    except OSError as error:
        raise PromiseError(f"{name} cannot be read: {os_error(error)}.") from None
    except (ValueError, RecursionError):
        raise PromiseError(f"{name} is no promise file: it is not JSON, or damaged.") from None
    if not isinstance(content, dict) or not {"format", "digest", "fit"} <= content.keys():
        raise PromiseError(f"{name} is no promise file: `dtpt calibrate` makes one.")
    if content["format"] != FORMAT:
        raise PromiseError(
            f"{name} has format {content['format']}, this dtpt reads {FORMAT}: update dtpt, or "
            "calibrate again."
        )
    if content.pop("digest") != content_digest(content):
        raise PromiseError(
            f"{name} was changed after it was written (its digest does not fit): calibrate again."
        )
    try:
        return Promise.model_validate(content)
    except ValidationError as error:
        raise PromiseError(f"{name} is no promise file: {explain(error)}.") from None


def as_promise(given: Promise | AnyPath) -> Promise:
    """Return a promise, read from its file where a path is given."""
    return given if isinstance(given, Promise) else read_promise(as_path(given, "promise"))


def content_digest(content: Any) -> str:
    """Return the sha256 of JSON content, whatever its order and layout.

    Example:
        >>> content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
        True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _leaves(subject: Subject) -> dict[str, Any]:
    """Return every setting by a name that people know."""
    content = subject.model_dump(mode="json", by_alias=True)
    classes = content.pop("classes")
    del content["model"]
    flat: dict[str, Any] = {"model": content.pop("fingerprint")}
    for name, value in content.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    flat["classes"] = f"{len(classes)} ({content_digest(classes)[:8]})"
    return flat


def _shown(value: Any) -> str:
    """Cut fingerprints to what tells them apart."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] + "…" if len(text) == 64 and " " not in text else text
