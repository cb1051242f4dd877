"""The evaluation itself: what is missing → features → tuning → rows, one image at a time.

Every step can be interrupted: a row is in the store when its image is done, and whatever is not in
the store is found missing by the next run of the same command.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dtpt.data import Dataset, Sample
from dtpt.errors import RunError
from dtpt.methods import ResolvedMethod
from dtpt.prompts import PromptSet
from dtpt.runs.answers import to_answer
from dtpt.runs.features import FeatureCache, GroupKey
from dtpt.runs.options import EvalOptions
from dtpt.runs.pipeline import Encoder, Seen, as_tensor, stream_features
from dtpt.runs.progress import Reporter, make_reporter
from dtpt.runs.reading import Run, open_run
from dtpt.runs.schema import Cell, connect_for_reading, explained
from dtpt.runs.setup import Setup, Task, describe_environment, prepare
from dtpt.runs.shards import Shard, find_shard, other_stores
from dtpt.runs.store import SampleInfo, Store, read_spec, set_aside
from dtpt.runs.workers import Job, Renderer, Studio, make_renderer
from dtpt.tuning import Tuner

if TYPE_CHECKING:
    from dtpt.clip.model import Clip

FAILURES_SHOWN = 20


@dataclass(frozen=True)
class Missing:
    """A sample that lacks rows under one seed, and which."""

    sample: Sample
    cells: tuple[Cell, ...]


@dataclass
class FailureLimit:
    """Stops a run when too many images of a data set cannot be read.

    At least one failure is tolerated (unless the share is 0), so that a small set is not stopped
    by its first damaged image.
    """

    dataset: str
    samples: int
    share: float
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> int:
        """Number of images that may fail."""
        return max(math.floor(self.share * self.samples), 1 if self.share > 0 else 0)

    def add(self, sample_id: str, reason: str) -> None:
        """Count an image once, whatever the number of seeds."""
        self.reasons[sample_id] = reason
        if len(self.reasons) <= self.allowed:
            return
        shown = list(self.reasons.items())[:FAILURES_SHOWN]
        listing = "".join(f"\n  {name}: {why}" for name, why in shown)
        raise RunError(
            f"{self.dataset}: {len(self.reasons)} images cannot be read, more than "
            f"{self.share:.1%} of {self.samples} (--max-failures):{listing}\n"
            "Repair them and run the same command again, or raise --max-failures."
        )


@dataclass(frozen=True)
class Stage:
    """The tools for one data set."""

    task: Task
    tuner: Tuner
    renderer: Renderer
    encoder: Encoder
    limit: FailureLimit


def evaluate(
    options: EvalOptions,
    *,
    model: "Clip | None" = None,
    datasets: Sequence[Dataset] | None = None,
    reporter: Reporter | None = None,
) -> Run:
    """Evaluate methods on data sets and return the stored run; the same call again resumes.

    Args:
        options: What to run and where to store it.
        model: Used instead of loading `options.model`.
        datasets: Used instead of loading `options.dataset`.
        reporter: Told about the progress; by default chosen for stderr.

    Raises:
        RunError: The folder holds another configuration, too many images fail, or the disk is
            full. What was finished is stored.
    """
    shard = find_shard(options.shard)
    path = options.output / shard.file_name
    setup = prepare(options, model=model, datasets=datasets)
    if options.fresh:
        set_aside(path)
    threads = options.threads or torch.get_num_threads()
    with ExitStack() as stack:
        store = stack.enter_context(Store(path, setup.spec, shard=str(shard)))
        shown = reporter if reporter is not None else make_reporter(quiet=options.quiet)
        stack.callback(shown.close)
        stack.enter_context(torch_threads(threads))
        store.begin_session(_session(setup, options, shard, threads=threads))
        for task in setup.tasks:
            _evaluate_dataset(task, setup, options, store=store, shard=shard, reporter=shown)
    return open_run(path)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with a fixed number of threads, because sums depend on it in the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _session(
    setup: Setup, options: EvalOptions, shard: Shard, *, threads: int
) -> dict[str, object]:
    return {
        "environment": describe_environment(setup.model, threads),
        "shard": str(shard),
        "workers": options.workers,
        "data_root": str(options.data_root) if options.data_root else None,
        "command": sys.argv,
    }


def _evaluate_dataset(
    task: Task,
    setup: Setup,
    options: EvalOptions,
    *,
    store: Store,
    shard: Shard,
    reporter: Reporter,
) -> None:
    samples = [sample for sample in task.dataset.samples if shard.holds(sample.id)]
    store.write_classes(task.dataset.name, task.dataset.classes)
    plans = {
        seed: plan(samples, task_cells(task, seed, setup.spec.template), store, shard=shard)
        for seed in setup.spec.seeds
    }
    if not any(plans.values()):
        return
    limit = FailureLimit(task.dataset.name, len(samples), options.max_failures)
    with open_stage(task, setup, options.workers, limit=limit) as stage:
        for seed, missing in plans.items():
            title = f"{task.dataset.name} seed {seed}"
            reporter.start(title, len(samples), done=len(samples) - len(missing))
            cache = open_cache(setup, task, seed) if options.cache else None
            try:
                _evaluate_seed(stage, missing, seed, store=store, cache=cache, reporter=reporter)
            finally:
                store.encoded_images += stage.encoder.images
                stage.encoder.images = 0
                if cache is not None:
                    cache.flush()


@contextmanager
def open_stage(task: Task, setup: Setup, workers: int, *, limit: FailureLimit) -> Iterator[Stage]:
    """Build prompts, engine and workers for one data set, and end the workers afterwards."""
    prompts = PromptSet.build(
        setup.model, task.dataset.classes, template=setup.spec.template, context=setup.context
    )
    tuner = Tuner(setup.model, prompts, settings=setup.settings)
    renderer = make_renderer(Studio(task.recipe, setup.model.preprocessing), workers)
    try:
        yield Stage(task, tuner, renderer, Encoder(setup.model), limit)
    finally:
        renderer.close()


def open_cache(setup: Setup, task: Task, seed: int) -> FeatureCache:
    """Open the feature cache's group for this model, these views and this seed."""
    kind = setup.model.device.type
    return FeatureCache(GroupKey(setup.model.fingerprint, task.recipe.fingerprint, seed, kind))


def task_cells(task: Task, seed: int, template: str) -> tuple[Cell, ...]:
    """Return the cells of one data set and seed, in the order of its methods."""
    return tuple(
        Cell(task.dataset.name, method.name, method.lambda_, seed, template)
        for method in task.methods
    )


def plan(
    samples: Sequence[Sample], cells: Sequence[Cell], store: Store, *, shard: Shard
) -> list[Missing]:
    """Find the samples without a successful row in some cell; failed ones are tried again."""
    done = {cell: store.finished(cell) for cell in cells}
    for path in other_stores(store.path.parent, shard):
        _add_finished(done, path, store)
    missing = (
        Missing(sample, tuple(cell for cell in cells if sample.id not in done[cell]))
        for sample in samples
    )
    return [entry for entry in missing if entry.cells]


def _add_finished(done: dict[Cell, set[str]], path: Path, store: Store) -> None:
    """Count rows that an earlier division into shards has finished, if it is of the same run."""
    connection = connect_for_reading(path)
    try:
        with explained(path):
            spec = read_spec(connection)
            if spec is None or not store.spec.only_enlarges(spec):
                return
            query = "SELECT sample FROM rows WHERE cell = ? AND status = 'ok'"
            for cell, ids in done.items():
                ids.update(sample for (sample,) in connection.execute(query, (cell.key,)))
    finally:
        connection.close()


def _evaluate_seed(
    stage: Stage,
    missing: Sequence[Missing],
    seed: int,
    *,
    store: Store,
    cache: FeatureCache | None,
    reporter: Reporter,
) -> None:
    wanted = {entry.sample.id: entry.cells for entry in missing}
    jobs = (Job(entry.sample, seed) for entry in missing)
    stream = stream_features(jobs, encoder=stage.encoder, cache=cache, renderer=stage.renderer)
    for seen in stream:
        cells = wanted[seen.job.sample.id]
        info = _info(stage.task.dataset.name, seen)
        if seen.features is None:
            store.write_failure(info, cells, reason=seen.failure)
            stage.limit.add(seen.job.sample.id, seen.failure)
        else:
            _answer(stage, seen, cells, info=info, store=store)
        reporter.advance()


def _answer(
    stage: Stage, seen: Seen, cells: tuple[Cell, ...], *, info: SampleInfo, store: Store
) -> None:
    """Tune on one image with every method that lacks a row, and write the rows together."""
    if seen.features is None:
        raise ValueError("features were checked by the caller")
    methods = [_method_of(stage.task.methods, cell) for cell in cells]
    device = stage.tuner.prompts.context.device
    outcomes = stage.tuner.predict(as_tensor(seen.features, device), methods)
    answers = {
        cell: to_answer(outcome, seen.job.sample.label)
        for cell, outcome in zip(cells, outcomes, strict=True)
    }
    store.write(info, answers)


def _method_of(methods: Sequence[ResolvedMethod], cell: Cell) -> ResolvedMethod:
    return next(m for m in methods if (m.name, m.lambda_) == (cell.method, cell.lambda_))


def _info(dataset: str, seen: Seen) -> SampleInfo:
    sample = seen.job.sample
    return SampleInfo(dataset, sample.id, sample.label, sample.group, seen.job.image_key or None)
