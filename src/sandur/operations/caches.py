"""Caches that keep what was used most recently, bounded by entries and by bytes."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(MutableMapping[K, V], Generic[K, V]):
    """The most recently used entries, bounded by their number."""

    def __init__(self, entries_max: int) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._entries_max = entries_max

    def __getitem__(self, key: K) -> V:
        value = self._entries[key]
        self._entries.move_to_end(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._entries_max:
            del self[next(iter(self._entries))]

    def __delitem__(self, key: K) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class BytesLruCache(LruCache[K, V]):
    """The most recently used values, bounded by their number and by bytes, with counts of hits and misses.

    `size_of` returns the size of a value that is stored by assignment. A value above the bound is not stored.
    """

    def __init__(
        self, bytes_max: int, *, entries_max: int = sys.maxsize, size_of: Callable[[V], int] | None = None
    ) -> None:
        super().__init__(entries_max)
        self._bytes_max = bytes_max
        self._size_of = size_of or sys.getsizeof
        self._sizes: dict[K, int] = {}
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __getitem__(self, key: K) -> V:
        if key not in self._entries:
            self.misses += 1
            raise KeyError(key)
        self.hits += 1
        return super().__getitem__(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value, self._size_of(value))

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self.bytes -= self._sizes.pop(key)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def put(self, key: K, value: V, size_bytes: int) -> None:
        self.drop(key)
        if size_bytes > self._bytes_max:
            return
        self._sizes[key] = size_bytes
        self.bytes += size_bytes
        super().__setitem__(key, value)
        while self.bytes > self._bytes_max:
            del self[next(iter(self._entries))]

    def drop(self, key: K) -> None:
        """Remove a value if it is cached."""
        if key in self._entries:
            del self[key]
