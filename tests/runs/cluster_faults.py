"""A cluster on this machine whose nodes lack something: files, memory, the right dtpt.

It is a program of its own, so that nothing of Ray is left in the process of the tests:

    python cluster_faults.py HOME

HOME is from `make_home`. Every node has its own name and its own view of the disk (Linux
namespaces), so what it lacks it really lacks. What happened in two runs and a plan is written to
HOME/faults.json.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from cluster_chaos import LONG, STORE_BYTES, make_head
from tiny_runs import exported, named_options

import dtpt
from dtpt.data import load_dataset
from dtpt.errors import RunError
from dtpt.runs import run_options
from dtpt.runs.cluster import PROBES, plan_cluster
from dtpt.runs.progress import Silent

SOURCE = Path(dtpt.__file__).parents[1]
OTHER_RAY = """
import sys
import ray
ray.__version__ = "2.0.0"
from dtpt.errors import RunError
from dtpt.executors.cluster import connected
try:
    with connected(f"ray={sys.argv[1]}"):
        print("joined")
except RunError as error:
    print(error)
"""


class Node:
    """A node with its own name, folders and variables.

    Args:
        name: Of the host.
        address: Of the cluster.
        mounts: Folders or files, and what is there in their stead on this node.
        variables: Of the environment.
    """

    def __init__(self, name, address, *, mounts=None, variables=None):
        commands = [
            f"mount --bind {shlex.quote(str(there))} {shlex.quote(str(here))}"
            for here, there in (mounts or {}).items()
        ]
        ray = Path(sys.executable).with_name("ray")
        start = (
            f"exec {shlex.quote(str(ray))} start --address={address} --num-cpus=1 --block "
            f"--object-store-memory={STORE_BYTES} --memory=1000000000 --disable-usage-stats"
        )
        script = " && ".join([f"hostname {name}", *commands, start])
        self._process = subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "--uts", "sh", "-c", script],
            env={**os.environ, **(variables or {})},
            stdout=(Path(sys.argv[1]) / f"{name}.log").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)


class Slow(Silent):
    """Keeps notes; so slow that no node can do everything before another one has begun."""

    def __init__(self):
        self.notes, self.by_node = [], {}

    def advance(self, title, *, worker=0):
        self.by_node[worker] = self.by_node.get(worker, 0) + 1
        time.sleep(0.05)

    def note(self, text):
        self.notes.append(text)


def other_dtpt(home):
    """Make another version of dtpt and return the folder that holds it."""
    folder = home / "other-dtpt"
    shutil.copytree(SOURCE / "dtpt", folder / "dtpt", ignore=shutil.ignore_patterns("*.pyc"))
    with (folder / "dtpt" / "errors.py").open("a") as stream:
        stream.write("# changed\n")
    info = folder / "dtpt-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dtpt\nVersion: 0.0.1\n")
    return folder


def unfit_nodes(home, address):
    """Nodes that cannot work: another dtpt, too little memory, workers that are killed."""
    other = other_dtpt(home)
    memory = home / "meminfo"
    memory.write_text("MemTotal: 400000 kB\nMemFree: 200000 kB\nMemAvailable: 200000 kB\n")
    # Ray's own watch over memory, which kills what was started last
    starved = {"RAY_memory_usage_threshold": "0.0", "RAY_memory_monitor_refresh_ms": "100"}
    path = os.pathsep.join([str(other), os.environ["PYTHONPATH"]])
    yield Node("old", address, mounts={SOURCE: other}, variables={"PYTHONPATH": path})
    yield Node("small", address, mounts={"/proc/meminfo": memory})
    yield Node("starved", address, variables=starved)


def lacking_nodes(home, address):
    """One node with neither model nor images, another with few of these."""
    nothing = home / "nothing"
    nothing.mkdir()
    processor = home / "cpuinfo"
    text = Path("/proc/cpuinfo").read_text()
    processor.write_text(re.sub(r"(?m)^(model name\s*:).*", r"\1 Another", text))
    mounts = {home / "tiny": nothing, home / "images": nothing, "/proc/cpuinfo": processor}
    partial = home / "partial"
    for sample in load_dataset(f"folder:{home / 'images'}").limited(PROBES).samples:
        (partial / sample.id).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(home / "images" / sample.id, partial / sample.id)
    yield Node("poor", address, mounts=mounts, variables={"DTPT_CACHE": str(home / "poor")})
    yield Node("partial", address, mounts={home / "images": partial})


def run_once(options):
    """Return what a run reports, and its rows or its error."""
    reporter = Slow()
    facts = {"notes": reporter.notes, "by_node": reporter.by_node}
    try:
        with run_options(options, reporter=reporter) as run:
            facts |= {"exported": exported(run).decode(), "counts": list(run.counts().values())}
    except RunError as error:
        facts["error"] = str(error)
    return facts


def start_all(cluster, joining, nodes):
    """Let nodes join one after the other."""
    for node in joining:
        nodes.append(node)
        deadline = time.monotonic() + LONG
        while sum(node["Alive"] for node in cluster.global_state.node_table()) <= len(nodes):
            if time.monotonic() > deadline:
                sys.exit(f"node {len(nodes)} has not joined")
            time.sleep(0.2)


def main():
    home = Path(sys.argv[1])
    cluster = make_head()
    facts, nodes = {}, []
    command = [sys.executable, "-c", OTHER_RAY, cluster.address]
    facts["other_ray"] = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    common = {"workers": "auto", "executor": f"ray={cluster.address}"}
    options = named_options(home, home / "run", **common)
    try:
        start_all(cluster, unfit_nodes(home, cluster.address), nodes)
        facts["unfit"] = run_once(options)
        start_all(cluster, lacking_nodes(home, cluster.address), nodes)
        facts["lacking"] = run_once(options)
        reporter = Slow()
        plan = plan_cluster(named_options(home, home / "plan", **common), reporter=reporter)
        facts["plan"] = {"nodes": [node.name for node in plan.nodes], "notes": reporter.notes}
    finally:
        for node in nodes:
            node.stop()
        cluster.shutdown()
    (home / "faults.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
