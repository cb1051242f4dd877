"""Reading a finished or running store as NumPy columns, for metrics, exports, analysis and report.

>>> run = open_run("runs/pets")                                             # doctest: +SKIP
>>> rows = run.rows(dataset="oxford_pets", method="d-tpt", seed=0)          # doctest: +SKIP
>>> rows.correct.mean(), rows.confidence.mean()                             # doctest: +SKIP
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import RunError
from dtpt.methods import lambda_text, parse_label
from dtpt.runs.integrity import problems_of_cell, problems_of_tables
from dtpt.runs.rows import ARRAY_COLUMNS, Columns, Rows, column_sql, column_types, unpack
from dtpt.runs.schema import COLUMNS, Column, connect_for_reading, damaged, names
from dtpt.runs.shards import MAIN_STORE, MANIFEST, store_files
from dtpt.runs.spec import Cell, RunSpec
from dtpt.runs.store import SampleRecord, SelectedLambda, StoreFile

if TYPE_CHECKING:
    import pandas

EXPORTED = tuple(column for column in COLUMNS if column.is_exported)
# what changes numbers in their last bits
CONDITIONS = ("threads", "machine", "system", "processor", "device", "torch")


@dataclass(frozen=True)
class Failure:
    """An image that could not be evaluated, and why."""

    dataset: str
    sample: str
    reason: str


class Run(StoreFile):
    """A stored run, read-only: `path` is its SQLite file, `spec` what decides its numbers.

    Everything that is read is checked before (see `dtpt.runs.integrity`), unless `is_trusted`.

    Raises:
        RunError: There is no run in the file, it is damaged, or it contradicts itself.
    """

    def __init__(self, path: Path, *, is_trusted: bool = False) -> None:
        self.path, self._is_trusted = path, is_trusted
        self._checked: set[tuple[Cell, bool]] = set()
        self._connection = connect_for_reading(path)
        try:
            self.spec = self._checked_spec()
            if not is_trusted:
                self.check(problems_of_tables(self))
        except BaseException:
            self.close()
            raise

    def _checked_spec(self) -> RunSpec:
        is_new = not self.query("SELECT 1 FROM sqlite_master LIMIT 1")
        if not is_new and (spec := self._stored_spec()) is not None:
            return spec
        if is_new or not self.query("SELECT 1 FROM cells LIMIT 1"):
            raise RunError(f"{self.path} holds no run yet: start one with `dtpt eval`.")
        raise RunError(damaged(self.path, "it has rows and no specification"))

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every combination of the run, in its order, with or without rows."""
        return self.spec.cells()

    def select(
        self,
        *,
        dataset: str | None = None,
        method: str | None = None,
        seed: int | None = None,
        order: int | None = None,
    ) -> tuple[Cell, ...]:
        """Return the cells that match; None matches all. `method` may be a label (`d-tpt@1e5`).

        Methods without state have no order and match each.

        Raises:
            MethodError: What follows the @ is neither a number nor a rule for λ.
        """
        wanted = None if method is None else parse_label(method)
        return tuple(
            cell
            for cell in self.spec.cells(dataset=dataset, seed=seed, order=order)
            if wanted is None or wanted.matches(cell.method, cell.lambda_)
        )

    def rows(
        self,
        *,
        dataset: str | None = None,
        method: str | None = None,
        seed: int | None = None,
        order: int | None = None,
    ) -> Rows:
        """Return the successful rows of all matching cells (see `select`)."""
        cells = self.select(dataset=dataset, method=method, seed=seed, order=order)
        return self.rows_of(*cells)

    def records(self) -> list[dict[str, Any]]:
        """Return all successful rows as dictionaries, for `pandas.DataFrame` or JSON."""
        return self.rows().records()

    def to_pandas(self) -> "pandas.DataFrame":
        """Return all successful rows as a pandas table.

        Raises:
            RunError: pandas is not installed; `records` needs none.
        """
        try:
            import pandas
        except ImportError as error:
            text = "pandas is not installed: `pip install pandas`, or use Run.records()."
            raise RunError(text) from error
        return pandas.DataFrame(self.records())

    def rows_of(self, *cells: Cell) -> Rows:
        """Return the successful rows of these cells, in their order, each by sample id."""
        clusters = {name: self.clusters(name) for name in {cell.dataset for cell in cells}}
        return Rows(cells, [self._table(cell, ARRAY_COLUMNS, clusters=clusters) for cell in cells])

    def clusters(self, dataset: str) -> dict[str, str]:
        """Return the cluster of every stored sample: copies of an image are in one cluster."""
        return join_clusters(self.samples(dataset).values())

    def columns(self, *columns: str) -> dict[Cell, Columns]:
        """Return some columns of the successful rows of all cells, each by sample id.

        Cells without rows are not in the result. Columns are `sample`, `cluster` (see `clusters`),
        `correct` and those of `dtpt.runs.schema.COLUMNS`.
        """
        datasets = self.datasets if "cluster" in columns else ()
        clusters = {name: self.clusters(name) for name in datasets}
        tables = {cell: self._table(cell, columns, clusters=clusters) for cell in self.cells}
        return {cell: table for cell, table in tables.items() if len(table)}

    def _check_rows(self, cell: Cell, *, is_deep: bool = False) -> None:
        """Refuse rows that contradict each other, once for every cell that is read."""
        if not self._is_trusted and (cell, is_deep) not in self._checked:
            self.check(problems_of_cell(self, cell, is_deep=is_deep))
            self._checked.add((cell, is_deep))

    def _table(
        self, cell: Cell, columns: Sequence[str], *, clusters: Mapping[str, Mapping[str, str]]
    ) -> Columns:
        self._check_rows(cell)
        query = (
            f"SELECT {column_sql(columns)} FROM rows "  # noqa: S608 - our own words
            "WHERE cell = ? AND status = 'ok' ORDER BY sample"
        )
        with self._trusted():
            rows = self._open.execute(query, (cell.key,))
            table = np.fromiter(rows, dtype=column_types(columns))
        if "cluster" in columns:  # so far the sample; one that was written meanwhile keeps it
            known = clusters[cell.dataset]
            table["cluster"] = [known.get(sample, sample) for sample in table["cluster"]]
        return table

    def probabilities(self, cell: Cell) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float32]]:
        """Return the ids of a cell's successful rows, in their order, and (n, C) log-probabilities.

        They have three digits; the exact numbers that metrics need are in `rows_of`.

        Raises:
            RunError: Rows were stored without them (`--keep top5`).
        """
        query = (
            "SELECT sample, log_probabilities FROM rows "
            "WHERE cell = ? AND status = 'ok' ORDER BY sample"
        )
        self._check_rows(cell)
        rows = self.query(query, cell.key)
        if any(data is None for _, data in rows):
            raise RunError(
                f"{self.path} holds rows of {cell.label} without all probabilities: they were "
                "stored with --keep top5."
            )
        with self._trusted():
            classes = self.spec.dataset(cell.dataset).classes
            values = unpack([data for _, data in rows], classes)
        return np.array([name for name, _ in rows], dtype=np.object_), values

    def stored_rows(
        self, cell: Cell, *, columns: tuple[Column, ...] = EXPORTED
    ) -> Iterator[dict[str, Any]]:
        """Yield all rows of a cell, failed ones included, by sample id, as stored."""
        query = f"SELECT sample, {names(columns)} FROM rows WHERE cell = ? ORDER BY sample"  # noqa: S608
        keys = ("sample", *(column.name for column in columns))
        self._check_rows(cell, is_deep=True)
        with self._trusted():
            for row in self._open.execute(query, (cell.key,)):
                yield dict(zip(keys, row, strict=True))

    def counts(self) -> dict[Cell, tuple[int, int]]:
        """Return (successful, failed) rows of every cell."""
        query = "SELECT cell, sum(status = 'ok'), sum(status = 'failed') FROM rows GROUP BY cell"
        counts = {key: (ok, failed) for key, ok, failed in self.query(query)}
        return {cell: counts.get(cell.key, (0, 0)) for cell in self.cells}

    @property
    def is_complete(self) -> bool:
        """Whether every sample has a row, successful or failed, in every cell."""
        samples = {entry.name: entry.samples for entry in self.spec.datasets}
        return all(sum(pair) == samples[cell.dataset] for cell, pair in self.counts().items())

    def unfinished(self, *cells: Cell) -> str:
        """Return a sentence about the first of some cells that lacks rows; "" if none does.

        Work goes in the order of the classes, so what is there is no random part of the set.
        """
        counts = self.counts()
        for cell in cells:
            done, samples = sum(counts[cell]), self.spec.dataset(cell.dataset).samples
            if done < samples:
                return (
                    f"{self.path} is unfinished: {done:,} of {samples:,} images of {cell.dataset} "
                    "are evaluated. Finish it with the same `dtpt eval` command."
                )
        return ""

    def failures(self) -> list[Failure]:
        """Return the images that failed, each once, by data set and id."""
        query = (
            "SELECT dataset, sample, min(reason) FROM results WHERE status = 'failed' "
            "GROUP BY dataset, sample ORDER BY dataset, sample"
        )
        return [Failure(*row) for row in self.query(query)]

    def notes(self) -> dict[str, tuple[str, ...]]:
        """Return what readers of the numbers should know, by data set; "" for the whole run."""
        pairs = [
            *self.query("SELECT dataset, text FROM notes ORDER BY dataset, text"),
            *(note for name in self.datasets for note in copy_notes(name, self.samples(name))),
            *lambda_notes(self.lambdas()),
            *(("", text) for text in session_notes(self.sessions())),
        ]
        notes = {
            dataset: tuple(text for name, text in pairs if name == dataset)
            for dataset in ("", *self.datasets)
        }
        return {dataset: texts for dataset, texts in notes.items() if texts}


def join_clusters(samples: Iterable[SampleRecord]) -> dict[str, str]:
    """Return the cluster of every sample id; those that share a sample or an image are one.

    A joined cluster has the first of the names, by code point. A sample may occur several times, as
    several stores know it.

    Example:
        >>> a, b = SampleRecord("a", 0, "", "x", "key"), SampleRecord("b", 0, "", "y", "key")
        >>> join_clusters([a, b, SampleRecord("c", 0, "", "z")])
        {'a': 'x', 'b': 'x', 'c': 'z'}
    """
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while (above := parents.setdefault(name, name)) != name:
            parents[name] = name = parents[above]  # halve the path
        return name

    members: dict[str, str] = {}  # by sample id
    owners: dict[str, str] = {}  # by content key
    for sample in samples:
        linked = [members.setdefault(sample.id, sample.cluster), sample.cluster]
        if sample.image_key is not None:
            linked.append(owners.setdefault(sample.image_key, sample.cluster))
        first, *others = sorted({root(name) for name in linked})
        parents.update(dict.fromkeys(others, first))
    return {sample: root(cluster) for sample, cluster in members.items()}


def copy_notes(dataset: str, samples: Mapping[str, SampleRecord]) -> list[tuple[str, str]]:
    """Return (data set, text) if some of its images are the same file.

    Example:
        >>> same = {name: SampleRecord(name, 0, image_key="key") for name in ("a", "b", "c")}
        >>> copy_notes("pets", same)
        [('pets', '2 of 3 images are exact copies of others and count as one with them.')]
    """
    keys = [sample.image_key for sample in samples.values() if sample.image_key is not None]
    copies = len(keys) - len(set(keys))
    if not copies:
        return []
    text = f"{copies:,} of {len(samples):,} images are exact copies of others"
    return [(dataset, f"{text} and count as one with them.")]


def lambda_notes(lambdas: Mapping[Cell, SelectedLambda]) -> list[tuple[str, str]]:
    """Return (data set, text) for every λ that was selected without labels."""
    return [
        (
            cell.dataset,
            f"{cell.method}, seed {cell.seed}: λ = {lambda_text(selected.value)} was selected on "
            f"{selected.images} images without their labels.",
        )
        for cell, selected in lambdas.items()
    ]


def session_notes(sessions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what differed between the processes that computed the rows.

    Example:
        >>> one, two = ({"rows": 4, "environment": {"threads": n}} for n in (1, 2))
        >>> session_notes([one]), len(session_notes([one, two]))
        ([], 1)
    """
    environments: list[Mapping[str, Any]] = []
    for session in sessions:
        if session.get("rows") != 0:
            environment = session.get("environment", {})
            environments += session.get("nodes") or [environment]
            environments.append({"threads": environment.get("threads", "")})
    differences = []
    for name in CONDITIONS:
        values = {str(environment.get(name, "")) for environment in environments} - {""}
        if len(values) > 1:
            differences.append(f"{name} {' and '.join(sorted(values))}")
    if not differences:
        return []
    return [
        f"Rows were computed under different conditions ({'; '.join(differences)}); numbers differ "
        "in their last bits."
    ]


def open_run(path: Path | str) -> Run:
    """Open the run in a folder, or one SQLite file of it; a RunError while it is in shards."""
    first, *others = store_files(path)
    if Path(path).is_dir() and first.name not in (MAIN_STORE, MANIFEST):
        count = len(others) + 1
        raise RunError(f"{path} holds {count} shards: merge them with `dtpt merge {path}`.")
    return open_file(first)


def open_file(file: Path) -> Run:
    """Open a store, or a published run by its manifest."""
    if file.name == MANIFEST:
        from dtpt.runs.published import PublishedRun  # rests on this module

        return PublishedRun(file.parent)
    return Run(file)
