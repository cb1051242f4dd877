"""Is a new run the recorded one again? Bit by bit on the same kind of machine, else closely."""

from collections.abc import Iterator
from dataclasses import dataclass

from dtpt.metrics import METRICS
from dtpt.report.recorded.schema import Record, RecordedFamily

SAME_KIND = ("machine", "processor", "system", "device", "torch", "threads")
"""What of an environment decides the last bits of a number."""

TOLERANCE = {
    "accuracy": 0.002,
    "signed_gap": 0.002,
    "ece": 0.005,
    "brier": 0.002,
    "nll": 0.01,
    "aurc": 0.003,
}
"""How far pooled values may be from the record on another kind of machine, as fractions: a few
pictures in a thousand lie so near to a border that the last bits decide their answer."""


@dataclass(frozen=True)
class RecordCheck:
    """How a new run compares with a record.

    Attributes:
        same_kind: Whether both come from the same kind of machine.
        compared: Number of values that both have.
        deviations: In words, values that differ more than they may.
        largest: By metric, the largest difference of all values compared.
    """

    same_kind: bool
    compared: int
    deviations: tuple[str, ...]
    largest: dict[str, float]

    @property
    def is_same(self) -> bool:
        """Whether the run is the recorded one again."""
        return self.compared > 0 and not self.deviations

    @property
    def text(self) -> str:
        """The outcome in a sentence or two."""
        if not self.compared:
            return "The record holds none of these data sets and methods: nothing was compared."
        kind = (
            "bit by bit, because both were computed on the same kind of machine"
            if self.same_kind
            else f"within {_tolerances()} of pooled values, because the machines differ"
        )
        head = f"Compared with the record: {self.compared:,} numbers, {kind}"
        if self.is_same:
            return f"{head}; all agree."
        return f"{head}; {len(self.deviations)} differ, first {self.deviations[0]}"


def check_record(new: Record, record: Record) -> RecordCheck:
    """Compare a new run with a record, as far as they have sets and methods in common.

    On the same kind of machine every value of every set must be equal. On another, the pooled
    values of families with the same sets must be within `TOLERANCE`.
    """
    same = all(new.environment.get(n) == record.environment.get(n) for n in SAME_KIND)
    same = same and (new.fingerprint, new.tuning) == (record.fingerprint, record.tuning)
    pairs = list(_of_sets(new, record) if same else _of_families(new, record))
    largest: dict[str, float] = {}
    deviations = []
    for place, metric, mine, theirs in pairs:
        distance = abs(mine - theirs)
        largest[metric] = max(largest.get(metric, 0.0), distance)
        if distance > (0.0 if same else TOLERANCE[metric]):
            text = METRICS[metric].text
            deviations.append(f"{place}, {metric}: {text(mine)}, recorded {text(theirs)}.")
    return RecordCheck(same, len(pairs), tuple(deviations), largest)


def _of_sets(new: Record, record: Record) -> Iterator[tuple[str, str, float, float]]:
    """Yield place, metric and both values for each set, method and metric of both.

    Derived rows are left out where the sets differ: they depend on the other sets of the run.
    """
    derived = new.sets.keys() == record.sets.keys()
    for name, entry in new.sets.items():
        other = record.sets.get(name)
        if other is None or (other.fingerprint, other.pictures) != (
            entry.fingerprint,
            entry.pictures,
        ):
            continue
        for label, values in entry.values.items():
            if label.endswith(("+chosen", "+temperature")) and not derived:
                continue
            for metric, value in values.items():
                if metric in other.values.get(label, {}):
                    yield f"{name}, {label}", metric, value, other.values[label][metric]


def _of_families(new: Record, record: Record) -> Iterator[tuple[str, str, float, float]]:
    """Yield the same for the pooled values of families with the same sets."""
    known: dict[tuple[str, ...], RecordedFamily] = {f.sets: f for f in record.families}
    for family in new.families:
        other = known.get(family.sets)
        if other is None or other.pictures != family.pictures:
            continue
        rows = {row.contender: row for row in other.rows}
        for row in family.rows:
            theirs = rows[row.contender].values if row.contender in rows else {}
            for metric, value in row.values.items():
                if metric in theirs:
                    place = f"{family.title}, {row.contender.label}"
                    yield place, metric, value.value, theirs[metric].value


def _tolerances() -> str:
    parts = [f"{METRICS[m].text(limit)} ({METRICS[m].heading})" for m, limit in TOLERANCE.items()]
    return ", ".join(parts)
