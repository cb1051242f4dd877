"""Webdataset shards: `wds:PATTERN`, plain tar files read in place, never unpacked.

A sample is all members that share a name up to the first dot of the last part: `0007.jpg` with
`0007.cls` (a class number or name), or `0007.json` with a field `label` or `cls`. Loading reads the
tar headers once and remembers offsets; an image is then one seek and one read.
"""

import json
import math
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from dtpt.data.dataset import Dataset, EncodedRef, Sample, file_stamp, sample_id
from dtpt.data.layouts import inside, is_image_name, user_path
from dtpt.data.manifest import RawLabel, find_class_file, resolve_labels
from dtpt.errors import DatasetError, ImageError, os_error
from dtpt.files import open_regular, printable

_MOST_SHARDS = 100_000
_MOST_LABEL_BYTES = 1 << 20
_MOST_IMAGE_BYTES = 1 << 28


@dataclass(frozen=True)
class TarRef(EncodedRef):
    """An image inside an uncompressed tar file."""

    path: Path  # of the tar file
    member: str  # its name, for messages
    offset: int  # first byte of the image in the tar file
    size: int  # in bytes

    def read(self) -> bytes:
        if self.size > _MOST_IMAGE_BYTES:
            raise ImageError(f"{self.describe()}: {self.size} bytes are too many for an image.")
        try:
            with open_regular(self.path) as stream:
                stream.seek(self.offset)
                data = stream.read(self.size)
        except OSError as error:
            raise ImageError(f"{self.describe()}: {os_error(error)}.") from error
        if len(data) != self.size:
            raise ImageError(f"{self.describe()}: the tar file ends before the image does.")
        return data

    def stamp(self) -> str:
        return file_stamp(self.path)

    def describe(self) -> str:
        return printable(f"{self.path}:{self.member}")


@dataclass
class _Record:
    images: list[TarRef] = field(default_factory=list)
    label: RawLabel | None = None


def load_wds(pattern: str, *, name: str) -> Dataset:
    """Load the shards that a brace pattern names, for example `test-{000000..000003}.tar`.

    The class list is `classes.txt` or `classnames.txt` beside the shards or one folder above.
    """
    shards = [user_path(path) for path in expand_braces(pattern)]
    rows = [row for shard in shards for row in _shard_samples(shard)]
    if not rows:
        raise DatasetError(f"The shards {printable(pattern)} hold no labelled image.")
    folder = shards[0].parent
    class_file = find_class_file(folder, folder.parent)
    resolved = resolve_labels([raw for _, raw, _ in rows], class_file, source=pattern)
    samples = tuple(
        Sample(sample_id(path), label, image)
        for (path, _, image), label in zip(rows, resolved.labels, strict=True)
    )
    return Dataset(name, resolved.classes, samples, source=pattern, notes=resolved.notes)


def expand_braces(pattern: str) -> list[str]:
    """Expand `{a,b}` and `{000..011}` (width kept) in every combination, left to right."""
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices = [[piece] if i % 2 == 0 else _alternatives(piece) for i, piece in enumerate(pieces)]
    count = math.prod(len(options) for options in choices)
    if count > _MOST_SHARDS:
        raise DatasetError(f"The pattern {pattern!r} names {count} shards; that is too many.")
    return ["".join(parts) for parts in product(*choices)]


def _alternatives(piece: str) -> list[str]:
    span = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", piece)
    if span is None:
        return piece.split(",")
    first, last = span.groups()
    if int(last) < int(first) or int(last) - int(first) >= _MOST_SHARDS:
        raise DatasetError(f"The range {{{piece}}} is empty or too long.")
    width = len(first) if first.startswith("0") or len(first) == len(last) else 0
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]


def _shard_samples(shard: Path) -> Iterator[tuple[str, RawLabel, TarRef]]:
    """Yield (path of the sample, raw label, image) of one shard in the order of the tar file."""
    for key, record in _records(shard).items():
        if not record.images and record.label is None:
            continue
        if len(record.images) != 1 or record.label is None:
            counts = f"{len(record.images)} images and {int(record.label is not None)} labels"
            raise DatasetError(f"{printable(shard)}: {key!r} has {counts}; expected one of each.")
        yield f"{shard.name}/{key}", record.label, record.images[0]


def _records(shard: Path) -> dict[str, _Record]:
    records: dict[str, _Record] = {}
    try:
        with open_regular(shard) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                if not member.isdir():
                    _add(records, member, archive=archive, shard=shard)
    except (OSError, tarfile.TarError) as error:
        reason = f"cannot be read as an uncompressed tar file: {os_error(error)}"
        raise DatasetError(f"{printable(shard)} {reason}.") from error
    return records


def _add(
    records: dict[str, _Record], member: tarfile.TarInfo, *, archive: tarfile.TarFile, shard: Path
) -> None:
    """Add one member to its sample; links, devices and sparse files are refused."""
    inside(shard, member.name, listed_in=shard)
    if not member.isreg() or member.issparse():
        raise DatasetError(f"{printable(shard)}: {member.name!r} is a link, device or sparse file.")
    folder, slash, leaf = member.name.rpartition("/")
    stem, _, suffix = leaf.partition(".")
    record = records.setdefault(f"{folder}{slash}{stem}", _Record())
    if is_image_name(leaf):
        record.images.append(TarRef(shard, member.name, member.offset_data, member.size))
    elif suffix.lower() in ("cls", "json"):
        label = _label(archive, member, shard=shard)
        record.label = record.label if label is None else label


def _label(archive: tarfile.TarFile, member: tarfile.TarInfo, *, shard: Path) -> RawLabel | None:
    """Read a label; a `json` member without one (other metadata) gives None."""
    where = f"{printable(shard)}: {member.name!r}"
    stream = archive.extractfile(member)
    if stream is None or member.size > _MOST_LABEL_BYTES:
        raise DatasetError(f"{where} is too large for a label.")
    try:
        text = stream.read().decode("utf-8")
        if member.name.lower().endswith("cls"):
            return text.strip()
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where} cannot be read: {error}.") from error
    label = content.get("label", content.get("cls")) if isinstance(content, dict) else None
    return label if isinstance(label, str | int) else None
