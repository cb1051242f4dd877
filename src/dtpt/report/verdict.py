"""The verdict on one family of data sets: which facts of a comparison are worth a sentence.

Every claim of a difference rests on an interval that is corrected for all comparisons of the
report: if methods are in truth equally good, a difference is claimed in at most 5 of 100 reports.
"""

from dataclasses import dataclass
from functools import cached_property

from dtpt.methods import PAPER_METHODS
from dtpt.metrics import Comparison
from dtpt.report.derived import TEMPERED, TPT
from dtpt.report.facts import FamilyFacts
from dtpt.report.load import Variant

ZERO_SHOT = Variant("zero-shot")
AVERAGED = Variant("mean-views")


@dataclass(frozen=True)
class Effect:
    """What a variant does to another's accuracy and distance between confidence and accuracy."""

    variant: Variant
    base: Variant
    signed_gap: float  # of the variant
    gap: Comparison  # of the distances
    accuracy: Comparison | None

    @property
    def is_closer(self) -> bool:
        """Whether its confidence is significantly closer to accuracy than the base's."""
        return self.gap.better == self.variant.label

    @property
    def is_further(self) -> bool:
        return self.gap.better == self.base.label


@dataclass(frozen=True)
class Verdict:
    facts: FamilyFacts

    @property
    def decision(self) -> str:
        """`nothing compared`, `nothing significant` or `significant`."""
        if not self.facts.comparisons:
            return "nothing compared"
        return "significant" if self.facts.is_decided else "nothing significant"

    @property
    def direction(self) -> str:
        """`over` or `under` if the untuned model is significantly so, else empty."""
        gap = self.facts.values[ZERO_SHOT.label]["signed_gap"]
        if gap.low is None or gap.high is None:
            return ""
        return "over" if gap.low > 0 else "under" if gap.high < 0 else ""

    @property
    def visible(self) -> tuple[float, float] | None:
        """Least and largest accuracy difference that would be significant."""
        accuracy = [one for one in self.facts.comparisons if one.metric == "accuracy"]
        widths = [(one.high - one.low) / 2 for one in accuracy]
        return (min(widths), max(widths)) if widths else None

    @cached_property
    def tuning(self) -> Effect | None:
        """What TPT does to the untuned model."""
        return self.effect(TPT, ZERO_SHOT)

    @cached_property
    def repairs(self) -> list[Effect]:
        """What the paper's methods do to TPT, each at one λ."""
        return [e for e in self._shown if e.variant.method in PAPER_METHODS]

    @cached_property
    def others(self) -> list[Effect]:
        """What further methods do to TPT."""
        return [e for e in self._shown if e.variant.method not in PAPER_METHODS]

    @property
    def averaged(self) -> Effect | None:
        return self.effect(AVERAGED, TPT)

    @property
    def tempered(self) -> Effect | None:
        return self.effect(TEMPERED, TPT)

    @property
    def _shown(self) -> list[Effect]:
        named = (ZERO_SHOT, TPT, AVERAGED, TEMPERED)
        effects = [self.effect(v, TPT) for v in self.facts.shown if v not in named]
        return [effect for effect in effects if effect is not None]

    def effect(self, variant: Variant, base: Variant) -> Effect | None:
        """Return what a variant does to a base; None where they were not compared."""
        gap = self.facts.difference(variant, base, metric="absolute_gap")
        if gap is None:
            return None
        accuracy = self.facts.difference(variant, base, metric="accuracy")
        return Effect(variant, base, self.facts.value(variant, "signed_gap"), gap, accuracy)
