"""The facts of `reading.py` as tables: what `dtpt paper` prints and docs/paper.md shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dtpt.methods import PAPER_METHODS, method_title
from dtpt.metrics import METRICS
from dtpt.metrics.distributions import student_quantile
from dtpt.report.load import set_title
from dtpt.report.paper.checks import Check
from dtpt.report.paper.numbers import MEAN_TABLES, SET_TABLES, family_of
from dtpt.report.paper.reading import (
    PAIRS,
    Claim,
    Contradiction,
    Difference,
    PaperReading,
    Sources,
    texts,
)
from dtpt.tables import MINUS, Cell, Column, Row, Table, signed_text, text_table

LEVEL = 0.05
MOST_EXCEPTIONS = 5  # that are listed
BACKBONES = {"ViT-B-16/openai": "ViT-B/16", "RN50/openai": "RN50"}
FAMILIES = {"fine-grained": "fine-grained", "natural-shifts": "natural shifts"}
PROMPTS = {"coop": "CoOp", "picture": "“a picture of a”"}


def reading_tables(facts: PaperReading) -> dict[str, Table]:
    """Return all tables by their keys, in the order in which they are printed."""
    tables = [
        *(_difference_table(metric, found) for metric, found in facts.differences.items()),
        _dominant_table(facts.dominant),
        _sources_table(facts.sources),
        _winners_table(facts.winners),
        _checks_table(facts.checks),
        _claims_table(facts.claims),
    ]
    keys = (*facts.differences, "dominant", "sources", "winners", "checks", "claims")
    return {key: replace(table, key=key) for key, table in zip(keys, tables, strict=True)}


def _signed(value: float) -> str:
    return signed_text(value)


def _caption(key: str, **facts: object) -> str:
    text: str = texts()["captions"][key]
    return text.replace("\n", " ").format(**facts)


def _block(found: Difference) -> str:
    return f"{BACKBONES[found.model]}, {FAMILIES[family_of(found.table)]}"


def _difference_table(metric: str, differences: Sequence[Difference]) -> Table:
    count = len(differences)
    rows = (_difference_row(found, count=count, group=_block(found)) for found in differences)
    fine, shifts = (student_quantile(1 - LEVEL, sets - 1) for sets in (11, 4))
    key = "differences" if metric == "ece" else "more"
    text = _caption(key, fine=fine, shifts=shifts, count=count)
    text += _caption("erratum") if count < len(SET_TABLES) * len(PAIRS) else ""
    return _table_of(rows, title=METRICS[metric].title, caption=text)


def _table_of(rows: Iterable[Row], *, title: str, caption: str) -> Table:
    heads = ("mean", "error", "t", "better", "median", "without one", "without two")
    columns = tuple(Column(head, is_text=head.startswith("without")) for head in heads)
    return Table(title, columns, tuple(rows), heading="Difference", caption=caption)


def _difference_row(found: Difference, *, count: int, group: str) -> Row:
    mark = "‡" if found.p * count < LEVEL else "†" if found.p < LEVEL else ""
    without = [f"{', '.join(map(set_title, names))}: {_signed(m)}" for names, m in found.without]
    cells = (
        Cell(_signed(found.mean)),
        Cell(f"{found.error:.2f}"),
        Cell(_signed(found.t), mark=mark),
        Cell(f"{found.better} of {found.sets}"),
        Cell(_signed(found.median)),
        *map(Cell, [*without, "—"][:2]),
    )
    title = f"{method_title(found.first)} {MINUS} {method_title(found.second)}"
    return Row(title, cells, group=group)


def _dominant_table(differences: Sequence[Difference]) -> Table:
    count = len(differences)
    rows = [
        _difference_row(found, count=count, group=METRICS[found.metric].title)
        for found in differences
    ]
    title = "TPT without a dominant dimension (Figure 3b)"
    eight = student_quantile(1 - LEVEL, differences[0].sets - 1)
    return _table_of(rows, title=title, caption=_caption("dominant", count=count, eight=eight))


def _sources_table(sources: Iterable[Sources]) -> Table:
    rows = []
    for found in sources:
        over_sets, freedom = found.sets, found.sets.sets - 1
        # a two-sided level of 0.6 leaves 80 % below its upper end
        steps = student_quantile(1 - LEVEL, freedom) + student_quantile(0.6, freedom)
        numbers = (found.seeds, found.images, over_sets.error, steps * over_sets.error)
        texts = (f"{number:.2f}" for number in numbers)
        rows.append((_block(over_sets), _signed(over_sets.mean), *texts))
    heads = ("Block", "difference", "seeds", "images", "data sets", "detectable")
    title = "Where the variation comes from"
    return text_table(title, heads, rows=rows, caption=_caption("sources"))


def _winners_table(winners: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Table:
    rows = tuple(
        Row(METRICS[key].title, tuple(Cell(str(counts[m])) for m in PAPER_METHODS), group=kind)
        for kind, metrics in winners.items()
        for key, counts in metrics.items()
    )
    columns = tuple(Column(method_title(method)) for method in PAPER_METHODS)
    cells, fewer = (sum(winners["data sets"][key].values()) for key in ("ece", "aurc"))
    text = _caption("winners", cells=cells, fewer=fewer)
    totals = [sum(counts[m] for counts in winners["means"].values()) for m in PAPER_METHODS]
    foot = ("all means", *map(str, totals))
    title = "Who is best how often"
    return Table(title, columns, rows, heading="Metric", caption=text, foot=(foot,))


def _checks_table(checks: Iterable[Check]) -> Table:
    rows = []
    for check in checks:
        tables = dict.fromkeys(name.split()[0] for name in check.failed)
        detail = check.detail or (f"all in {', '.join(tables)}" if tables else "")
        rows.append((check.name, f"{check.checked:,}", str(len(check.failed)), detail))
    heads = ("Check", "checked", "failed", "detail")
    return text_table("Printed numbers", heads, rows=rows, caption=_caption("checks"))


def _claims_table(claims: Iterable[Claim]) -> Table:
    rows = []
    for claim in claims:
        agreeing = f"{claim.comparisons - len(claim.exceptions)} of {claim.comparisons}"
        cells = map(Cell, (claim.reading, agreeing, _exceptions_text(claim)))
        rows.append(Row(f"“{claim.quote}”", tuple(cells), group=claim.where))
    columns = (Column("read as", is_text=True), Column("holds"), Column("exceptions", is_text=True))
    text = _caption("claims", most=MOST_EXCEPTIONS)
    return Table("Sentences of the paper", columns, tuple(rows), heading="Sentence", caption=text)


def _exceptions_text(claim: Claim) -> str:
    if len(claim.exceptions) > MOST_EXCEPTIONS:
        return f"{len(claim.exceptions)} comparisons"
    return "; ".join(map(_exception_text, claim.exceptions)) or "none"


def _exception_text(found: Contradiction) -> str:
    is_mean = found.table in (*MEAN_TABLES, "table3")
    words = [
        PROMPTS.get(found.prompt, BACKBONES[found.model]),
        *([] if is_mean else [set_title(found.column)]),
        METRICS[found.metric].heading,
    ]
    numbers = (f"{method_title(method)} {value:.2f}" for method, value in found.values.items())
    return f"{' '.join(words)}: {', '.join(numbers)}"
