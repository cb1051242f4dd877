"""What a report is made of: cells with their rows and metrics, and the condition they share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtpt.methods import method_label, method_title
from dtpt.metrics import METRICS, Conventions, Predictions
from dtpt.runs.reading import Run
from dtpt.runs.rows import Columns
from dtpt.runs.shards import MAIN_STORE
from dtpt.runs.spec import DatasetSpec, RunSpec
from dtpt.tuning.settings import TuningSettings

RECORD = (
    "sample",
    "label",
    "correct",
    "confidence",
    "p_label",
    "sum_squares",
    "zero_shot_confidence",
)
"""The columns that the report needs of all successful rows."""

DERIVED = {
    "temperature": " + temperature (fitted on the other sets)",
    "chosen": " (λ chosen on the other sets)",
}
"""Rows that are computed from stored ones, and what follows the method in their titles."""


@dataclass(frozen=True)
class Contender:
    """What competes in a table: a method with its weight.

    Attributes:
        method: Name of the method, modifiers included.
        lambda_: Weight of the regulariser, None without one.
        derived: Key in `DERIVED` for a row that was computed from stored ones; empty for those.

    Example:
        >>> Contender("d-tpt", 1e5).label, Contender("tpt", derived="temperature").label
        ('d-tpt@100000', 'tpt+temperature')
        >>> Contender("d-tpt", derived="chosen").title
        'D-TPT (λ chosen on the other sets)'
    """

    method: str
    lambda_: float | None = None
    derived: str = ""

    @property
    def label(self) -> str:
        """Method and λ as one word, as typed: `d-tpt@100000`."""
        label = method_label(self.method, self.lambda_)
        return f"{label}+{self.derived}" if self.derived else label

    @property
    def title(self) -> str:
        """Method and λ as people write them."""
        return method_title(self.method, self.lambda_) + DERIVED.get(self.derived, "")

    @property
    def variant(self) -> tuple[str, float | None]:
        """What decides its look in figures."""
        return (self.label if self.derived else self.method), self.lambda_


@dataclass(frozen=True)
class ScoredCell:
    """One data set, contender and seed of a condition: its rows and its metrics.

    Attributes:
        dataset: Name of the data set.
        contender: Method and λ.
        seed: Of the views.
        expected: Pictures that should have a row.
        failed: Pictures that could not be read.
        records: Successful rows, by sample id.
    """

    dataset: str
    contender: Contender
    seed: int
    expected: int
    failed: int
    records: Columns = field(repr=False)

    @property
    def effective(self) -> int:
        """Pictures that enter the metrics."""
        return len(self.records)

    @property
    def is_finished(self) -> bool:
        """Whether every picture was tried and at least one succeeded."""
        return self.effective > 0 and self.effective + self.failed >= self.expected

    @property
    def confidence(self) -> npt.NDArray[np.float64]:
        """(n,) probability of the prediction."""
        return self._column("confidence")

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """(n,) whether the prediction is right."""
        values: npt.NDArray[np.bool_] = np.ascontiguousarray(self.records["correct"])
        return values

    @property
    def zero_shot_confidence(self) -> npt.NDArray[np.float64]:
        """(n,) confidence of the untuned prompt on the same pictures; -1 where not stored."""
        return self._column("zero_shot_confidence")

    def _column(self, name: str) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = np.ascontiguousarray(self.records[name])
        return values

    @cached_property
    def predictions(self) -> Predictions:
        """What its metrics are computed from."""
        return Predictions.from_confidence(
            self.confidence,
            self.correct,
            p_label=self._column("p_label"),
            sum_squares=self._column("sum_squares"),
            samples=self.records["sample"].astype(np.str_),
        )

    def metric(self, name: str) -> float:
        """Return one metric as a fraction, computed once."""
        predictions = self.predictions
        value = METRICS[name].value
        return predictions.once(("metric", name), lambda: value(predictions, Conventions()))


@dataclass(frozen=True)
class Condition:
    """All cells that share model, prompt, tuning and precision: what may stand in one table.

    Attributes:
        model: Name of the model, for people.
        fingerprint: Of its weights.
        template: Prompt with {}.
        context: sha256 of a trained context, or None.
        tuning: Optimiser and selection.
        datasets: Entry by name, in the order met.
        seeds: All seeds met.
        cells: By (data set, contender, seed); those that no run planned are absent.
        sources: The stores that they come from.
        precision: In which the towers computed.
    """

    model: str
    fingerprint: str
    template: str
    context: str | None
    tuning: Mapping[str, Any]
    datasets: Mapping[str, DatasetSpec]
    seeds: tuple[int, ...]
    cells: Mapping[tuple[str, Contender, int], ScoredCell]
    sources: "tuple[Source, ...]" = ()
    precision: str = "float32"

    @property
    def title(self) -> str:
        """Model, prompt, that there is a trained context, and unusual settings, for headings."""
        context = " with trained context" if self.context else ""
        return ", ".join((self.model, f"“{self.template}”{context}", *self.unusual))

    @property
    def unusual(self) -> tuple[str, ...]:
        """The settings that are not the default, in words: `steps 2`, `float16`."""
        found = [
            f"{name.replace('_', ' ')} {self.tuning[name]}"
            for name, field in TuningSettings.model_fields.items()
            if name in self.tuning and self.tuning[name] != field.default
        ]
        return (*found, *([] if self.precision == "float32" else [self.precision]))

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its data sets, in the order met."""
        return tuple(dict.fromkeys(entry.family for entry in self.datasets.values()))

    def sets_of(self, family: str) -> tuple[str, ...]:
        """Names of the data sets of a family."""
        return tuple(n for n, entry in self.datasets.items() if entry.family == family)

    def contenders(self, datasets: Iterable[str] | None = None) -> tuple[Contender, ...]:
        """Return what is there for any of some data sets (for any at all), in the order met."""
        names = set(self.datasets if datasets is None else datasets)
        found = (c.contender for c in self.cells.values() if c.dataset in names)
        return tuple(dict.fromkeys(found))

    def stored_contenders(self, datasets: Iterable[str] | None = None) -> tuple[Contender, ...]:
        """Return the same without what is derived: what was run."""
        return tuple(c for c in self.contenders(datasets) if not c.derived)

    def over_seeds(self, dataset: str, contender: Contender) -> list[ScoredCell | None]:
        """Return the cells of one data set and contender under every seed of the condition."""
        return [self.cells.get((dataset, contender, seed)) for seed in self.seeds]

    def finished(self, dataset: str, contender: Contender) -> tuple[ScoredCell, ...]:
        """Return the same cells if all of them are finished, else nothing."""
        cells = [cell for cell in self.over_seeds(dataset, contender) if cell and cell.is_finished]
        return tuple(cells) if len(cells) == len(self.seeds) else ()

    def size_text(self, datasets: Iterable[str], *, answered: int | None = None) -> str:
        """Say how many pictures stand behind a number: `120 of 1,692 pictures`.

        Args:
            datasets: Their names.
            answered: How many were answered, where some could not be read.
        """
        entries = [self.datasets[name] for name in datasets]
        count = sum(entry.samples for entry in entries) if answered is None else answered
        whole = sum(max(entry.samples, entry.whole or 0) for entry in entries)
        return f"{count:,} pictures" if count == whole else f"{count:,} of {whole:,} pictures"


@dataclass(frozen=True)
class Source:
    """One store that was read; it stays open for what a report looks up later.

    Attributes:
        run: The open store.
        path: The SQLite file.
        spec: Its configuration.
        sessions: When, where and how long it was worked on.
        classes: Class names by data set.
        failures: (data set, sample, reason) of pictures that could not be read.
        remarks: (data set, text) of what readers of its numbers should know; "" for the whole run.
    """

    run: Run
    path: Path
    spec: RunSpec
    sessions: tuple[dict[str, Any], ...]
    classes: Mapping[str, tuple[str, ...]]
    failures: tuple[tuple[str, str, str], ...]
    remarks: tuple[tuple[str, str], ...]

    @property
    def folder(self) -> Path:
        """The run's folder, as given to commands."""
        return self.path.parent if self.path.name == MAIN_STORE else self.path


@dataclass(frozen=True)
class Gathered:
    """Everything a report is made of.

    Attributes:
        sources: The stores read.
        conditions: Cells by model, prompt and tuning.
        remarks: What readers must know: missing rows, failed pictures, other versions.
    """

    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...]
    remarks: tuple[str, ...]

    def close(self) -> None:
        """Close the stores; what was read stays."""
        for source in self.sources:
            source.run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
