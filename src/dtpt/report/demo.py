"""The demo in one table: the recorded run of all images beside the sample that was run now."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dtpt.methods import parse_label
from dtpt.metrics import METRICS
from dtpt.metrics.comparison import corrected_level
from dtpt.report.facts import FamilyFacts, Number
from dtpt.report.load import Variant
from dtpt.report.record import METHODS, demo_variants
from dtpt.report.words import caption
from dtpt.tables import MINUS, Cell, Column, Row, Table

SHOWN = ("accuracy", "signed_gap", "ece", "floor")
COMPARED = ("accuracy", "signed_gap")  # unbiased at any number of images, unlike the ECE
USUAL_LEVEL = 0.95  # of the interval of one number


def demo_table(recorded: Sequence[FamilyFacts], live: Sequence[FamilyFacts]) -> Table:
    """Return the demo's methods as means over all data sets, recorded and live side by side."""
    sides = {"recorded": recorded, "live": live}
    columns = [
        Column(f"{side} {METRICS[metric].short}" if metric == SHOWN[0] else METRICS[metric].short)
        for side, families in sides.items()
        if families
        for metric in SHOWN
    ]
    rows = []
    for name in METHODS:
        numbers = {side: _means(families, name) for side, families in sides.items() if families}
        cells = [_cell(found, metric) for found in numbers.values() for metric in SHOWN]
        rows.append(Row(_title(name), tuple(cells), record={"method": name}))
    sets = sum(len(facts.sets) for facts in recorded or live)
    counts = [f"{side} {_images(f):,} images" for side, f in sides.items() if f]
    title = caption("demo", "title", sets=sets, sizes=", ".join(counts))
    return Table(title, tuple(columns), tuple(rows), key="demo", caption=caption("demo", "caption"))


def _images(families: Sequence[FamilyFacts]) -> int:
    return sum(facts.images for facts in families)


def _cell(numbers: dict[str, float], metric: str) -> Cell:
    if metric not in numbers:
        return Cell("no row", is_missing=True)
    text = f"{100 * numbers[metric]:{'+' if metric == 'signed_gap' else ''}z.1f}"
    return Cell(text.replace("-", MINUS), value=numbers[metric])


def _title(name: str) -> str:
    """Write a method as the rows do: C- and O-TPT have another λ in each family."""
    parsed = parse_label(name)
    return Variant(parsed.name, parsed.lambda_).title


def _number(facts: FamilyFacts, name: str, *, metric: str) -> Number | None:
    """Return a number of a method; with the λ in its name, else the family's own."""
    for variant in demo_variants([facts]):
        if Variant(variant.method, parse_label(name).lambda_).title == _title(name):
            numbers = facts.values[variant.label]
            return Number(numbers["ece"].floor) if metric == "floor" else numbers[metric]
    return None


def _means(families: Sequence[FamilyFacts], name: str) -> dict[str, float]:
    """Return the means over all data sets: those of families, by their numbers of sets."""
    found = {}
    for metric in SHOWN:
        numbers = [_number(facts, name, metric=metric) for facts in families]
        values = [n.value for n in numbers if n is not None and n.value is not None]
        if len(values) == len(families):
            weights = [len(facts.sets) for facts in families]
            found[metric] = float(np.average(values, weights=weights))
    return found


@dataclass(frozen=True)
class Agreement:
    """Whether the sample that was run now is what the record lets expect."""

    compared: int  # numbers: accuracy and gap of every method and family
    outside: tuple[str, ...]  # recorded values outside of the sample's corrected intervals

    @property
    def text(self) -> str:
        if not self.compared:
            return ""
        key = "differs" if self.outside else "agrees"
        names = ", ".join(self.outside)
        inside = self.compared - len(self.outside)
        return caption("demo", key, inside=inside, count=self.compared, names=names)


def agreement(recorded: Sequence[FamilyFacts], live: Sequence[FamilyFacts]) -> Agreement:
    """Compare accuracy and signed gap of each method and family with the sample's intervals.

    They are corrected for the number of comparisons: if the sample is drawn from what was recorded,
    one recorded value or more is outside in at most 5 of 100 samples.
    """
    known = {facts.family: facts for facts in recorded}
    found = []
    for facts in (facts for facts in live if facts.family in known):
        for name in METHODS:
            for metric in COMPARED:
                theirs, ours = (
                    _number(f, name, metric=metric) for f in (known[facts.family], facts)
                )
                if theirs and ours and (distance := _distance(ours, theirs)) is not None:
                    where = f"{_title(name)}, {facts.title.lower()}, {METRICS[metric].short}"
                    found.append((where, distance))
    level = corrected_level(USUAL_LEVEL, len(found))
    most = NormalDist().inv_cdf((1 + level) / 2)
    outside = tuple(where for where, distance in found if distance > most)
    return Agreement(len(found), outside)


def _distance(ours: Number, theirs: Number) -> float | None:
    """Return the distance of two values in standard errors of the first; None without any."""
    if ours.value is None or theirs.value is None or ours.low is None or ours.high is None:
        return None
    error = (ours.high - ours.low) / 2 / NormalDist().inv_cdf((1 + USUAL_LEVEL) / 2)
    return abs(ours.value - theirs.value) / error if error else None
