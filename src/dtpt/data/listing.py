"""What a reader found on disk for one of the paper's sets, before anybody judges it."""

from dataclasses import dataclass
from pathlib import Path

from dtpt.data.dataset import Sample


@dataclass(frozen=True)
class Listing:
    """The samples that exist, and what speaks against the tree.

    Attributes:
        layout: `coop`, `tpt`, `original`, or `class-folders` (a tree without split file).
        source: The folder of the images.
        samples: Samples whose file exists, in a stable order.
        missing: Files that are expected and absent.
        remarks: Strays that were left out.
    """

    layout: str
    source: Path
    samples: tuple[Sample, ...]
    missing: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()


def naming(items: list[str], *, most: int = 5) -> str:
    """Join names for a message, cut after `most`."""
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
