"""The first screen of a report: a title that says what was found, and three sentences.

All of it follows from the comparisons of `FamilyFacts`; a claim rests on a corrected interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtpt.methods import PAPER_METHODS
from dtpt.report.bars import difference_text
from dtpt.report.derived import TPT
from dtpt.report.facts import FamilyFacts
from dtpt.report.load import Variant
from dtpt.report.words import AVERAGED, ZERO_SHOT, Effect, Verdict, caption, listed

D_TPT = Variant("d-tpt", 1e5)  # with the λ of the paper
WORDS = {
    "accuracy": "accuracy",
    "signed_gap": "confidence relative to accuracy",
    "absolute_gap": "the distance of confidence from accuracy",
}
"""What a difference in a metric is, in words."""

Effects = Mapping[str, Effect]
"""By the title of the family."""


@dataclass(frozen=True)
class Lead:
    title: str
    sentences: tuple[str, ...]
    reading: str = ""  # how to read the numbers in the sentences


def lead_of(families: Sequence[FamilyFacts], *, model: str) -> Lead:
    """Return what the comparisons of all families of one model show together."""
    verdicts = [Verdict(facts) for facts in families]
    tuning = _effects(verdicts, TPT, base=ZERO_SHOT)
    remedy = _regulariser(verdicts)
    sentences = [
        _sentence("Tuning the prompt on each image (TPT)", tuning, metric="signed_gap"),
        _sentence("averaging views without tuning", _effects(verdicts, AVERAGED)),
    ]
    if remedy:
        effects = _effects(verdicts, remedy)
        sentences.insert(1, _sentence(remedy.title, effects, metric="signed_gap"))
    found = tuple(filter(None, sentences))
    where = ", then ".join(facts.title.lower() for facts in families)
    where = f"; {where}" if len(families) > 1 else ""
    reading = caption("lead", "reading", where=where) if found else ""
    return Lead(f"{_finding(verdicts, tuning)} ({model})", found, reading)


def _finding(verdicts: Sequence[Verdict], tuning: Effects) -> str:
    """State in one clause or two what tuning does and what does better."""
    decided = [v for v in verdicts if v.decision == "significant"]
    if not decided:
        return "No significant difference between methods"
    clauses = [f"TPT {_tuning_words(tuning)}"] if tuning else []
    best = [set(v.facts.best("brier")) for v in decided]
    together = [x for x in decided[0].facts.variants if all(x in b for b in best)]
    if any(x.is_mean_of_views for x in together):
        clauses.append("averaging views without tuning does better")
    elif together:
        verb = "has" if len(together) == 1 else "have"
        clauses.append(f"{listed([x.title for x in together])} {verb} a better Brier score")
    return "; ".join(clauses) or "Some methods differ significantly"


def _tuning_words(tuning: Effects) -> str:
    changes = {metric: _change(tuning, metric) for metric in ("accuracy", "signed_gap")}
    if all(change == ("raises", "") for change in changes.values()):
        return "raises accuracy, and confidence by more"
    words = [f"{verb} {WORDS[m]}{where}" for m, (verb, where) in changes.items() if verb]
    return listed(words) or "changes neither accuracy nor calibration significantly"


def _change(effects: Effects, metric: str) -> tuple[str, str]:
    """Return what changes significantly, and where it does if not in all families.

    Nothing is said to change where families contradict each other.
    """
    found = {
        title: e.differences[metric] for title, e in effects.items() if metric in e.differences
    }
    grows = [title for title, one in found.items() if one.low > 0]
    shrinks = [title for title, one in found.items() if one.high < 0]
    if bool(grows) == bool(shrinks):
        return "", ""
    some = grows or shrinks
    where = "" if len(some) == len(found) else f" in {listed([title.lower() for title in some])}"
    return ("raises" if grows else "lowers"), where


def _regulariser(verdicts: Sequence[Verdict]) -> Variant | None:
    """Return D-TPT with the λ of the paper, else the last regulariser of the paper."""
    if any(v.effect(D_TPT) for v in verdicts):
        return D_TPT
    known = [v for verdict in verdicts for v in verdict.facts.shown if v.method in PAPER_METHODS]
    return next((v for v in reversed(known) if v not in (ZERO_SHOT, TPT)), None)


def _effects(verdicts: Sequence[Verdict], variant: Variant, *, base: Variant = TPT) -> Effects:
    return {v.facts.title: effect for v in verdicts if (effect := v.effect(variant, base))}


def _sentence(subject: str, effects: Effects, *, metric: str = "absolute_gap") -> str:
    """Write what changes, with the intervals of accuracy and a gap family by family."""
    changes: dict[str, list[str]] = {"raises": [], "lowers": [], "": []}
    for key in ("accuracy", metric):
        found = [e.differences[key] for e in effects.values() if key in e.differences]
        verb, where = _change(effects, key)
        numbers = listed([difference_text(c) for c in found])
        changes[verb] += [f"{WORDS[key]}{where} ({numbers})"] if found else []
    same = changes.pop("")
    parts = [f"{verb} {listed(few)}" for verb, few in changes.items() if few]
    if len(same) == 2:
        parts.append(f"changes neither {same[0]} nor {same[1]} significantly")
    elif same:
        parts.append(f"does not change {same[0]} significantly")
    if not parts:
        return ""
    base = next(iter(effects.values())).base
    compared = "" if base == ZERO_SHOT else f"Compared with {base.title}, "
    return f"{compared}{subject} {listed(parts)}."
