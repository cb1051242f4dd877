"""Labels written by people: class names or class numbers, with or without a class list."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtpt.data.dataset import prompt_name
from dtpt.data.listing import counted, naming
from dtpt.data.named_sets import imagenet_names
from dtpt.data.paths import read_list
from dtpt.errors import DatasetError
from dtpt.files import printable

CLASS_FILES = ("classes.txt", "classnames.txt")
RawLabel = str | int
_NUMBER = re.compile(r"[0-9]{1,18}")
_WORDNET_ID = re.compile(r"n[0-9]{8}")


@dataclass(frozen=True)
class ResolvedLabels:
    """What the labels of a list mean.

    Attributes:
        classes: Class names as they enter the prompt.
        labels: One index per sample.
        remarks: What is odd about the names.
    """

    classes: tuple[str, ...]
    labels: tuple[int, ...]
    remarks: tuple[str, ...]


def is_number(text: str) -> bool:
    """Tell whether a text is a class number: digits only.

    Example:
        >>> is_number("007"), is_number("7a"), is_number("-7")
        (True, False, False)
    """
    return _NUMBER.fullmatch(text) is not None


def is_wordnet_id(text: str) -> bool:
    """Tell whether a text looks like a WordNet id, as ImageNet's folders are named.

    Example:
        >>> is_wordnet_id("n01440764"), is_wordnet_id("tench")
        (True, False)
    """
    return _WORDNET_ID.fullmatch(text) is not None


def find_class_file(*folders: Path) -> Path | None:
    """Return the first `classes.txt` or `classnames.txt` in the given folders.

    Whatever has that name counts: reading it will tell if it is no regular file.
    """
    for folder in folders:
        for name in CLASS_FILES:
            if os.path.lexists(folder / name):
                return folder / name
    return None


def read_class_file(path: Path) -> list[str]:
    """Read one class per line; blank lines and lines that start with `#` do not count.

    A name may occur twice (ImageNet has two classes "missile"), as long as labels are numbers.
    """
    lines = read_list(path, what="class list").splitlines()
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise DatasetError(f"{printable(path)} lists no class.")
    return names


def spoken_names(names: Sequence[str], *, source: Path | str) -> tuple[list[str], tuple[str, ...]]:
    """Replace WordNet ids by ImageNet's class names, because no prompt should say an id.

    Args:
        names: Class names or WordNet ids.
        source: What is being read, for the message.

    Returns:
        The names, and a remark when some were replaced.

    Example:
        >>> spoken_names(["fox", "n01440764"], source="here")[0]
        ['fox', 'tench']
    """
    ids = [name for name in names if is_wordnet_id(name)]
    known = imagenet_names() if ids else {}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise DatasetError(
            f"{printable(source)} has classes that are named by WordNet ids, and ImageNet has no "
            f"name for {naming(unknown)}; write a file classes.txt with id and name on every line."
        )
    if not ids:
        return list(names), ()
    shown = [f"{wnid} is {known[wnid]!r}" for wnid in ids]
    remark = f"ImageNet's names stand for WordNet ids: {counted(shown, 'class')}."
    return [known.get(name, name) for name in names], (remark,)


def resolve_labels(
    raw: Sequence[RawLabel], class_file: Path | None, *, source: Path | str
) -> ResolvedLabels:
    """Turn names or numbers into class names and label indices.

    With a class list, a label is one of its names, or else a line number counted from zero.
    Without one, the names themselves, sorted by code point, are the classes; numbers alone say
    nothing about the classes and are refused.

    Args:
        raw: One label per sample.
        class_file: The class list, if there is one.
        source: What is being read, for messages.

    Example:
        >>> resolve_labels(["wolf", "fox", "wolf"], None, source="here").labels
        (1, 0, 1)
    """
    names = read_class_file(class_file) if class_file else _names_from(raw, source)
    positions: dict[str, list[int]] = {}
    for position, title in enumerate(names):
        positions.setdefault(title, []).append(position)
    listed_in = printable(class_file) if class_file else "the class list"
    labels = tuple(
        _resolve(label, positions, source=printable(source), listed_in=listed_in) for label in raw
    )
    titles, remarks = spoken_names(names, source=source)
    return ResolvedLabels(tuple(prompt_name(title) for title in titles), labels, remarks)


def _names_from(raw: Sequence[RawLabel], source: Path | str) -> list[str]:
    texts = [label for label in raw if not isinstance(label, int)]
    if len(texts) < len(raw) or all(is_number(label.strip()) for label in texts):
        raise DatasetError(
            f"{printable(source)} has numbers as labels; name the classes in a file classes.txt "
            "beside it, one per line, line 1 being class 0."
        )
    return sorted({label.strip() for label in texts})


def _resolve(
    label: RawLabel, positions: dict[str, list[int]], *, source: str, listed_in: str
) -> int:
    if isinstance(label, str):
        label = label.strip()
        if label in positions:
            return _only(label, positions[label], source=source)
        if not is_number(label):
            raise DatasetError(f"{source}: the label {label!r} is not in {listed_in}.")
    count = sum(len(places) for places in positions.values())
    if not 0 <= int(label) < count:
        raise DatasetError(f"{source}: label {label} is outside of the {count} classes.")
    return int(label)


def _only(label: str, places: list[int], *, source: str) -> int:
    if len(places) > 1:
        raise DatasetError(
            f"{source}: the label {label!r} is the name of {len(places)} classes; use numbers."
        )
    return places[0]
