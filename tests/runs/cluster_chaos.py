"""A cluster on this machine whose nodes leave and join, whose workers and driver are killed.

It is a program of its own, so that nothing of Ray is left in the process of the tests:

    python cluster_chaos.py HOME NODES REMOVALS KILLS DRIVERS SEEDS

HOME is from `make_home`. The driver is killed DRIVERS times, then the same run goes on here while
nodes are removed without grace, others join, and workers are killed. What happened is written to
HOME/chaos.json.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray._private.utils
from ray.cluster_utils import Cluster
from tiny_runs import WITH_STREAMS, exported, named_options

from dtpt.errors import RunError
from dtpt.executors.cluster import QUIET
from dtpt.runs import open_run, run_options, schedule
from dtpt.runs.progress import Silent

STORE_BYTES = 80_000_000  # Ray's smallest object store
LONG = 300.0  # seconds; a loaded machine takes its time
PART = 7  # rows of a stream
DRIVER = """
import json, sys
from pathlib import Path
from dtpt.runs import run_options, schedule
from tiny_runs import named_options
schedule.ROWS_OF_PART = int(sys.argv[3])
home = Path(sys.argv[1])
run_options(named_options(home, home / "run", **json.loads(sys.argv[2]))).close()
"""


def make_head():
    """Start a cluster whose first node has no cores."""
    os.environ.update(QUIET)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    return Cluster(initialize_head=True, head_node_args=head)


def add_node(cluster):
    return cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)


def worker_processes():
    """Process ids of workers on the nodes that this process started."""
    parents, workers = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            if command.startswith(b"ray::_Actor"):
                workers.append(int(entry.name))

    def is_ours(pid):
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return [pid for pid in workers if is_ours(pid)]


def workers_left():
    """Wait until no worker is left; return how many there still are."""
    deadline = time.monotonic() + LONG
    while worker_processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    return len(worker_processes())


class Faults(Silent):
    """Removes nodes and kills workers while rows are stored, and adds a node for each removed.

    Nodes are started by one thread, which lives as long as they do.
    """

    def __init__(self, cluster, nodes, *, removals, kills, images):
        self.cluster, self.nodes = cluster, nodes
        self.generator = random.Random(0)
        faults = ["remove"] * removals + ["kill"] * kills
        self.generator.shuffle(faults)
        step = images // (len(faults) + 1)
        self.faults = {step * (k + 1): name for k, name in enumerate(faults)}
        self.due, self.joins = [], []
        self.stored = self.rows = self.kills = self.removals = 0
        self.notes = []
        self.starter = ThreadPoolExecutor(1)

    def note(self, text):
        self.notes.append(text)

    def advance(self, title, *, worker=0):
        self.stored += 1
        self.rows += 1 if "tda" in title else 3
        if self.stored in self.faults:
            self.due.append(self.faults[self.stored])
        if self.due and self.inject(self.due[0]):
            self.due.pop(0)

    def inject(self, fault):
        """Kill a worker if there is one; remove a node once there is another."""
        if fault == "kill":
            victims = worker_processes()
            if victims:
                os.kill(self.generator.choice(victims), signal.SIGKILL)
                self.kills += 1
            return bool(victims)
        while len(self.nodes) < 2:
            time.sleep(0.1)
        victim = self.nodes.pop(self.generator.randrange(len(self.nodes)))
        self.cluster.remove_node(victim, allow_graceful=False)
        self.removals += 1
        self.joins.append(self.starter.submit(self.rejoin))
        return True

    def rejoin(self):
        self.nodes.append(add_node(self.cluster))


def stored_rows(output):
    try:
        with open_run(output) as run:
            return sum(ok for ok, _ in run.counts().values())
    except RunError:
        return 0


def kill_driver(home, options, sent):
    """Start a driver and send it a signal when it has stored some more rows."""
    before = stored_rows(home / "run")
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, home, json.dumps(options), str(PART)])
    deadline = time.monotonic() + LONG
    while stored_rows(home / "run") < before + 30:
        if driver.poll() is not None or time.monotonic() > deadline:
            driver.kill()
            sys.exit(f"the driver stored too little; it ended with {driver.wait()}")
        time.sleep(0.1)
    driver.send_signal(sent)
    code = driver.wait(LONG)
    rows = stored_rows(home / "run")
    return {"code": code, "rows": rows, "workers_left": workers_left()}


def main():
    home, (count, removals, kills, drivers, seeds) = Path(sys.argv[1]), map(int, sys.argv[2:7])
    ray._private.utils.set_sigterm_handler = lambda _: None  # impossible where nodes are added
    cluster = make_head()
    nodes = [add_node(cluster) for _ in range(count)]
    schedule.ROWS_OF_PART = PART
    options = {"workers": "auto", "seed": [*range(seeds)], "executor": f"ray={cluster.address}"}
    options |= WITH_STREAMS
    signals = [signal.SIGINT if number % 2 else signal.SIGKILL for number in range(drivers)]
    facts = {"drivers": [kill_driver(home, options, sent) for sent in signals]}
    parsed = named_options(home, home / "run", **options)
    images = seeds * len(list((home / "images").rglob("*.png")))
    streamed = images * len(parsed.order_seeds)  # after the images
    missing = images - stored_rows(home / "run") // 3 + streamed
    faults = Faults(cluster, nodes, removals=removals, kills=kills, images=missing)
    with run_options(parsed, reporter=faults) as run:
        facts["exported"] = exported(run).decode()
        facts["counts"] = list(run.counts().values())
        facts["sessions"] = run.sessions()
    facts["workers_left"] = workers_left()
    facts |= {name: getattr(faults, name) for name in ("notes", "kills", "removals", "rows")}
    facts["joins"] = len([join.result() for join in faults.joins])
    cluster.shutdown()
    faults.starter.shutdown()
    (home / "chaos.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
