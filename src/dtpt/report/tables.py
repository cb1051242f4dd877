"""The report's tables, from its facts."""

from collections.abc import Sequence
from dataclasses import replace

from dtpt.data import family_title
from dtpt.metrics import METRICS, Comparison, Metric
from dtpt.report.facts import (
    COMPARED,
    MEAN,
    PAPER,
    POOLED,
    SUMMARY,
    Choice,
    FamilyFacts,
    MeanFacts,
    Number,
)
from dtpt.report.load import Condition, Variant, set_title
from dtpt.report.paper.numbers import PaperDifference
from dtpt.tables import (
    MINUS,
    Cell,
    Column,
    Row,
    Table,
    interval_text,
    metric_column,
    number_text,
)

OUTSIDE = "‡"
FAILED = "†"
FLOOR_TITLE = "Noise floor"
LEGEND = {
    OUTSIDE: "outside three of the paper's standard deviations",
    FAILED: "some images could not be read",
    "erratum": "printed in error in the paper: shown, but no target",
    "Bold": "significantly better than every other row (95 %, corrected for their number)",
    FLOOR_TITLE: "expected ECE of a perfectly calibrated model with the same confidences at this "
    "number of images; from the lowest to the highest of the rows",
}
INTERVAL_NOTE = (
    "In brackets: 95 % of bootstrap draws over images, centred on the value. Calibration errors of "
    "few images are biased upward, and those of resamples more so; the interval shows their spread."
)
SMALL = 1e-12

Line = tuple[Variant, tuple[Number, ...]]
"""A row before it is written out."""


def pooled_table(facts: FamilyFacts, *, key: str, title: str = "") -> Table:
    """Return the metrics of all images of a family together, with 95 % intervals."""
    metrics = [metric for metric in POOLED if metric in facts.values[facts.variants[0].label]]
    lines = [(v, tuple(facts.values[v.label][m] for m in metrics)) for v in facts.variants]
    names = " or ".join(base.title for base in facts.against)
    undecided = f"No method is significantly different from {names} in any metric."
    return _table(
        lines,
        [(METRICS[metric], "") for metric in metrics],
        key=key,
        title=title or facts.title,
        caption=(
            f"{_images(facts)}, pooled. In brackets: 95 % confidence interval over images, for "
            f"each number by itself.{_cancelling(len(facts.sets))}"
        ),
        notes=[undecided] if facts.comparisons and not facts.is_decided else [],
    )


def _images(facts: FamilyFacts) -> str:
    sets = f" of {len(facts.sets)} data sets" if len(facts.sets) > 1 else ""
    average = f", averaged over {facts.seeds} seeds" if facts.seeds > 1 else ""
    return f"{facts.size}{sets}{average}"


def _cancelling(sets: int) -> str:
    if sets < 2:
        return ""
    return (
        " Overconfidence on one data set and underconfidence on another cancel here; the tables of "
        "single sets show both."
    )


def difference_tables(facts: FamilyFacts, *, prefix: str) -> tuple[Table, ...]:
    """Return one table for each method that the others are compared with."""
    return tuple(
        _difference_table(facts, base, key=f"{prefix}-against-{base.label}")
        for base in facts.against
        if any(one.second == base.label for one in facts.comparisons)
    )


def _difference_table(facts: FamilyFacts, base: Variant, *, key: str) -> Table:
    metrics = [m for m in COMPARED if any(one.metric == m for one in facts.comparisons)]
    lines = []
    for variant in facts.variants:
        own = [facts.difference(variant, base, metric=metric) for metric in metrics]
        if any(own):
            lines.append((variant, tuple(_difference(one) for one in own)))
    return _table(
        lines,
        [(METRICS[metric], "") for metric in metrics],
        key=key,
        title=f"{facts.title}: difference to {base.title}",
        caption=(
            f"{_images(facts)}, paired by image: method minus {base.title}. With a probability of "
            f"{100 * facts.level:g} % all {len(facts.comparisons)} intervals of this family hold. "
            "Bold: significantly different from 0."
        ),
        signed=True,
    )


def _difference(one: Comparison | None) -> Number:
    if one is None:
        return Number(missing="not compared")
    return Number(one.estimate, low=one.low, high=one.high, significant=one.significant)


def mean_table(means: MeanFacts, *, key: str) -> Table:
    """Return the means over the data sets of a family: variants × the paper's metrics."""
    condition = means.condition
    return _mean_columns(
        means,
        [(metric, MEAN) for metric in PAPER],
        key=key,
        title=f"{family_title(means.family)}, {condition.model}",
        caption=_mean_caption(condition, means.sets),
    )


def set_table(means: MeanFacts, metric: str, *, key: str) -> Table:
    """Return one metric of a family: variants × (its data sets and their mean)."""
    columns = [*means.sets, MEAN] if len(means.sets) > 1 else [MEAN]
    return _mean_columns(
        means,
        [(metric, column) for column in columns],
        key=key,
        title=f"{METRICS[metric].title} per data set, {means.condition.model}",
        caption=f"{METRICS[metric].meaning} {means.condition.size_text(means.sets)}.",
    )


def _mean_columns(
    means: MeanFacts, columns: Sequence[tuple[str, str]], *, key: str, title: str, caption: str
) -> Table:
    lines = [(v, tuple(means.numbers[v, m, c] for m, c in columns)) for v in means.variants]
    titles = {MEAN: "Mean" if len({c for _, c in columns}) > 1 else ""}
    heads = [(METRICS[m], titles[c] if c in titles else set_title(c)) for m, c in columns]
    undecided = [
        head or metric.title
        for (metric, head), column in zip(heads, columns, strict=True)
        if column in means.undecided
    ]
    notes = _mean_notes(lines, means)
    if sum(all(n.value is not None for n in numbers) for _, numbers in lines) > 1 and undecided:
        where = "any column" if len(undecided) == len(columns) else ", ".join(undecided)
        notes.append(f"No two rows are significantly different in {where}.")
    return _table(lines, heads, key=key, title=title, caption=caption, notes=notes)


def _mean_notes(lines: Sequence[Line], means: MeanFacts) -> list[str]:
    notes = []
    if len(lines) == 1:
        notes.append("Only one method was run: there is nothing to compare it with.")
    notes += [f"{v.title}: {numbers[0].missing}." for v, numbers in lines if numbers[0].missing]
    numbers = [number for _, numbers in lines for number in numbers]
    if any(number.low is not None for number in numbers):
        notes.append(INTERVAL_NOTE)
    errata = {number.paper.erratum for number in numbers if number.paper and number.paper.erratum}
    notes += [f"Erratum of the paper, not a target: {text}" for text in sorted(errata)]
    condition = means.condition
    partial = [name for name in means.sets if condition.datasets[name].is_partial]
    if partial:
        sizes = ", ".join(f"{set_title(name)} {condition.size_text([name])}" for name in partial)
        notes.append(f"Part of the data set only: {sizes}.")
    return notes


def _mean_caption(condition: Condition, sets: Sequence[str]) -> str:
    what = f"Mean over {len(sets)} data sets" if len(sets) > 1 else set_title(sets[0])
    text = f"{what}, {condition.size_text(sets)}, prompt “{condition.template}”"
    text += " with a trained context" if condition.context else ""
    text = ", ".join((text, *condition.unusual))
    if len(condition.seeds) < 2:
        return f"{text}, seed {condition.seeds[0]}."
    seeds = ", ".join(str(seed) for seed in condition.seeds)
    return (
        f"{text}, seeds {seeds}. After ±: standard deviation over seeds of the mean over data "
        "sets; in parentheses: mean over data sets of the standard deviation over seeds (both with "
        "n − 1)."
    )


def prompt_table(conditions: Sequence[MeanFacts], *, key: str) -> Table | None:
    """Return the prompt-initialisation table of one model, grouped by initial prompt.

    None unless the conditions differ in their prompt and share their data sets.
    """
    prompts = {(means.condition.template, means.condition.context) for means in conditions}
    if len(prompts) < 2 or len({means.sets for means in conditions}) > 1:
        return None
    rows: list[Row] = []
    for means in conditions:
        own = means.condition
        group = "trained context" if own.context else f"“{own.template}”"
        table = mean_table(means, key=key)
        rows += [replace(r, group=group, record={**r.record, "group": group}) for r in table.rows]
    first = conditions[0]
    family = family_title(first.family).lower()
    return Table(
        f"Prompt initialisation, {first.condition.model}, {family}",
        tuple(metric_column(METRICS[metric]) for metric in PAPER),
        tuple(rows),
        key=key,
        caption=_mean_caption(first.condition, first.sets),
        notes=tuple(_legend([cell for row in rows for cell in row.cells])),
    )


def choice_table(title: str, rows: Sequence[Choice]) -> Table:
    """Return what each method of a family gives and costs."""
    columns = [metric_column(METRICS[metric]) for metric in SUMMARY]
    columns += [Column(name, record={"column": name}) for name in ("image passes", "text passes")]
    lines = []
    for row in rows:
        cells = [Cell(number_text(row.values[m], METRICS[m]), bold=m in row.best) for m in SUMMARY]
        passes = ("?" if n is None else str(n) for n in (row.image_passes, row.text_passes))
        lines.append(Row(row.title, (*cells, *map(Cell, passes))))
    return Table(
        title,
        tuple(columns),
        tuple(lines),
        caption="Bold: significantly better than every other method. Image passes: images through "
        "the image tower per image; text passes: over all class prompts, forward and backward.",
    )


def _table(
    lines: Sequence[Line],
    heads: Sequence[tuple[Metric, str]],
    *,
    key: str,
    title: str,
    caption: str,
    notes: Sequence[str] = (),
    signed: bool = False,
) -> Table:
    """Write facts out as a table with the legend of its marks and the noise floor below."""
    rows = tuple(_row(variant, numbers, heads=heads, signed=signed) for variant, numbers in lines)
    foot = _floor_line([numbers for _, numbers in lines])
    legend = _legend([cell for row in rows for cell in row.cells], bold=not signed)
    legend += [f"{FLOOR_TITLE}: {LEGEND[FLOOR_TITLE]}."] if foot else []
    return Table(
        title,
        tuple(metric_column(metric, head) for metric, head in heads),
        rows,
        key=key,
        caption=caption,
        notes=(*notes, *legend),
        foot=foot,
    )


def _row(
    variant: Variant,
    numbers: Sequence[Number],
    *,
    heads: Sequence[tuple[Metric, str]],
    signed: bool,
) -> Row:
    cells = (
        _cell(number, metric, signed=signed)
        for number, (metric, _) in zip(numbers, heads, strict=True)
    )
    record = {
        "group": "",
        "method": variant.method,
        "lambda": variant.lambda_,
        "derived": variant.derived,
    }
    return Row(variant.title, tuple(cells), is_own=variant.method == "d-tpt", record=record)


def _cell(number: Number, metric: Metric, *, signed: bool = False) -> Cell:
    record = _record(number, metric)
    if number.value is None:
        return Cell(number.missing, is_missing=True, record=record)
    has_interval = number.low is not None and number.high is not None
    ends = (number.low or 0.0, number.high or 0.0)
    return Cell(
        number_text(number.value, metric, signed=signed),
        bold=number.significant,
        mark=FAILED if number.note else "",
        spread=_spread_text(number, metric),
        interval=interval_text(ends, metric, signed=signed) if has_interval else "",
        reference=_reference(number.paper),
        deviation=_deviation(number.paper),
        is_outside=number.paper is not None and number.paper.outside is True,
        value=number.value,
        note=number.note,
        record=record,
    )


def _spread_text(number: Number, metric: Metric) -> str:
    """Write both readings of ±: `±0.05 (0.31)`; once where they are the same."""
    spread, within = number.spread, number.spread_within
    if spread is None or within is None or spread == within == 0:  # zero-shot has no random view
        return ""
    text = f"±{number_text(spread, metric)}"
    return text if abs(spread - within) < SMALL else f"{text} ({number_text(within, metric)})"


def _reference(paper: PaperDifference | None) -> str:
    if paper is None:
        return ""
    if paper.erratum:
        return f"paper {paper.value:.2f} (erratum)"
    return f"paper {paper.value:.2f}" + ("" if paper.std is None else f" ±{paper.std:.2f}")


def _deviation(paper: PaperDifference | None) -> str:
    if paper is None or paper.difference is None:
        return ""
    text = f"{paper.difference:+.2f}"
    text = "+0.00" if text == "-0.00" else text.replace("-", MINUS)
    return f"Δ {text}{OUTSIDE * bool(paper.outside)}"


def _record(number: Number, metric: Metric) -> dict[str, object]:
    """Return the unrounded number in printed units."""
    values = {
        "value": number.value,
        "std_of_mean_over_sets": number.spread,
        "mean_of_std_over_seeds": number.spread_within,
        "low": number.low,
        "high": number.high,
        "floor": number.floor,
    }
    factor, paper = metric.factor, number.paper
    return {
        **{name: None if value is None else value * factor for name, value in values.items()},
        "significant": number.significant,
        "missing": number.missing,
        "note": number.note,
        "paper_value": paper.value if paper else None,
        "paper_std": paper.std if paper else None,
        "difference": paper.difference if paper else None,
        "outside_3_std": paper.outside if paper else None,
        "paper_erratum": bool(paper.erratum) if paper else None,
    }


def _floor_line(lines: Sequence[Sequence[Number]]) -> tuple[tuple[str, ...], ...]:
    """Return the line below a table with the noise floor of an ECE, from lowest to highest row."""
    columns = [
        [n.floor for n in column if n.floor is not None] for column in zip(*lines, strict=True)
    ]
    ends = [(f"{100 * min(few):.2f}", f"{100 * max(few):.2f}") if few else () for few in columns]
    texts = ["–".join(dict.fromkeys(pair)) for pair in ends]
    return ((FLOOR_TITLE, *texts),) if any(texts) else ()


def _legend(cells: Sequence[Cell], *, bold: bool = True) -> list[str]:
    """Explain the marks that occur in a table."""
    used = {
        OUTSIDE: any(cell.is_outside for cell in cells),
        FAILED: any(cell.mark == FAILED for cell in cells),
        "erratum": any("erratum" in cell.reference for cell in cells),
        "Bold": bold and any(cell.bold for cell in cells),
    }
    return [f"{mark}: {LEGEND[mark]}." for mark, occurs in used.items() if occurs]
