"""A cluster on this machine whose machines go and come, whose replicas and driver are killed.

It is a program of its own, so that nothing of Ray is left in the process of the tests:

    python cluster_story.py HOME REMOVALS KILLS DRIVERS

HOME holds the model `tiny` and the folder `pictures`. The driver is killed DRIVERS times, then the
same run goes on here while machines are removed without grace, others join, and replicas are
killed. What the run holds afterwards is written to HOME/story.json.
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
from dtpt.runs.cluster.connection import QUIET
from ray.cluster_utils import Cluster
from tiny_runs import TINY_OPTIONS, exported

from dtpt.errors import RunError
from dtpt.runs import EvalOptions, open_run, run_options
from dtpt.runs.progress import Silent

MACHINES = 3
STORE_BYTES = 80_000_000  # Ray's smallest object store
DRIVER = """
import json, sys
from dtpt.runs import EvalOptions, run_options
run_options(EvalOptions(**json.loads(sys.argv[1]))).close()
"""


def make_head():
    """Start a cluster whose first machine has no cores."""
    os.environ.update(QUIET)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    return Cluster(initialize_head=True, head_node_args=head)


def add_machine(cluster):
    return cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)


def replica_processes():
    """Process ids of replicas on the machines that this process started."""
    parents, replicas = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            if command.startswith(b"ray::ReplicaActor"):
                replicas.append(int(entry.name))

    def is_ours(pid):
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return [pid for pid in replicas if is_ours(pid)]


class Hazards(Silent):
    """Removes machines and kills replicas while pictures are answered.

    For each machine that goes another one comes, started by a thread that lives as long as they.
    """

    def __init__(self, cluster, machines, *, removals, kills, pictures):
        self.cluster, self.machines = cluster, machines
        self.generator = random.Random(0)
        dangers = ["remove"] * removals + ["kill"] * kills
        self.generator.shuffle(dangers)
        step = pictures // (len(dangers) + 1)
        self.dangers = {step * (k + 1): name for k, name in enumerate(dangers)}
        self.seen, self.told, self.kills, self.removals = 0, [], 0, 0
        self.by_machine = {}
        self.due = []
        self.builder, self.joins = ThreadPoolExecutor(1), []

    def note(self, text):
        self.told.append(text)

    def advance(self, title, *, replica=0):
        self.seen += 1
        self.by_machine[replica] = self.by_machine.get(replica, 0) + 1
        if self.seen in self.dangers:
            self.due.append(self.dangers[self.seen])
        if self.due and self.happens(self.due[0]):
            self.due.pop(0)

    def happens(self, danger):
        """Do harm; a replica is killed when there is one, a machine goes when another is there."""
        if danger == "kill":
            victims = replica_processes()
            if victims:
                os.kill(self.generator.choice(victims), signal.SIGKILL)
                self.kills += 1
            return bool(victims)
        while len(self.machines) < 2:
            time.sleep(0.1)
        victim = self.machines.pop(self.generator.randrange(len(self.machines)))
        self.cluster.remove_node(victim, allow_graceful=False)
        self.removals += 1
        self.joins.append(self.builder.submit(self.rebuild))
        return True

    def rebuild(self):
        self.machines.append(add_machine(self.cluster))


def finished(output):
    try:
        with open_run(output) as run:
            return sum(ok for ok, _ in run.counts().values())
    except RunError:
        return 0


def kill_driver(options, sent):
    """Start a driver, send it a signal when it has stored some more rows; return its exit code."""
    before = finished(Path(options["output"]))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, json.dumps(options)])
    deadline = time.monotonic() + 600
    while finished(Path(options["output"])) < before + 30 and time.monotonic() < deadline:
        if driver.poll() is not None:
            sys.exit(f"the driver ended with {driver.returncode}")
        time.sleep(0.1)
    driver.send_signal(sent)
    return driver.wait(300)


def seconds_until_nobody_works():
    began = time.monotonic()
    while replica_processes() and time.monotonic() < began + 60:
        time.sleep(0.1)
    return time.monotonic() - began


def main():
    home, (removals, kills, drivers) = Path(sys.argv[1]), map(int, sys.argv[2:5])
    began = time.monotonic()
    ray._private.utils.set_sigterm_handler = lambda _: None  # impossible where machines are added
    cluster = make_head()
    machines = [add_machine(cluster) for _ in range(MACHINES)]
    options = {
        **TINY_OPTIONS,
        "model": f"local-dir:{home / 'tiny'}",
        "dataset": [f"folder:{home / 'pictures'}"],
        "seed": json.loads((home / "seeds.json").read_text()),
        "workers": "auto",
        "cache": False,
        "output": str(home / "run"),
        "engine": f"ray={cluster.address}",
    }
    told = {"drivers": [], "seconds": {"cluster": time.monotonic() - began}}
    for number in range(drivers):
        sent = signal.SIGINT if number % 2 else signal.SIGKILL
        code = kill_driver(options, sent)
        told["drivers"].append([code, finished(home / "run"), seconds_until_nobody_works()])
    parsed = EvalOptions(**options)
    pictures = len(list((home / "pictures").rglob("*.png"))) * len(parsed.seed)
    left = pictures - finished(home / "run") // 3
    hazards = Hazards(cluster, machines, removals=removals, kills=kills, pictures=left)
    with run_options(parsed, reporter=hazards) as run:
        told["exported"] = exported(run).decode()
        told["counts"] = list(run.counts().values())
        told["sessions"] = run.sessions()
    told["seconds"]["all"] = time.monotonic() - began
    told["seconds"]["end"] = seconds_until_nobody_works()
    told["replicas_left"] = len(replica_processes())
    told |= {"notes": hazards.told, "kills": hazards.kills, "removals": hazards.removals}
    told |= {"by_machine": hazards.by_machine, "answered": hazards.seen}
    told["joins"] = len([join.result() for join in hazards.joins])
    cluster.shutdown()
    hazards.builder.shutdown()
    (home / "story.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
