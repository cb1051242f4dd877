"""Print the tables of docs/clip.md from a run on real CLIP, or write `src/dtpt/report/clip.json`.

    python docs/clip_tables.py tables RUN
    python docs/clip_tables.py record RUN --note "one sentence"

The run is the first one of the page. Every method is compared with zero-shot and with TPS, the
tuned method that needs no text tower; intervals are corrected for all of these comparisons.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import dtpt
from dtpt.metrics import METRICS, Comparison
from dtpt.report.bars import brief_text
from dtpt.report.clip_record import PACKAGED, ClipMethod, ClipRecord
from dtpt.report.facts import FamilyFacts
from dtpt.runs import open_run, results_of

REFERENCES = ("zero-shot", "tps")
VALUES = ("accuracy", "signed_gap", "ece", "brier", "nll", "aurc")
COMPARED = ("accuracy", "signed_gap", "squared_ce", "brier", "nll", "aurc")
MODEL = "ViT-B-16/openai"
RECORD = Path(__file__).parents[1] / "src/dtpt/report" / PACKAGED


def facts_of(run: Path) -> FamilyFacts:
    """Compare the methods of a run of one family with the references it has."""
    with open_run(run) as opened:
        held = {cell.label for cell in opened.cells}
    against = [name for name in REFERENCES if name in held]
    ((_, (facts,)),) = dtpt.compare(run, against=against).conditions
    return facts


def lines(facts: FamilyFacts) -> Iterator[str]:
    """Yield a table of values, and one of differences with the detectable effect."""
    yield f"{facts.size}; floor of the ECE: {floor_text(facts)}"
    yield "| method | " + " | ".join(METRICS[name].title for name in VALUES) + " |"
    yield "| --- |" + " --- |" * len(VALUES)
    for variant in facts.variants:
        numbers = facts.values[variant.label]
        cells = (brief_text(numbers[name].value or 0.0, METRICS[name]) for name in VALUES)
        yield f"| {variant.title} | " + " | ".join(cells) + " |"
    for reference in facts.against:
        yield f"\nminus {reference.title}: difference [95 % interval] (detectable)"
        yield "| method | " + " | ".join(METRICS[name].title for name in COMPARED) + " |"
        yield "| --- |" + " --- |" * len(COMPARED)
        for variant in facts.variants:
            pairs = [facts.difference(variant, reference, metric=name) for name in COMPARED]
            if any(pairs):
                yield f"| {variant.title} | " + " | ".join(map(difference_text, pairs)) + " |"


def floor_text(facts: FamilyFacts) -> str:
    floors = [facts.values[v.label]["ece"].floor or 0.0 for v in facts.variants]
    return " to ".join(brief_text(end, METRICS["ece"]) for end in (min(floors), max(floors)))


def difference_text(pair: Comparison | None) -> str:
    if pair is None:
        return "—"
    metric = METRICS[pair.metric]
    low, high, seen = (brief_text(x, metric) for x in (pair.low, pair.high, pair.detectable or 0.0))
    mark = "**" if pair.significant else ""
    estimate = brief_text(pair.estimate, metric, signed=True)
    return f"{mark}{estimate}{mark} [{low}, {high}] ({seen})"


def record_of(run: Path, facts: FamilyFacts, *, note: str) -> ClipRecord:
    """Return what the package says about real CLIP."""
    with open_run(run) as opened:
        spec, stored = opened.spec, results_of(opened).results
    views = {label: found.views for label, found in stored[spec.datasets[0].name].items()}
    entry = spec.datasets[0]
    methods = []
    for variant in facts.variants:
        numbers = facts.values[variant.label]
        differences: dict[str, dict[str, tuple[float, float, float]]] = {}
        for pair in facts.comparisons:
            if pair.first == variant.label:
                of = differences.setdefault(pair.second, {})
                of[pair.metric] = (pair.estimate, pair.low, pair.high)
        methods.append(
            ClipMethod(
                method=variant.label,
                accuracy=numbers["accuracy"].value or 0.0,
                gap=numbers["signed_gap"].value or 0.0,
                ece=numbers["ece"].value or 0.0,
                floor=numbers["ece"].floor or 0.0,
                brier=numbers["brier"].value,
                aurc=numbers["aurc"].value,
                views=views.get(variant.label),
                images=facts.images,
                intervals={
                    name: (number.low, number.high)
                    for name, number in numbers.items()
                    if number.low is not None and number.high is not None
                },
                differences=differences,
            )
        )
    return ClipRecord(
        command="the first run of docs/clip.md",
        model=MODEL,
        fingerprint=spec.model.fingerprint,
        datasets={entry.name: facts.images},
        views=int(str(entry.views["count"])),
        seeds=tuple(spec.seeds),
        methods=tuple(methods),
        note=note,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["tables", "record"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--note", default="")
    given = parser.parse_args()
    found = facts_of(given.run)
    if given.command == "tables":
        print("\n".join(lines(found)))
    else:
        made = record_of(given.run, found, note=given.note)
        RECORD.write_text(made.model_dump_json(exclude_defaults=True) + "\n", "utf-8")
