"""`dtpt bench tuning`: the text side of one image, Algorithm 1 as printed against the engine.

The text tower of ViT-B/16 (or another shape) with random weights, class prompts of natural length,
image features drawn at random: only the text side is measured, which is what the engine changes.

Plain is `dtpt.methods.algorithm_1`, once per method: every class padded to 77 tokens, forward,
backward, AdamW, forward again, through the tower as published
(`benchmarks.reference_towers`), as in the released
code of the peers. The engine answers all methods in one call. Both run in turns in one
process, equally often; peak memory is measured in fresh processes, above what the model takes.
"""

import json as json_format
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.bench.inputs import class_names, view_features
from dtpt.bench.machine import count_gflop, describe_machine, matmul_peak_gflops, torch_threads
from dtpt.bench.memory import grown_mb
from dtpt.bench.options import Json, Repeat, Threads, method_names, whole_numbers
from dtpt.bench.timing import in_turns
from dtpt.methods import ResolvedMethod, resolve_method

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.clip.prompts import PromptSet

PLAIN_GB_PER_CLASS = 0.034  # what the plain way grew by at 47 classes; decides what is skipped
VIEWS = 64


@dataclass(frozen=True)
class Row:
    """One class count; seconds per image, null where there is no plain way or it was skipped.

    Attributes:
        methods: Names, comma-separated.
        classes: Number of classes.
        tokens: Of all class prompts, as the engine runs them.
        plain_seconds: On the clock, best of the repetitions.
        engine_seconds: The same of the engine.
        ratio: Plain divided by engine.
        plain_processor_seconds: Of all threads.
        engine_processor_seconds: Of all threads.
        plain_peak_mb: Largest growth of a fresh process; null where it was not measured.
        engine_peak_mb: The same of the engine.
        engine_gflops: Rate of the engine's matrix products; 0 where it needs none.
        share_of_peak: That rate divided by the better of the two peaks.
        peak_gflops: Rate of a large matrix product before and after.
    """

    methods: str
    classes: int
    tokens: int
    plain_seconds: float | None
    engine_seconds: float
    ratio: float | None
    plain_processor_seconds: float | None
    engine_processor_seconds: float
    plain_peak_mb: float | None
    engine_peak_mb: float | None
    engine_gflops: float
    share_of_peak: float
    peak_gflops: tuple[float, float]


def bench_tuning(
    *,
    classes: Annotated[
        str, Parameter(help="Class counts, comma-separated.")
    ] = "10,47,102,397,1000",
    methods: Annotated[
        str, Parameter(help="Names, comma-separated; 'one' is D-TPT, 'five' the paper's.")
    ] = "one",
    architecture: Annotated[str, Parameter(help="Shape of the text tower.")] = "ViT-B-16",
    threads: Threads = None,
    repeat: Repeat = 3,
    plain_memory_gb: Annotated[float, Parameter(help="Skip the plain way above this.")] = 16.0,
    memory: Annotated[bool, Parameter(help="Measure peak memory too.")] = True,
    json: Json = False,
) -> None:
    """Compare the engine with Algorithm 1 as printed, on the text side of one image."""
    cases = [
        Case(architecture, count, method_names(methods))
        for count in whole_numbers(classes, "--classes")
    ]
    rows = []
    with torch_threads(threads):
        machine = describe_machine()
        for case in cases:
            plain = case.has_plain_way and case.classes * PLAIN_GB_PER_CLASS <= plain_memory_gb
            rows.append(measure(case, repeat, plain=plain, memory=memory))
            if not json:
                _print(rows[-1])
    if json:
        result = {"rows": [asdict(row) for row in rows], "repeat": repeat}
        print(json_format.dumps(result | {"machine": asdict(machine)}, indent=1))


@dataclass(frozen=True)
class Case:
    """What one row measures."""

    architecture: str
    classes: int
    methods: tuple[str, ...]

    @property
    def resolved(self) -> list[ResolvedMethod]:
        """The methods with their default λ."""
        return [resolve_method(name) for name in self.methods]

    @property
    def has_plain_way(self) -> bool:
        """Whether Algorithm 1 covers all methods: a tuned context or none, one view read out."""
        return all(
            method.method.parameter != "shift"
            and not (method.method.static or method.modifiers or method.read_out or method.auto)
            for method in self.resolved
        )


def measure(case: Case, repeat: int, *, plain: bool, memory: bool) -> Row:
    """Measure one case in this process, and its memory in others."""
    import torch

    model, prompts = _text_side(case)
    ways = {name: _way(name, case, model=model, prompts=prompts) for name in _names(plain)}
    before = matmul_peak_gflops()
    times = in_turns(ways, repeat)
    after = matmul_peak_gflops()
    peaks = {}
    if memory:
        arguments = asdict(case) | {"threads": torch.get_num_threads()}
        peaks = {name: grown_mb(f"{__name__}:prepare", {"way": name, **arguments}) for name in ways}
    engine, other = times["engine"], times.get("plain")
    gflops = count_gflop(ways["engine"]) / engine.best
    return Row(
        methods=",".join(case.methods),
        classes=case.classes,
        tokens=prompts.tokens,
        plain_seconds=other.best if other else None,
        engine_seconds=engine.best,
        ratio=other.best / engine.best if other else None,
        plain_processor_seconds=other.best_processor if other else None,
        engine_processor_seconds=engine.best_processor,
        plain_peak_mb=peaks.get("plain"),
        engine_peak_mb=peaks.get("engine"),
        engine_gflops=gflops,
        share_of_peak=gflops / max(before, after),
        peak_gflops=(before, after),
    )


def _names(plain: bool) -> list[str]:
    return ["plain", "engine"] if plain else ["engine"]


def prepare(
    way: str, architecture: str, *, classes: int, methods: Sequence[str], threads: int
) -> Callable[[], object]:
    """Build model and prompts and return the work of one way, for the measurement of memory."""
    import torch

    torch.set_num_threads(threads)
    case = Case(architecture, classes, tuple(methods))
    model, prompts = _text_side(case)
    return _way(way, case, model=model, prompts=prompts)


def _way(name: str, case: Case, *, model: "Clip", prompts: "PromptSet") -> Callable[[], object]:
    """Return what one way does for one image."""
    from benchmarks.reference_towers import ReferenceClip
    from dtpt.methods.algorithm_1 import algorithm_1
    from dtpt.tuning import Tuner

    methods, views = case.resolved, view_features(VIEWS, model.config.embed_dim)
    if name == "engine":
        tuner = Tuner(model, prompts)
        return lambda: tuner.predict(views, methods)
    plain = ReferenceClip(model)
    return lambda: [algorithm_1(plain, prompts, views=views, method=method) for method in methods]


def _text_side(case: Case) -> "tuple[Clip, PromptSet]":
    """Return a model whose image tower is left tiny, and class prompts of natural length."""
    from dtpt.clip.config import VitConfig
    from dtpt.clip.loading.names import architecture
    from dtpt.clip.model import random_clip
    from dtpt.clip.prompts import PromptSet

    vision = VitConfig(image_size=32, patch_size=32, width=64, layers=1, heads=1, mlp_width=64)
    model = random_clip(architecture(case.architecture).model_copy(update={"vision": vision}))
    return model, PromptSet.build(model, class_names(case.classes))


def _print(row: Row) -> None:
    plain = "not run" if row.plain_seconds is None else f"{row.plain_seconds:.3f} s"
    ratio = "" if row.ratio is None else f"  {row.ratio:.1f}x"
    memory = " / ".join(
        "?" if peak is None else f"+{peak:.0f}" for peak in (row.plain_peak_mb, row.engine_peak_mb)
    )
    print(
        f"{row.methods}  {row.classes} classes  {row.tokens} tokens  plain {plain}"
        f"  engine {row.engine_seconds:.3f} s{ratio}  memory {memory} MB"
        f"  {row.engine_gflops:.0f} GFLOP/s, {row.share_of_peak:.0%} of peak"
    )
