"""The tables of an analysis file, in words and printed units, for the page."""

from collections.abc import Iterable
from dataclasses import dataclass

from dtpt.analysis.results import Analysis, DatasetAnalysis
from dtpt.methods import method_title
from dtpt.report.set_titles import set_title


@dataclass(frozen=True)
class WordTable:
    """A table of words: title, caption, headings and rows."""

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def analysis_tables(analysis: Analysis) -> Iterable[WordTable]:
    """Yield image dependence, geometry and dominant dimensions of every analysed set."""
    for entry in analysis.datasets:
        where = f"{set_title(entry.dataset)}, {entry.images:,} pictures, “{entry.template}”"
        if entry.image_dependence:
            yield _dependence(entry, where)
        if entry.geometry:
            yield _geometry(entry, where)
        if entry.without:
            yield _without(entry, where)


def _dependence(entry: DatasetAnalysis, where: str) -> WordTable:
    rows = tuple(
        (
            method_title(found.method, found.lambda_),
            _percent(found.same_sign_all),
            _percent(found.same_sign_most),
            _percent(found.regulariser_agreement),
            _percent(found.score.accuracy),
            _percent(found.score.ece),
            _percent(found.static.score.accuracy if found.static else None),
            _percent(found.static.score.ece if found.static else None),
        )
        for found in entry.image_dependence
    )
    return WordTable(
        f"How much of the update depends on the picture: {where}",
        "Share of context numbers that step in the same direction for all (for at least 95 % of) "
        "pictures; agreement with the regulariser alone; accuracy and ECE (%) of the method and of "
        "its static variant, which is tuned once without any picture.",
        (
            "Method",
            "Same for all (%)",
            "For 95 % (%)",
            "As regulariser (%)",
            "Acc. (%)",
            "ECE (%)",
            "Static acc. (%)",
            "Static ECE (%)",
        ),
        rows,
    )


def _geometry(entry: DatasetAnalysis, where: str) -> WordTable:
    rows = tuple(
        (
            method_title(found.method, found.lambda_),
            f"{found.after.atfd:.4f}",
            f"{found.after.logit_range:.2f}",
            f"{found.after.logit_mean:.2f}",
            f"{found.after.label_cosine:.4f}",
        )
        for found in entry.geometry
    )
    before = entry.geometry[0].before
    return WordTable(
        f"Text features after tuning: {where}",
        f"Before tuning: ATFD {before.atfd:.4f}, logit range {before.logit_range:.2f}, logit mean "
        f"{before.logit_mean:.2f}, cosine to the true class {before.label_cosine:.4f}.",
        ("Method", "ATFD", "Logit range", "Logit mean", "Cosine to the true class"),
        rows,
    )


def _without(entry: DatasetAnalysis, where: str) -> WordTable:
    rows = tuple(
        (
            method_title(found.original.method, found.original.lambda_),
            *(
                f"{_percent(score.accuracy)} / {_percent(score.ece)}"
                for score in (found.original, found.without_tdd, found.without_idd)
            ),
        )
        for found in entry.without
    )
    return WordTable(
        f"Without dominant dimensions: {where}",
        f"Accuracy / ECE (%). Text-dominant dimension {entry.text.dominant.index}, image-dominant "
        f"dimension {entry.image.dominant.index}; distance of the centroids "
        f"{entry.gap.distance:.3f}, their cosine {entry.gap.cosine:.3f}.",
        ("Method", "As it is", "Without TDD", "Without IDD"),
        rows,
    )


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.2f}"
