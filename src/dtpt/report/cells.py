"""What a report is made of: cells with their rows and metrics, and the blocks they stand in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.metrics import METRICS, Conventions, Predictions
from dtpt.runs.reading import Run
from dtpt.runs.rows import Columns
from dtpt.runs.shards import MAIN_STORE
from dtpt.runs.spec import DatasetSpec, RunSpec, method_label

RECORD = ("correct", "confidence", "zero_shot_confidence")
"""The columns that the report needs of all successful rows."""


@dataclass(frozen=True)
class CellScore:
    """One data set, method, λ and seed of a block: its rows and its metrics.

    Attributes:
        dataset: Name of the data set.
        method: Name of the method.
        lambda_: Weight of the regulariser, None without one.
        seed: Of the views.
        expected: Pictures that should have a row.
        failed: Pictures that could not be read.
        records: Successful rows, by sample id.
    """

    dataset: str
    method: str
    lambda_: float | None
    seed: int
    expected: int
    failed: int
    records: Columns = field(repr=False)

    @property
    def label(self) -> str:
        """Method and λ as one word."""
        return method_label(self.method, self.lambda_)

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
        values: npt.NDArray[np.float64] = np.ascontiguousarray(self.records["confidence"])
        return values

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """(n,) whether the prediction is right."""
        values: npt.NDArray[np.bool_] = np.ascontiguousarray(self.records["correct"])
        return values

    @property
    def zero_shot_confidence(self) -> npt.NDArray[np.float64]:
        """(n,) confidence of the untuned prompt on the same pictures; -1 where not stored."""
        values: npt.NDArray[np.float64] = np.ascontiguousarray(self.records["zero_shot_confidence"])
        return values

    @cached_property
    def predictions(self) -> Predictions:
        """What its metrics are computed from."""
        return Predictions.from_confidence(self.confidence, self.correct)

    def metric(self, name: str) -> float:
        """Return one metric as a fraction, computed once."""
        predictions = self.predictions
        function = METRICS[name].function
        return predictions.once(("metric", name), lambda: function(predictions, Conventions()))


@dataclass(frozen=True)
class Block:
    """All cells that share model, prompt and tuning settings: what may stand in one table.

    Attributes:
        model: Name of the model, for people.
        fingerprint: Of its weights.
        template: Prompt with {}.
        context: sha256 of a trained context, or None.
        tuning: Optimiser and selection.
        datasets: Entry by name, in the order met.
        seeds: All seeds met.
        cells: By (data set, label, seed); those that no run planned are absent.
    """

    model: str
    fingerprint: str
    template: str
    context: str | None
    tuning: Mapping[str, Any]
    datasets: Mapping[str, DatasetSpec]
    seeds: tuple[int, ...]
    cells: Mapping[tuple[str, str, int], CellScore]

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its data sets, in the order met."""
        return tuple(dict.fromkeys(entry.family for entry in self.datasets.values()))

    def sets_of(self, family: str) -> tuple[str, ...]:
        """Names of the data sets of a family."""
        return tuple(n for n, entry in self.datasets.items() if entry.family == family)

    def labels_of(self, datasets: Iterable[str]) -> tuple[tuple[str, float | None], ...]:
        """(Method, λ) pairs met on any of some data sets, in the order met."""
        names = set(datasets)
        pairs = (
            (cell.method, cell.lambda_) for cell in self.cells.values() if cell.dataset in names
        )
        return tuple(dict.fromkeys(pairs))

    def over_seeds(self, dataset: str, label: str) -> list[CellScore | None]:
        """The cells of one data set and method under every seed of the block."""
        return [self.cells.get((dataset, label, seed)) for seed in self.seeds]


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
        remarks: What readers of its numbers should know.
    """

    run: Run
    path: Path
    spec: RunSpec
    sessions: tuple[dict[str, Any], ...]
    classes: Mapping[str, tuple[str, ...]]
    failures: tuple[tuple[str, str, str], ...]
    remarks: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The run's folder, as given to commands."""
        return self.path.parent if self.path.name == MAIN_STORE else self.path


@dataclass(frozen=True)
class Gathered:
    """Everything a report is made of.

    Attributes:
        sources: The stores read.
        blocks: Cells by model, prompt and tuning.
        remarks: What readers must know: missing rows, failed pictures, other versions.
    """

    sources: tuple[Source, ...]
    blocks: tuple[Block, ...]
    remarks: tuple[str, ...]

    def close(self) -> None:
        """Close the stores; what was read stays."""
        for source in self.sources:
            source.run.close()
