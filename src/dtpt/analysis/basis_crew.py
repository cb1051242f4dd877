"""Several processes that answer the pictures of one data set in all bases."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import torch

from dtpt.analysis.basis_answers import BasisAnswers, BasisOrder, answer_pictures
from dtpt.errors import DtptError, RunError
from dtpt.processes import Companion, start, stop
from dtpt.runs.replica import Replica

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SECONDS_TO_END = 5.0


def answer_in_processes(
    orders: Sequence[BasisOrder], *, advance: Callable[[], None]
) -> BasisAnswers:
    """Answer the pictures of each order in a process of its own.

    Args:
        orders: parts of one data set.
        advance: called after every picture.

    Raises:
        RunError: a process ended early, or could not go on.
    """
    crew: list[Companion] = []
    try:
        for order in orders:
            crew.append(start(f"{__name__}:serve"))
            crew[-1].pipe.send(order)
        return BasisAnswers.joined(_collect(crew, advance))
    finally:
        stop(crew, SECONDS_TO_END)


def _collect(crew: Sequence[Companion], advance: Callable[[], None]) -> list[BasisAnswers]:
    """Listen to all processes until each has given its answers."""
    working = {companion.pipe: companion for companion in crew}
    found: list[BasisAnswers] = []
    while working:
        for pipe in wait(list(working)):
            said = _said(working[pipe])  # type: ignore[index]
            if said is None:
                advance()
            else:
                found.append(said)
                del working[pipe]  # type: ignore[arg-type]
    return found


def _said(companion: Companion) -> BasisAnswers | None:
    """Return what a process tells: None after a picture, then all its answers."""
    try:
        said: BasisAnswers | str | None = companion.pipe.recv()
    except (EOFError, ConnectionResetError):
        raise RunError(f"A process ended early: {companion.describe_end()}.") from None
    if isinstance(said, str):
        raise RunError(said)
    return said


def serve(pipe: "Connection[Any, Any]") -> None:
    """Run in a process of its own: answer the pictures of one order."""
    order: BasisOrder = pipe.recv()
    torch.set_num_threads(order.work.threads)
    try:
        replica = Replica(order.work)
        try:
            answers = answer_pictures(order, replica=replica, advance=lambda: pipe.send(None))
        finally:
            replica.close()
    except DtptError as error:
        pipe.send(str(error))
    else:
        pipe.send(answers)
    with suppress(EOFError):
        pipe.recv()  # stay until the driver has read it
