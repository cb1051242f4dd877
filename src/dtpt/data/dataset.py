"""What a data set is: named classes and samples that can open their image.

Nothing here touches a model. A sample carries a *reference* to its image instead of pixels, so that
a data set of 50,000 images costs a list of paths, and a worker process opens what it needs.
"""

import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dtpt.data.catalog import ProtocolName
from dtpt.errors import DatasetError, ImageError, os_error
from dtpt.files import is_utf8, open_regular, printable

if TYPE_CHECKING:
    from PIL import Image

    from dtpt.data.pack import Pack


@runtime_checkable
class ImageRef(Protocol):
    """How to get one image; picklable, so that worker processes can receive it."""

    def key(self) -> str:
        """Return a content key: equal keys mean equal pixels."""

    def stamp(self) -> str:
        """Return a token that changes when the image may have changed, without reading it."""

    def open(self) -> "Image.Image":
        """Decode the image as RGB; an `ImageError` names it."""


@dataclass(frozen=True)
class FileRef:
    """An image file on disk."""

    path: Path

    def key(self) -> str:
        try:
            with open_regular(self.path) as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ImageError(f"{printable(self.path)}: {os_error(error)}.") from error

    def stamp(self) -> str:
        return file_stamp(self.path)

    def open(self) -> "Image.Image":
        from dtpt.images import open_image

        return open_image(self.path)


class EncodedRef(ABC):
    """An encoded image inside something larger (a tar file, a table)."""

    @abstractmethod
    def read(self) -> bytes:
        """Return the encoded image."""

    @abstractmethod
    def describe(self) -> str:
        """Return the name that messages use."""

    def key(self) -> str:
        return hashlib.sha256(self.read()).hexdigest()

    def open(self) -> "Image.Image":
        from dtpt.images import open_image

        return open_image(self.read(), name=self.describe())


def file_stamp(path: Path) -> str:
    """Return a token that changes when a file is written to or touched: its time and its size."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: characters that no file name has
        raise ImageError(f"{printable(path)}: {os_error(error)}.") from error
    return f"{status.st_mtime_ns}-{status.st_size}"


class Labelled(Protocol):
    """What defines a sample of a task."""

    @property
    def id(self) -> str: ...

    @property
    def label(self) -> int: ...


@dataclass(frozen=True)
class Sample:
    """One labelled image."""

    id: str  # stable, printable and unique in its data set (usually `sample_id` of a path)
    label: int  # index into the data set's classes
    image: ImageRef
    group: str = ""  # for breaking results down (OpenMoji: the kind of presentation)
    cluster: str = ""  # samples of one cluster are not independent; the id where nothing is given

    def __post_init__(self) -> None:
        if not self.cluster:
            object.__setattr__(self, "cluster", self.id)


def sample_id(relative: str) -> str:
    r"""Return a relative path as an id: printable, and another one for every other path.

    Nearly always it is the path itself. Where bytes are not UTF-8, they are written as `\xNN`, and
    backslashes are doubled; so they are in a path that only looks as if this had been done to it.
    """
    if printable(relative) == relative and not re.search(r"\\[xu]", relative):
        return relative
    return printable(relative.replace("\\", "\\\\"))


def fingerprint(classes: Sequence[str], samples: Iterable[Labelled]) -> str:
    """Hash what defines a task: class names in order, and the label of every sample id.

    Neither the order of the samples nor their clusters enter: two listings of the same folder are
    the same task.
    """
    digest = hashlib.sha256(json.dumps(list(classes), ensure_ascii=False).encode())
    for name, label in sorted((sample.id, sample.label) for sample in samples):
        digest.update(json.dumps([name, label], ensure_ascii=False).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Dataset:
    """Classes and labelled samples under one name."""

    name: str  # as given on the command line (`dtd`, `openmoji/food-drink`, `folder:...`)
    classes: tuple[str, ...]  # as they enter the prompt (no underscores); the index is the label
    samples: Sequence[Sample]  # in a stable order
    family: str = "own"  # its group in tables; see `dtpt.data.catalog.FAMILIES`
    protocol: ProtocolName = "fine-grained"  # whose default lambdas it takes
    augmix: bool = True  # whether the peers use AugMix views on this set
    whole: int | None = None  # number of images of the complete set, where that is known
    cluster_noun: str = "clusters"  # what a cluster of samples is, in the plural
    source: str = ""  # folder, file or package from which the set was read
    notes: tuple[str, ...] = ()  # sentences about everything that was left out or is unusual
    pack: "Pack | None" = None  # of which the samples have features instead of images

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "source", printable(self.source))
        object.__setattr__(self, "notes", tuple(printable(note) for note in self.notes))
        _check(self)

    @cached_property
    def fingerprint(self) -> str:
        """See `dtpt.data.fingerprint`."""
        return fingerprint(self.classes, self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def is_partial(self) -> bool:
        """Whether images of the complete set are known to be missing here."""
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
        return replace(self, samples=kept, whole=whole)


def _check(dataset: Dataset) -> None:
    """Raise when ids repeat, a label is outside of the classes or there is nothing to classify."""
    name, samples, count = dataset.name, dataset.samples, len(dataset.classes)
    if not count:
        raise DatasetError(f"Data set {name!r} has no classes.")
    if not samples:
        where = f" under {dataset.source}" if dataset.source else ""
        raise DatasetError(f"Data set {name!r} has no images{where}.")
    texts = {
        "class name": dataset.classes,
        "sample id": [sample.id for sample in samples],
        "cluster": [sample.cluster for sample in samples],
    }
    for what, values in texts.items():
        for text in values:
            if not is_utf8(text):  # it could be neither tokenised nor stored
                raise DatasetError(f"Data set {name!r}: {what} {printable(text)!r} is not UTF-8.")
    repeated = repetitions(sample.id for sample in samples)
    if repeated:
        raise DatasetError(f"Data set {name!r} has {repeated[0]!r} twice; list every image once.")
    for sample in samples:
        if not 0 <= sample.label < count:
            text = f"sample {sample.id!r} has label {sample.label}, but there are {count} classes"
            raise DatasetError(f"Data set {name!r}: {text}.")


def repetitions(items: Iterable[str]) -> list[str]:
    """Return the items that occur more than once."""
    return [item for item, count in Counter(items).items() if count > 1]


def prompt_name(raw: str) -> str:
    """Return a class name as it enters the prompt: underscores become blanks, nothing else."""
    return raw.replace("_", " ")
