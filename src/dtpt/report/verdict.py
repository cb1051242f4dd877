"""What the numbers say, in plain words, by rules: nothing is called different that may be chance.

Every sentence about a difference rests on an interval that is corrected for all comparisons of the
report. If methods are in truth equally good, a difference is claimed in at most 5 of 100 reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.methods import PAPER_METHODS
from dtpt.metrics import Comparison, calibration_verdict
from dtpt.report.comparison import FamilyComparison
from dtpt.report.gathering.scored_cells import Condition, Contender
from dtpt.report.set_titles import set_title

ZERO_SHOT = Contender("zero-shot")
TPT = Contender("tpt")
AVERAGED = Contender("mean-views")
TEMPERED = Contender("tpt", derived="temperature")


@dataclass(frozen=True)
class Verdict:
    """What can be said about one family.

    Attributes:
        where: Which pictures, and how many.
        sentences: In order of importance.
        is_telling: Whether any two methods can be told apart.
    """

    where: str
    sentences: tuple[str, ...]
    is_telling: bool

    @property
    def text(self) -> str:
        """All of it in one line."""
        return f"{self.where}: {' '.join(self.sentences)}"


def verdicts(condition: Condition, comparisons: Sequence[FamilyComparison]) -> tuple[Verdict, ...]:
    """Return what can be said about each family, or about each method where nothing is compared."""
    if comparisons:
        return tuple(family_verdict(comparison) for comparison in comparisons)
    return tuple(_alone(condition)) or (
        Verdict(condition.title, ("No method has answered all pictures yet.",), False),
    )


def _alone(condition: Condition) -> list[Verdict]:
    """Say of every finished cell of the first seed how calibrated it is."""
    found = []
    for (name, contender, seed), cell in condition.cells.items():
        if seed == condition.seeds[0] and condition.finished(name, contender):
            size = condition.size_text([name], answered=cell.effective)
            where = f"{set_title(name)}, {size}, {contender.title}"
            found.append(Verdict(where, (calibration_verdict(cell.predictions),), False))
    return found


def family_verdict(comparison: FamilyComparison) -> Verdict:
    """Say what tuning did to accuracy and confidence, and what repaired it."""
    where = f"{comparison.title}, {comparison.size}"
    start = _start(comparison)
    if not comparison.comparisons:
        return Verdict(where, (*start, "No two methods were compared here."), False)
    if not any(one.significant for one in comparison.comparisons):
        return Verdict(where, (*start, *_nothing(comparison)), False)
    parts = (*start, *_tuning(comparison), *_repairs(comparison), *_others(comparison))
    return Verdict(where, (*parts, *_cheaper_ways(comparison), *_best(comparison)), True)


def _start(comparison: FamilyComparison) -> list[str]:
    """Say how the untuned model does."""
    if ZERO_SHOT not in comparison.contenders:
        return []
    accuracy, gap = (comparison.value(ZERO_SHOT, m) for m in ("accuracy", "signed_gap"))
    interval = comparison.interval(ZERO_SHOT, "signed_gap")
    if interval is not None and interval.low > 0:
        words = f"overconfident by {_points(gap)}"
    elif interval is not None and interval.high < 0:
        words = f"underconfident by {_points(-gap)}"
    else:
        words = "neither over- nor underconfident, as far as can be told"
    return [
        f"Without tuning the model is right on {100 * accuracy:.1f} % of the pictures and "
        f"{100 * (accuracy + gap):.1f} % sure on average: {words}."
    ]


def _nothing(comparison: FamilyComparison) -> list[str]:
    """Say that nothing can be told apart, and how large a difference would have to be."""
    sentence = (
        f"Nothing can be told apart here: all differences between the {len(comparison.contenders)} "
        f"methods may be chance."
    )
    widths = [(c.high - c.low) / 2 for c in comparison.comparisons if c.metric == "accuracy"]
    if not widths:
        return [sentence]
    least, most = f"{100 * min(widths):.1f}", _points(max(widths))
    size = most if most.startswith(f"{least} ") else f"{least} to {most}"
    return [
        sentence,
        f"With {comparison.pictures:,} pictures a difference in accuracy has to be about {size} to "
        "be seen.",
    ]


def _tuning(comparison: FamilyComparison) -> list[str]:
    """Say what TPT did to the untuned model."""
    accuracy = comparison.difference(TPT, ZERO_SHOT, metric="accuracy")
    gap = comparison.difference(TPT, ZERO_SHOT, metric="absolute_gap")
    if accuracy is None or gap is None:
        return []
    verb = _change(accuracy, more="raises accuracy by", less="lowers accuracy by")
    first = f"Tuning the prompt on each picture (TPT) {verb or 'does not change accuracy visibly'}"
    now = 100 * comparison.value(TPT, "absolute_gap")
    change = _change(
        gap,
        more="moves confidence further from accuracy, by",
        less="moves confidence closer to accuracy, by",
    )
    second = (
        f"{change}, to {now:.1f}"
        if change
        else "does not change its distance to confidence visibly"
    )
    joint = "but" if accuracy.better == TPT.label and gap.better == ZERO_SHOT.label else "and"
    return [f"{first}, {joint} {second}."]


def _repairs(comparison: FamilyComparison) -> list[str]:
    """Say which of the paper's methods bring confidence closer to accuracy than TPT does."""
    known = _gaps(comparison, papers=True)
    better = sorted((p for p in known if p[1].better == p[0].label), key=lambda p: p[1].estimate)
    worse = [c.title for c, gap in known if gap.better == TPT.label]
    same = [c.title for c, gap in known if not gap.significant]
    clauses = [
        f"{c.title} takes back {_points(-gap.estimate)} of that gap{_price(comparison, c)}"
        for c, gap in better
    ]
    sentences = [f"{'; '.join(clauses)}."] if clauses else []
    if worse:
        sentences.append(f"{_listed(worse)} {'widens' if len(worse) == 1 else 'widen'} it further.")
    if same:
        sentences.append(f"{_listed(same)} cannot be told from TPT in this.")
    return sentences


def _others(comparison: FamilyComparison) -> list[str]:
    """Say in a sentence what methods beside the paper's do to that gap."""
    known = _gaps(comparison, papers=False)
    if not known:
        return []
    better = sorted((p for p in known if p[1].better == p[0].label), key=lambda p: p[1].estimate)
    worse = [c for c, gap in known if gap.better == TPT.label]
    if len(known) == 1:
        ((contender, _),) = known
        return [f"{contender.title} {_done(comparison, contender)}."]
    most = ""
    if better:
        best, gap = better[0]
        most = f", most {best.title}, which takes back {_points(-gap.estimate)}"
        most += _price(comparison, best)
    return [
        f"Of {len(known)} further methods {len(better)} narrow it{most}; {len(worse)} widen it."
    ]


def _gaps(comparison: FamilyComparison, *, papers: bool) -> list[tuple[Contender, Comparison]]:
    """Return the methods made to repair TPT, each once, and their |gap| minus TPT's."""
    told = (ZERO_SHOT, TPT, AVERAGED, TEMPERED)
    found = []
    for contender in comparison.shown:
        gap = comparison.difference(contender, TPT, metric="absolute_gap")
        is_papers = contender.method in PAPER_METHODS
        if gap is not None and contender not in told and is_papers == papers:
            found.append((contender, gap))
    return found


def _price(comparison: FamilyComparison, contender: Contender) -> str:
    found = comparison.difference(contender, TPT, metric="accuracy")
    if found is None or not found.significant:
        return ", with no visible change of accuracy"
    verb = "costs" if found.estimate < 0 else "adds"
    return f" and {verb} {_points(abs(found.estimate))} of accuracy"


def _cheaper_ways(comparison: FamilyComparison) -> list[str]:
    """Say what a mean over views and a temperature do, which need no tuning."""
    ways = {
        AVERAGED: "Averaging the answers over the views, without any tuning,",
        TEMPERED: "A temperature on top of TPT, fitted on the other sets, changes no answer and",
    }
    return [
        f"{words} {_done(comparison, contender)}."
        for contender, words in ways.items()
        if comparison.difference(contender, TPT, metric="absolute_gap") is not None
    ]


def _done(comparison: FamilyComparison, contender: Contender) -> str:
    """Say where a method leaves confidence, whether that is nearer than TPT's, and the price."""
    gap = comparison.value(contender, "signed_gap")
    side = "over" if gap > 0 else "under"
    found = comparison.difference(contender, TPT, metric="absolute_gap")
    if found is None or not found.significant:
        nearer = "which cannot be told from TPT's distance"
    else:
        nearer = f"{'nearer to' if found.estimate < 0 else 'further from'} accuracy than TPT"
    price = "" if contender == TEMPERED else _price(comparison, contender)
    price = f",{price}" if price.startswith(" and") else price
    return f"leaves the model {side}confident by {_points(abs(gap))}, {nearer}{price}"


def _best(comparison: FamilyComparison) -> list[str]:
    """Name the method with the best Brier score, which counts accuracy and calibration."""
    if "brier" not in comparison.drawn[comparison.contenders[0].label]:
        return []
    best = comparison.best("brier")
    if best is None:
        return ["By the Brier score, which counts both, no method can be told from all others."]
    return [f"By the Brier score, which counts both, {best.title} is best."]


def _change(one: Comparison, *, more: str, less: str) -> str:
    """Return verb, size and interval of a difference that can be told from none, else nothing."""
    if not one.significant:
        return ""
    sign = 1 if one.estimate > 0 else -1
    low, high = sorted((100 * sign * one.low, 100 * sign * one.high))
    verb = more if sign > 0 else less
    return f"{verb} {_points(abs(one.estimate))} [{low:.1f}, {high:.1f}]"


def _points(fraction: float) -> str:
    """Return a share in points, in as many digits as are worth reading."""
    return f"{100 * fraction:.1f} points"


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
