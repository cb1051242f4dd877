"""Rendering: decode an image and make its views, here or in processes beside the image encoder.

The processes write views into a block of shared memory that has no name, so nothing is left behind
when the main process is killed. The block also bounds memory: no image is decoded before there is a
slot for its views. This module never imports torch, so that the processes start fast.
"""

import mmap
import os
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dtpt.errors import ImageError
from dtpt.executors.pool import (
    Announce,
    Event,
    Executor,
    Failed,
    FunctionWorker,
    InlineExecutor,
    ProcessExecutor,
)
from dtpt.views import ViewRecipe, Views, make_views

if TYPE_CHECKING:
    from dtpt.clip.preprocess import Preprocess
    from dtpt.data.dataset import ImageRef

SLOTS_PER_PROCESS = 2  # while the views in one are encoded, the next ones are made in the other


@dataclass(frozen=True)
class RenderTask:
    image: "ImageRef"
    recipe: ViewRecipe
    seed: int
    slot: int = 0  # of the shared memory


@dataclass(frozen=True)
class _Memory:
    """Shared memory of some slots, each with room for the views of one image."""

    descriptor: int
    shape: tuple[int, ...]  # (slots, N, 3, S, S)

    @classmethod
    def allocate(cls, shape: tuple[int, ...]) -> "_Memory":
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("dtpt-views")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, 4 * int(np.prod(shape)))
        return cls(descriptor, shape)

    def array(self) -> Views:
        memory = mmap.mmap(self.descriptor, 4 * int(np.prod(self.shape)))
        return np.frombuffer(memory, dtype=np.float32).reshape(self.shape)


@dataclass(frozen=True)
class _RenderFactory:
    preprocessing: "Preprocess"
    memory: _Memory | None = None

    def __call__(self, announce: Announce) -> FunctionWorker:
        slots = None if self.memory is None else self.memory.array()

        def run(task: RenderTask) -> Views | str | None:
            out = None if slots is None else slots[task.slot, : task.recipe.count]
            recipe, seed, setting = task.recipe, task.seed, self.preprocessing
            try:
                image = task.image.open()
                pixels = make_views(image, recipe=recipe, seed=seed, preprocessing=setting, out=out)
            except ImageError as error:
                return str(error) or "unreadable"
            return pixels if out is None else None  # shared memory needs no transfer

        return FunctionWorker(run, announce)


class Renderer:
    """Renders images of at most `views` views while it has room, and returns them in any order.

    With 0 processes it renders here, one image at a time.
    """

    def __init__(self, preprocessing: "Preprocess", processes: int, *, views: int) -> None:
        self._tasks: dict[int, tuple[Any, RenderTask]] = {}
        self._events: deque[Event] = deque()
        self._free = list(range(max(processes * SLOTS_PER_PROCESS, 1)))
        self._held: int | None = None
        self._memory: _Memory | None = None
        self._slots: Views | None = None
        self._executor: Executor
        if processes == 0:
            self._executor = InlineExecutor(_RenderFactory(preprocessing))
            return
        shape = (len(self._free), views, 3, preprocessing.size, preprocessing.size)
        self._memory = _Memory.allocate(shape)
        self._slots = self._memory.array()
        self._executor = ProcessExecutor(
            _RenderFactory(preprocessing, self._memory),
            processes,
            depth=SLOTS_PER_PROCESS,
            files=(self._memory.descriptor,),
            remedy="use fewer --view-workers",
        )

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def submit(self, ticket: Any, task: RenderTask) -> None:
        task = replace(task, slot=self._free.pop())
        self._tasks[self._executor.submit(task)] = (ticket, task)

    def release(self) -> None:
        """Let the slot of the views collected last be used again."""
        if self._held is not None:
            self._free.append(self._held)
            self._held = None

    def collect(self) -> tuple[Any, Views | str]:
        """Return a ticket with its views, or with why the image cannot be read.

        The views stay valid until `release` or the next call.
        """
        self.release()
        while not self._events:
            self._events.extend(self._executor.collect())
        event = self._events.popleft()
        ticket, task = self._tasks.pop(event.task_id)
        self._held = task.slot
        if isinstance(event, Failed):
            return ticket, event.reason
        if isinstance(event.result, str) or self._slots is None:
            return ticket, event.result
        return ticket, self._slots[task.slot, : task.recipe.count]

    def close(self) -> None:
        self._executor.close()
        self._tasks.clear()
        if self._memory is not None:
            os.close(self._memory.descriptor)
            self._memory = None
