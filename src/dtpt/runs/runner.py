"""A run from options to stored rows; the same call again goes on where it was.

Every step can be interrupted: a row is in the store when its image is done, and whatever is not in
the store is found missing by the next run of the same command. torch is not imported here before
the processes that need it, too, have been started.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from dtpt.files import printable
from dtpt.machine import usable_cores
from dtpt.options import EvalOptions
from dtpt.processes import CAN_START, Companion, stop
from dtpt.runs.crews import Crew, InlineCrew, LocalCrew, warm_up
from dtpt.runs.locking import set_aside
from dtpt.runs.planning import Plan
from dtpt.runs.progress import Reporter, make_reporter
from dtpt.runs.reading import Run, open_run
from dtpt.runs.resources import FEW_PICTURES, Resources
from dtpt.runs.scheduler import Scheduler
from dtpt.runs.sessions import machine_remarks, session_remarks
from dtpt.runs.shards import Shard, find_shard
from dtpt.runs.store import Store
from dtpt.runs.weights import settle_weights

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset
    from dtpt.runs.setup import Setup

MOST_WARM = 4


def evaluate(
    options: EvalOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
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
    is_ours = model is not None or datasets is not None  # and of no other process
    with warm_up(0 if is_ours else warm_replicas(options), threads=options.threads or 1) as warm:
        from dtpt.runs.setup import prepare

        setup = prepare(options, model=model, datasets=datasets)
        if options.fresh:
            set_aside(path)
        with Store(path, setup.spec, shard=str(shard)) as store:
            shown = reporter if reporter is not None else make_reporter(quiet=options.quiet)
            try:
                _fill(store, setup, options=options, shard=shard, told=shown, warm=warm)
            finally:
                shown.close()
    return open_run(path)


def warm_replicas(options: EvalOptions) -> int:
    """Guess how many processes will be needed, before anything is loaded; too many do no harm."""
    if options.engine != "local":
        return 0
    is_small = options.limit is not None and options.limit * len(options.dataset) < FEW_PICTURES
    if not CAN_START or is_small or options.device not in ("auto", "cpu"):
        return 0
    count = options.replicas
    if count == "auto":
        count = usable_cores() // (options.threads or 1) if options.workers == "auto" else 1
    return min(count, MOST_WARM) if count > 1 else 0


def _fill(
    store: Store,
    setup: "Setup",
    *,
    options: EvalOptions,
    shard: Shard,
    told: Reporter,
    warm: list[Companion],
) -> None:
    """Bring everything that is missing into the store."""
    from dtpt.runs.setup import needed_resources

    _record_data(store, setup, told)
    with ExitStack() as stack:
        plan = stack.enter_context(Plan(setup, store=store, shard=shard))
        resources = Resources(0, options.threads or 1, 0)  # a cluster's machines say theirs
        if options.engine == "local":
            resources = needed_resources(setup, options, pictures=plan.missing)
        session = _session(setup, options, shard=shard, resources=resources)
        if plan.missing:
            for text in session_remarks([*store.sessions(), session]):
                told.note(text)
        store.begin_session(session)
        if not plan.missing:
            return
        if options.engine == "local":
            batch = options.batch
            crew = _open_crew(stack, setup, options=options, resources=resources, warm=warm)
        else:
            record = partial(record_machine, store, told=told)
            batch, crew = _open_cluster(
                stack, setup, pictures=plan.missing, options=options, note=told.note, record=record
            )
        stack.callback(crew.close)
        weights = settle_weights(plan, crew, tasks=setup.tasks, store=store, reporter=told)
        Scheduler(
            plan,
            crew,
            store=store,
            reporter=told,
            max_failures=options.max_failures,
            batch=batch,
            weights=weights,
        ).run()


def record_machine(store: Store, description: Mapping[str, object], *, told: Reporter) -> None:
    """Store that a machine works on the run, and say so when it is of another kind than others."""
    known = machine_remarks(store.sessions())
    store.add_machine(description)
    for text in machine_remarks(store.sessions()):
        if text not in known:
            told.note(text)


def _record_data(store: Store, setup: "Setup", told: Reporter) -> None:
    """Store class names, and print and store what model and data sets have to remark."""
    store.write_remarks("", setup.model.notes)
    for text in setup.model.notes:
        told.note(text)
    for task in setup.tasks:
        dataset = task.dataset
        store.write_classes(dataset.name, dataset.classes)
        store.write_remarks(dataset.name, dataset.notes)
        for text in dataset.notes:
            told.note(f"{dataset.name}: {text}")


def _session(
    setup: "Setup", options: EvalOptions, *, shard: Shard, resources: Resources
) -> dict[str, object]:
    from dtpt.runs.setup import describe_environment

    return {
        "environment": describe_environment(setup.model, resources.threads),
        "shard": str(shard),
        "engine": options.engine.partition("=")[0],
        "replicas": resources.replicas,
        "workers": resources.workers,
        "data_root": printable(options.data_root) if options.data_root else None,
        "command": [printable(word) for word in sys.argv],
    }


def _open_cluster(
    stack: ExitStack,
    setup: "Setup",
    *,
    pictures: int,
    options: EvalOptions,
    note: Callable[[str], None],
    record: Callable[[Mapping[str, object]], None],
) -> tuple[int, Crew]:
    """Open the replicas of a cluster; return how many pictures a batch has, and the crew."""
    from dtpt.runs.cluster.opening import batch_size, open_crew

    batch = batch_size(setup, options, pictures=pictures)
    crew = open_crew(stack, setup, options=options, batch=batch, note=note, record=record)
    return batch, crew


def _open_crew(
    stack: ExitStack,
    setup: "Setup",
    *,
    options: EvalOptions,
    resources: Resources,
    warm: list[Companion],
) -> Crew:
    """Open one replica here, or several in processes of their own."""
    from dtpt.runs.replica import Replica, torch_threads
    from dtpt.runs.setup import work_order

    order = work_order(setup, options, resources=resources)
    wanted = resources.replicas if resources.replicas > 1 else 0
    stop(warm[wanted:])
    if wanted:
        taken = warm[:wanted]
        warm.clear()  # they belong to the crew now
        return LocalCrew(order, wanted, warm=taken)
    warm.clear()
    stack.enter_context(torch_threads(resources.threads))
    return InlineCrew(Replica(order, model=setup.model))
