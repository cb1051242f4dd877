"""What a machine needs beside dtpt: the files of the model and the pictures.

Where machines share a disk, or hold the same files under the same paths, nothing is sent: a machine
shows that by the hashes of some files. Otherwise it is sent what it lacks, once: in pieces, each
with its hash, into the folder `received` of its cache.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.clip.config import Activation
from dtpt.clip.loading.formats import WEIGHT_NAMES, weight_file
from dtpt.clip.loading.hub import cached_folder
from dtpt.clip.loading.names import added_models, parse_name
from dtpt.data import Sample
from dtpt.data.dataset import FileRef, ImageRef
from dtpt.data.wds import TarRef
from dtpt.errors import ImageError
from dtpt.files import open_regular
from dtpt.runs.features import cache_folder
from dtpt.runs.orders import Batch, Search, WorkOrder

if TYPE_CHECKING:
    from dtpt.runs.setup import Setup, Task

PROBES = 16
PIECE_BYTES = 32 << 20


@dataclass(frozen=True)
class Probe:
    """Files by which a machine shows that it has something: how to open them, and their hashes."""

    title: str
    files: tuple[tuple[ImageRef, str], ...]

    def why_absent(self) -> str:
        """Say, on a machine, why it does not have this; "" when it has."""
        for file, key in self.files:
            try:
                if file.key() != key:
                    return f"{file} is another one there"
            except ImageError as error:
                return str(error).rstrip(".")
            except Exception as error:  # a package that draws or holds the pictures is missing
                return f"{type(error).__name__}: {error}"
        return ""


@dataclass(frozen=True)
class Parcel:
    """Files to be sent: names in the folder that they get on a machine, and sizes in bytes."""

    digest: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def pieces(self, wanted: Iterable[int]) -> Iterator[tuple["Segment", ...]]:
        """Divide some files into pieces of at most PIECE_BYTES; small files share one.

        Example:
            >>> parcel = Parcel("", ("a", "b", "c"), (10, 20, PIECE_BYTES + 1))
            >>> [[part.length for part in piece] for piece in parcel.pieces([0, 1, 2])]
            [[10, 20], [33554432], [1]]
        """
        piece: list[Segment] = []
        for segment in self._segments(wanted):
            if piece and sum(part.length for part in piece) + segment.length > PIECE_BYTES:
                yield tuple(piece)
                piece = []
            piece.append(segment)
        if piece:
            yield tuple(piece)

    def _segments(self, wanted: Iterable[int]) -> Iterator["Segment"]:
        for index in wanted:
            size = self.sizes[index]
            for offset in range(0, max(size, 1), PIECE_BYTES):
                yield Segment(index, offset, min(PIECE_BYTES, size - offset))


@dataclass(frozen=True)
class Segment:
    """Part of a file of a parcel."""

    file: int
    offset: int
    length: int


@dataclass(frozen=True)
class Content:
    """A piece on its way: its segments, their bytes, and the hash of these."""

    segments: tuple[Segment, ...]
    data: bytes
    digest: str


class Goods:
    """One thing that machines need, on the driver's side.

    Args:
        title: For people.
        paths: Lists its files; none when it cannot be sent as files.
        probe: How a machine shows that it has it.
        by_name: Whether files keep their names, as those of a model must.
    """

    def __init__(
        self,
        title: str,
        *,
        paths: Callable[[], Sequence[Path]],
        probe: Probe,
        by_name: bool = False,
    ) -> None:
        self.title = title
        self.probe = probe
        self._list = paths
        self._by_name = by_name

    @cached_property
    def _paths(self) -> Sequence[Path]:
        return self._list()

    @cached_property
    def parcel(self) -> Parcel | None:
        """The list of its files; None when it does not consist of files."""
        if not self._paths:
            return None
        names = tuple(p.name if self._by_name else moved_name(p) for p in self._paths)
        states = [path.stat() for path in self._paths]
        digest = hashlib.sha256()
        for name, state in zip(names, states, strict=True):
            digest.update(f"{name} {state.st_size} {state.st_mtime_ns}\n".encode())
        return Parcel(digest.hexdigest(), names, tuple(state.st_size for state in states))

    def read(self, segments: tuple[Segment, ...]) -> Content:
        """Read a piece."""
        parts = []
        for segment in segments:
            with open_regular(self._paths[segment.file]) as stream:
                stream.seek(segment.offset)
                parts.append(stream.read(segment.length))
        data = b"".join(parts)
        return Content(segments, data, hashlib.sha256(data).hexdigest())


def received_folder(digest: str) -> Path:
    """Return where a machine keeps a parcel."""
    return cache_folder().parent / "received" / digest


def lacking(parcel: Parcel) -> list[int]:
    """Return, on a machine, which files of a parcel are not there yet."""
    folder = received_folder(parcel.digest)
    return [
        index
        for index, (name, size) in enumerate(zip(parcel.names, parcel.sizes, strict=True))
        if not (folder / name).is_file() or (folder / name).stat().st_size != size
    ]


def unpack(parcel: Parcel, content: Content) -> None:
    """Write, on a machine, a piece; a file has its name only when it is whole.

    Raises:
        ImageError: The bytes are not those that were sent.
    """
    if hashlib.sha256(content.data).hexdigest() != content.digest:
        raise ImageError("a piece arrived damaged")
    folder, begin = received_folder(parcel.digest), 0
    for segment in content.segments:
        path = folder / parcel.names[segment.file]
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        with part.open("r+b" if segment.offset else "wb") as stream:
            stream.seek(segment.offset)
            stream.write(content.data[begin : begin + segment.length])
        begin += segment.length
        if segment.offset + segment.length == parcel.sizes[segment.file]:
            os.replace(part, path)


def moved_name(path: Path) -> str:
    """Return the name under which a machine keeps a picture of the driver's.

    Example:
        >>> moved_name(Path("/data/fox/1.jpg"))
        '47/facf88232d69a70fa2c1ec4ce3e28c0f3385fc.jpg'
    """
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:40]
    return f"{digest[:2]}/{digest[2:]}{path.suffix if path.suffix.isascii() else ''}"


def moved_sample(sample: Sample, folder: str) -> Sample:
    """Return a sample whose file is in a folder of received ones."""
    image = sample.image
    if not isinstance(image, FileRef | TarRef):
        return sample
    return replace(sample, image=replace(image, path=Path(folder) / moved_name(image.path)))


def moved_batch(batch: Batch | Search, folder: str | None) -> Batch | Search:
    """Return a batch for a machine that was sent the pictures, where it was."""
    if folder is None:
        return batch
    if isinstance(batch, Search):
        return replace(batch, samples=tuple(moved_sample(s, folder) for s in batch.samples))
    items = tuple(replace(one, sample=moved_sample(one.sample, folder)) for one in batch.items)
    return replace(batch, items=items)


def with_plain_model(order: WorkOrder, *, activation: Activation) -> WorkOrder:
    """Return a work order with a model name that means the same on every machine.

    The activation, which a file may not state, is said as well.
    """
    place = _place(order.model)
    if place is None or parse_name(order.model).kind != "added":
        return order if place is None else replace(order, activation=activation)
    return replace(order, model=_name_of(place, place.is_file()), activation=activation)


def _name_of(place: Path, is_file: bool) -> str:
    return f"local-{'file' if is_file else 'dir'}:{place}"


def moved_order(order: WorkOrder, received: Mapping[int, str]) -> WorkOrder:
    """Return a work order for a machine that was sent the model (-1)."""
    place = _place(order.model)
    if -1 not in received or place is None:
        return order
    here, is_file = Path(received[-1]), place.is_file()
    return replace(order, model=_name_of(here / place.name if is_file else here, is_file))


def goods_of(setup: "Setup", model: str) -> dict[int, Goods]:
    """Return what machines need for a run: the model (-1) and each data set by its number."""
    found = {k: _pictures(task) for k, task in enumerate(setup.tasks)}
    paths = model_files(model)
    if paths:
        files = tuple((ref, ref.key()) for ref in map(FileRef, paths))
        found[-1] = Goods(model, paths=lambda: paths, probe=Probe(model, files), by_name=True)
    return found


def _pictures(task: "Task") -> Goods:
    """Return a data set as goods; it is recognised by some pictures, chosen by their ids."""
    title = task.dataset.name
    files = []
    for sample in task.dataset.limited(min(PROBES, len(task.dataset))).samples:
        try:
            files.append((sample.image, sample.image.key()))
        except ImageError:  # a damaged one shows nothing
            continue
    return Goods(title, paths=partial(_files, task), probe=Probe(title, tuple(files)))


def _files(task: "Task") -> list[Path]:
    """Return the files that hold the pictures of a data set; none where they are no files."""
    samples = (*task.dataset.samples, *task.examples)
    images = (sample.image for sample in samples)
    known = dict.fromkeys(one.path for one in images if isinstance(one, FileRef | TarRef))
    return [path for path in known if path.is_file()]


def model_files(name: str) -> tuple[Path, ...]:
    """Return the files of a model on this machine; none for the embedded one."""
    place = _place(name)
    if place is None or place.is_file():
        return () if place is None else (place,)
    names = {path.name for path in place.iterdir() if path.is_file()}
    others = WEIGHT_NAMES - {weight_file(names)}
    return tuple(place / name for name in sorted(names - others))


def _place(name: str) -> Path | None:
    """Return the file or folder of a model; None for the embedded one."""
    parsed = parse_name(name)
    if parsed.kind == "embedded":
        return None
    if parsed.kind == "added":
        return Path(added_models()[parsed.value].path)
    if parsed.kind in ("hub", "catalog"):
        return cached_folder(parsed)
    return Path(parsed.value).expanduser()
