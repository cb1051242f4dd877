"""A run on a cluster whose object store is full, and two drivers of one output.

It is a program of its own, so that nothing of Ray is left in the process of the tests:

    python ray_store.py HOME spills|full

HOME is from `make_home`. Another driver holds objects that fill the store; they can be spilled to
disk, or cannot. What two drivers on one output print, and their codes, are printed as JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import conftest  # noqa: F401 - the paths of the modules below

# isort: split
from cluster_chaos import STORE_BYTES
from ray.cluster_utils import Cluster

from dtpt.executors.cluster import QUIET

FILLER = """
import sys, time
import numpy as np, ray
ray.init(sys.argv[1], logging_level="ERROR", log_to_driver=False)
held = [ray.put(np.ones(1 << 20, np.uint8)) for _ in range(int(sys.argv[2]))]
print(len(held), flush=True)
time.sleep(3600)
"""
DRIVER = """
import sys
from pathlib import Path
from dtpt.errors import RunError
from dtpt.runs import run_options
from tiny_runs import named_options
home = Path(sys.argv[1])
try:
    run_options(named_options(home, home / "run", executor=f"ray={sys.argv[2]}")).close()
except RunError as error:
    print(error)
"""


def main(home: Path, *, spills: bool) -> dict[str, object]:
    os.environ.update(QUIET)
    arguments = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    if not spills:
        arguments["_system_config"] = {"automatic_object_spilling_enabled": False}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    words = [sys.executable, "-c", FILLER, cluster.address, "200" if spills else "76"]
    filler = subprocess.Popen(words, stdout=subprocess.PIPE)
    held = int(filler.stdout.readline())
    words = [sys.executable, "-W", "ignore", "-c", DRIVER, str(home), cluster.address]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    drivers = [subprocess.Popen(words, env=environment, **settings) for _ in range(2)]
    ends = [(*driver.communicate(), driver.returncode) for driver in drivers]
    filler.kill()
    cluster.shutdown()
    return {"held": held, "drivers": ends}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), spills=sys.argv[2] == "spills")))
