"""The text side of one image: Algorithm 1 as printed against the engine.

A text tower with random weights, class prompts of natural length, image features drawn at random.
The baseline is `dtpt.methods.algorithm_1`, once per method: every class padded to 77 tokens,
forward, backward, AdamW, forward again, through the tower as published. The engine runs all methods
in one call. Peak memory is measured in fresh processes, above what the model takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch

from benchmarks import measuring
from benchmarks.measuring import Listed, Repeat, Row, Threads
from benchmarks.memory import grown_mb
from benchmarks.reference_towers import ReferenceClip
from dtpt.clip.config import VitConfig
from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.methods.algorithm_1 import algorithm_1
from dtpt.tuning import Tuner

BASELINE_GB_PER_CLASS = 0.034  # what the baseline grew by at 47 classes; decides what is skipped
VIEWS = 64


def tuning(
    *,
    classes: Listed = "10,47,102,397,1000",
    methods: str = "one",
    architecture: str = "ViT-B-16",
    threads: Threads = None,
    repeat: Repeat = 3,
    baseline_memory_gb: float = 16.0,
    memory: bool = True,
) -> Row:
    """Compare the engine with Algorithm 1 as printed, on the text side of one image.

    Args:
        methods: Names, comma-separated; "one" is D-TPT, "five" are the paper's.
        baseline_memory_gb: Skip the baseline above this.
        memory: Measure peak memory too.
    """
    names = measuring.method_names(methods)
    has_baseline = all(is_algorithm_1(resolve_method(name)) for name in names)
    rows = []
    with measuring.torch_threads(threads):
        machine = measuring.machine()
        for count in measuring.whole_numbers(classes, "--classes"):
            with_baseline = has_baseline and count * BASELINE_GB_PER_CLASS <= baseline_memory_gb
            case = Case(architecture, count, names)
            rows.append(measure(case, repeat, with_baseline=with_baseline, memory=memory))
    return {"rows": rows, "repeat": repeat, "machine": machine}


def is_algorithm_1(method: ResolvedMethod) -> bool:
    """Return whether Algorithm 1 covers a method: a tuned context or none, one view read out."""
    is_episodic = not (method.method.static or method.method.is_stateful or method.auto)
    is_read_as_is = not (method.modifiers or method.read_out)
    return method.method.parameter != "shift" and is_episodic and is_read_as_is


@dataclass(frozen=True)
class Case:
    """What one row measures."""

    architecture: str
    classes: int
    methods: Sequence[str]

    def build(self) -> tuple[Clip, PromptSet]:
        """Return a model with a tiny image tower, and class prompts of natural length."""
        vision = VitConfig(image_size=32, patch_size=32, width=64, layers=1, heads=1, mlp_width=64)
        model = measuring.random_model(self.architecture, vision=vision)
        return model, PromptSet.build(model, measuring.class_names(self.classes))

    def work(self, variant: str, model: Clip, *, prompts: PromptSet) -> Callable[[], object]:
        """Return what one variant does for one image."""
        methods = [resolve_method(name) for name in self.methods]
        views = measuring.view_features(VIEWS, model.config.embed_dim)
        if variant == "engine":
            tuner = Tuner(model, prompts)
            return lambda: tuner.predict(views, methods)
        reference = ReferenceClip(model)
        return lambda: [algorithm_1(reference, prompts, views=views, method=m) for m in methods]


def prepare(variant: str, threads: int, *, case: Row) -> Callable[[], object]:
    """Return the work of one variant, to measure its memory in a process of its own."""
    torch.set_num_threads(threads)
    rebuilt = Case(**case)
    model, prompts = rebuilt.build()
    return rebuilt.work(variant, model, prompts=prompts)


def measure(case: Case, repeat: int, *, with_baseline: bool, memory: bool) -> Row:
    """Measure one class count in this process, and its memory in others."""
    model, prompts = case.build()
    names = ["baseline", "engine"] if with_baseline else ["engine"]
    work = {name: case.work(name, model, prompts=prompts) for name in names}
    before = measuring.matmul_peak_gflops()
    times = measuring.in_turns(work, repeat)
    after = measuring.matmul_peak_gflops()
    shared = {"threads": torch.get_num_threads(), "case": asdict(case)}
    peaks = {
        name: grown_mb(f"{__name__}:prepare", {"variant": name, **shared})
        for name in (names if memory else ())
    }
    engine, baseline = times["engine"], times.get("baseline")
    gflops = measuring.count_gflop(work["engine"]) / engine.best
    return {
        "methods": ",".join(case.methods),
        "classes": case.classes,
        "tokens": prompts.tokens,
        "plain_seconds": baseline.best if baseline else None,
        "engine_seconds": engine.best,
        "ratio": baseline.best / engine.best if baseline else None,
        "plain_processor_seconds": baseline.best_processor if baseline else None,
        "engine_processor_seconds": engine.best_processor,
        "plain_peak_mb": peaks.get("baseline"),
        "engine_peak_mb": peaks.get("engine"),
        "engine_gflops": gflops,
        "share_of_peak": gflops / max(before, after),
        "peak_gflops": (before, after),
    }
