"""Families of data sets: the heading under which they stand, and whose default lambdas they take.

A family is a group for tables. A protocol is one of the paper's two settings, for which the authors
of the methods chose a weight; every family follows one of them.
"""

from dataclasses import dataclass
from typing import Literal

ProtocolName = Literal["fine-grained", "natural-shifts"]
"""The paper's two settings; a method may have another default lambda in each."""


@dataclass(frozen=True)
class Family:
    """One row of the table of families."""

    key: str
    title: str
    protocol: ProtocolName


PAPER_FAMILIES = (
    Family("fine-grained", "Fine-grained classification", "fine-grained"),
    Family("natural-shifts", "Natural distribution shifts", "natural-shifts"),
)
FAMILIES = {
    family.key: family
    for family in (
        *PAPER_FAMILIES,
        Family("emoji-colour", "Colour drawings", "fine-grained"),
        Family("emoji-line", "Line art", "natural-shifts"),
        Family("own", "Own pictures", "fine-grained"),
    )
}


def family_title(key: str) -> str:
    """Return the heading of a family; one that is not in the table is called by its key.

    Example:
        >>> family_title("emoji-line"), family_title("remote-sensing")
        ('Line art', 'Remote sensing')
    """
    family = FAMILIES.get(key)
    return family.title if family else key.replace("-", " ").capitalize()


def family_protocol(key: str) -> ProtocolName:
    """Return whose default lambdas a family takes; those of fine-grained sets unless it is listed.

    Example:
        >>> family_protocol("emoji-line"), family_protocol("remote-sensing")
        ('natural-shifts', 'fine-grained')
    """
    family = FAMILIES.get(key)
    return family.protocol if family else "fine-grained"
