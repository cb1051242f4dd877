"""One pass over the images of a data set: view features, then a function of them per image."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dtpt.errors import RunError
from dtpt.executors.pool import (
    Announce,
    Done,
    Event,
    Executor,
    Factory,
    InlineExecutor,
    ProcessExecutor,
    in_order,
)
from dtpt.methods import parse_label
from dtpt.options import EvalOptions

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip
    from dtpt.data import Dataset, Sample
    from dtpt.runs.evaluation import Prepared
    from dtpt.runs.worker import WorkerSpec


class ImageWorker:
    """Answers samples of the only data set with a function of their (N, D) view features.

    An image that cannot be read is answered with the reason, as text.
    """

    def __init__(
        self,
        spec: "WorkerSpec",
        announce: Announce,
        *,
        model: "Clip",
        seed: int,
        answer: "Callable[[Sample, Tensor], Any]",
    ) -> None:
        (self._entry,) = spec.datasets
        self._device, self._seed, self._answer = model.device, seed, answer
        self._announce = announce
        self._source = spec.feature_source(model, self._announce_image)

    def _announce_image(self, ticket: "tuple[int, Sample]") -> None:
        self._announce(ticket[0], ticket[1].id)

    @property
    def pending(self) -> int:
        return self._source.pending

    def add(self, task_id: int, task: "Sample") -> None:
        recipe = self._entry.recipe
        self._source.add((task_id, task), task.image, recipe=recipe, seed=self._seed)

    def next(self) -> list[Event]:
        ticket, features = self._source.next()
        if features.values is None:
            return [Done(ticket[0], features.failure)]
        self._announce_image(ticket)
        return [Done(ticket[0], self._answer(ticket[1], features.tensor(self._device)))]

    def close(self) -> None:
        self._source.close()


def answers(
    factories: Sequence[Factory],
    dataset: "Dataset",
    *,
    spec: "WorkerSpec",
    workers: int,
    options: EvalOptions,
    advance: Callable[[], None],
) -> "Iterator[tuple[Sample, Any]]":
    """Yield the samples of a data set with their answers, in order, without unreadable ones."""
    from dtpt.runs.schedule import FailureLimit

    samples, limit = dataset.samples, FailureLimit(dataset.name, len(dataset), options.max_failures)
    executor: Executor
    if workers == 1:
        executor = InlineExecutor(factories[0], depth=spec.depth)
    else:
        threads = {"OMP_NUM_THREADS": str(spec.threads)}
        executor = ProcessExecutor(factories, workers, depth=spec.depth, environment=threads)
    with closing(executor):
        events = in_order(executor, samples, ahead=workers * spec.depth)
        for sample, event in zip(samples, events, strict=True):
            result = event.result if isinstance(event, Done) else event.reason
            if isinstance(result, str):
                limit.add(sample.id, result)
            else:
                yield sample, result
            advance()
    if len(limit.reasons) == len(samples):
        raise RunError(f"{dataset.name}: no image could be read, so there is nothing to analyse.")


def prepare_pass(
    options: EvalOptions, *, model: "Clip | None", datasets: "Sequence[Dataset] | None"
) -> "Prepared":
    """Prepare a pass over images, which has one seed and one kind of views, and selects no λ."""
    from dtpt.runs.evaluation import prepare

    if len(options.seed) != 1:
        seeds = ", ".join(map(str, options.seed))
        raise RunError(f"An analysis has one seed, not {seeds}: run it once for each.")
    prepared = prepare(options, model=model, datasets=datasets)
    for method in (method for entry in prepared.worker.datasets for method in entry.methods):
        if method.needs_lambda_search:
            plain = parse_label(method.name).name
            raise RunError(
                f"{method.name}: this analysis selects no λ. Give it ({plain}@LAMBDA); `dtpt eval` "
                "selects and prints one."
            )
    for entry in prepared.worker.datasets:
        for k in {k for own, ks in entry.groups.items() if own != entry.recipe for k in ks}:
            name = entry.methods[k].name
            raise RunError(
                f"{name} has views of its own: this analysis has the data set's. Drop it."
            )
    return prepared
