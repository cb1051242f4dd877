"""`dtpt bench pipeline`: how busy a whole run keeps the machine.

The embedded model on embedded pictures with the settings of `dtpt demo`, from drawing a picture to
its stored rows, without the feature cache; the time counts from the call to the end, starting
replicas included. Beside it what one core does when the same stages run one after the other. A
machine that is kept busy does nearly as many times more as it has cores.
"""

import json as json_format
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from dtpt.bench.machine import Machine, describe_machine, torch_threads
from dtpt.bench.options import Json

if TYPE_CHECKING:
    from dtpt.runs import EvalOptions, Run

DATASETS = ("openmoji/food-drink", "openmoji-line/food-drink")
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt@1e5", "d-tpt@1e6")
SERIAL_PICTURES = 8


@dataclass(frozen=True)
class Measurement:
    """What a whole run does, and what one core does.

    Attributes:
        pictures: Evaluated in the run.
        seconds: On the clock, from the call to the end.
        pictures_per_second: Of the run.
        serial_pictures_per_second: Of one core, stage after stage, in processor time.
        stage_seconds: Processor time of each stage for one picture.
        busy_share: Processor time of all processes of the run / (time on the clock × cores).
        replicas: Copies of the model.
        workers: View-making processes beside each.
        machine: What it was measured on.
    """

    pictures: int
    seconds: float
    pictures_per_second: float
    serial_pictures_per_second: float
    stage_seconds: dict[str, float]
    busy_share: float
    replicas: int
    workers: int
    machine: Machine


def bench_pipeline(
    *,
    pictures: Annotated[int, Parameter(help="Pictures of each of two data sets.")] = 128,
    replicas: Annotated[str, Parameter(help="As for `dtpt eval`.")] = "auto",
    workers: Annotated[str, Parameter(help="As for `dtpt eval`.")] = "auto",
    json: Json = False,
) -> None:
    """Measure pictures per second of a whole run, and how busy it keeps the cores."""
    found = measure(pictures, replicas=replicas, workers=workers)
    if json:
        print(json_format.dumps(asdict(found), indent=1))
        return
    stages = ", ".join(f"{name} {1000 * s:.0f} ms" for name, s in found.stage_seconds.items())
    print(f"one core, stage after stage  {found.serial_pictures_per_second:6.2f} pictures/s")
    print(f"                             {stages}")
    print(f"the whole run                {found.pictures_per_second:6.2f} pictures/s with", end=" ")
    print(f"{found.replicas} replicas and {found.workers} workers beside each")
    print(f"busy                         {found.busy_share:6.1%} of {found.machine.cores} cores")


def measure(pictures: int, *, replicas: str = "auto", workers: str = "auto") -> Measurement:
    """Run the evaluation in a folder of its own, then its stages one after the other.

    Args:
        pictures: Of each data set.
        replicas: Copies of the model, or "auto".
        workers: View-making processes beside each, or "auto".
    """
    from dtpt.options import EvalOptions

    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder:
        given = {"replicas": replicas, "workers": workers, "limit": pictures}
        fixed = {"dataset": DATASETS, "method": METHODS, "quiet": True, "cache": False}
        options = EvalOptions.parse({**given, **fixed, "output": Path(folder) / "run"})
        run, seconds, busy = _timed(options)
        with run:
            session = run.sessions()[-1]
            done = sum(entry.samples for entry in run.spec.datasets)
    stages = _stages(options)
    machine = describe_machine()
    return Measurement(
        pictures=done,
        seconds=seconds,
        pictures_per_second=done / seconds,
        serial_pictures_per_second=1 / sum(stages.values()),
        stage_seconds=stages,
        busy_share=busy / (seconds * machine.cores),
        replicas=session["replicas"],
        workers=session["workers"],
        machine=machine,
    )


def _timed(options: "EvalOptions") -> tuple["Run", float, float]:
    """Evaluate; return the run, seconds on the clock, and processor seconds of all processes."""
    from dtpt.runs import evaluate

    before, began = _processor_seconds(), time.perf_counter()
    run = evaluate(options)
    return run, time.perf_counter() - began, _processor_seconds() - before


def _processor_seconds() -> float:
    """Return the processor time of this process and of those it has waited for."""
    import resource

    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def _stages(options: "EvalOptions") -> dict[str, float]:
    """Return the processor time of each stage for one picture, with one thread; best of each."""
    from dtpt.runs.pipeline import as_tensor, encode_views
    from dtpt.runs.workers import render

    from dtpt.clip.prompts import PromptSet
    from dtpt.runs.evaluation import prepare
    from dtpt.tuning import Tuner

    setup = prepare(options.model_copy(update={"limit": SERIAL_PICTURES}))
    task, model = setup.tasks[0], setup.model
    times: dict[str, list[float]] = {"views": [], "tower": [], "text": []}
    with torch_threads(1):
        tuner = Tuner(model, PromptSet.build(model, task.dataset.classes))
        for sample in task.dataset.samples:
            clock = [time.thread_time()]
            pixels = render(
                sample.image, seed=0, recipe=task.recipe, preprocessing=model.preprocessing
            )
            clock.append(time.thread_time())
            features = as_tensor(encode_views(model, pixels), model.device)
            clock.append(time.thread_time())
            tuner.predict(features, task.methods)
            clock.append(time.thread_time())
            for name, (start, end) in zip(times, pairwise(clock), strict=True):
                times[name].append(end - start)
    return {name: min(values) for name, values in times.items()}
