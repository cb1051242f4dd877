"""`dtpt datasets fetch`: from a name to a complete set under the data root.

Archives are downloaded and unpacked in `.dtpt-fetch/NAME` below the root, and only whole folders
are moved from there to their place; whatever interrupts this, the same command goes on. What lies
in the root already is never changed. Addresses, terms and hashes are in `sources.json`.
"""

import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from dtpt.data import layouts
from dtpt.data.catalog import NAMED_SETS, CatalogEntry, catalog_entry
from dtpt.data.check import DatasetReport, check_dataset
from dtpt.data.download import Progress, describe, download
from dtpt.data.unpack import DamagedArchive, Place, unpack
from dtpt.errors import DatasetError, UnknownName, os_error
from dtpt.files import printable

WORK = ".dtpt-fetch"
GROWTH = 20  # the most that an archive may grow when it is unpacked; images hardly do
SMALL = 1 << 28  # bytes that any archive may unpack to
RESERVE = 1 << 28  # bytes that stay free
WNID = re.compile(r"n\d{8}")

SourceName = Literal["hub", "official"]


class Source(BaseModel):
    """One archive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str  # see `dtpt.data.download`
    into: str = ""  # folder below the root in which it is unpacked
    bytes: int | None = None
    sha256: str = ""

    @property
    def file(self) -> str:
        return self.address.rpartition("/")[2]


class Origin(BaseModel):
    """Where a set comes from and on which terms, as its authors state them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    page: str
    terms: str
    hub: tuple[Source, ...] = ()  # in CoOp's layout, with split files
    official: tuple[Source, ...] = ()  # images alone where the labels are in a split file


class Plan(BaseModel):
    """What fetching a set means."""

    name: str
    title: str
    page: str
    terms: str
    archives: tuple[Source, ...]  # with their sizes, as far as known
    folder: str  # where it will be
    is_here: bool  # complete: nothing to do
    needed: int | None  # bytes of disk, for archives and images; None where a size is not known
    free: int


@lru_cache(maxsize=1)
def origins() -> dict[str, Origin]:
    """Return where every named set comes from."""
    data = (files("dtpt.data") / "sources.json").read_bytes()
    return TypeAdapter(dict[str, Origin]).validate_json(data)


def plan_fetch(
    name: str, root: Path, *, source: SourceName = "hub", archive: Path | None = None
) -> Plan:
    """Find out what fetching a set means; sizes that are not known are asked for.

    Raises:
        DatasetError: The set has no such source, or part of it is in the way.
    """
    if name not in NAMED_SETS:
        raise UnknownName("data set", printable(name), NAMED_SETS)
    entry, origin = catalog_entry(name), origins().get(name)
    if origin is None:
        raise DatasetError(f"There is no address for {name!r}: put it where `dtpt datasets` says.")
    folder = entry.layouts[0].folder
    is_here = root.is_dir() and check_dataset(name, data_root=root).status == "complete"
    archives: tuple[Source, ...] = ()
    if archive is not None:
        size = archive.stat().st_size if archive.is_file() else None
        into = "" if name == "imagenet" or not origin.hub else origin.hub[0].into
        archives = (Source(address=str(archive), into=into, bytes=size),)
    elif not is_here:
        archives = tuple(map(_sized, getattr(origin, source)))
        if not archives:
            raise DatasetError(_no_source(name, origin, source=source))
        top = root / Path(folder).parts[0]
        if top.exists():
            raise DatasetError(
                f"{printable(top)} exists and {name} in it is not complete (`dtpt datasets check "
                f"{name}` lists what is missing): move it away, then fetch the set again."
            )
    sizes = [one.bytes for one in archives]
    known = [size for size in sizes if size is not None]
    return Plan(
        name=name,
        title=entry.title,
        page=origin.page,
        terms=origin.terms,
        archives=archives,
        folder=folder,
        is_here=is_here,
        needed=2 * sum(known) if len(known) == len(sizes) else None,
        free=_free(root),
    )


def _sized(source: Source) -> Source:
    if source.bytes is not None:
        return source
    with suppress(DatasetError):  # said when it is downloaded
        return source.model_copy(update={"bytes": describe(source.address).size})
    return source


def _no_source(name: str, origin: Origin, *, source: str) -> str:
    if name == "imagenet":
        return (
            f"imagenet cannot be downloaded without an account ({origin.page}). Get the validation "
            "images in an archive whose folders or file names have the WordNet ids, such as "
            "val_images.tar.gz of the hub's ILSVRC/imagenet-1k, and name it with --archive."
        )
    return f"{name} has no {source!r} source; see {origin.page}."


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_space(plans: Sequence[Plan], root: Path) -> None:
    """Refuse what the disk cannot hold, as far as sizes are known.

    A set needs its archive and its images; the archive goes before the next set comes.
    """
    needed = [plan.needed or 0 for plan in plans]
    most = max((sum(needed[:n]) // 2 + own for n, own in enumerate(needed)), default=0)
    if most and most + RESERVE > (free := _free(root)):
        names = ", ".join(plan.name for plan in plans)
        raise DatasetError(
            f"{names} need about {most / 1e9:.1f} GB, and {printable(root)} has "
            f"{free / 1e9:.1f} GB free: fetch fewer sets, or take another --data-root."
        )


def fetch(
    plan: Plan,
    root: Path,
    *,
    archive: Path | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> DatasetReport:
    """Download, unpack, move into place and check a set; nothing where it is complete already.

    Raises:
        DatasetError: No space, no network, or an archive that is damaged or hostile. What was
            downloaded is kept.
    """
    from filelock import FileLock, Timeout

    check_space([plan], root)
    work, lock = root / WORK / plan.name, root / WORK / f"{plan.name}.lock"
    if plan.is_here and not work.exists():
        return check_dataset(plan.name, data_root=root)
    try:
        work.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, blocking=False):
            if not plan.is_here:
                if archive is None:
                    _download(plan, work, progress=progress)
                _install(plan, root, work=work, archive=archive)
            shutil.rmtree(work)
    except Timeout:
        raise DatasetError(f"Another process fetches {plan.name} into {printable(root)}.") from None
    except OSError as error:
        raise DatasetError(f"Cannot write to {printable(root)}: {os_error(error)}.") from error
    with suppress(OSError):  # another set may be on its way
        lock.unlink()
        lock.parent.rmdir()
    return check_dataset(plan.name, data_root=root)


def _download(plan: Plan, work: Path, *, progress: Callable[[str], Progress] | None = None) -> None:
    for source in plan.archives:
        if not (path := work / source.file).exists():
            download(
                source.address,
                path,
                size=source.bytes,
                sha256=source.sha256,
                progress=progress and progress(source.file),
            )


def _install(plan: Plan, root: Path, *, work: Path, archive: Path | None) -> None:
    new = work / "new"
    shutil.rmtree(new, ignore_errors=True)  # of an attempt that was interrupted
    entry = catalog_entry(plan.name)
    place = _imagenet_place(entry) if plan.name == "imagenet" else lambda name: name
    for source in plan.archives:
        path = work / source.file if archive is None else archive
        most = min(_free(root) - RESERVE, GROWTH * path.stat().st_size + SMALL)
        folder = new / source.into
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if not unpack(path, folder, most_bytes=most, place=place):
                raise DatasetError(f"{printable(path)} has no files of {plan.name}.")
        except DamagedArchive:
            if archive is None:  # the next attempt downloads it again
                path.unlink()
            raise
    found = [one for one in sorted(new.iterdir()) if one.is_dir() or not (root / one.name).exists()]
    for child in found:  # a note beside the folder, such as README.md, is left out where one is
        if (root / child.name).exists():
            raise DatasetError(
                f"{printable(root / child.name)} is in the way: move it, then run the same command."
            )
    for child in found:
        os.rename(child, root / child.name)


def _imagenet_place(entry: CatalogEntry) -> Place:
    """Sort validation images into folders by the WordNet id in their path."""
    wnids, folder = set(entry.wnids), entry.layouts[0].folder

    def place(name: str) -> str:
        found = [wnid for wnid in WNID.findall(name) if wnid in wnids]
        if layouts.is_image_name(Path(name).name) and not found:
            raise DatasetError(
                f"{name!r} has no WordNet id in its path, so its class is not known: take an "
                "archive that is sorted by class, or val_images.tar.gz of ILSVRC/imagenet-1k."
            )
        return f"{folder}/{found[-1]}/{Path(name).name}" if found else ""

    return place
