"""Labels written by people: class names or class numbers, with or without a class list."""

from collections.abc import Sequence
from pathlib import Path

from dtpt.data.dataset import prompt_name
from dtpt.errors import DatasetError

CLASS_FILES = ("classes.txt", "classnames.txt")
RawLabel = str | int


def find_class_file(*folders: Path) -> Path | None:
    """Return the first `classes.txt` or `classnames.txt` in the given folders."""
    for folder in folders:
        for name in CLASS_FILES:
            if (folder / name).is_file():
                return folder / name
    return None


def read_class_file(path: Path) -> list[str]:
    """Read one class per line; blank lines and lines that start with `#` do not count.

    A name may occur twice (ImageNet has two classes "missile"), as long as labels are numbers.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"Cannot read the class list {path}: {error}.") from error
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise DatasetError(f"{path} lists no class.")
    return names


def resolve_labels(
    raw: Sequence[RawLabel], class_file: Path | None, *, source: str
) -> tuple[tuple[str, ...], list[int]]:
    """Turn names or numbers into class names and label indices.

    With a class list, a label is one of its names, or else a line number counted from zero.
    Without one, the names themselves, sorted by code point, are the classes; numbers alone say
    nothing about the classes and are refused.

    Args:
        raw: One label per sample.
        class_file: The class list, if there is one.
        source: What is being read, for messages.

    Returns:
        Class names as they enter the prompt, and one index per sample.
    """
    names = read_class_file(class_file) if class_file else _names_from(raw, source)
    positions: dict[str, list[int]] = {}
    for position, title in enumerate(names):
        positions.setdefault(title, []).append(position)
    labels = [_resolve(label, positions, source=source, listed_in=class_file) for label in raw]
    return tuple(prompt_name(name) for name in names), labels


def _names_from(raw: Sequence[RawLabel], source: str) -> list[str]:
    if all(isinstance(label, int) or label.strip().isdecimal() for label in raw):
        raise DatasetError(
            f"{source} has numbers as labels; name the classes in a file classes.txt beside it, "
            "one per line, line 1 being class 0."
        )
    return sorted({str(label).strip() for label in raw})


def _resolve(
    label: RawLabel, positions: dict[str, list[int]], *, source: str, listed_in: Path | None
) -> int:
    if isinstance(label, str):
        label = label.strip()
        if label in positions:
            return _only(label, positions[label], source=source)
        if not label.isdecimal():
            where = listed_in if listed_in else "the class list"
            raise DatasetError(f"{source}: the label {label!r} is not in {where}.")
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
