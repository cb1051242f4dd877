"""The picture of a verdict: how sure and how right each method is, on all pictures of a family."""

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from dtpt.metrics import CalibratedBand, ReliabilityBins, calibrated_band, reliability_bins
from dtpt.report.comparison import FamilyComparison
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.reliability import reliability_row
from dtpt.report.gathering.scored_cells import Contender

MOST_PANELS = 8


def pooled_reliability(
    comparison: FamilyComparison, *, key: str, contenders: Sequence[Contender] = ()
) -> CaptionedFigure:
    """Return the reliability of methods with the band of a perfectly calibrated model.

    Args:
        comparison: The methods of a family on the same pictures.
        key: Name for files.
        contenders: Which methods; each once when not given, at most eight.
    """
    chosen = tuple(contenders) or comparison.shown[:MOST_PANELS]
    panels = [_panel(comparison, contender) for contender in chosen]
    words = "; ".join(_words(comparison, contender) for contender in chosen)
    seeds = len(comparison.pooled[chosen[0].label].seeds)
    which = ", first seed" if seeds > 1 else ""
    return CaptionedFigure(
        key,
        f"How right each method is when it says how sure it is: {comparison.title.lower()}",
        f"{comparison.size} in 20 bins of confidence{which}. Bars: share of right answers. "
        "Hatched: distance to the mean confidence of the bin, above the bar where the method is "
        "too sure. Brackets: where 90 % of perfectly calibrated models would end. Below: how many "
        "pictures are in each bin.",
        f"{words}.",
        partial(_draw, panels),
        panels=tuple(partial(_draw, [panel]) for panel in panels),
    )


_Panel = tuple[str, ReliabilityBins, CalibratedBand]


def _panel(comparison: FamilyComparison, contender: Contender) -> _Panel:
    seed = comparison.pooled[contender.label].seeds[0]
    title = contender.title.partition(" (λ chosen")[0].partition(" (fitted")[0]
    bins = reliability_bins(seed.confidence, seed.correct)
    return title, bins, calibrated_band(seed.confidence)


def _draw(panels: Sequence[_Panel]) -> Figure:
    pairs = [(title, bins) for title, bins, _ in panels]
    return reliability_row(pairs, bands=[band for _, _, band in panels])[0]


def _words(comparison: FamilyComparison, contender: Contender) -> str:
    values = [100 * comparison.value(contender, m) for m in ("accuracy", "signed_gap", "ece")]
    return (
        f"{contender.title}: accuracy {values[0]:.1f} %, confidence {values[1]:+.1f} points away "
        f"from it, ECE {values[2]:.1f} %"
    )
