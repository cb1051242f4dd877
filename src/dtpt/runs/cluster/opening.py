"""From a prepared run to a crew on a cluster."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dtpt.errors import RunError
from dtpt.options import EvalOptions
from dtpt.runs.cluster.connection import connected
from dtpt.runs.cluster.goods import goods_of, with_plain_model
from dtpt.runs.cluster.machines import Wishes
from dtpt.runs.orders import WorkOrder
from dtpt.runs.resources import Resources, Work, describe_work
from dtpt.runs.setup import Setup, work_order
from dtpt.tuning import views_needed

if TYPE_CHECKING:
    from dtpt.runs.crews import Crew

SECONDS_PER_BATCH = 1.0
MOST_PICTURES = 16
BATCHES_IN_ALL = 64  # at least, so that some machines can share a small run


def open_crew(
    stack: ExitStack,
    setup: Setup,
    *,
    options: EvalOptions,
    batch: int,
    note: Callable[[str], None],
    record: Callable[[dict[str, Any]], None],
) -> "Crew":
    """Join the cluster and return the crew on it; the stack ends the connection.

    Raises:
        RunError: The cluster cannot be joined, or the run's model, methods or pictures are known to
            the calling process alone.
    """
    check_leaving(setup)
    stack.enter_context(connected(options.engine))
    from dtpt.runs.cluster.crew import ClusterCrew

    return ClusterCrew(
        plain_order(setup, options),
        wishes=wishes_of(setup, options),
        goods=goods_of(setup, options.model),
        pictures=batch,
        note=note,
        record=record,
    )


def check_leaving(setup: Setup) -> None:
    """Refuse what no other machine could load.

    Raises:
        RunError: The run's model, methods or pictures are known to the calling process alone.
    """
    if not setup.can_leave:
        raise RunError(
            "Other machines cannot load what only this process has: with --engine ray give model, "
            "data sets and methods by name."
        )


def plain_order(setup: Setup, options: EvalOptions) -> WorkOrder:
    """Return the work order, before it is made to fit a machine.

    A name that the user gave to a model is known here alone: what it stands for is said instead.
    """
    order = work_order(setup, options, resources=Resources(0, options.threads or 1, 0))
    return with_plain_model(order, activation=setup.model.config.activation)


def wishes_of(setup: Setup, options: EvalOptions) -> Wishes:
    """Return how machines shall be used."""
    return Wishes(
        device=options.device,
        threads=options.threads or 1,
        replicas=options.replicas,
        workers=options.workers,
        replica_bytes=_work(setup, pictures=1).replica_bytes,
    )


def batch_size(setup: Setup, options: EvalOptions, *, pictures: int) -> int:
    """Return how many pictures a machine is asked for at a time: about a second's work.

    More would be lost when a machine goes, and fewer would cost the driver more messages.
    """
    seconds = _work(setup, pictures=pictures).picture_seconds
    most = min(int(SECONDS_PER_BATCH / max(seconds, 1e-9)), MOST_PICTURES)
    return max(options.batch, min(most, pictures // BATCHES_IN_ALL), 1)


def _work(setup: Setup, *, pictures: int) -> Work:
    return describe_work(
        setup.model,
        pictures=pictures,
        views=max(views_needed(task.methods, task.recipe.count) for task in setup.tasks),
        classes=max(len(task.dataset.classes) for task in setup.tasks),
        can_leave=True,
    )
