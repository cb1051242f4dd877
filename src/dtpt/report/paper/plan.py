"""An order for reproducing the paper on one GPU, with zero-shot counts as the gate.

The paper prints zero-shot accuracies with two decimals. Each is a count over the size of its test
set, so what must come out is known to a few images, before anything is tuned.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.data.catalog import PAPER_SETS, catalog_entry
from dtpt.report.load import Condition, Variant, set_title
from dtpt.report.paper.numbers import (
    EXACT,
    ROUNDING,
    SEEDS,
    init_of,
    is_comparable,
    paper_data,
    paper_number,
)
from dtpt.tables import Table, text_table

MODELS = ("ViT-B-16/openai", "RN50/openai")
ZERO_SHOT = Variant("zero-shot")
GATE = (
    "A few images are rounding of devices; more are another prompt, split or preprocessing, and "
    "no other number of the set is to be compared before that is found."
)
RATE = 1000  # views a second that are made and encoded; an assumption, not a measurement


@dataclass(frozen=True)
class ZeroShotCount:
    """How many images zero-shot classification must get right, by a printed accuracy."""

    model: str
    dataset: str
    images: int
    printed: float  # percent
    least: int
    most: int

    @property
    def text(self) -> str:
        span = f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"
        return f"{span} ({self.printed:.2f} %)"


def zero_shot_counts(dataset: str) -> tuple[ZeroShotCount, ...]:
    """Return the counts of a set under both models.

    Example:
        >>> [count.text for count in zero_shot_counts("dtd")]
        ['750 (44.33 %)', '683 (40.37 %)']
    """
    images, counts = catalog_entry(dataset).images, []
    for model in MODELS:
        number = paper_number(model, dataset, method="zero-shot", metric="accuracy")
        if number is not None:
            low, high = ((number.value + end) / 100 * images for end in (-ROUNDING, ROUNDING))
            span = math.ceil(low - EXACT), math.floor(high + EXACT)
            counts.append(ZeroShotCount(model, dataset, images, number.value, *span))
    return tuple(counts)


def plan_table() -> Table:
    """Return the paper's sets from small to large, with gate and work."""
    names = sorted(PAPER_SETS, key=lambda name: catalog_entry(name).images)
    views, total, rows = int(paper_data()["views"]), 0, []
    for name in names:
        entry = catalog_entry(name)
        work = entry.images * views * SEEDS * len(MODELS)
        total += work
        counts = {count.model: count.text for count in zero_shot_counts(name)}
        rows.append(
            (
                name,
                f"{entry.images:,}",
                f"{len(entry.classes):,}",
                *(counts.get(model, "—") for model in MODELS),
                f"{work / 1e6:.1f}",
                f"{total / RATE / 3600:.0f}" if total > RATE * 7200 else "1",
            )
        )
    heads = (
        *("data set", "images", "classes"),
        *(f"right, {model.partition('/')[0]}" for model in MODELS),
        *("views (10⁶)", "hours so far"),
    )
    return text_table("", heads, rows=rows)


def gate_table(conditions: Sequence[Condition]) -> Table | None:
    """Return the zero-shot counts of finished sets beside the paper's; None without any."""
    rows = []
    for condition in conditions:
        for name in filter(PAPER_SETS.__contains__, condition.datasets):
            cells = condition.finished(name, ZERO_SHOT)
            counts = {count.model: count for count in zero_shot_counts(name)}
            count = counts.get(condition.model)
            if not cells or count is None or not is_gate(condition, name):
                continue
            right = int(cells[0].column("correct").sum())
            off = min(right - count.least, 0) or max(right - count.most, 0)
            words = f"{off:+,} images" if off else "none"
            rows.append((set_title(name), count.model, f"{right:,}", count.text, words))
    heads = ("data set", "model", "right here", "right in the paper", "difference")
    return text_table("Gate: zero-shot", heads, rows=rows, caption=GATE) if rows else None


def is_gate(condition: Condition, name: str) -> bool:
    """Return whether a set was evaluated as in the paper, with all of its images."""
    is_usual = init_of(condition.template, condition.context) == "photo"
    return is_usual and is_comparable(condition, (name,), variant=ZERO_SHOT)


def plan_steps(data_root: str, output: str) -> list[str]:
    """Return the commands, in order."""
    first = ",".join(sorted(("dtd", "oxford_pets", "eurosat"), key=PAPER_SETS.index))
    part = f"dtpt reproduce table1 --dataset {first} --device cuda"
    root = f"--data-root {shlex.quote(data_root)}"
    where = f"{root} --output {shlex.quote(output)}"
    return [
        f"dtpt datasets fetch {first} {root}",
        *(f"dtpt models fetch {model}" for model in MODELS),
        f"{part} --method zero-shot --seed 0 {where}",
        f"{part} {where}",
    ]
