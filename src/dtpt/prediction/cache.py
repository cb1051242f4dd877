"""The cache of view features: the image tower's output, kept for every later run.

A *group* is one (model, precision, view recipe without the number of views, seed, device kind); it
is a folder of shards. A shard is a safetensors file with the float32 (N, D) features of up to 64
images under their image keys. Its name is the sha256 of its content, so a shard that was damaged in
any byte is noticed when it is read, removed and computed again. Shards are written atomically and
never changed; when the cache outgrows its limit the least recently used ones are removed.
"""

import hashlib
import json
import logging
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ByteSize, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from dtpt.errors import RunError, os_error
from dtpt.files import write_atomically

Array = npt.NDArray[np.float32]

FOLDER_VARIABLE = "DTPT_CACHE"
LIMIT_VARIABLE = "DTPT_CACHE_LIMIT"
DEFAULT_LIMIT = 20 * 10**9
IMAGES_PER_SHARD = 64
SHARDS_IN_MEMORY = 4
SUFFIX = ".safetensors"
SECONDS_A_WRITE_MAY_TAKE = 3600.0
_MOST_HEADER_BYTES = 10**8

log = logging.getLogger("dtpt")


def cache_folder() -> Path:
    """Return the folder of the cache: `$DTPT_CACHE`, or `dtpt/features` in the user's cache."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given).expanduser() / "features"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "dtpt" / "features"


def cache_limit() -> int:
    """Return the size limit in bytes: `$DTPT_CACHE_LIMIT` ("500MB", "20GB"), or 20 GB."""
    return parse_size(os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_LIMIT))


def parse_size(text: str) -> int:
    """Read a number of bytes, with or without a unit.

    Example:
        >>> parse_size("1.5 GB")
        1500000000
    """
    try:
        return int(TypeAdapter(ByteSize).validate_python(text.strip()))
    except (ValidationError, OverflowError):
        raise RunError(f"Invalid size {text!r}. Use for example 500MB or 20GB.") from None


@dataclass(frozen=True)
class GroupKey:
    """What the features of a group share."""

    model: str  # fingerprint
    views: str  # fingerprint of the recipe without its count
    seed: int
    device: str = "cpu-1"  # with the number of threads where numbers depend on it
    precision: str = "float32"

    @property
    def folder(self) -> str:
        """Name of the group's folder."""
        content = json.dumps([self.model, self.views, self.seed, self.device, self.precision])
        return hashlib.sha256(content.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class ShardFile:
    """A shard on disk, as listed."""

    path: Path
    size: int
    used: float


class FeatureCache:
    """The features of one group; a cache that cannot be written is reported once and skipped.

    Args:
        key: What the features belong to.
        serves: (cached, wanted): whether the first views of more are the numbers of fewer.
    """

    def __init__(self, key: GroupKey, *, serves: Callable[[int, int], bool]) -> None:
        self.root = cache_folder()
        self.folder = self.root / key.folder
        self.limit = cache_limit()
        self.damaged: list[Path] = []
        self._serves = serves
        self._writable = True
        self._waiting: dict[str, Array] = {}
        self._loaded: OrderedDict[Path, dict[str, Array]] = OrderedDict()
        self._index: dict[str, tuple[Path, int]] = {}  # image key -> shard, number of views
        for path in self._shards():
            for name, views in _contents(path).items():
                self._note(name, path, views=views)

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{SUFFIX}")) if self.folder.is_dir() else []

    def _note(self, image_key: str, path: Path, *, views: int) -> None:
        """Remember where the most views of an image are."""
        if views >= self._index.get(image_key, (path, 0))[1]:
            self._index[image_key] = (path, views)

    def get(self, image_key: str, *, views: int) -> Array | None:
        """Return the (views, D) features of an image, None when they must be computed."""
        waiting = self._waiting.get(image_key)
        if waiting is not None and self._is_enough(len(waiting), views):
            return waiting[:views]
        path, there = self._index.get(image_key, (None, 0))
        if path is None or not self._is_enough(there, views):
            return None
        if path not in self._loaded:
            self._load(path)
        features = self._loaded.get(path, {}).get(image_key)
        if features is None or len(features) < views:
            return None
        self._loaded.move_to_end(path)
        return features[:views]

    def _is_enough(self, there: int, wanted: int) -> bool:
        return there == wanted or (there > wanted and self._serves(there, wanted))

    def _load(self, path: Path) -> None:
        tensors = read_shard(path)
        if tensors is None:
            self._forget(path)
            return
        _touch(path)
        self._loaded[path] = tensors
        while len(self._loaded) > SHARDS_IN_MEMORY:
            self._loaded.popitem(last=False)

    def _forget(self, path: Path) -> None:
        """Drop a shard that is damaged or gone; its images are computed again."""
        self._index = {name: entry for name, entry in self._index.items() if entry[0] != path}
        if path.exists():
            self.damaged.append(path)
            log.warning("The feature cache's %s is damaged and is computed again.", path)
            _remove(path)

    def put(self, image_key: str, features: Array) -> None:
        """Keep the features of an image; they are written when a shard is full."""
        if not self._writable or self.limit == 0:
            return
        self._waiting[image_key] = np.ascontiguousarray(features, dtype=np.float32)
        if len(self._waiting) >= IMAGES_PER_SHARD:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting as one shard."""
        if not self._waiting:
            return
        data = save_tensors(self._waiting)
        path = self.folder / f"{hashlib.sha256(data).hexdigest()}{SUFFIX}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        except OSError as error:
            self._writable = False
            log.warning("The feature cache %s cannot be written (%s).", self.root, os_error(error))
        else:
            for name, features in self._waiting.items():
                self._note(name, path, views=len(features))
            prune(self.root, self.limit, keep=path)
        self._waiting = {}


def read_shard(path: Path) -> dict[str, Array] | None:
    """Return the verified content of a shard, None when it is damaged or gone."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(data).hexdigest() != path.name.removesuffix(SUFFIX):
        return None
    try:
        return load_tensors(data)
    except (SafetensorError, ValueError):
        return None


def _contents(path: Path) -> dict[str, int]:
    """Return image keys and numbers of views in a shard's header; none when it makes no sense."""
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _MOST_HEADER_BYTES:
                return {}
            header = json.loads(stream.read(length))
            return {
                name: int(header[name]["shape"][0]) for name in header if name != "__metadata__"
            }
    except (OSError, ValueError, TypeError, LookupError, struct.error):
        return {}


def list_shards(root: Path) -> list[ShardFile]:
    """Return all shards of the cache, the least recently used first."""
    found = []
    for path in root.glob(f"*/*{SUFFIX}"):
        try:
            status = path.stat()
        except OSError:
            continue  # another process pruned it
        found.append(ShardFile(path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda shard: (shard.used, shard.path))


def prune(root: Path, limit: int, *, keep: Path | None = None) -> list[ShardFile]:
    """Remove the least recently used shards until the cache fits; return what was removed."""
    _remove_leftovers(root)
    shards = list_shards(root)
    excess = sum(shard.size for shard in shards) - limit
    removed = []
    for shard in shards:
        if excess <= 0:
            break
        if shard.path == keep:
            continue
        _remove(shard.path)
        removed.append(shard)
        excess -= shard.size
    return removed


def _remove_leftovers(root: Path) -> None:
    """Remove half-written files of processes that were killed long ago."""
    for path in root.glob("*/.*.tmp"):
        try:
            age = time.time() - path.stat().st_mtime
        except OSError:
            continue
        if age > SECONDS_A_WRITE_MAY_TAKE:
            _remove(path)


def verify(root: Path) -> Iterator[tuple[ShardFile, bool]]:
    """Yield every shard with whether its content matches its name."""
    for shard in list_shards(root):
        yield shard, read_shard(shard.path) is not None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("Cannot remove %s: %s.", path, os_error(error))


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError as error:  # a cache that may only be read still serves
        log.debug("Cannot note the use of %s: %s.", path, os_error(error))
