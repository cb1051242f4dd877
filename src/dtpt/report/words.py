"""The words of a report: which facts are worth a sentence; sentences and captions from `texts/`.

Every claim of a difference rests on an interval that is corrected for all comparisons of the
report: if methods are in truth equally good, a difference is claimed in at most 5 of 100 reports.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dtpt.methods import PAPER_METHODS
from dtpt.metrics import Comparison, calibration_verdict
from dtpt.metrics.comparison import corrected_level
from dtpt.report.derived import FRACTION, TEMPERED, TPT
from dtpt.report.facts import FamilyFacts
from dtpt.report.load import Condition, Variant, set_title
from dtpt.tables import MINUS

ZERO_SHOT = Variant("zero-shot")
AVERAGED = Variant("mean-views")


CAPTIONS = tomllib.loads((files("dtpt.report") / "texts" / "captions.toml").read_text("utf-8"))


def caption(section: str, key: str, **facts: object) -> str:
    """Return a text of `texts/captions.toml`, filled with facts."""
    text: str = CAPTIONS[section][key]
    return text.replace("\n", " ").format(**facts)


CALIBRATION = {
    "absolute_gap": "gap",
    "squared_ce": "squared calibration error",
    "brier": "Brier score",
    "nll": "NLL",
}
"""What decides whether a method is better calibrated; the last two count accuracy as well."""


@dataclass(frozen=True)
class Effect:
    """How a variant differs from another."""

    variant: Variant
    base: Variant
    differences: Mapping[str, Comparison]  # by metric

    @property
    def accuracy(self) -> Comparison | None:
        return self.differences.get("accuracy")

    @property
    def better(self) -> list[str]:
        """The metrics of calibration in which the variant is significantly better."""
        return self._won_by(self.variant)

    @property
    def worse(self) -> list[str]:
        return self._won_by(self.base)

    def _won_by(self, winner: Variant) -> list[str]:
        found = [self.differences[m] for m in CALIBRATION if m in self.differences]
        return [one.metric for one in found if one.better == winner.label]

    @property
    def outcome(self) -> str:
        """`better` or `worse` where no metric of calibration disagrees, `mixed`, or `same`."""
        if self.better and self.worse:
            return "mixed"
        return "better" if self.better else "worse" if self.worse else "same"


@dataclass(frozen=True)
class Verdict:
    """What the comparisons of one family mean."""

    facts: FamilyFacts

    @property
    def decision(self) -> str:
        """`nothing compared`, `nothing significant` or `significant`."""
        if not self.facts.comparisons:
            return "nothing compared"
        return "significant" if self.facts.is_decided else "nothing significant"

    @property
    def detectable(self) -> tuple[float, float] | None:
        """Least and largest difference in accuracy that would be detected with 80 % power."""
        found = [c.detectable for c in self.facts.comparisons if c.metric == "accuracy"]
        return (min(found), max(found)) if found else None

    def effect(self, variant: Variant, base: Variant = TPT) -> Effect | None:
        """Return how a variant differs from a base; None where they were not compared."""
        wanted = (variant.label, base.label)
        found = {c.metric: c for c in self.facts.comparisons if (c.first, c.second) == wanted}
        return Effect(variant, base, found) if found else None

    @property
    def tuning(self) -> Effect | None:
        """What TPT does to the untuned model."""
        return self.effect(TPT, ZERO_SHOT)

    @property
    def averaged(self) -> Effect | None:
        """What the mean over views does, at the fraction that other sets select if there is one."""
        return self.effect(FRACTION) or self.effect(AVERAGED)

    @property
    def tempered(self) -> Effect | None:
        return self.effect(TEMPERED)

    @cached_property
    def _effects(self) -> list[Effect]:
        """What further methods do to TPT, each at one λ."""
        others = [
            v for v in self.facts.shown if v not in (ZERO_SHOT, TPT, AVERAGED, FRACTION, TEMPERED)
        ]
        return [effect for variant in others if (effect := self.effect(variant))]

    @property
    def repairs(self) -> list[Effect]:
        """Those of the paper's methods."""
        return [e for e in self._effects if e.variant.method in PAPER_METHODS]

    @property
    def others(self) -> list[Effect]:
        return [e for e in self._effects if e.variant.method not in PAPER_METHODS]


@dataclass(frozen=True)
class Paragraph:
    """Sentences about some images, in order of importance."""

    where: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.where}: {' '.join(self.sentences)}"


def verdict_paragraphs(
    condition: Condition, families: Sequence[FamilyFacts]
) -> tuple[Paragraph, ...]:
    """Return a verdict on each family, or on each method where nothing can be compared."""
    if families:
        return tuple(family_paragraph(facts) for facts in families)
    return tuple(_single_methods(condition)) or (
        Paragraph(condition.title, ("No method has been evaluated on all images yet.",)),
    )


def _single_methods(condition: Condition) -> Iterator[Paragraph]:
    """Describe the calibration of every finished cell of the first seed, all at one level."""
    cells = {
        (name, variant): cell
        for (name, variant, seed), cell in condition.cells.items()
        if seed == condition.seeds[0] and condition.finished(name, variant)
    }
    level = corrected_level(0.95, len(cells))
    for (name, variant), cell in cells.items():
        size = condition.size_text([name], answered=cell.effective)
        where = f"{set_title(name)}, {size}, {variant.title}"
        yield Paragraph(where, (calibration_verdict(cell.predictions, level=level),))


def family_paragraph(facts: FamilyFacts) -> Paragraph:
    """Describe what tuning does to accuracy and confidence, and what corrects it."""
    text = _sentences().get_template("verdict.txt").render(v=Verdict(facts), f=facts)
    sentences = tuple(line for line in text.splitlines() if line.strip())
    return Paragraph(f"{facts.title}, {facts.size}", sentences)


def template_environment(package: str, folder: str, **options: Any) -> Environment:
    """Return Jinja for the templates in a folder of a package; `options` decide the escaping."""
    return Environment(  # noqa: S701 - see the callers
        loader=PackageLoader(package, folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )


@lru_cache(maxsize=1)
def _sentences() -> Environment:
    made = template_environment("dtpt.report", "texts")  # plain text; the page escapes it
    filters: dict[str, Callable[..., str]] = {
        "count": lambda number: f"{number:,}",
        "interval": _interval,
        "judged": _judged,
        "listed": listed,
        "percent": lambda fraction: f"{100 * fraction:.1f} %",
        "points": _points,
        "span": _span,
    }
    made.filters |= filters
    return made


def listed(words: Sequence[str]) -> str:
    """Join words: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _judged(effect: Effect) -> str:
    """Write in which metrics of calibration a variant is better or worse than its base."""
    base = "the untuned model" if effect.base == ZERO_SHOT else effect.base.title
    parts: list[str] = []
    for word, metrics in (("better", effect.better), ("worse", effect.worse)):
        names = []
        for metric in metrics:
            one = effect.differences[metric]
            size = f" (by {_points(one.estimate)} {_interval(one)})"
            names.append(CALIBRATION[metric] + (size if metric == "absolute_gap" else ""))
        if names:
            parts.append(f"{word} {'' if parts else f'than {base} '}in {listed(names)}")
    names = [name for metric, name in CALIBRATION.items() if metric in effect.differences]
    return " and ".join(parts) or f"not significantly different from {base} in {listed(names)}"


def _points(fraction: float) -> str:
    return f"{100 * abs(fraction):.1f} points"


def _interval(difference: Comparison) -> str:
    """Write the interval of the size of a difference."""
    sign = 100 if difference.estimate > 0 else -100
    low, high = sorted((sign * difference.low, sign * difference.high))
    return f"[{low:z.1f}, {high:z.1f}]".replace("-", MINUS)


def _span(ends: tuple[float, float]) -> str:
    least, most = f"{100 * ends[0]:z.1f}", _points(ends[1])
    return most if most.startswith(f"{least} ") else f"{least} to {most}"
