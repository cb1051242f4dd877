"""The machines of a cluster: greeted when they join, forgotten when they go."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtpt.runs.cluster.actors import Porter
from dtpt.runs.cluster.goods import Goods
from dtpt.runs.cluster.machines import (
    MachineFacts,
    Wishes,
    choose_share,
    describe_here,
    why_unfit,
)
from dtpt.runs.cluster.mailbox import Mailbox
from dtpt.runs.cluster.supply import Machine, Supply, in_one_line

SECONDS_BETWEEN_LOOKS = 1.0
DEATHS_AT_START = 3


class Fleet:
    """Knows which machines are there.

    Args:
        mail: Where answers arrive.
        wishes: How machines shall be used.
        goods: What they need: the model (-1), data sets by their numbers.
        joined: Called with a machine that can work.
        left: Called with a machine that went.
        note: Tells people something.
    """

    def __init__(
        self,
        mail: Mailbox,
        *,
        wishes: Wishes,
        goods: Mapping[int, Goods],
        joined: Callable[[Machine], None],
        left: Callable[[Machine], None],
        note: Callable[[str], None],
    ) -> None:
        self._mail = mail
        self._wishes = wishes
        self._supply = Supply(
            mail, goods, ready=self._ready, failed=self._failed, refuse=self.refuse, note=note
        )
        self._joined = joined
        self._left = left
        self._note = note
        self._ours = describe_here()
        self._porters: dict[str, Any] = {}
        self._greet_again: set[Machine] = set()
        self._next_look = 0.0
        self.machines: dict[str, Machine] = {}

    @property
    def may_grow(self) -> bool:
        """Whether a machine that is there has not answered yet."""
        return bool(self._porters or self._greet_again)

    @property
    def refusals(self) -> list[str]:
        """Why machines are not used."""
        return [f"{one.name}: {one.refusal}" for one in self.machines.values() if one.refusal]

    def look(self, *, now: bool = False) -> None:
        """Compare with what Ray knows, at most once a second unless `now`."""
        if not now and time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS
        alive = {entry["NodeID"]: entry for entry in ray.nodes() if entry["Alive"]}
        for node in [node for node in self.machines if node not in alive]:
            self._forget(self.machines.pop(node))
        for node, entry in alive.items():
            if (
                node not in self.machines
                and choose_share(entry["Resources"], self._wishes).replicas
            ):
                self._welcome(node, entry)
        while self._greet_again:
            self._greet(self._greet_again.pop())

    def _forget(self, machine: Machine) -> None:
        machine.is_gone = True
        self._greet_again.discard(machine)
        self._porters.pop(machine.node, None)
        if not machine.refusal:
            self._note(f"{machine.name} left the cluster.")
        self._left(machine)

    def _welcome(self, node: str, entry: dict[str, Any]) -> None:
        host = entry["NodeManagerHostname"]
        taken = {machine.name for machine in self.machines.values()}
        name = next(n for n in (host, *(f"{host}#{k}" for k in range(2, 10**6))) if n not in taken)
        machine = self.machines[node] = Machine(node, name, dict(entry["Resources"]))
        self._greet(machine)

    def _greet(self, machine: Machine) -> None:
        """Send a porter, who says what the machine is."""
        porter = on_machine(Porter, node=machine.node, cores=0).remote()
        self._porters[machine.node] = porter
        self._mail.when(
            porter.describe.remote().future(),
            then=partial(self._met, machine),
            otherwise=partial(self._failed, machine),
        )

    def _met(self, machine: Machine, facts: MachineFacts) -> None:
        if machine.is_gone:
            return
        machine.facts = facts
        machine.share = choose_share(machine.offered, self._wishes, memory=facts.memory)
        reason = why_unfit(facts, self._ours)
        if not reason and not machine.share.replicas:
            reason = (
                f"{(facts.memory or 0) / 1e9:.1f} GB of memory are free there, and a copy of the "
                f"model takes {self._wishes.replica_bytes / 1e9:.1f} GB; free some"
            )
        if reason:
            self.refuse(machine, reason)
        else:
            self._supply.begin(machine, self._porters[machine.node])

    def _ready(self, machine: Machine) -> None:
        if not machine.is_gone:
            self._dismiss(machine)
            machine.early_deaths = 0
            self._joined(machine)

    def _failed(self, machine: Machine, error: Exception) -> None:
        """Send another porter when one died, as when the machine goes; give up after some."""
        if machine.is_gone or machine.refusal:
            return
        self._dismiss(machine)
        machine.early_deaths += 1
        if (
            isinstance(error, RayActorError | OutOfMemoryError)
            and machine.early_deaths < DEATHS_AT_START
        ):
            self._greet_again.add(machine)
            return
        what = "it cannot take what it is sent" if machine.facts else "dtpt cannot be started there"
        self.refuse(machine, f"{what} ({in_one_line(error)})")

    def refuse(self, machine: Machine, reason: str) -> None:
        """Use a machine no more, and say why."""
        self._dismiss(machine)
        machine.refusal = reason
        self._note(f"{machine.name} is left out: {reason}.")

    def _dismiss(self, machine: Machine) -> None:
        porter = self._porters.pop(machine.node, None)
        if porter is not None:
            ray.kill(porter)

    def close(self) -> None:
        """End all that stands at doors."""
        for machine in self.machines.values():
            self._dismiss(machine)


def on_machine(kind: type, *, node: str, cores: float, accelerators: int = 0) -> Any:
    """Return an actor class whose actors live on one machine and are never started again by Ray.

    The driver queues lost work by itself: Ray's own repetition would not know what was answered.
    """
    return ray.remote(kind).options(
        num_cpus=cores,
        num_gpus=accelerators,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
    )
