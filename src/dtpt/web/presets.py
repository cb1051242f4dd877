"""Class lists and drawings that the page offers, so that nobody has to bring anything."""

import io
from functools import lru_cache

from dtpt.data.catalog import NAMED_SETS, catalog_entry, family_title
from dtpt.data.dataset import prompt_name
from dtpt.data.openmoji import (
    BENCHMARK_GROUPS,
    PRESENTATIONS,
    OpenMojiRef,
    concept_groups,
    is_installed,
    official_name,
)
from dtpt.web.refusals import Refusal
from dtpt.web.schemas import ClassList, Example

# Code points of OpenMoji: answers that tuning changes, easy ones, and known mistakes of `pocket`.
DRAWINGS = (
    "1F98A",  # fox
    "1F9CA",  # ice
    "1F34C",  # banana
    "1F6B2",  # bicycle
    "1F996",  # T-Rex
    "1F431",  # cat face
    "1F3B8",  # guitar
    "1F359",  # rice ball
    "1F33B",  # sunflower
    "1F336",  # hot pepper
    "1F528",  # hammer
    "26F5",  # sailboat
    "1F60E",  # smiling face with sunglasses
    "1FABC",  # jellyfish
    "1F682",  # locomotive
    "1F3C0",  # basketball
)


@lru_cache(maxsize=1)
def class_lists() -> dict[str, tuple[ClassList, tuple[str, ...]]]:
    """Return the lists by name: groups of emoji, then the named test sets, the paper's first."""
    found = {}
    for group in BENCHMARK_GROUPS if is_installed() else ():
        name = f"openmoji/{group}"
        names = tuple(official_name(code) for code in concept_groups()[group])
        title = group.replace("-", " and ").capitalize()
        found[name] = (_record(name, title, names=names, group="Emoji"), names)
    for name in NAMED_SETS:
        entry = catalog_entry(name)
        names = tuple(prompt_name(raw) for raw in entry.classes)
        found[name] = (
            _record(name, entry.title, names=names, group=family_title(entry.family)),
            names,
        )
    return found


def _record(name: str, title: str, *, names: tuple[str, ...], group: str) -> ClassList:
    return ClassList(name=name, title=title, group=group, count=len(names))


def examples() -> list[Example]:
    """Return the drawings that the page shows; none without the packages."""
    if not is_installed():
        return []
    group_of = {code: group for group, codes in concept_groups().items() for code in codes}
    return [
        Example(id=code, name=official_name(code), classes=f"openmoji/{group_of[code]}")
        for code in DRAWINGS
    ]


@lru_cache(maxsize=256)
def drawing(code: str, presentation: str = "plain", *, line: bool = False) -> bytes:
    """Return a drawing as PNG: the very pixels of the benchmark.

    Raises:
        Refusal: there is no such drawing.
    """
    if not is_installed() or not any(code in codes for codes in concept_groups().values()):
        raise Refusal("not_found", "There is no such drawing.")
    if presentation not in PRESENTATIONS:
        known = ", ".join(PRESENTATIONS)
        raise Refusal("not_found", f"There is no such presentation; known are {known}.")
    written = io.BytesIO()
    OpenMojiRef(code, presentation, line).open().save(written, "PNG")
    return written.getvalue()
