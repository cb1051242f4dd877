"""What the benchmarks share: fair timing, the machine, options, inputs, the printer.

On a machine that does other things as well the best of several repetitions is nearest to what a
variant costs, and taking turns gives each the same chances. Processor time (of all threads of this
process) is kept beside wall-clock time: other programs disturb it less.
"""

import math
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import torch
from cyclopts import Parameter
from PIL import Image
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.memory import BenchmarkError
from dtpt.clip.loading import names as model_names
from dtpt.clip.model import Clip, random_clip
from dtpt.clip.packed import HAS_ONEDNN, PackedWeights
from dtpt.machine import describe_machine, usable_cores
from dtpt.methods import PAPER_METHODS

Result = TypeVar("Result")
Row = dict[str, Any]
# options that several benchmarks share
Threads = Annotated[int | None, Parameter(help="Of torch; its own choice when not given.")]
Repeat = Annotated[int, Parameter(help="Repetitions of each variant, in turns; the best counts.")]
Listed = Annotated[str, Parameter(help="Several, comma-separated; one row each.")]

METHOD_SETS: dict[str, tuple[str, ...]] = {"one": ("d-tpt",), "five": PAPER_METHODS}
NAMES = ("cat", "polka-dotted", "annual crop land", "american pit bull terrier", "tiger lily")


@dataclass(frozen=True)
class Times(Generic[Result]):
    """What each repetition of one variant took, and what the fastest one returned."""

    seconds: tuple[float, ...]  # wall clock
    processor_seconds: tuple[float, ...]  # of all threads of this process
    result: Result

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def best_processor(self) -> float:
        return min(self.processor_seconds)


def in_turns(
    variants: Mapping[str, Callable[[], Result]], repeat: int, *, warm_up: bool = True
) -> dict[str, Times[Result]]:
    """Run every variant `repeat` times, in turns; every second round in the opposite order."""
    if repeat < 1:
        raise BenchmarkError(f"--repeat must be 1 or more, not {repeat}.")
    if warm_up:
        for variant in variants.values():
            variant()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    processor: dict[str, list[float]] = {name: [] for name in variants}
    results: dict[str, Result] = {}
    for turn in range(repeat):
        for name in list(variants)[:: -1 if turn % 2 else 1]:
            began, began_processor = time.perf_counter(), time.process_time()
            result = variants[name]()
            taken = time.perf_counter() - began
            processor[name].append(time.process_time() - began_processor)
            if taken < min(seconds[name], default=math.inf):
                results[name] = result
            seconds[name].append(taken)
    return {
        name: Times(tuple(seconds[name]), tuple(processor[name]), results[name])
        for name in variants
    }


def processor_seconds() -> float:
    """Return the processor time of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


class Stopwatch:
    """Adds up the seconds of stages that follow one another."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._last = clock()

    def lap(self, stage: str) -> None:
        now = self._clock()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


def machine() -> Row:
    """Describe this machine; call before measuring, because `load` is of the last minute."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else float("nan")
    facts = {name: value for name, value in describe_machine().items() if name != "host"}
    return {**facts, "cores": usable_cores(), "threads": torch.get_num_threads(), "load": load}


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch use `count` threads inside; None keeps its own choice."""
    before = torch.get_num_threads()
    if count is not None and count < 1:
        raise BenchmarkError(f"--threads must be 1 or more, not {count}.")
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def matmul_peak_gflops(side: int = 2048, *, repeat: int = 5) -> float:
    """Return the best rate of a float32 matrix product here and now, the bound for any engine.

    The faster of torch's product of two plain matrices and of one with a packed matrix.
    """
    left, right = torch.ones(side, side), torch.ones(side, side)
    none, copies = torch.zeros(side), PackedWeights()
    variants = {
        "plain": lambda: left @ right,
        "packed": lambda: copies.linear(left, right, bias=none, name="right"),
    }
    times = in_turns(variants, repeat)
    return 2e-9 * side**3 / min(variant.best for variant in times.values())


def count_gflop(work: Callable[[], object]) -> float:
    """Return the multiplications and additions of matrix products and convolutions, in 10⁹."""
    aten = torch.ops.aten  # torch's counter knows attention on other devices only
    attention: dict[Any, Callable[..., int]] = {
        aten._scaled_dot_product_flash_attention_for_cpu: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    }
    packed = {torch.ops.mkldnn._linear_pointwise: _packed_product} if HAS_ONEDNN else {}
    mapping = attention | packed
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        work()
    return float(counter.get_total_flops()) / 1e9


def _packed_product(x: Sequence[int], *_: object, out_shape: Sequence[int]) -> int:
    return 2 * math.prod(x) * out_shape[-1]  # (..., inputs) -> (..., outputs)


def _attention(q: Sequence[int], k: Sequence[int], *_: object, **_named: object) -> int:
    """Two products of (L, w) with (w, K) for every head: scores, and values mixed."""
    batch, heads, length, width = q
    return 2 * 2 * batch * heads * length * k[2] * width


def _attention_backward(_gradient: object, q: Sequence[int], *rest: Any, **_named: object) -> int:
    """Five such products: scores again, and the gradients of weights, values, queries and keys."""
    return 5 * _attention(q, rest[0]) // 2


def whole_numbers(text: str, option: str, *, least: int = 1) -> list[int]:
    """Return the numbers of a comma-separated list, each `least` or more."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        reason = f"{option} takes whole numbers from {least} on, say 10,47; not {text!r}."
        raise BenchmarkError(reason)
    return [int(part) for part in parts]


def method_names(text: str) -> tuple[str, ...]:
    """Return the methods of a comma-separated list, in which "one" and "five" mean sets."""
    parts = [part.strip() for part in text.split(",")]
    return tuple(dict.fromkeys(name for part in parts for name in METHOD_SETS.get(part, (part,))))


def photograph(width: int = 500, height: int = 375) -> Image.Image:
    """Return an image with structure at every scale and a full range of colours."""
    random = np.random.default_rng(0)
    pixels = np.zeros((height, width, 3))
    for cells in (3, 8, 24, 80, 250):
        noise = random.integers(0, 256, (cells * 3 // 4 + 1, cells, 3), dtype=np.uint8)
        layer = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        pixels += (np.asarray(layer) - 127.5) / cells**0.5
    return Image.fromarray(np.clip(pixels + 127.5, 0, 255).astype(np.uint8))


def class_names(count: int) -> list[str]:
    """Return class names of natural length, of one to six tokens."""
    return [NAMES[number % len(NAMES)] for number in range(count)]


def view_features(count: int, dimensions: int) -> Tensor:
    """Return unit vectors (count, dimensions) in random directions."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(count, dimensions, generator=generator)
    return torch.nn.functional.normalize(features, dim=-1)


def random_model(architecture: str, **changes: object) -> Clip:
    """Return a CLIP of a known shape with random weights, parts of its shape replaced."""
    return random_clip(model_names.architecture(architecture).model_copy(update=changes))


def table_text(result: Any) -> str:
    """Return a result for reading: a line per fact, then a column per row."""
    rows = result if isinstance(result, list) else result.get("rows", [])
    facts = {} if isinstance(result, list) else result
    lines = [[name, _value(value)] for name, value in facts.items() if name != "rows"]
    lines += [[name, *(_value(row[name]) for row in rows)] for name in (rows[0] if rows else ())]
    width = max(len(line[0]) for line in lines)
    return "\n".join(
        f"{name:{width}}  " + "  ".join(f"{value:>12}" for value in values)
        for name, *values in lines
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return " / ".join(_value(part) for part in value)
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
