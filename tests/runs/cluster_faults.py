"""A cluster on this machine whose machines lack something: files, memory, the right dtpt.

It is a program of its own, so that nothing of Ray is left in the process of the tests:

    python cluster_faults.py HOME

HOME holds the model `tiny` and the folder `pictures`. Every machine has its own name and its own
view of the disk (Linux namespaces), so what it lacks it really lacks. What three runs tell is
written to HOME/faults.json.
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

from cluster_story import STORE_BYTES, make_head
from dtpt.runs.cluster.division import divide
from dtpt.runs.cluster.goods import PROBES
from tiny_runs import TINY_OPTIONS, exported

import dtpt
from dtpt.data import load_dataset
from dtpt.errors import RunError
from dtpt.runs import EvalOptions, run_options
from dtpt.runs.progress import Silent

SOURCE = Path(dtpt.__file__).parents[1]
OTHER_RAY = """
import sys
import ray
ray.__version__ = "2.0.0"
from dtpt.errors import RunError
from dtpt.runs.cluster.connection import connected
try:
    with connected(f"ray={sys.argv[1]}"):
        print("joined")
except RunError as error:
    print(error)
"""


class Machine:
    """A machine of a cluster with its own name, folders and variables.

    Args:
        name: Of the host.
        address: Of the cluster.
        shown: Folders or files, and what stands in their place on this machine.
        variables: Of the environment.
    """

    def __init__(self, name, address, *, shown=None, variables=None):
        mounts = [
            f"mount --bind {shlex.quote(str(there))} {shlex.quote(str(here))}"
            for here, there in (shown or {}).items()
        ]
        ray = Path(sys.executable).with_name("ray")
        start = (
            f"exec {shlex.quote(str(ray))} start --address={address} --num-cpus=1 --block "
            f"--object-store-memory={STORE_BYTES} --memory=1000000000 --disable-usage-stats"
        )
        script = " && ".join([f"hostname {name}", *mounts, start])
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
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)


class Slow(Silent):
    """Keeps what it is told; no machine can do everything before another one has begun."""

    def __init__(self):
        self.notes, self.by_machine = [], {}

    def advance(self, title, *, replica=0):
        self.by_machine[replica] = self.by_machine.get(replica, 0) + 1
        time.sleep(0.05)

    def note(self, text):
        self.notes.append(text)


def other_dtpt(home):
    """Make another version of dtpt and return the folder that holds it."""
    folder = home / "other-dtpt"
    shutil.copytree(SOURCE / "dtpt", folder / "dtpt", ignore=shutil.ignore_patterns("*.pyc"))
    with (folder / "dtpt" / "errors.py").open("a") as stream:
        stream.write("# changed\n")
    made = folder / "dtpt-0.0.1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: dtpt\nVersion: 0.0.1\n")
    return folder


def unfit_machines(home, address):
    """Machines that cannot work: another dtpt, too little memory, replicas that are killed."""
    other = other_dtpt(home)
    memory = home / "meminfo"
    memory.write_text("MemTotal: 400000 kB\nMemFree: 200000 kB\nMemAvailable: 200000 kB\n")
    # Ray's own watch over memory, which kills what was started last
    starved = {"RAY_memory_usage_threshold": "0.0", "RAY_memory_monitor_refresh_ms": "100"}
    path = os.pathsep.join([str(other), os.environ["PYTHONPATH"]])
    yield Machine("old", address, shown={SOURCE: other}, variables={"PYTHONPATH": path})
    yield Machine("small", address, shown={"/proc/meminfo": memory})
    yield Machine("starved", address, variables=starved)


def lacking_machines(home, address):
    """One machine with neither model nor pictures, another with few of these."""
    nothing = home / "nothing"
    nothing.mkdir()
    processor = home / "cpuinfo"
    known = Path("/proc/cpuinfo").read_text()
    processor.write_text(re.sub(r"(?m)^(model name\s*:).*", r"\1 Another", known))
    shown = {home / "tiny": nothing, home / "pictures": nothing, "/proc/cpuinfo": processor}
    holes = home / "holes"
    for sample in load_dataset(f"folder:{home / 'pictures'}").limited(PROBES).samples:
        (holes / sample.id).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(home / "pictures" / sample.id, holes / sample.id)
    yield Machine("poor", address, shown=shown, variables={"DTPT_CACHE": str(home / "poor")})
    yield Machine("holes", address, shown={home / "pictures": holes})


def run_once(options):
    """Return what a run tells, and its rows or its error."""
    told, began = Slow(), time.monotonic()
    found = {"notes": told.notes, "by_machine": told.by_machine}
    try:
        with run_options(EvalOptions(**options), reporter=told) as run:
            found |= {"exported": exported(run).decode(), "counts": list(run.counts().values())}
    except RunError as error:
        found["error"] = str(error)
    return {**found, "seconds": time.monotonic() - began}


def start_all(cluster, coming, machines):
    """Let machines join one after the other."""
    for machine in coming:
        machines.append(machine)
        deadline = time.monotonic() + 60
        while sum(node["Alive"] for node in cluster.global_state.node_table()) <= len(machines):
            if time.monotonic() > deadline:
                sys.exit(f"machine {len(machines)} has not joined")
            time.sleep(0.2)


def main():
    home = Path(sys.argv[1])
    cluster = make_head()
    told, machines = {}, []
    command = [sys.executable, "-c", OTHER_RAY, cluster.address]
    told["other_ray"] = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    options = {
        **TINY_OPTIONS,
        "model": f"local-dir:{home / 'tiny'}",
        "dataset": [f"folder:{home / 'pictures'}"],
        "workers": "auto",
        "cache": False,
        "output": str(home / "run"),
        "engine": f"ray={cluster.address}",
    }
    try:
        start_all(cluster, unfit_machines(home, cluster.address), machines)
        told["unfit"] = run_once(options)
        start_all(cluster, lacking_machines(home, cluster.address), machines)
        told["lacking"] = run_once(options)
        notes = []
        plan = divide(EvalOptions(**{**options, "output": home / "plan"}), note=notes.append)
        told["plan"] = {"machines": [one.name for one in plan.machines], "notes": notes}
    finally:
        for machine in machines:
            machine.stop()
        cluster.shutdown()
    (home / "faults.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
