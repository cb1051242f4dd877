"""Whether a published run is what it says: everything recomputed from its rows, and what cannot be.

A check passes, fails with the reason, or is skipped with the reason. Whoever changes rows, metrics
and hashes consistently, within the rules of `dtpt.runs.integrity`, is not noticed; running the
command of the card again is what finds that.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dtpt.data import Dataset, load_dataset
from dtpt.data.catalog import NAMED_SETS, catalog_entry
from dtpt.data.dataset import fingerprint, prompt_name
from dtpt.data.openmoji import is_openmoji
from dtpt.errors import DtptError, ImageError, RunError, os_error
from dtpt.files import printable
from dtpt.runs.integrity import problems_of_cell, problems_of_tables
from dtpt.runs.published import PublishedRun, read_manifest, read_results, sha256
from dtpt.runs.results import Results, results_of
from dtpt.runs.shards import MANIFEST
from dtpt.runs.spec import DatasetSpec

Kind = Literal["files", "settings", "classes", "samples", "images", "seeds", "rows", "metrics"]
COMPARED = (  # of results.json
    *("results", "groups", "configs", "n-samples", "config", "fingerprints", "complete"),
    *("failures", "notes"),
)
TOLERANCE = 1e-9  # relative; sums differ in their last bits between processors


@dataclass(frozen=True)
class Check:
    """One check of a published run."""

    kind: Kind
    outcome: Literal["passed", "failed", "skipped"]
    text: str  # what was found, or why it was not checked


@dataclass(frozen=True)
class Verification:
    """The outcome of all checks."""

    folder: Path
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome == "failed")

    @property
    def is_verified(self) -> bool:
        """Whether no check failed; some may have been skipped."""
        return not self.failures


def verify(folder: Path, *, data_root: Path | None = None) -> Verification:
    """Check a folder that `publish` wrote; data sets are looked for in `data_root`.

    Raises:
        RunError: The folder is not a published run, or publishing was interrupted.
    """
    if not (manifest := read_manifest(folder)).files:
        raise RunError(f"{printable(folder)} is unfinished: publish the run to it again.")
    checks = list(_files(folder, manifest.files))
    try:
        stated = read_results(folder)
        run = PublishedRun(folder, is_trusted=True)
    except RunError as error:
        return Verification(folder, (*checks, Check("rows", "failed", str(error))))
    with run:
        checks += [*_settings(run, stated)]
        for entry in run.spec.datasets:
            checks += [*_classes(run, entry), *_samples(run, entry, data_root=data_root)]
        checks += [*_seeds(run), *_rows(run), *_metrics(run, stated)]
    return Verification(folder, tuple(checks))


def _files(folder: Path, hashes: Mapping[str, str]) -> Iterator[Check]:
    changed = []
    for name, expected in hashes.items():
        if Path(name).name != name:
            changed.append(f"{printable(name)} is not in the folder")
            continue
        try:
            if sha256(folder / name) != expected:
                changed.append(f"{name} was changed")
        except OSError as error:
            changed.append(f"{printable(name)}: {os_error(error)}")
    yield from (Check("files", "failed", text) for text in changed)
    if not changed:
        yield Check("files", "passed", f"{len(hashes)} files have the hashes in {MANIFEST}")


def _settings(run: PublishedRun, stated: Results) -> Iterator[Check]:
    if stated.config.hash != run.spec.hash or stated.fingerprints.run != run.spec.hash:
        yield Check("settings", "failed", "results.json describes another run than the manifest")
    else:
        seeds = ", ".join(map(str, run.spec.seeds))
        text = f"model {run.spec.model.name} ({run.spec.model.fingerprint[:12]}), seeds {seeds}"
        yield Check("settings", "passed", text)


def _classes(run: PublishedRun, entry: DatasetSpec) -> Iterator[Check]:
    """Compare the class names of a known set with the catalogue's."""
    if entry.name not in NAMED_SETS:
        return
    known = catalog_entry(entry.name)
    names = tuple(map(prompt_name, known.classes))
    if run.classes(entry.name) != names:
        yield Check("classes", "failed", f"{entry.name} has another class list than the catalogue")
    elif entry.whole != known.images:
        text = f"{entry.name} has {entry.whole:,} images, {known.images:,} in the catalogue"
        yield Check("samples", "failed", text)
    else:
        yield Check("classes", "passed", f"{entry.name}: {len(names)} classes of the catalogue")


def _samples(run: PublishedRun, entry: DatasetSpec, *, data_root: Path | None) -> Iterator[Check]:
    """Compare ids and labels with the fingerprint, and all with the data set where it is here."""
    name, samples = entry.name, run.samples(entry.name)
    if entry.limit is None:
        if fingerprint(run.classes(name), samples.values()) != entry.fingerprint:
            text = f"{name}: classes, ids or labels are not those of its fingerprint"
            yield Check("samples", "failed", text)
            return
        yield Check("samples", "passed", f"{name}: {len(samples):,} ids and labels, fingerprint")
    if split := _split(entry):
        yield split
        if split.outcome == "failed":
            return
    dataset, reason = _here(entry, data_root)
    if dataset is None:
        is_known = split is not None and split.outcome == "passed"
        what = ["content of the images"]
        what += [] if is_known and entry.limit is None else ["whether it is the usual choice"]
        yield Check("images", "skipped", f"{name}: {' and '.join(what)} ({reason})")
        return
    chosen = dataset if entry.limit is None else dataset.limited(entry.limit)
    labels = {sample.id: sample.label for sample in chosen.samples}
    if dataset.fingerprint != entry.fingerprint or labels != {
        sample.id: sample.label for sample in samples.values()
    }:
        yield Check("samples", "failed", f"{name} has another split or other labels than here")
        return
    yield Check("samples", "passed", f"{name}: the same split as in {dataset.source}")
    yield _images(chosen, {sample.id: sample.image_key for sample in samples.values()})


def _split(entry: DatasetSpec) -> Check | None:
    """Compare a known set with the split that the papers share, if its fingerprint is known."""
    name = entry.name
    known = catalog_entry(name).fingerprint if name in NAMED_SETS else ""
    if not known:
        return None
    if entry.fingerprint == known:
        return Check("samples", "passed", f"{name}: the split that the papers share")
    if entry.limit is None and entry.samples == entry.whole:
        return Check("samples", "failed", f"{name}: another split than the one that papers share")
    return Check("samples", "skipped", f"{name}: chosen from a part of the set, or another split")


def _here(entry: DatasetSpec, data_root: Path | None) -> tuple[Dataset | None, str]:
    """Return the data set if it is on this machine, else why it was not compared."""
    if entry.name not in NAMED_SETS and not is_openmoji(entry.name):
        return None, "only its author has it"
    try:
        dataset = load_dataset(
            entry.name, data_root=data_root, presentation=entry.presentation, partial=True
        )
    except DtptError:
        return None, "not on this machine: --data-root"
    if dataset.is_partial and dataset.fingerprint != entry.fingerprint:
        return None, f"{len(dataset):,} of {entry.whole:,} images are on this machine"
    return dataset, ""


def _images(dataset: Dataset, keys: Mapping[str, str | None]) -> Check:
    other = []
    for sample in dataset.samples:
        try:
            if keys[sample.id] not in (None, sample.image.key()):
                other.append(sample.id)
        except ImageError:
            other.append(sample.id)
    if other:
        text = f"{dataset.name}: {len(other):,} images differ from those here, first {other[0]!r}"
        return Check("images", "failed", text)
    return Check("images", "passed", f"{dataset.name}: {len(keys):,} images are those here")


def _seeds(run: PublishedRun) -> Iterator[Check]:
    lacking = []
    for cell, pair in run.counts().items():
        expected = run.spec.dataset(cell.dataset).samples
        if sum(pair) != expected:
            where = f"{cell.label} on {cell.dataset}, seed {cell.seed}"
            lacking.append(f"{where}: {sum(pair):,} of {expected:,} images")
    yield from (Check("seeds", "failed", text) for text in lacking)
    if not lacking:
        count = len(run.spec.seeds)
        text = f"{len(run.cells):,} cells, {count} seed{'s' * (count > 1)}, have all their rows"
        yield Check("seeds", "passed", text)


def _rows(run: PublishedRun) -> Iterator[Check]:
    problems = list(problems_of_tables(run))
    if not problems:
        problems = [p for cell in run.cells for p in problems_of_cell(run, cell, is_deep=True)]
    yield from (Check("rows", "failed", problem) for problem in problems)
    if not problems:
        rows = sum(sum(pair) for pair in run.counts().values())
        yield Check("rows", "passed", f"{rows:,} rows do not contradict themselves")
    if run.query("SELECT 1 FROM rows WHERE status = 'ok' AND log_probabilities IS NULL LIMIT 1"):
        yield Check("rows", "skipped", "probabilities beyond the five largest are not published")


def _metrics(run: PublishedRun, stated: Results) -> Iterator[Check]:
    try:
        found = results_of(run).document()
    except (DtptError, ArithmeticError, ValueError, TypeError, KeyError) as error:
        yield Check("metrics", "failed", f"cannot be recomputed from the rows: {error}")
        return
    stated_values = dict(_leaves({name: stated.document()[name] for name in COMPARED}))
    values = dict(_leaves({name: found[name] for name in COMPARED}))
    keys = {**stated_values, **values}
    differing = [k for k in keys if not _equal(stated_values.get(k, ""), values.get(k, ""))]
    if differing:
        key = differing[0]
        written, computed = (numbers.get(key, "nothing") for numbers in (stated_values, values))
        text = f"{' / '.join(key)} is {written} in results.json and {computed} from the rows"
        more = f"; {len(differing):,} differ" if len(differing) > 1 else ""
        yield Check("metrics", "failed", text + more)
    else:
        yield Check("metrics", "passed", f"{len(values):,} values are those of the rows")


def _leaves(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _leaves(value, (*path, str(key)))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from _leaves(value, (*path, str(index)))
    else:
        yield path, content


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(one) is type(two) and bool(one == two)
