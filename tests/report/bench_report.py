"""How long a report of 20 runs with 50,000 rows each takes: `python tests/report/bench_report.py`.

The rows are written straight into the tables (a commit per image would take hours).
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from handmade import TUNING, dataset

from dtpt.report import load_runs, write_report
from dtpt.runs.shards import MAIN_STORE
from dtpt.runs.spec import ModelSpec, RunSpec
from dtpt.runs.store import Store

RUNS, ROWS = 20, 50_000
METHODS = (("zero-shot", None), ("tpt", None), ("c-tpt", 50.0), ("o-tpt", 18.0), ("d-tpt", 1e5))


def write(folder: Path, number: int) -> Path:
    """One run: one data set, one method, 50,000 images."""
    entry = dataset(f"set{number // 5}", samples=ROWS, methods=(METHODS[number % 5],), classes=1000)
    spec = RunSpec(
        model=ModelSpec(name="big", fingerprint="big"),
        datasets=(entry,),
        seeds=(0,),
        template="a photo of a {}.",
        tuning=dict(TUNING),
        code_version="bench",
    )
    generator = np.random.default_rng(number)
    confidence = generator.beta(3, 1.5, ROWS)
    right = generator.random(ROWS) < confidence
    with Store(folder / MAIN_STORE, spec) as store:
        store.write_classes(entry.name, [f"class {i}" for i in range(1000)])
        (cell,) = spec.cells()
        rows = (
            (
                cell.key,
                f"{i:06d}",
                "ok",
                None,
                0,
                int(not ok),
                float(c),
                1.0,
                0.1,
                0.2,
                "[]",
                0,
                0.5,
            )
            for i, (ok, c) in enumerate(zip(right, confidence, strict=True))
        )
        store._connection.execute("BEGIN")
        store._connection.executemany(
            f"INSERT INTO rows VALUES ({','.join('?' * 13)}, NULL, NULL)", rows
        )
        store._connection.execute("COMMIT")
    return folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        runs = [write(Path(place) / f"run{i}", i) for i in range(RUNS)]
        for name, work in (
            ("load", lambda: load_runs(runs)),
            ("whole report", lambda: write_report(runs, Path(place) / "report")),
        ):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            print(
                f"{name}: {time.perf_counter() - wall:.1f} s ({time.process_time() - cpu:.1f} s of "
                f"processor time) for {RUNS} runs of {ROWS:,} rows"
            )
