"""What a record holds. Values are fractions, as everywhere in files."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dtpt.errors import ReportError, explain, os_error
from dtpt.report.derived_rows import FittedElsewhere
from dtpt.report.gathering.scored_cells import Contender

RECORD_FORMAT = 1
PACKAGED = "demo.json"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class RecordedValue(_Frozen):
    """A pooled metric with its 95 % interval.

    Attributes:
        value: The metric.
        low: Lower end of its interval.
        high: Upper end.
        best: Whether it is the best of all methods and can be told from every other one.
        floor: Of an ECE, what a perfectly calibrated model has at this size.
    """

    value: float
    low: float
    high: float
    best: bool = False
    floor: float | None = None


class RecordedRow(_Frozen):
    """One method on all pictures of a family, by metric."""

    method: str
    lambda_: float | None = Field(
        default=None, validation_alias="lambda", serialization_alias="lambda"
    )
    derived: str = ""
    values: dict[str, RecordedValue]

    @property
    def contender(self) -> Contender:
        """The row's method in reports."""
        return Contender(self.method, self.lambda_, derived=self.derived)


class RecordedDifference(_Frozen):
    """First minus second in one metric, with its corrected interval."""

    first: str
    second: str
    metric: str
    estimate: float
    low: float
    high: float


class RecordedFamily(_Frozen):
    """A family of data sets: its methods, their differences, and the verdict in words."""

    title: str
    sets: tuple[str, ...]
    pictures: int
    rows: tuple[RecordedRow, ...]
    differences: tuple[RecordedDifference, ...]
    verdict: tuple[str, ...]


class RecordedSet(_Frozen):
    """One data set.

    Attributes:
        fingerprint: Over class names and labels.
        pictures: How many were evaluated.
        classes: Number of classes.
        temperature: Fitted for TPT on the other sets of the family; None without probabilities.
        weights: λ by method, chosen on the other sets of the family.
        values: Metrics by label of the method; means over seeds.
    """

    fingerprint: str
    pictures: int
    classes: int
    temperature: float | None = None
    weights: dict[str, float] = {}
    values: dict[str, dict[str, float]]


class Record(_Frozen):
    """A run in aggregates.

    Attributes:
        format: Version of this schema.
        command: That makes the run again.
        model: Name of the model.
        fingerprint: Of its weights.
        template: Prompt with {}.
        tuning: Optimiser and selection.
        views: The recipe of the views.
        seeds: Of the views.
        started: When the run was started.
        seconds: Time of all its sessions.
        environment: Machine and versions.
        code_version: Version of dtpt.
        sets: By name.
        families: Pooled over their sets.
    """

    format: int = RECORD_FORMAT
    command: str
    model: str
    fingerprint: str
    template: str
    tuning: dict[str, Any]
    views: dict[str, Any]
    seeds: tuple[int, ...]
    started: str
    seconds: float
    environment: dict[str, Any]
    code_version: str
    sets: dict[str, RecordedSet]
    families: tuple[RecordedFamily, ...]

    @property
    def pictures(self) -> int:
        """Pictures of all sets."""
        return sum(entry.pictures for entry in self.sets.values())

    @property
    def fitted(self) -> FittedElsewhere:
        """Temperatures and weights, each from the other sets of the recorded run."""
        warm = {n: s.temperature for n, s in self.sets.items() if s.temperature is not None}
        weights = {(m, n): w for n, s in self.sets.items() for m, w in s.weights.items()}
        return FittedElsewhere(warm, weights)


def read_record(path: Path) -> Record:
    """Read a record from a file.

    Raises:
        ReportError: There is none, or it is no record.
    """
    try:
        return Record.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {os_error(error)}.") from error
    except ValidationError as error:
        raise ReportError(
            f"{path} is no record of a run ({explain(error)}): make it again with "
            f"`dtpt demo --full --record {path}`."
        ) from error


def load_record() -> Record | None:
    """Return the record that the package brings; None where it brings none."""
    found = files("dtpt.report.recorded") / PACKAGED
    if not found.is_file():
        return None
    return Record.model_validate_json(found.read_bytes())
