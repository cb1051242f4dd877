"""A driver of a Ray cluster of its own, which a test interrupts or robs of its head.

    python ray_driver.py wait|lose

It prints "ready" when it waits for a worker that never answers. With `lose` the head is then
killed; the name of the error that ends the run, and its message, are printed.
"""

import os
import signal
import sys
import time
from pathlib import Path

import ray
from fake_cluster import Deployment

from dtpt.errors import RunError
from dtpt.executors import ray as executor_module
from dtpt.executors.cluster import ResourceRequest, connected


class Terminated(KeyboardInterrupt):
    """What the command line raises on SIGTERM."""


def terminate(_number, _frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


class Sleeper:
    """A worker that never answers."""

    pending = 1

    def __init__(self, _announce):
        pass

    def add(self, task_id, task):
        pass

    def next(self):
        time.sleep(3600)

    def close(self):
        pass


class SleepingDeployment(Deployment):
    def factory(self, quota):
        return Sleeper


def head_process():
    """Process id of the head that this process started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            name = (entry / "comm").read_text().strip()
            if name == "gcs_server" and int(parent) == os.getpid():
                return int(entry.name)
    raise AssertionError("no head")


def drive(*, is_lost):
    executor_module.SECONDS_WITHOUT_HEAD = 3.0
    executor = executor_module.RayExecutor(
        SleepingDeployment(), request=ResourceRequest(workers=1), chunk=1, note=print, record=print
    )
    executor.wait_for_nodes()
    executor.submit(0)
    executor.collect()
    print("ready", flush=True)
    if is_lost:
        os.kill(head_process(), signal.SIGKILL)
    try:
        while True:
            executor.collect()
    finally:
        executor.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with connected("ray=local"):
            ray.cloudpickle.register_pickle_by_value(sys.modules["fake_cluster"])
            drive(is_lost=sys.argv[1] == "lose")
    except Terminated:
        sys.exit(143)
    except KeyboardInterrupt:
        sys.exit(130)
    except RunError as error:
        print(type(error).__name__, error)
