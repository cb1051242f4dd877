"""What a data set is: named classes and samples that know how to open their picture.

Nothing here touches a model. A sample carries a *reference* to its image instead of pixels, so that
a data set of 50,000 images costs a list of paths, and a worker process can open its own share.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dtpt.data.families import ProtocolName
from dtpt.errors import DatasetError, ImageError, os_error
from dtpt.files import open_regular, printable

if TYPE_CHECKING:
    from PIL import Image


@runtime_checkable
class ImageRef(Protocol):
    """How to get one picture; picklable, so that worker processes can receive it."""

    def key(self) -> str:
        """Return a content key: equal keys mean equal pixels."""
        ...

    def stamp(self) -> str:
        """Return a token that changes when the picture may have changed; nothing is read for it."""
        ...

    def open(self) -> "Image.Image":
        """Decode the picture as RGB; an `ImageError` names it."""
        ...


@dataclass(frozen=True)
class FileRef:
    """An image file on disk."""

    path: Path

    def key(self) -> str:
        """Return the SHA-256 of the encoded file."""
        try:
            with open_regular(self.path) as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ImageError(f"{printable(self.path)}: {os_error(error)}.") from error

    def stamp(self) -> str:
        """Return the file's time of change and size."""
        return file_stamp(self.path)

    def open(self) -> "Image.Image":
        """Decode the file as RGB."""
        from dtpt.images import open_image

        return open_image(self.path)


def file_stamp(path: Path) -> str:
    """Return a token that changes when a file is written to or touched: its time and its size."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise ImageError(f"{printable(path)}: {os_error(error)}.") from error
    except ValueError as error:  # characters that no file name has
        raise ImageError(f"{printable(path)}: no file can have this path.") from error
    return f"{status.st_mtime_ns}-{status.st_size}"


@dataclass(frozen=True)
class Sample:
    """One labelled picture.

    Attributes:
        id: Stable, printable and unique in its data set (usually `sample_id` of a relative path).
        label: Index into the data set's classes.
        image: How to open the picture.
        group: A free tag for breaking results down (OpenMoji: the kind of presentation).
    """

    id: str
    label: int
    image: ImageRef
    group: str = ""


def sample_id(relative: str) -> str:
    r"""Return a relative path as an id: printable, and another one for every other path.

    Nearly always it is the path itself. Where bytes are not UTF-8, they are written as `\xNN`, and
    backslashes are doubled; so they are in a path that only looks as if this had been done to it.

    Example:
        >>> print(sample_id("fox/1.jpg"), sample_id("fox/\udce9.jpg"), sample_id(r"fox/\xe9.jpg"))
        fox/1.jpg fox/\xe9.jpg fox/\\xe9.jpg
    """
    if printable(relative) == relative and not re.search(r"\\[xu]", relative):
        return relative
    return printable(relative.replace("\\", "\\\\"))


def fingerprint(classes: Sequence[str], samples: Sequence[Sample]) -> str:
    """Hash what defines a task: class names in order, and the label of every sample id.

    The order of the samples does not enter: two listings of the same folder are the same task.

    Example:
        >>> cat, dog = (Sample(f"{n}.jpg", n, FileRef(Path(f"{n}.jpg"))) for n in (0, 1))
        >>> fingerprint(["cat", "dog"], [cat, dog]) == fingerprint(["cat", "dog"], [dog, cat])
        True
    """
    digest = hashlib.sha256(json.dumps(list(classes), ensure_ascii=False).encode())
    for name, label in sorted((sample.id, sample.label) for sample in samples):
        digest.update(json.dumps([name, label], ensure_ascii=False).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Dataset:
    """Classes and labelled samples under one name.

    Attributes:
        name: As given on the command line (`dtd`, `openmoji/food-drink`, `folder:...`).
        classes: Class names as they enter the prompt (no underscores); the index is the label.
        samples: All samples, in a stable order.
        family: The group under which it stands in tables; `dtpt.data.families` lists them.
        protocol: Whose default lambdas it takes.
        augmix: Whether the peers use AugMix views on this set.
        whole: Number of pictures of the complete set, where that is known.
        fingerprint: See `fingerprint`; computed when left empty.
        source: Folder, file or package from which the set was read.
        remarks: Sentences about everything that was left out or is odd.
    """

    name: str
    classes: tuple[str, ...]
    samples: Sequence[Sample]
    family: str = "own"
    protocol: ProtocolName = "fine-grained"
    augmix: bool = True
    whole: int | None = None
    fingerprint: str = ""
    source: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make paths printable, refuse contradictions early and fill in the fingerprint."""
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "source", printable(self.source))
        object.__setattr__(self, "remarks", tuple(printable(remark) for remark in self.remarks))
        _check(self)
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", fingerprint(self.classes, self.samples))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.samples)

    @property
    def is_partial(self) -> bool:
        """Whether pictures of the complete set are known to be missing here."""
        return self.whole is not None and len(self.samples) < self.whole

    def limited(self, count: int) -> "Dataset":
        """Keep `count` samples, chosen by the hash of their id, whatever their class.

        The choice depends on the ids alone, and a larger limit contains every smaller one, so a run
        with `--limit 100` can be continued with `--limit 200`. The order of the samples is kept.
        """
        if count < 1:
            raise DatasetError(f"A limit must be at least 1, not {count}.")
        if count >= len(self.samples):
            return self
        ranked = sorted(self.samples, key=lambda s: hashlib.sha256(s.id.encode()).digest())
        chosen = {sample.id for sample in ranked[:count]}
        kept = tuple(sample for sample in self.samples if sample.id in chosen)
        whole = len(self.samples) if self.whole is None else self.whole
        return replace(self, samples=kept, whole=whole, fingerprint="")


def _check(dataset: Dataset) -> None:
    """Raise when ids repeat, labels point nowhere or there is nothing to classify."""
    if not dataset.classes:
        raise DatasetError(f"Data set {dataset.name!r} has no classes.")
    if not dataset.samples:
        where = f" under {dataset.source}" if dataset.source else ""
        raise DatasetError(f"Data set {dataset.name!r} has no images{where}.")
    _check_text(dataset.name, dataset.classes, what="class name")
    _check_text(dataset.name, (sample.id for sample in dataset.samples), what="sample id")
    counts = Counter(sample.id for sample in dataset.samples)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise DatasetError(
            f"Data set {dataset.name!r} has {len(repeated)} repeated sample ids, "
            f"first {repeated[0]!r}; list every image once."
        )
    for sample in dataset.samples:
        if not 0 <= sample.label < len(dataset.classes):
            raise DatasetError(
                f"Data set {dataset.name!r}: sample {sample.id!r} has label {sample.label}, "
                f"but there are {len(dataset.classes)} classes."
            )


def _check_text(name: str, texts: Iterable[str], *, what: str) -> None:
    """Raise at a text that could be neither tokenised nor stored."""
    for text in texts:
        if printable(text) != text:
            raise DatasetError(f"Data set {name!r}: the {what} {printable(text)!r} is not UTF-8.")


def prompt_name(raw: str) -> str:
    """Return a class name as it enters the prompt: underscores become blanks, nothing else.

    Example:
        >>> prompt_name("apple_pie")
        'apple pie'
    """
    return raw.replace("_", " ")
