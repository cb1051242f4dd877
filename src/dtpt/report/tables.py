"""The report's tables, from its facts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtpt.analysis.positions import position_tables
from dtpt.clip.ensembles import prompt_label
from dtpt.data import family_title
from dtpt.methods import PAPER_METHODS, method_title
from dtpt.metrics import METRICS, Metric
from dtpt.report.facts import (
    COMPARED,
    HEADLINE,
    MEAN,
    PAPER,
    POOLED,
    SPREAD,
    SUMMARY,
    FamilyFacts,
    MeanFacts,
    Number,
    family_positions,
)
from dtpt.report.load import Condition, Variant, set_title
from dtpt.report.paper.numbers import PaperDifference, PaperFloor
from dtpt.report.words import caption
from dtpt.tables import (
    Cell,
    Column,
    Row,
    Table,
    interval_text,
    metric_column,
    number_text,
    signed_text,
    text_table,
)

OUTSIDE = "‡"
FAILED = "†"
FLOOR = "Noise floor"
SMALL = 1e-12

Line = tuple[Variant, Sequence[Number]]
"""A row before it is written out."""


def headline_table(facts: FamilyFacts, *, key: str, title: str = "") -> Table:
    """Return the methods of a family, by the mean over its data sets or pooled over images."""
    is_mean = facts.average == "datasets" and len(facts.sets) > 1
    metrics = [m for m in HEADLINE if m in facts.values[facts.variants[0].label]]
    text = caption("tables", "mean" if is_mean else "single-set", images=_images(facts))
    text += _over_orders(facts)
    names = " and ".join(base.title for base in facts.against)
    is_undecided = facts.comparisons and not facts.is_decided
    notes = [caption("tables", "undecided", names=names)] if is_undecided else []
    lines = [(v, [facts.values[v.label][m] for m in metrics]) for v in facts.variants]
    heads = [(METRICS[metric], "") for metric in metrics]
    name = f"{title or facts.title}, {_scope(facts)}"
    table = _table(lines, heads, key=key, title=name, text=text, notes=notes, better_than=names)
    return _with_worst(table, facts) if facts.worst else table


def _scope(facts: FamilyFacts) -> str:
    if len(facts.sets) == 1:
        return set_title(facts.sets[0])
    mean = f"mean over {len(facts.sets)} data sets"
    return mean if facts.average == "datasets" else "pooled over images"


def _with_worst(table: Table, facts: FamilyFacts) -> Table:
    """Add a column with the data set on which confidence is furthest from accuracy."""
    metric = METRICS["absolute_gap"]
    rows = []
    for variant, row in zip(facts.variants, table.rows, strict=True):
        name, value = facts.worst[variant.label][metric.key]
        record = {"value": value * metric.factor, "dataset": name}
        text = f"{number_text(value, metric)} {set_title(name)}"
        rows.append(replace(row, cells=(*row.cells, Cell(text, value=value, record=record))))
    column = replace(metric_column(metric, "Worst |gap|"), meaning="Largest |gap| of any data set.")
    foot = tuple((*line, "") for line in table.foot)
    return replace(table, rows=tuple(rows), columns=(*table.columns, column), foot=foot)


def pooled_table(facts: FamilyFacts, *, key: str, title: str = "") -> Table:
    """Return the numbers pooled over all images of a family; nothing is decided by them."""
    metrics = [m for m in POOLED if m in facts.values[facts.variants[0].label]]
    lines = [(v, [facts.pooled[v.label][m] for m in metrics]) for v in facts.variants]
    return _table(
        lines,
        [(METRICS[metric], "") for metric in metrics],
        key=key,
        title=f"{title or facts.title}, pooled over images",
        text=caption("tables", "pooled", images=_images(facts)),
    )


def stream_tables(condition: Condition, facts: FamilyFacts, *, key: str) -> list[Table]:
    """Return what orders and positions change for methods that carry state; none without such."""
    spreads = [_spread_table(facts, key=f"{key}-spread")] if facts.spreads else []
    positions = family_positions(condition, facts)
    title = f"{facts.title}, {_scope(facts)}"
    along = position_tables(positions, title=title, key=f"{key}-along", name=method_title)
    return [*spreads, *along] if positions else spreads


def _spread_table(facts: FamilyFacts, *, key: str) -> Table:
    """Return how stream methods differ between orders of the same images, and between seeds."""
    lines = []
    for metric in map(METRICS.__getitem__, SPREAD):
        for variant in facts.variants:
            if not (spreads := facts.spreads.get(variant.label)):
                continue
            spread = spreads[metric.key]
            seeds = "—" if spread.seeds is None else metric.text(spread.seeds)
            texts = [metric.text(spread.orders), seeds]
            texts += [number_text(value, metric) for value in (spread.low, spread.high)]
            lines.append(Row(variant.title, tuple(map(Cell, texts)), group=metric.title))
    heads = ("± over orders", "± over seeds", "lowest order", "highest order")
    title = f"{facts.title}: spread over orders, {_scope(facts)}"
    return Table(title, tuple(map(Column, heads)), tuple(lines), key=key)


def _over_orders(facts: FamilyFacts) -> str:
    return f" {caption('tables', 'orders')}" if facts.spreads else ""


def _images(facts: FamilyFacts) -> str:
    sets = f" of {len(facts.sets)} data sets" if len(facts.sets) > 1 else ""
    average = f", averaged over {facts.several}" if facts.several else ""
    return f"{facts.size}{sets}{average}"


def difference_tables(facts: FamilyFacts, *, prefix: str) -> tuple[Table, ...]:
    """Return one table for each method that the others are compared with."""
    return tuple(
        _difference_table(facts, base, key=f"{prefix}-against-{base.label}")
        for base in facts.against
        if any(comparison.second == base.label for comparison in facts.comparisons)
    )


def _difference_table(facts: FamilyFacts, base: Variant, *, key: str) -> Table:
    metrics = [m for m in COMPARED if any(c.metric == m for c in facts.comparisons)]
    lines = []
    for variant in facts.variants:
        found = [facts.difference(variant, base, metric=metric) for metric in metrics]
        differences = [
            Number(c.estimate, low=c.low, high=c.high, significant=c.significant)
            for c in found
            if c
        ]
        if differences:
            lines.append((variant, differences))
    words = {
        "images": _images(facts),
        "scope": _scope(facts),
        "base": base.title,
        "count": len(facts.comparisons),
    }
    return _table(
        lines,
        [(METRICS[metric], "") for metric in metrics],
        key=key,
        title=f"{facts.title}: difference to {base.title}",
        text=caption("tables", "differences", **words, level=100 * facts.level)
        + _over_orders(facts),
        signed=True,
    )


def mean_table(means: MeanFacts, *, key: str) -> Table:
    """Return the means over the data sets of a family: variants × the paper's metrics."""
    title = f"{family_title(means.family)}, {means.condition.model}"
    columns = [(metric, MEAN) for metric in PAPER]
    return _mean_columns(means, columns, key=key, title=title, text=_mean_caption(means))


def set_table(means: MeanFacts, metric: str, *, key: str) -> Table:
    """Return one metric of a family: variants × (its data sets and their mean)."""
    columns = [(metric, column) for column in (*means.sets, MEAN)]
    title = f"{METRICS[metric].title} per data set, {means.condition.model}"
    text = f"{METRICS[metric].meaning} {means.condition.size_text(means.sets)}."
    return _mean_columns(means, columns, key=key, title=title, text=text)


def _mean_columns(
    means: MeanFacts, columns: Sequence[tuple[str, str]], *, key: str, title: str, text: str
) -> Table:
    lines = [(v, [means.numbers[v, m, c] for m, c in columns]) for v in means.variants]
    mean = "Mean" if len({column for _, column in columns}) > 1 else ""
    heads = [(METRICS[m], mean if c == MEAN else set_title(c)) for m, c in columns]
    notes, names = _mean_notes(lines), " and ".join(base.title for base in means.against)
    if means.against and any(metric not in COMPARED for metric, _ in columns):
        notes.append(caption("tables", "untested"))
    return _table(lines, heads, key=key, title=title, text=text, notes=notes, better_than=names)


def _mean_notes(lines: Sequence[Line]) -> list[str]:
    numbers = [number for _, numbers in lines for number in numbers]
    notes = [caption("tables", "single")] if len(lines) == 1 else []
    notes += [f"{v.title}: {first.missing}." for v, (first, *_) in lines if first.missing]
    if any(number.low is not None for number in numbers):
        notes.append(caption("tables", "intervals"))
    errata = {n.paper.printed.erratum for n in numbers if n.paper and n.paper.printed.erratum}
    notes += [f"Erratum of the paper, not a target: {text}" for text in sorted(errata)]
    return notes


def _mean_caption(means: MeanFacts) -> str:
    condition, sets = means.condition, means.sets
    what = f"Mean over {len(sets)} data sets" if len(sets) > 1 else set_title(sets[0])
    context = " with a trained context" if condition.context else ""
    prompt = f"prompt “{prompt_label(condition.template)}”{context}"
    text = ", ".join((what, condition.size_text(sets), prompt, *condition.unusual))
    if len(condition.seeds) < 2:
        return f"{text}, seed {condition.seeds[0]}."
    return caption("tables", "seeds", text=text, seeds=", ".join(map(str, condition.seeds)))


def prompt_table(conditions: Sequence[MeanFacts], *, key: str) -> Table | None:
    """Return the prompt-initialisation table of one model, grouped by initial prompt.

    None unless the conditions differ in their prompt and share their data sets.
    """
    prompts = {_prompt(means.condition) for means in conditions}
    if len(prompts) < 2 or len({means.sets for means in conditions}) > 1:
        return None
    tables = [(_prompt(means.condition), mean_table(means, key=key)) for means in conditions]
    rows = tuple(
        replace(row, group=group, record={**row.record, "group": group})
        for group, table in tables
        for row in table.rows
    )
    first, (_, table) = conditions[0], tables[0]
    family = family_title(first.family).lower()
    title = f"Prompt initialisation, {first.condition.model}, {family}"
    names = " and ".join(base.title for base in first.against)
    notes = _legend([cell for row in rows for cell in row.cells], better_than=names)
    return replace(table, title=title, rows=rows, notes=tuple(notes), foot=())


def _prompt(condition: Condition) -> str:
    return "trained context" if condition.context else f"“{prompt_label(condition.template)}”"


def choice_table(title: str, rows: Sequence[Mapping[str, Any]], *, than: str) -> Table:
    passes = ("image_passes", "text_passes")
    columns = [metric_column(METRICS[metric]) for metric in SUMMARY]
    columns += [Column(name.replace("_", " ")) for name in passes]
    lines = []
    for row in rows:
        texts = {metric: number_text(row["values"][metric], METRICS[metric]) for metric in SUMMARY}
        cells = [Cell(text, bold=metric in row["best"]) for metric, text in texts.items()]
        cells += [Cell("?" if row[name] is None else str(row[name])) for name in passes]
        lines.append(Row(row["title"], tuple(cells)))
    return Table(
        title, tuple(columns), tuple(lines), caption=caption("tables", "choices", names=than)
    )


def floor_table(model: str, floors: Sequence[PaperFloor]) -> Table:
    rows = []
    for floor in floors:
        ends = f"{100 * floor.low:.2f}–{100 * floor.high:.2f}"
        printed = (floor.printed.get(name) for name in PAPER_METHODS)
        numbers = ("—" if value is None else f"{100 * value:.2f}" for value in printed)
        about = (set_title(floor.dataset), f"{floor.images:,}", ends)
        rows.append((*about, f"{100 * floor.deviation:.2f}", *numbers))
    heads = ("Data set", "images", "floor", "±", *map(method_title, PAPER_METHODS))
    title = f"ECE in the paper and its noise floor (%), {model}"
    return text_table(title, heads, rows=rows, caption=caption("tables", "floors"))


def _table(
    lines: Sequence[Line],
    heads: Sequence[tuple[Metric, str]],
    *,
    key: str,
    title: str,
    text: str,
    notes: Sequence[str] = (),
    signed: bool = False,
    better_than: str = "",
) -> Table:
    """Write facts out as a table with the legend of its marks and the noise floor below."""
    metrics = [metric for metric, _ in heads]
    rows = tuple(
        _row(variant, numbers, metrics=metrics, signed=signed) for variant, numbers in lines
    )
    foot = _floor_line([numbers for _, numbers in lines])
    cells = [cell for row in rows for cell in row.cells]
    legend = _legend(cells, floor=bool(foot), better_than=better_than)
    columns = tuple(metric_column(metric, head) for metric, head in heads)
    return Table(title, columns, rows, key=key, caption=text, notes=(*notes, *legend), foot=foot)


def _row(
    variant: Variant, numbers: Sequence[Number], *, metrics: Sequence[Metric], signed: bool
) -> Row:
    names = {"method": variant.method, "lambda": variant.lambda_, "derived": variant.derived}
    cells = [_cell(n, m, signed=signed) for n, m in zip(numbers, metrics, strict=True)]
    own = variant.method == "d-tpt"
    return Row(variant.title, tuple(cells), is_own=own, record={"group": "", **names})


def _cell(number: Number, metric: Metric, *, signed: bool = False) -> Cell:
    record = _record(number, metric)
    if number.value is None:
        return Cell(number.missing, is_missing=True, record=record)
    (reference, deviation), interval = _beside(number.paper), ""
    if number.low is not None and number.high is not None:
        interval = interval_text((number.low, number.high), metric, signed=signed)
    return Cell(
        number_text(number.value, metric, signed=signed),
        bold=number.significant,
        mark=FAILED if number.note else "",
        spread=_spread_text(number, metric),
        interval=interval,
        reference=reference,
        deviation=deviation,
        is_outside=OUTSIDE in deviation,
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


def _beside(paper: PaperDifference | None) -> tuple[str, str]:
    """Write the paper's number and the distance to it."""
    if paper is None:
        return "", ""
    printed = paper.printed
    std = "" if printed.std is None else f" ±{printed.std:.2f}"
    reference = f"paper {printed.value:.2f}" + (" (erratum)" if printed.erratum else std)
    if paper.difference is None:
        return reference, ""
    return reference, f"Δ {signed_text(paper.difference)}{OUTSIDE * bool(paper.outside)}"


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
    paper, printed = number.paper, number.paper.printed if number.paper else None
    return {
        **{name: None if v is None else v * metric.factor for name, v in values.items()},
        **{name: getattr(number, name) for name in ("significant", "missing", "note")},
        "paper_value": printed and printed.value,
        "paper_std": printed and printed.std,
        "difference": paper and paper.difference,
        "outside_3_std": paper and paper.outside,
        "paper_erratum": printed and bool(printed.erratum),
    }


def _floor_line(lines: Sequence[Sequence[Number]]) -> tuple[tuple[str, ...], ...]:
    """Return the line below a table with the noise floor of an ECE, from lowest to highest row."""
    columns = [[n.floor for n in few if n.floor is not None] for few in zip(*lines, strict=True)]
    ends = [(f"{100 * min(few):.2f}", f"{100 * max(few):.2f}") if few else () for few in columns]
    texts = ["–".join(dict.fromkeys(pair)) for pair in ends]
    return ((FLOOR, *texts),) if any(texts) else ()


def _legend(cells: Sequence[Cell], *, floor: bool = False, better_than: str = "") -> list[str]:
    used = {
        OUTSIDE: any(cell.is_outside for cell in cells),
        FAILED: any(cell.mark == FAILED for cell in cells),
        "erratum": any("erratum" in cell.reference for cell in cells),
        "Bold": better_than and any(cell.bold for cell in cells),
        FLOOR: floor,
    }
    return [
        f"{mark}: {caption('legend', mark, names=better_than)}."
        for mark, occurs in used.items()
        if occurs
    ]
