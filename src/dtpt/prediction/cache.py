"""The cache of view features: the image tower's output, kept for every later run.

A *group* is one (model, precision, view recipe without the number of views, seed, device kind); it
is a folder of shards. A shard is a safetensors file with the float32 (N, D) features of up to 64
images under their image keys. Its name is the sha256 of its content, so a shard that was damaged in
any byte is noticed when it is read, removed and computed again. Shards are written atomically and
never changed; when the cache outgrows its limit the least recently used ones are removed.
"""

import hashlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ByteSize, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from dtpt.errors import RunError, os_error
from dtpt.files import write_atomically

Array = npt.NDArray[np.float32]

FOLDER_VARIABLE = "DTPT_CACHE"
LIMIT_VARIABLE = "DTPT_CACHE_LIMIT"
DEFAULT_LIMIT = 20 * 10**9
IMAGES_PER_SHARD = 64
SECONDS_PER_SHARD = 120.0  # a large tower fills one in many minutes, which a kill would lose
SHARDS_IN_MEMORY = 4
SUFFIX = ".safetensors"
SECONDS_A_WRITE_MAY_TAKE = 3600.0

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
class ShardFile:
    """A shard on disk, as listed."""

    path: Path
    size: int
    used: float


class FeatureCache:
    """The features of one group; a cache that cannot be written is reported once and skipped.

    Args:
        group: Digest of what the features share, and the name of their folder.
        serves: (cached, wanted): whether the first views of more are the numbers of fewer.
    """

    def __init__(self, group: str, *, serves: Callable[[int, int], bool]) -> None:
        self._root, self._limit = cache_folder(), cache_limit()
        self._folder = self._root / group
        self._serves = serves
        self._writable = self._limit > 0
        self._waiting: dict[str, Array] = {}
        self._since = time.monotonic()  # the first of them came
        self._loaded: OrderedDict[Path, dict[str, Array]] = OrderedDict()
        self._index: dict[str, tuple[Path, int]] = {}  # image key -> shard with most views, views
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            self._enter(path, _contents(path))

    def _enter(self, path: Path, contents: dict[str, int]) -> None:
        for image_key, views in contents.items():
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
        features = self._shard(path).get(image_key)
        return None if features is None or len(features) < views else features[:views]

    def _is_enough(self, there: int, wanted: int) -> bool:
        return there == wanted or (there > wanted and self._serves(there, wanted))

    def _shard(self, path: Path) -> dict[str, Array]:
        """Return the content of a shard; nothing, from now on, if it is damaged or gone."""
        if path not in self._loaded:
            tensors = read_shard(path)
            if tensors is None:
                self._forget(path)
                return {}
            with suppress(OSError):  # a cache that may only be read still serves
                os.utime(path)
            self._loaded[path] = tensors
            if len(self._loaded) > SHARDS_IN_MEMORY:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(path)
        return self._loaded[path]

    def _forget(self, path: Path) -> None:
        self._index = {name: entry for name, entry in self._index.items() if entry[0] != path}
        if path.exists():
            log.warning("The feature cache's %s is damaged and is computed again.", path)
            _remove(path)

    def put(self, image_key: str, features: Array) -> None:
        """Keep the features of an image; they are written when a shard is full or old."""
        now = time.monotonic()
        if not self._waiting:
            self._since = now
        if self._writable:
            self._waiting[image_key] = np.ascontiguousarray(features, dtype=np.float32)
        if len(self._waiting) >= IMAGES_PER_SHARD or now - self._since > SECONDS_PER_SHARD:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting as one shard."""
        if not self._waiting:
            return
        data = save_tensors(self._waiting)
        path = self._folder / f"{hashlib.sha256(data).hexdigest()}{SUFFIX}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        except OSError as error:
            self._writable = False
            log.warning("The feature cache %s cannot be written (%s).", self._root, os_error(error))
        else:
            self._enter(path, {name: len(array) for name, array in self._waiting.items()})
            prune(self._root, self._limit, keep=path)
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
    """Return image keys and numbers of views in a shard's header; none if it is damaged."""
    try:
        with safe_open(path, framework="numpy") as shard:
            return {name: shard.get_slice(name).get_shape()[0] for name in shard.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, LookupError):
        return {}


def list_shards(root: Path) -> list[ShardFile]:
    """Return all shards of the cache, the least recently used first."""
    shards = []
    for path in root.glob(f"*/*{SUFFIX}"):
        with suppress(OSError):  # another process pruned it
            status = path.stat()
            shards.append(ShardFile(path, status.st_size, status.st_mtime))
    return sorted(shards, key=lambda shard: (shard.used, shard.path))


def prune(root: Path, limit: int, *, keep: Path | None = None) -> list[ShardFile]:
    """Remove the least recently used shards until the cache fits; return what was removed.

    Also removes the half-written files of processes that were killed long ago.
    """
    for path in root.glob("*/.*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > SECONDS_A_WRITE_MAY_TAKE:
                _remove(path)
    shards = list_shards(root)
    excess = sum(shard.size for shard in shards) - limit
    removed = []
    for shard in shards:
        if excess > 0 and shard.path != keep:
            _remove(shard.path)
            removed.append(shard)
            excess -= shard.size
    return removed


def verify(root: Path) -> Iterator[tuple[ShardFile, bool]]:
    """Yield every shard with whether its content matches its name."""
    for shard in list_shards(root):
        yield shard, read_shard(shard.path) is not None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("Cannot remove %s: %s.", path, os_error(error))
