"""The sentences of a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.metrics import Comparison, calibration_verdict
from dtpt.report.derived import TEMPERED, TPT
from dtpt.report.facts import FamilyFacts
from dtpt.report.load import Condition, set_title
from dtpt.report.verdict import ZERO_SHOT, Effect, Tuning, Verdict, family_verdict


@dataclass(frozen=True)
class Paragraph:
    """Sentences about some images, in order of importance."""

    where: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it in one line."""
        return f"{self.where}: {' '.join(self.sentences)}"


def verdict_paragraphs(
    condition: Condition, families: Sequence[FamilyFacts]
) -> tuple[Paragraph, ...]:
    """Return a verdict on each family, or on each method where nothing can be compared."""
    if families:
        return tuple(family_paragraph(family_verdict(facts)) for facts in families)
    return tuple(_single_methods(condition)) or (
        Paragraph(condition.title, ("No method has been evaluated on all images yet.",)),
    )


def _single_methods(condition: Condition) -> list[Paragraph]:
    """Describe the calibration of every finished cell of the first seed."""
    found = []
    for (name, variant, seed), cell in condition.cells.items():
        if seed == condition.seeds[0] and condition.finished(name, variant):
            size = condition.size_text([name], answered=cell.effective)
            where = f"{set_title(name)}, {size}, {variant.title}"
            found.append(Paragraph(where, (calibration_verdict(cell.predictions),)))
    return found


def family_paragraph(verdict: Verdict) -> Paragraph:
    """Describe what tuning does to accuracy and confidence, and what corrects it."""
    where = ", ".join(filter(None, (verdict.title, verdict.size)))
    sentences = _start(verdict)
    if verdict.decision == "nothing compared":
        return Paragraph(where, (*sentences, "No two methods were compared here."))
    if verdict.decision == "nothing significant":
        return Paragraph(where, (*sentences, *_nothing(verdict)))
    if verdict.tuning:
        sentences.append(_tuning(verdict.tuning))
    sentences += [*_repairs(verdict.repairs), *_others(verdict.others)]
    if verdict.averaged:
        words = "Averaging the predictions over the views, without any tuning,"
        sentences.append(f"{words} {_outcome(verdict.averaged)}.")
    if verdict.tempered:
        words = "A temperature for TPT, fitted leave-one-dataset-out, changes no prediction and"
        sentences.append(f"{words} {_outcome(verdict.tempered)}.")
    return Paragraph(where, (*sentences, *_best(verdict)))


def _start(verdict: Verdict) -> list[str]:
    start = verdict.start
    if start is None:
        return []
    words = "neither over- nor underconfidence is significant"
    if start.direction:
        words = f"{start.direction}confident by {_points(abs(start.signed_gap))}"
    return [
        f"Without tuning, accuracy is {100 * start.accuracy:.1f} % and mean confidence "
        f"{100 * (start.accuracy + start.signed_gap):.1f} %: {words}."
    ]


def _nothing(verdict: Verdict) -> list[str]:
    sentence = (
        f"Nothing is significantly different here: all differences between the {verdict.methods} "
        "methods may be chance."
    )
    if verdict.visible is None:
        return [sentence]
    least, most = f"{100 * verdict.visible[0]:.1f}", _points(verdict.visible[1])
    size = most if most.startswith(f"{least} ") else f"{least} to {most}"
    return [
        sentence,
        f"With {verdict.images:,} images a difference in accuracy is significant from about "
        f"{size}.",
    ]


def _tuning(tuning: Tuning) -> str:
    accuracy = _change(tuning.accuracy, more="raises accuracy by", less="lowers accuracy by")
    gap = _change(
        tuning.gap,
        more="moves confidence further from accuracy, by",
        less="moves confidence closer to accuracy, by",
    )
    first = accuracy or "does not change accuracy significantly"
    second = "does not change the distance of confidence to it significantly"
    if gap:
        second = f"{gap}, to {100 * tuning.distance:.1f}"
    is_trade = tuning.accuracy.better == TPT.label and tuning.gap.better == ZERO_SHOT.label
    joint = "but" if is_trade else "and"
    return f"Tuning the prompt on each image (TPT) {first}, {joint} {second}."


def _repairs(effects: Sequence[Effect]) -> list[str]:
    """Name the paper's methods whose confidence is closer to accuracy than TPT's."""
    closer = sorted((e for e in effects if e.is_closer), key=lambda e: e.gap.estimate)
    further = [effect.variant.title for effect in effects if effect.is_further]
    same = [effect.variant.title for effect in effects if not effect.gap.significant]
    clauses = [
        f"{effect.variant.title} reduces that gap by {_points(-effect.gap.estimate)}"
        f"{_price(effect)}"
        for effect in closer
    ]
    sentences = [f"{'; '.join(clauses)}."] if clauses else []
    if further:
        verb = "widens" if len(further) == 1 else "widen"
        sentences.append(f"{_listed(further)} {verb} it further.")
    if same:
        verb = "is" if len(same) == 1 else "are"
        sentences.append(f"{_listed(same)} {verb} not significantly different from TPT in this.")
    return sentences


def _others(effects: Sequence[Effect]) -> list[str]:
    """Sum up the methods beside the paper's."""
    if len(effects) <= 1:
        return [f"{effect.variant.title} {_outcome(effect)}." for effect in effects]
    closer = sorted((e for e in effects if e.is_closer), key=lambda e: e.gap.estimate)
    further = [effect for effect in effects if effect.is_further]
    most = ""
    if closer:
        amount = _points(-closer[0].gap.estimate)
        most = f", most {closer[0].variant.title}, by {amount}{_price(closer[0])}"
    return [
        f"Of {len(effects)} further methods {len(closer)} reduce it{most}; {len(further)} widen it."
    ]


def _price(effect: Effect) -> str:
    accuracy = effect.accuracy
    if accuracy is None or not accuracy.significant:
        return ", without a significant change in accuracy"
    verb = "costs" if accuracy.estimate < 0 else "adds"
    return f" and {verb} {_points(abs(accuracy.estimate))} of accuracy"


def _outcome(effect: Effect) -> str:
    """Describe the confidence that remains, its distance against TPT's, and the price."""
    side = "over" if effect.signed_gap > 0 else "under"
    distance = f"{'closer to' if effect.gap.estimate < 0 else 'further from'} accuracy than TPT"
    if not effect.gap.significant:
        distance = "not significantly different from TPT's distance"
    price = "" if effect.variant == TEMPERED else _price(effect)
    price = f",{price}" if price.startswith(" and") else price
    amount = _points(abs(effect.signed_gap))
    return f"leaves the model {side}confident by {amount}, {distance}{price}"


def _best(verdict: Verdict) -> list[str]:
    if not verdict.has_brier:
        return []
    if verdict.best is None:
        words = "no method is significantly better than all others"
    else:
        words = f"{verdict.best.title} is best"
    return [f"By the Brier score, which counts both, {words}."]


def _change(one: Comparison, *, more: str, less: str) -> str:
    """Return verb, size and interval of a significant difference, else nothing."""
    if not one.significant:
        return ""
    sign = 1 if one.estimate > 0 else -1
    low, high = sorted((100 * sign * one.low, 100 * sign * one.high))
    verb = more if sign > 0 else less
    return f"{verb} {_points(abs(one.estimate))} [{low:.1f}, {high:.1f}]"


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f} points"


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
