"""The words of a report: verdicts and captions are written in `texts/` and filled with facts."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from dtpt.metrics import Comparison, calibration_verdict
from dtpt.report.facts import FamilyFacts
from dtpt.report.load import Condition, set_title
from dtpt.report.verdict import Verdict


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


def _single_methods(condition: Condition) -> list[Paragraph]:
    """Describe the calibration of every finished cell of the first seed."""
    found = []
    for (name, variant, seed), cell in condition.cells.items():
        if seed == condition.seeds[0] and condition.finished(name, variant):
            size = condition.size_text([name], answered=cell.effective)
            where = f"{set_title(name)}, {size}, {variant.title}"
            found.append(Paragraph(where, (calibration_verdict(cell.predictions),)))
    return found


def family_paragraph(facts: FamilyFacts) -> Paragraph:
    """Describe what tuning does to accuracy and confidence, and what corrects it."""
    text = _templates().get_template("verdict.txt").render(v=Verdict(facts), f=facts)
    sentences = tuple(line for line in text.splitlines() if line.strip())
    return Paragraph(f"{facts.title}, {facts.size}", sentences)


@lru_cache(maxsize=1)
def _templates() -> Environment:
    made = Environment(  # noqa: S701 - plain text; the page escapes it
        loader=PackageLoader("dtpt.report", "texts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": lambda number: f"{number:,}",
        "interval": _interval,
        "listed": lambda words: " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))),
        "percent": lambda fraction: f"{100 * fraction:.1f} %",
        "points": _points,
        "round1": lambda number: f"{number:.1f}",
        "span": _span,
    }
    return made


def _points(fraction: float) -> str:
    return f"{100 * abs(fraction):.1f} points"


def _interval(one: Comparison) -> str:
    """Write the interval of the size of a difference."""
    sign = 100 if one.estimate > 0 else -100
    low, high = sorted((sign * one.low, sign * one.high))
    return f"[{low:.1f}, {high:.1f}]"


def _span(ends: tuple[float, float]) -> str:
    least, most = f"{100 * ends[0]:.1f}", _points(ends[1])
    return most if most.startswith(f"{least} ") else f"{least} to {most}"


@lru_cache(maxsize=1)
def _captions() -> dict[str, dict[str, str]]:
    text = (files("dtpt.report") / "texts" / "captions.toml").read_text("utf-8")
    content: dict[str, dict[str, str]] = tomllib.loads(text)
    return content


def caption(section: str, key: str, **facts: object) -> str:
    """Return a text of `texts/captions.toml`, filled with facts."""
    return _captions()[section][key].replace("\n", " ").format(**facts)
