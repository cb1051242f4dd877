"""What a data set is: named classes and samples that know how to open their picture.

Nothing here touches a model. A sample carries a *reference* to its image instead of pixels, so that
a data set of 50,000 images costs a list of paths, and a worker process can open its own share.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from dtpt.errors import DatasetError, ImageError

if TYPE_CHECKING:
    from PIL import Image

Family = Literal["fine-grained", "natural-shifts"]


@runtime_checkable
class ImageRef(Protocol):
    """How to get one picture; picklable, so that worker processes can receive it."""

    def key(self) -> str:
        """Return a cheap content key: equal keys mean equal pixels."""
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
            with self.path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ImageError(f"Cannot read {self.path}: {error.strerror or error}.") from error

    def open(self) -> "Image.Image":
        """Decode the file as RGB."""
        from dtpt.images import open_image

        return open_image(self.path, name=str(self.path))


@dataclass(frozen=True)
class Sample:
    """One labelled picture.

    Attributes:
        id: Stable and unique in its data set (usually the relative path).
        label: Index into the data set's classes.
        image: How to open the picture.
        group: A free tag for breaking results down (OpenMoji: the kind of presentation).
    """

    id: str
    label: int
    image: ImageRef
    group: str = ""


def fingerprint(classes: Sequence[str], samples: Sequence[Sample]) -> str:
    """Hash what defines a task: class names in order, and the label of every sample id.

    The order of the samples does not enter: two listings of the same folder are the same task.
    """
    digest = hashlib.sha256(json.dumps(list(classes), ensure_ascii=False).encode())
    for sample_id, label in sorted((sample.id, sample.label) for sample in samples):
        digest.update(json.dumps([sample_id, label], ensure_ascii=False).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Dataset:
    """Classes and labelled samples under one name.

    Attributes:
        name: As given on the command line (`dtd`, `openmoji/food-drink`, `folder:...`).
        classes: Class names as they enter the prompt (no underscores); the index is the label.
        samples: All samples, in a stable order.
        family: Which of the paper's two groups the set belongs to (decides default lambdas).
        augmix: Whether the peers use AugMix views on this set.
        fingerprint: See `fingerprint`; computed when left empty.
        source: Folder, file or package from which the set was read.
        remarks: What was met while reading and left out (stray folders, extra files).
    """

    name: str
    classes: tuple[str, ...]
    samples: Sequence[Sample]
    family: Family = "fine-grained"
    augmix: bool = True
    fingerprint: str = ""
    source: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse contradictions early and fill in the fingerprint."""
        _check(self)
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", fingerprint(self.classes, self.samples))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.samples)

    def limited(self, count: int) -> "Dataset":
        """Keep `count` samples, spread over the classes by the hash of their id.

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
        return replace(self, samples=kept, fingerprint="")


def _check(dataset: Dataset) -> None:
    """Raise when ids repeat, labels point nowhere or there is nothing to classify."""
    if not dataset.classes:
        raise DatasetError(f"Data set {dataset.name!r} has no classes.")
    if not dataset.samples:
        where = f" under {dataset.source}" if dataset.source else ""
        raise DatasetError(f"Data set {dataset.name!r} has no images{where}.")
    counts = Counter(sample.id for sample in dataset.samples)
    repeated = [sample_id for sample_id, count in counts.items() if count > 1]
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


def prompt_name(raw: str) -> str:
    """Return a class name as it enters the prompt: underscores become blanks, nothing else."""
    return raw.replace("_", " ")
