"""λ that are found without labels (`@auto`): once per data set, method and seed, before tuning.

One replica looks at a few pictures of the set, the same ones whatever the limit, the share or the
number of replicas. What it finds is stored in the run and goes with every batch, so that whoever
works on the run, now or later, uses the same number.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.errors import RunError
from dtpt.runs.crews import Crew
from dtpt.runs.orders import Event, Found, Place, Returned, Search, Struck
from dtpt.runs.planning import Plan, Stage
from dtpt.runs.progress import Reporter
from dtpt.runs.queries import Weight
from dtpt.runs.reading import Run, weight_remarks
from dtpt.runs.scheduler import ATTEMPTS, Weights
from dtpt.runs.shards import MAIN_STORE, shard_files
from dtpt.runs.spec import Cell
from dtpt.runs.store import Store

if TYPE_CHECKING:
    from dtpt.runs.setup import Task

LOCK_FILE = ".weights.lock"


def settle_weights(
    plan: Plan, crew: Crew, *, tasks: "Sequence[Task]", store: Store, reporter: Reporter
) -> Weights:
    """Find every λ that the rows to come need and the run does not know, and store it.

    Args:
        plan: What is missing.
        crew: Who looks at the pictures.
        tasks: The data sets, as the plan numbers them.
        store: Where λ are kept.
        reporter: Told what was found.

    Returns:
        λ in the order of a stage's cells, None for methods that brought theirs, by (task, seed).

    Raises:
        RunError: No picture could be read, or no replica could do the work.
    """
    stages = {
        (stage.task, stage.seed): stage
        for stage in plan.stages
        if stage.missing and any(method.needs_lambda_search for method in tasks[stage.task].methods)
    }
    if not stages:
        return {}
    with _alone(store.path.parent):
        store.write_weights(_known_elsewhere(store))
        searches = list(_searches(plan, stages.values(), tasks=tasks, store=store))
        for search, found in _find_all(searches, crew, plan=plan):
            cells = [stages[search.task, search.seed].cells[index] for index in search.methods]
            values = (Weight(value, found.pictures) for value in found.weights)
            weights = dict(zip(cells, values, strict=True))
            store.write_weights(weights)
            for dataset, text in weight_remarks(weights):
                reporter.note(f"{dataset}: {text}")
    known = {cell: weight.value for cell, weight in store.weights().items()}
    return {key: tuple(known.get(cell) for cell in stage.cells) for key, stage in stages.items()}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let other shares of the run wait, so that they take over what is found here."""
    from filelock import FileLock

    with FileLock(folder / LOCK_FILE):
        yield


def _known_elsewhere(store: Store) -> dict[Cell, Weight]:
    """Return what other shares of the same run have found."""
    folder = store.path.parent
    known: dict[Cell, Weight] = {}
    for path in (folder / MAIN_STORE, *shard_files(folder)):
        if path == store.path or not path.exists():
            continue
        with suppress(RunError), Run(path) as run:  # one that is just being made has nothing to say
            if run.spec.unlimited().hash == store.spec.unlimited().hash:
                known |= run.weights()
    return known


def _searches(
    plan: Plan, stages: Iterable[Stage], *, tasks: "Sequence[Task]", store: Store
) -> Iterator[Search]:
    known = store.weights()
    for stage in stages:
        task = tasks[stage.task]
        lacking = tuple(
            index
            for index, (method, cell) in enumerate(zip(task.methods, stage.cells, strict=True))
            if method.needs_lambda_search and cell not in known
        )
        if lacking:
            yield Search(plan.number(), stage.task, stage.seed, task.examples, lacking)


def _find_all(
    searches: Iterable[Search], crew: Crew, *, plan: Plan
) -> Iterator[tuple[Search, Found]]:
    """Yield what becomes of searches, in any order.

    One whose replica died is repeated; a picture on which three died is left out.
    """
    waiting, flying = deque(searches), dict[int, Search]()
    deaths: Counter[tuple[int, int, str]] = Counter()
    while waiting or flying:
        while waiting and crew.has_room:
            flying[waiting[0].number] = waiting[0]
            crew.submit(waiting.popleft())
        for event in crew.collect():
            if isinstance(event, Found) and event.number in flying:
                yield flying.pop(event.number), event
            for place in _lost(event):
                search = flying.pop(place.batch, None)
                if search is not None:
                    if isinstance(event, Struck):
                        search = _without_poison(search, place, deaths=deaths)
                    waiting.append(replace(search, number=plan.number()))


def _lost(event: Event) -> tuple[Place, ...]:
    """Return the pictures that a dead replica had before it."""
    if isinstance(event, Struck):
        return (event.place,)
    return event.places if isinstance(event, Returned) else ()


def _without_poison(
    search: Search, blamed: Place, *, deaths: "Counter[tuple[int, int, str]]"
) -> Search:
    """Count a death, and leave the picture out on which too many processes died."""
    key = (search.task, search.seed, blamed.sample)
    deaths[key] += 1
    if deaths[key] < ATTEMPTS:
        return search
    kept = tuple(sample for sample in search.samples if sample.id != blamed.sample)
    return replace(search, samples=kept)
