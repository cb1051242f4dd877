"""`dtpt bench tuning`: the text side of tuning one image, plain against engine, in one run.

The ViT-B/16 text tower with random weights, class prompts of natural length, the image features
drawn at random: only the text side is measured, which is what the engine changes. Times are the
best of several repetitions. Peak memory is that of a fresh process per measurement, above what the
model itself takes.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

PLAIN_GB_PER_CLASS = 0.034  # what the plain way grew by at 47 classes; decides what is skipped
METHOD_SETS = {"one": ["d-tpt"], "five": ["zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt"]}
NAMES = ("cat", "polka-dotted", "annual crop land", "american pit bull terrier", "tiger lily")


@dataclass(frozen=True)
class Row:
    """One line of the benchmark; seconds per image, null where not run."""

    methods: str
    classes: int
    tokens: int
    plain_seconds: float | None
    engine_seconds: float
    ratio: float | None
    plain_peak_mb: float | None
    engine_peak_mb: float
    engine_gflops: float
    share_of_peak: float


def bench_tuning(
    *,
    classes: Annotated[
        str, Parameter(help="Class counts, comma-separated.")
    ] = "10,47,102,397,1000",
    methods: Annotated[
        str, Parameter(help="'one' (D-TPT), 'five' (the paper's), or both.")
    ] = "one",
    repeat: Annotated[int, Parameter(help="Repetitions; the best counts.")] = 3,
    plain_memory_gb: Annotated[float, Parameter(help="Skip the plain way above this.")] = 16.0,
    json_: Annotated[bool, Parameter(name="--json", help="Print JSON.")] = False,
) -> None:
    """Compare the engine with plain tuning on the ViT-B/16 text tower."""
    rows = [
        _measure(int(count), name, repeat=repeat, plain_memory_gb=plain_memory_gb)
        for name in methods.split(",")
        for count in classes.split(",")
    ]
    if json_:
        print(json.dumps({"rows": [asdict(row) for row in rows]}, indent=1))
        return
    for row in rows:
        _print(row)


def _measure(count: int, methods: str, *, repeat: int, plain_memory_gb: float) -> Row:
    engine = _in_fresh_process("engine", count, methods, repeat)
    fits = count * PLAIN_GB_PER_CLASS <= plain_memory_gb
    plain = _in_fresh_process("plain", count, methods, 1) if fits else None
    gflops = engine["gflop"] / engine["seconds"]
    return Row(
        methods=methods,
        classes=count,
        tokens=int(engine["tokens"]),
        plain_seconds=plain["seconds"] if plain else None,
        engine_seconds=engine["seconds"],
        ratio=plain["seconds"] / engine["seconds"] if plain else None,
        plain_peak_mb=plain["peak_mb"] if plain else None,
        engine_peak_mb=engine["peak_mb"],
        engine_gflops=gflops,
        share_of_peak=gflops / engine["peak_gflops"],
    )


def _in_fresh_process(way: str, count: int, methods: str, repeat: int) -> dict[str, float]:
    """Measure in a process of its own, so that peak memory is that of one way only."""
    command = [sys.executable, "-m", __name__, way, str(count), methods, str(repeat)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return dict(json.loads(done.stdout))


def measure_way(way: str, count: int, methods: Sequence[str], repeat: int) -> dict[str, float]:
    """Seconds per image and peak memory of one way; runs inside the fresh process."""
    import torch

    from dtpt.methods import resolve_method
    from dtpt.methods.algorithm_1 import algorithm_1
    from dtpt.tuning import Tuner

    model, prompts = _random_vit_b16(count)
    generator = torch.Generator().manual_seed(1)
    views = torch.nn.functional.normalize(torch.randn(64, 512, generator=generator), dim=-1)
    resolved = [resolve_method(name) for name in methods]
    peak_gflops = _matmul_peak_gflops()
    before = _peak_mb()
    if way == "engine":
        tuner = Tuner(model, prompts)
        seconds = _best(lambda: tuner.predict(views, resolved), repeat)
    else:
        seconds = _best(
            lambda: [algorithm_1(model, prompts, views=views, method=m) for m in resolved], repeat
        )
    tuned = sum(method.method.tunes for method in resolved)
    return {
        "seconds": seconds,
        "peak_mb": _peak_mb() - before,
        "tokens": prompts.tokens,
        "gflop": 2e-9
        * 12
        * 12
        * 512**2
        * prompts.tokens
        * (tuned + 1),  # weights x tokens x passes
        "peak_gflops": peak_gflops,
    }


def _random_vit_b16(count: int):  # type: ignore[no-untyped-def]
    """The ViT-B/16 text tower (the image tower is left tiny) and `count` class prompts."""
    import torch

    from dtpt.clip.config import ClipConfig, TextConfig, VitConfig
    from dtpt.clip.model import Clip, initialise
    from dtpt.clip.preprocess import Preprocess
    from dtpt.clip.tokenizer import Tokenizer
    from dtpt.prompts import PromptSet

    vision = VitConfig(image_size=32, patch_size=32, width=64, layers=1, heads=1, mlp_width=64)
    text = TextConfig(
        context_length=77, vocab_size=49408, width=512, layers=12, heads=8, mlp_width=2048
    )
    config = ClipConfig(embed_dim=512, activation="quick_gelu", vision=vision, text=text)
    model = Clip(config, tokenizer=Tokenizer.clip_default(), preprocessing=Preprocess.openai(32))
    initialise(model, torch.Generator().manual_seed(0))
    model.eval().requires_grad_(False)
    return model, PromptSet.build(model, [NAMES[i % len(NAMES)] for i in range(count)])


def _best(work: Callable[[], object], repeat: int) -> float:
    """Shortest of `repeat` timings after one untimed call, in which the engine builds its graph."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _matmul_peak_gflops() -> float:
    """Largest float32 matrix-multiply rate seen on this machine, the bound for any engine."""
    import torch

    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return 2e-9 * 2048**3 / _best(lambda: a @ b, 5)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _print(row: Row) -> None:
    plain = "not run (memory)" if row.plain_seconds is None else f"{row.plain_seconds:8.3f} s"
    ratio = "" if row.ratio is None else f"  {row.ratio:5.1f}x"
    print(
        f"{row.methods:>5} methods {row.classes:5d} classes {row.tokens:6d} tokens"
        f"  plain {plain}  engine {row.engine_seconds:7.3f} s{ratio}"
        f"  memory +{row.plain_peak_mb or 0:.0f} / +{row.engine_peak_mb:.0f} MB"
        f"  {row.engine_gflops:.0f} GFLOP/s, {row.share_of_peak:.0%} of peak"
    )


if __name__ == "__main__":
    _way, _count, _methods, _repeat = sys.argv[1:]
    print(json.dumps(measure_way(_way, int(_count), METHOD_SETS[_methods], int(_repeat))))
