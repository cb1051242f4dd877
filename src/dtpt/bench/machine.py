"""What a figure was measured on, and how fast that machine can be at best."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version

from dtpt.bench.timing import in_turns
from dtpt.errors import BenchmarkError
from dtpt.machine import processor_name


@dataclass(frozen=True)
class Machine:
    """The machine and the libraries that decide about speed.

    Attributes:
        processor: Its model name.
        cores: That this process may use.
        threads: That torch uses for one operation.
        load: Programs that wanted to run during the last minute; far above 0 when the measurement
            starts, figures are disturbed.
        system: Of the machine.
        python: Version.
        torch: Version.
        numpy: Version.
        pillow: Version.
    """

    processor: str
    cores: int
    threads: int
    load: float
    system: str
    python: str
    torch: str
    numpy: str
    pillow: str


def describe_machine() -> Machine:
    """Describe this machine and the libraries in use.

    Example:
        >>> describe_machine().cores > 0
        True
    """
    import torch

    return Machine(
        processor=processor_name(),
        cores=_cores(),
        threads=torch.get_num_threads(),
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else float("nan"),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=version("numpy"),
        pillow=version("pillow"),
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch use `count` threads inside; None leaves its own choice.

    Example:
        >>> import torch
        >>> with torch_threads(1):
        ...     torch.get_num_threads()
        1
    """
    import torch

    before = torch.get_num_threads()
    if count is not None:
        if count < 1:
            raise BenchmarkError(f"--threads must be 1 or more, not {count}.")
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def matmul_peak_gflops(side: int = 2048, *, repeat: int = 5) -> float:
    """Return the best rate of a float32 matrix product here and now, the bound for any engine.

    Of torch's product of two plain matrices and of one with a packed matrix, the faster counts.

    Args:
        side: Of the square matrices.
        repeat: How often; the best counts.
    """
    import torch

    from dtpt.clip.packed import PackedWeights

    left, right = torch.ones(side, side), torch.ones(side, side)
    none, copies = torch.zeros(side), PackedWeights()
    ways = {
        "plain": lambda: left @ right,
        "packed": lambda: copies.linear(left, right, bias=none, name="right"),
    }
    times = in_turns(ways, repeat)
    return 2e-9 * side**3 / min(way.best for way in times.values())


def count_gflop(work: Callable[[], object]) -> float:
    """Return the multiplications and additions of matrix products and convolutions, in 10⁹.

    torch's counter knows attention on other devices; how it is counted on a CPU is said here, and
    a packed product in `dtpt.clip.packed`.

    Example:
        >>> import torch
        >>> left, right = torch.ones(1000, 500), torch.ones(500, 100)
        >>> count_gflop(lambda: left @ right)
        0.1
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from dtpt.clip.packed import packed_flops

    aten = torch.ops.aten
    attention = {
        aten._scaled_dot_product_flash_attention_for_cpu: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    }
    mapping = attention | packed_flops()
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        work()
    return float(counter.get_total_flops()) / 1e9


def _attention(q: Sequence[int], k: Sequence[int], *_: object, **_named: object) -> int:
    """Two products of (L, w) with (w, K) for every head: scores, and values mixed."""
    batch, heads, length, width = q
    return 2 * 2 * batch * heads * length * k[2] * width


def _attention_backward(
    _gradient: object, q: Sequence[int], k: Sequence[int], *_: object, **_named: object
) -> int:
    """Five such products: scores again, and the gradients of weights, values, queries and keys."""
    return 5 * _attention(q, k) // 2
