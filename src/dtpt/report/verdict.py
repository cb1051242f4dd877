"""The verdict on one family of data sets: which facts of a comparison are worth a sentence.

Every claim of a difference rests on an interval that is corrected for all comparisons of the
report: if methods are in truth equally good, a difference is claimed in at most 5 of 100 reports.
`dtpt.report.words` writes the sentences.
"""

from dataclasses import dataclass
from typing import Literal

from dtpt.methods import PAPER_METHODS
from dtpt.metrics import Comparison
from dtpt.report.derived import TEMPERED, TPT
from dtpt.report.facts import FamilyFacts
from dtpt.report.load import Variant

ZERO_SHOT = Variant("zero-shot")
AVERAGED = Variant("mean-views")

Decision = Literal["nothing compared", "nothing significant", "significant"]


@dataclass(frozen=True)
class Start:
    """The model without tuning; `direction` is that of a significant gap, else empty."""

    accuracy: float
    signed_gap: float
    direction: Literal["over", "under", ""]


@dataclass(frozen=True)
class Tuning:
    """What TPT does to the untuned model."""

    accuracy: Comparison
    gap: Comparison  # of the distance between confidence and accuracy
    distance: float  # that remains


@dataclass(frozen=True)
class Effect:
    """What a variant does to TPT's distance between confidence and accuracy, and at what price."""

    variant: Variant
    signed_gap: float
    gap: Comparison  # distance minus TPT's
    accuracy: Comparison | None  # minus TPT's

    @property
    def is_closer(self) -> bool:
        """Whether its confidence is significantly closer to accuracy than TPT's."""
        return self.gap.better == self.variant.label

    @property
    def is_further(self) -> bool:
        return self.gap.better == TPT.label


@dataclass(frozen=True)
class Verdict:
    """What can be said about one family, in order of importance."""

    title: str
    size: str
    images: int
    methods: int
    decision: Decision
    start: Start | None
    visible: tuple[float, float] | None  # least and largest half-width of accuracy differences
    tuning: Tuning | None
    repairs: tuple[Effect, ...]  # the paper's methods
    others: tuple[Effect, ...]
    averaged: Effect | None  # the mean over views, without tuning
    tempered: Effect | None  # a temperature on top of TPT
    best: Variant | None  # by the Brier score, which counts accuracy and calibration
    has_brier: bool


def family_verdict(facts: FamilyFacts) -> Verdict:
    """Select the facts that matter."""
    decision: Decision = "significant" if facts.is_decided else "nothing significant"
    has_brier = "brier" in facts.values[facts.variants[0].label]
    return Verdict(
        title=facts.title,
        size=facts.size,
        images=facts.images,
        methods=len(facts.variants),
        decision=decision if facts.comparisons else "nothing compared",
        start=_start(facts),
        visible=_visible(facts),
        tuning=_tuning(facts),
        repairs=_effects(facts, papers=True),
        others=_effects(facts, papers=False),
        averaged=_effect(facts, AVERAGED),
        tempered=_effect(facts, TEMPERED),
        best=facts.best("brier") if has_brier else None,
        has_brier=has_brier,
    )


def _start(facts: FamilyFacts) -> Start | None:
    if ZERO_SHOT not in facts.variants:
        return None
    gap = facts.values[ZERO_SHOT.label]["signed_gap"]
    direction: Literal["over", "under", ""] = ""
    if gap.low is not None and gap.high is not None:
        direction = "over" if gap.low > 0 else "under" if gap.high < 0 else ""
    return Start(facts.value(ZERO_SHOT, "accuracy"), gap.value or 0.0, direction)


def _visible(facts: FamilyFacts) -> tuple[float, float] | None:
    widths = [(c.high - c.low) / 2 for c in facts.comparisons if c.metric == "accuracy"]
    return (min(widths), max(widths)) if widths else None


def _tuning(facts: FamilyFacts) -> Tuning | None:
    accuracy = facts.difference(TPT, ZERO_SHOT, metric="accuracy")
    gap = facts.difference(TPT, ZERO_SHOT, metric="absolute_gap")
    if accuracy is None or gap is None:
        return None
    return Tuning(accuracy, gap, facts.value(TPT, "absolute_gap"))


def _effects(facts: FamilyFacts, *, papers: bool) -> tuple[Effect, ...]:
    """Return the effects of the methods made to repair TPT, each method once."""
    effects = [
        _effect(facts, variant)
        for variant in facts.shown
        if variant not in (ZERO_SHOT, TPT, AVERAGED, TEMPERED)
        and (variant.method in PAPER_METHODS) == papers
    ]
    return tuple(effect for effect in effects if effect is not None)


def _effect(facts: FamilyFacts, variant: Variant) -> Effect | None:
    gap = facts.difference(variant, TPT, metric="absolute_gap")
    if gap is None:
        return None
    accuracy = facts.difference(variant, TPT, metric="accuracy")
    return Effect(variant, facts.value(variant, "signed_gap"), gap, accuracy)
