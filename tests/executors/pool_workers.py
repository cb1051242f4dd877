"""Factories and functions for the worker processes of the tests; processes import this module."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dtpt.errors import RunError, UnknownName
from dtpt.executors.pool import FunctionWorker


def sines(seed):
    return np.sin(np.random.default_rng(seed).standard_normal(1000))


def double(number):
    return 2 * number


def echo(value):
    return value


def kill_here():
    os.kill(os.getpid(), signal.SIGKILL)


def die_if_negative(number):
    if number < 0:
        kill_here()
    return number


def die_or_name(name, number):
    die_if_negative(number)
    time.sleep(0.05)  # so that both workers get some
    return name


@dataclass(frozen=True)
class DieOnce:
    """Kills the first process that gets the number; afterwards it is doubled like all others."""

    mark: str
    number: int

    def __call__(self, number):
        if number == self.number and not Path(self.mark).exists():
            Path(self.mark).touch()
            kill_here()
        return double(number)


def slow_echo(value):
    time.sleep(0.2)
    return value


def divide_by_zero(number):
    return number / 0


def raise_run_error(text):
    raise RunError(text)


def raise_unknown_name(name):
    raise UnknownName("method", name, ["tpt"])


def thread_variable(_):
    return os.environ.get("OMP_NUM_THREADS"), os.getpid()


@dataclass(frozen=True)
class Calls:
    """A factory of workers that call one function."""

    function: object

    def __call__(self, announce):
        return FunctionWorker(self.function, announce)


@dataclass(frozen=True)
class BrokenFactory:
    """A factory whose worker cannot be made."""

    text: str

    def __call__(self, announce):
        raise RunError(self.text)


class DyingFactory:
    """A factory that ends its process, as a lack of memory does."""

    def __call__(self, announce):
        kill_here()


class BatchWorker:
    """Answers all tasks that it has at once, the last one first."""

    def __init__(self, announce):
        self.tasks = []

    @property
    def pending(self):
        return len(self.tasks)

    def add(self, task_id, task):
        self.tasks.append((task_id, task))

    def next(self):
        from dtpt.executors.pool import Done

        tasks, self.tasks = self.tasks, []
        return [Done(task_id, (task, len(tasks))) for task_id, task in reversed(tasks)]

    def close(self):
        pass


class Unloadable:
    """A task that cannot be read in the worker process."""

    def __reduce__(self):
        return (int, ("not a number",))
