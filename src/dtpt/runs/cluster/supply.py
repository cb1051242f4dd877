"""Sending a machine what it lacks, piece by piece, while others work."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError

from dtpt.runs.cluster.goods import Goods, Parcel, Segment
from dtpt.runs.cluster.machines import MachineFacts, Share
from dtpt.runs.cluster.mailbox import Mailbox

PIECES_SHARED = 4  # machines that join together are sent the same pieces from Ray's own store


@dataclass(eq=False)
class Machine:
    """A machine of the cluster.

    Attributes:
        node: Ray's id of it.
        name: For people; unique.
        offered: Ray's resources of it.
        facts: What it says about itself; None until it has answered.
        share: How it is used.
        is_gone: Whether it left.
        refusal: Why it is not used; "" when it is.
        early_deaths: Porters and replicas that died there in a row before they were ready.
        has_worked: Whether a replica there was ever ready.
        received: Folders there of what it was sent: the model (-1), data sets by their numbers.
    """

    node: str
    name: str
    offered: dict[str, float]
    facts: MachineFacts | None = None
    share: Share = field(default_factory=lambda: Share(0, "cpu", 0, 0))
    is_gone: bool = False
    refusal: str = ""
    early_deaths: int = 0
    has_worked: bool = False
    received: dict[int, str] = field(default_factory=dict)


class Supply:
    """Brings to machines what they lack; every step is an answer that arrives in the mailbox.

    Args:
        mail: Where answers arrive.
        goods: What machines need.
        ready: Called with a machine that has everything.
        failed: Called with a machine and the error that it reports.
        refuse: Called with a machine that cannot be helped, and why.
        note: Tells people something.
    """

    def __init__(
        self,
        mail: Mailbox,
        goods: Mapping[int, Goods],
        *,
        ready: Callable[[Machine], None],
        failed: Callable[[Machine, Exception], None],
        refuse: Callable[[Machine, str], None],
        note: Callable[[str], None],
    ) -> None:
        self._mail = mail
        self._goods = goods
        self._ready = ready
        self._failed = failed
        self._refuse = refuse
        self._note = note
        self._piece = lru_cache(PIECES_SHARED)(self._put)

    def begin(self, machine: Machine, porter: Any) -> None:
        """Ask a machine what it lacks; it is ready when it has been sent all that."""
        probes = {number: goods.probe for number, goods in self._goods.items()}
        self._ask(
            machine,
            porter.lacks.remote(probes),
            then=lambda found: self._send(machine, porter, lacking=found),
        )

    def _ask(self, machine: Machine, answer: Any, *, then: Callable[[Any], None]) -> None:
        failed = partial(self._failed, machine)
        self._mail.when(answer.future(), then=then, otherwise=failed)

    def _send(self, machine: Machine, porter: Any, *, lacking: dict[int, str]) -> None:
        """Send the next of the things that a machine lacks."""
        if machine.is_gone:
            return
        if not lacking:
            self._ready(machine)
            return
        number, reason = next(iter(lacking.items()))
        goods = self._goods[number]
        parcel = goods.parcel
        if parcel is None:
            self._refuse(machine, f"it lacks {goods.title}, which is no file to be sent ({reason})")
            return
        others = {key: why for key, why in lacking.items() if key != number}

        def expected(said: tuple[str, list[int]]) -> None:
            folder, files = said
            machine.received[number] = folder
            if files:
                size = sum(parcel.sizes[file] for file in files) / 1e6
                self._note(
                    f"{machine.name} is sent {goods.title}: {len(files)} files, {size:.1f} MB."
                )
            then = partial(self._send, machine, porter, lacking=others)
            self._pieces(machine, porter, number=number, rest=parcel.pieces(files), then=then)

        self._ask(machine, porter.expect.remote(parcel), then=expected)

    def _pieces(
        self,
        machine: Machine,
        porter: Any,
        *,
        number: int,
        rest: Iterator[tuple[Segment, ...]],
        then: Callable[[], None],
    ) -> None:
        """Send one piece, and the rest when it has arrived."""
        piece = next(rest, None)
        if machine.is_gone or piece is None:
            then()
            return
        again = partial(self._pieces, machine, porter, number=number, rest=rest, then=then)
        parcel: Parcel | None = self._goods[number].parcel
        answer = porter.take.remote(parcel, self._piece(number, piece))
        self._ask(machine, answer, then=lambda _: again())

    def _put(self, number: int, piece: tuple[Segment, ...]) -> Any:
        return ray.put(self._goods[number].read(piece))


def in_one_line(error: BaseException) -> str:
    """Return what an error of Ray's says, short: its last line tells what was raised."""
    if isinstance(error, OutOfMemoryError):
        used = re.search(r"was ([\d.]+\wB) used / ([\d.]+\wB)", str(error))
        figures = f", {used[1]} of {used[2]} were in use" if used else ""
        return f"memory ran out{figures}; free some, or give fewer --replicas"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1].partition(" Some common causes")[0] if lines else type(error).__name__
    return text.rstrip(".") if len(text) <= 200 else f"{text[:200]}…"
