"""How long each stream method takes on the original views of a feature pack, and its memory.

Every method is a `dtpt eval` of its own in one process, from the pack to stored rows; what it takes
beyond zero-shot is its own. The largest state is that of a full cache.
"""

import tempfile
from pathlib import Path

import torch

from benchmarks import measuring
from benchmarks.measuring import Row
from benchmarks.packs import draw, evaluate
from dtpt.methods import METHODS
from dtpt.tuning.state import state_tensors

SINGLE = tuple(name for name, m in METHODS.items() if m.is_stateful and m.original)


def streams(
    *,
    images: int = 5000,
    classes: int = 1000,
    dimensions: int = 512,
    methods: str = ",".join(SINGLE),
) -> Row:
    """Write a pack of original views and run each method over it."""
    facts = measuring.machine()
    rows: list[Row] = []
    text = torch.eye(classes, dimensions)
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as name:
        pack = draw(Path(name), images=images, views=1, classes=classes, dimensions=dimensions)
        for method in ("zero-shot", *methods.split(",")):
            words = ["--dataset", f"pack:{pack}", "--method", method, "--views", "1", "--quiet"]
            words += ["--workers", "1", "--output", str(Path(name) / f"run-{len(rows)}")]
            used = measuring.processor_seconds()
            seconds, memory = evaluate(words)
            state = 0.0
            if (initial := METHODS[method].initial) is not None:
                tensors = state_tensors(initial(text, logit_scale=1.0))
                state = sum(tensor.nbytes for _, tensor in tensors) / 1e6
            rows.append(
                {
                    "method": method,
                    "seconds": seconds,
                    "processor_seconds": measuring.processor_seconds() - used,
                    "memory_mb": memory,
                    "largest_state_mb": state,
                }
            )
    return {"images": images, "classes": classes, "dimensions": dimensions, "rows": rows} | facts
