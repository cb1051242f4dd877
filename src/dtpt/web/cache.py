"""What is kept between requests: the least recently used goes first when memory is short."""

import mmap
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def own_pages(data: bytes) -> mmap.mmap:
    """Copy bytes into pages of their own, which go back to the system when nobody holds them.

    Small values that stay among large ones that come and go keep the allocator from giving memory
    back: the process grows to many times of what the cache holds.

    Example:
        >>> bytes(own_pages(b"abc"))
        b'abc'
    """
    pages = mmap.mmap(-1, max(1, len(data)))
    pages[: len(data)] = data
    return pages


class BoundedCache(Generic[Key, Value]):
    """Values of known size, together at most `most` of it; threads may share it.

    Example:
        >>> cache = BoundedCache[str, str](most=10)
        >>> for name in "abc":
        ...     cache.put(name, name.upper(), size=4)
        >>> cache.get("a"), cache.get("c"), cache.size
        (None, 'C', 8)
    """

    def __init__(self, *, most: int) -> None:
        self.most = most
        self.size = 0
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._kept)

    def get(self, key: Key) -> Value | None:
        """Return a value and count it as used; None if it is not (or no longer) here."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, *, size: int) -> None:
        """Keep a value; one that is larger than everything allowed is not kept."""
        with self._lock:
            self._drop(key)
            if size > self.most:
                return
            self._kept[key] = (value, size)
            self.size += size
            while self.size > self.most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self.size -= size
