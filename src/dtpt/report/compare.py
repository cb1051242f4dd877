"""`dtpt.compare` and `dtpt compare`: which methods of some runs are significantly different."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from dtpt.errors import DtptError, OptionError, ReportError, short_repr
from dtpt.files import AnyPath, as_path, printable
from dtpt.methods import method_cost, resolve_method
from dtpt.report.derived import with_derived_rows
from dtpt.report.facts import (
    SUMMARY,
    Average,
    FamilyFacts,
    Resampling,
    compare_conditions,
    family_positions,
)
from dtpt.report.load import Condition, Source, Variant, load_runs
from dtpt.report.tables import (
    choice_table,
    difference_tables,
    headline_table,
    pooled_table,
    stream_tables,
)
from dtpt.report.words import Paragraph, verdict_paragraphs
from dtpt.runs.reading import Run
from dtpt.tables import Table


@dataclass(frozen=True)
class Comparisons:
    """The methods of some runs, compared by model, prompt and family of data sets."""

    resampling: Resampling
    conditions: tuple[tuple[Condition, tuple[FamilyFacts, ...]], ...]
    notes: tuple[str, ...] = ()  # what was left out and why, and other things to know

    @property
    def verdicts(self) -> tuple[str, ...]:
        """What the comparisons mean, a paragraph for each family."""
        return tuple(p.text for c, facts in self.conditions for p in verdict_paragraphs(c, facts))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each model, family, pair and metric, with its confidence interval."""
        return [
            {"model": c.model, "template": c.template, "family": f.title, **comparison.to_dict()}
            for c, families in self.conditions
            for f in families
            for comparison in f.comparisons
        ]

    def document(self) -> dict[str, Any]:
        """Return verdicts, values and comparisons as plain data, in fractions."""
        conditions = [
            {
                "model": condition.model,
                "template": condition.template,
                "verdicts": [p.text for p in verdict_paragraphs(condition, families)],
                "families": [
                    {**facts.document(), "positions": family_positions(condition, facts)}
                    for facts in families
                ],
            }
            for condition, families in self.conditions
        ]
        names = ("level", "resamples", "seed", "average")
        chosen = {name: getattr(self.resampling, name) for name in names}
        return {**chosen, "conditions": conditions, "notes": list(self.notes)}

    def sections(self) -> Iterator[tuple[str, tuple[Paragraph, ...], list[Table]]]:
        """Yield title, verdicts and tables of every condition."""
        for condition, families in self.conditions:
            tables = []
            for facts in families:
                tables.append(headline_table(facts, key="headline"))
                tables += difference_tables(facts, prefix="headline")
                tables += [pooled_table(facts, key="pooled")] if facts.pooled else []
                tables += stream_tables(condition, facts, key="streams")
            yield condition.title, verdict_paragraphs(condition, families), tables


def compare(
    *runs: Run | AnyPath,
    against: Sequence[str] = (),
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    average: Average = "datasets",
) -> Comparisons:
    """Compare the methods of runs, paired by image, by the mean over data sets.

    Args:
        runs: runs, or folders that `evaluate` or `dtpt eval` wrote.
        against: methods that all others are compared with; by default zero-shot and TPT as far as
            they were run, else the first method.
        level: probability that all confidence intervals hold.
        resamples: bootstrap draws of clusters of images.
        seed: of the drawing.
        average: `datasets` (every set counts alike) or `images` (pooled over all of them).

    Returns:
        `verdicts` (sentences), `rows` (a dictionary for each pair and metric: the difference, first
        minus second, a fraction, with its interval, `significant` and `better`) and `document()`.

    Raises:
        ReportError: nothing to compare, or a method that no run has.
        MetricError: an invalid level or number of draws.

    Example:
        >>> from dtpt.runs.evaluation import evaluate
        >>> run = evaluate("openmoji/food-drink", limit=8, method="zero-shot,mean-views", views=4,
        ...                output="food", quiet=True)
        >>> rows = compare(run, against=["zero-shot"], resamples=100).rows
        >>> rows[0]["first"], rows[0]["second"], rows[0]["metric"], rows[0]["n"]
        ('mean-views', 'zero-shot', 'accuracy', 8)
    """
    is_list = isinstance(against, list | tuple)
    if not is_list or not all(isinstance(name, str) for name in against):
        raise OptionError(f"against must be a list of methods, got {short_repr(against)}.")
    if average not in get_args(Average):
        raise OptionError(f"average must be datasets or images, got {short_repr(average)}.")
    paths = [run.path if isinstance(run, Run) else as_path(run, "run") for run in runs]
    resampling = Resampling(
        level=level, resamples=resamples, seed=seed, against=tuple(against), average=average
    )
    with load_runs(paths) as loaded:
        conditions = with_derived_rows(loaded).conditions
    families = compare_conditions(conditions, resampling)
    return Comparisons(
        resampling, tuple(zip(conditions, families, strict=True)), notes=loaded.notes
    )


def method_choices(run: Path) -> tuple[dict[str, Any], list[Table]]:
    """Return what the methods of a run give and cost, as a document and in a table per family."""
    with load_runs([run]) as loaded:
        conditions = with_derived_rows(loaded).conditions
    methods, tables = [], []
    for condition in conditions:
        for facts in compare_conditions([condition])[0]:
            rows = method_rows(condition, facts)
            methods += rows
            names = " and ".join(base.title for base in facts.against)
            tables.append(choice_table(f"{facts.title}, {condition.title}", rows, than=names))
    if not tables:
        raise ReportError(
            f"{printable(run)} has no two methods with all images of the same data sets: there is "
            "nothing to choose from. Finish `dtpt eval`, or run more methods."
        )
    return {"seconds_per_image": seconds_per_image(loaded.sources), "methods": methods}, tables


def method_rows(condition: Condition, facts: FamilyFacts) -> list[dict[str, Any]]:
    """Return what each method of a family gives and costs, as plain data.

    `best` names the metrics in which it is significantly better than the methods that all are
    compared with; passes are per image, None for a method that is not known here.
    """
    counts = [entry.views.get("count") for entry in condition.datasets.values()]
    views = max((count for count in counts if isinstance(count, int)), default=64)
    steps = int(condition.tuning.get("steps", 1))
    return [
        {
            "family": facts.title,
            "label": variant.label,
            "title": variant.title,
            "values": {metric: facts.value(variant, metric) for metric in SUMMARY},
            "best": [m for m in SUMMARY if facts.values[variant.label][m].significant],
            **_passes(variant, views, steps=steps),
        }
        for variant in facts.variants
    ]


def _passes(variant: Variant, views: int, *, steps: int) -> dict[str, int | None]:
    """Count image and text passes of a method; derived rows cost no more."""
    try:
        method = resolve_method(variant.method, lambda_=variant.lambda_)
    except DtptError:  # a plug-in that is not installed here
        return {"image_passes": None, "text_passes": None}
    cost = method_cost(method, views=views, steps=steps)
    text = cost.text_forward + cost.text_backward
    return {"image_passes": cost.image_passes, "text_passes": text}


def seconds_per_image(sources: Sequence[Source]) -> float | None:
    """Return the time of one image with all methods and seeds; None where it is not recorded."""
    sessions = [s for source in sources for s in source.sessions if s.get("rows")]
    if not sessions or any(session.get("seconds") is None for session in sessions):
        return None
    cells = max(len(source.run.cells) / len(source.spec.datasets) for source in sources)
    seconds, rows = (sum(float(s[name]) for s in sessions) for name in ("seconds", "rows"))
    return seconds * cells / rows
