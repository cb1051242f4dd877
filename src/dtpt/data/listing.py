"""What a reader found on disk for a named set, before anybody judges it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtpt.data.dataset import Sample
from dtpt.files import printable


@dataclass(frozen=True)
class Listing:
    """The samples that exist, and what speaks against the tree.

    Attributes:
        layout: `coop`, `tpt`, `original`, or `class-folders` (a tree without split file).
        source: The folder of the images.
        samples: Samples whose file exists, in a stable order.
        missing: Files or folders that are expected and absent.
        remarks: Sentences about what was left out or is odd.
    """

    layout: str
    source: Path
    samples: tuple[Sample, ...]
    missing: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()


def naming(items: Sequence[str], *, most: int = 5) -> str:
    """Join names for a message, cut after `most`.

    Example:
        >>> naming(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    shown = ", ".join(printable(item) for item in items[:most])
    return f"{shown} and {len(items) - most:,} more" if len(items) > most else shown


def counted(items: Sequence[str], noun: str, *, which: str = "") -> str:
    """Say how many there are of something and name the first of them.

    Example:
        >>> counted(["fox", "wolf"], "class"), counted(["a.txt"], "file", which="of another kind")
        ('2 classes (fox, wolf)', '1 file of another kind (a.txt)')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    words = [f"{len(items):,}", noun if len(items) == 1 else plural, which]
    return f"{' '.join(filter(None, words))} ({naming(items)})"
