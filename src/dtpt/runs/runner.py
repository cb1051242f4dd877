"""The evaluation itself: what is missing → features → tuning → rows, one image at a time.

Every step can be interrupted: a row is in the store when its image is done, and whatever is not in
the store is found missing by the next run of the same command.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dtpt.data import Dataset, Sample
from dtpt.errors import ImageError, RunError
from dtpt.files import printable
from dtpt.methods import ResolvedMethod
from dtpt.prompts import PromptSet
from dtpt.runs.answers import to_answer
from dtpt.runs.features import FeatureCache, Features, GroupKey
from dtpt.runs.options import EvalOptions
from dtpt.runs.pipeline import Encoder, as_tensor, stream_features
from dtpt.runs.progress import Reporter, make_reporter
from dtpt.runs.reading import Run, open_run, thread_remarks
from dtpt.runs.setup import Setup, Task, describe_environment, prepare
from dtpt.runs.shards import Shard, find_shard, other_stores
from dtpt.runs.spec import Cell
from dtpt.runs.store import Answer, SampleInfo, Store, changed_picture, set_aside
from dtpt.runs.workers import Job, Renderer, Studio, make_renderer
from dtpt.tuning import Tuner

if TYPE_CHECKING:
    from dtpt.clip.model import Clip

FAILURES_SHOWN = 20


Wanted = tuple[tuple[Cell, ResolvedMethod], ...]
"""Cells of one data set and seed, each with the method that answers for it."""


@dataclass(frozen=True)
class Missing:
    """A sample that lacks rows under one seed, and which."""

    sample: Sample
    wanted: Wanted


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
        session = _session(setup, options, shard=shard, threads=threads)
        store.write_remarks("", setup.model.remarks)
        for text in (*setup.model.remarks, *thread_remarks([*store.sessions(), session])):
            shown.note(text)
        store.begin_session(session)
        for task in setup.tasks:
            _evaluate_dataset(
                task, setup, options=options, store=store, shard=shard, reporter=shown
            )
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
    setup: Setup, options: EvalOptions, *, shard: Shard, threads: int
) -> dict[str, object]:
    return {
        "environment": describe_environment(setup.model, threads),
        "shard": str(shard),
        "workers": options.workers,
        "data_root": printable(options.data_root) if options.data_root else None,
        "command": [printable(word) for word in sys.argv],
    }


def _evaluate_dataset(
    task: Task,
    setup: Setup,
    *,
    options: EvalOptions,
    store: Store,
    shard: Shard,
    reporter: Reporter,
) -> None:
    name = task.dataset.name
    samples = [sample for sample in task.dataset.samples if shard.holds(sample.id)]
    store.write_classes(name, task.dataset.classes)
    _tell_remarks(task.dataset, store=store, reporter=reporter)
    check_pictures(name, samples, store=store)
    plans = {
        seed: plan(samples, task_cells(task, setup, seed=seed), store=store, shard=shard)
        for seed in setup.spec.seeds
    }
    if not any(plans.values()):
        return
    limit = FailureLimit(name, len(samples), options.max_failures)
    with open_stage(task, setup, workers=options.workers, limit=limit) as stage:
        for seed, missing in plans.items():
            reporter.start(f"{name} seed {seed}", len(samples), done=len(samples) - len(missing))
            cache = open_cache(setup, task, seed=seed) if options.cache else None
            try:
                _evaluate_seed(stage, missing, seed=seed, store=store, cache=cache, told=reporter)
            finally:
                store.encoded_images += stage.encoder.images
                stage.encoder.images = 0
                if cache is not None:
                    cache.flush()


def _tell_remarks(dataset: Dataset, *, store: Store, reporter: Reporter) -> None:
    """Print and store what the reader of the data set left out or found odd."""
    store.write_remarks(dataset.name, dataset.remarks)
    for text in dataset.remarks:
        reporter.note(f"{dataset.name}: {text}")


def check_pictures(dataset: str, samples: Sequence[Sample], *, store: Store) -> None:
    """Refuse to go on when a picture that has rows is not the one of before.

    Only files that look different from outside are read again; those that were merely touched are
    noted as they look now.
    """
    known = store.samples(dataset)
    touched = {}
    for sample in samples:
        record = known.get(sample.id)
        if record is None or record.image_key is None or record.stamp is None:
            continue
        try:
            stamp = sample.image.stamp()
            if stamp == record.stamp:
                continue
            key = sample.image.key()
        except ImageError:  # its rows stay; missing ones are reported when they are tried
            continue
        if key != record.image_key:
            raise RunError(changed_picture(dataset, sample.id))
        touched[sample.id] = stamp
    store.restamp(dataset, touched)


@contextmanager
def open_stage(task: Task, setup: Setup, *, workers: int, limit: FailureLimit) -> Iterator[Stage]:
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


def open_cache(setup: Setup, task: Task, *, seed: int) -> FeatureCache:
    """Open the feature cache's group for this model, these views and this seed."""
    kind = setup.model.device.type
    return FeatureCache(GroupKey(setup.model.fingerprint, task.recipe.fingerprint, seed, kind))


def task_cells(task: Task, setup: Setup, *, seed: int) -> Wanted:
    """Return the cells of one data set and seed with their methods, in the order of the run."""
    cells = setup.spec.cells(dataset=task.dataset.name, seed=seed)
    return tuple(zip(cells, task.methods, strict=True))


def plan(samples: Sequence[Sample], wanted: Wanted, *, store: Store, shard: Shard) -> list[Missing]:
    """Find the samples without a successful row in some cell; failed ones are tried again."""
    done = {cell: store.finished(cell) for cell, _ in wanted}
    for path in other_stores(store.path.parent, shard):
        _add_finished(done, path, store=store)
    missing = (
        Missing(sample, tuple(pair for pair in wanted if sample.id not in done[pair[0]]))
        for sample in samples
    )
    return [entry for entry in missing if entry.wanted]


def _add_finished(done: dict[Cell, set[str]], path: Path, *, store: Store) -> None:
    """Count rows that an earlier division into shards has finished, if it is of the same run."""
    with Run(path) as other:
        if store.spec.only_enlarges(other.spec):
            for cell, ids in done.items():
                ids.update(other.sample_ids(cell).tolist())


def _evaluate_seed(
    stage: Stage,
    missing: Sequence[Missing],
    *,
    seed: int,
    store: Store,
    cache: FeatureCache | None,
    told: Reporter,
) -> None:
    wanted = {entry.sample.id: entry.wanted for entry in missing}
    jobs = (Job(entry.sample, seed) for entry in missing)
    stream = stream_features(jobs, encoder=stage.encoder, cache=cache, renderer=stage.renderer)
    for seen in stream:
        sample = seen.job.sample
        info = SampleInfo(stage.task.dataset.name, sample.id, sample.label, sample.group)
        if seen.features is None:
            cells = [cell for cell, _ in wanted[sample.id]]
            store.write_failure(info, cells, reason=seen.failure)
            stage.limit.add(sample.id, seen.failure)
        else:
            keyed = replace(info, image_key=seen.job.image_key, stamp=seen.job.stamp)
            answers = _answers(stage, seen.features, wanted=wanted[sample.id], label=sample.label)
            store.write(keyed, answers)
        told.advance()


def _answers(stage: Stage, features: Features, wanted: Wanted, *, label: int) -> dict[Cell, Answer]:
    """Tune on one image with every method that lacks a row."""
    views = as_tensor(features, stage.tuner.prompts.context.device)
    outcomes = stage.tuner.predict(views, [method for _, method in wanted])
    return {
        cell: to_answer(outcome, label) for (cell, _), outcome in zip(wanted, outcomes, strict=True)
    }
