"""Bounded caches. Cached records are validated with the store before use."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

CELLS_MAX: Final = 20_000
INDEX_BYTES_MAX: Final = 128 << 20


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


class WeighedLruCache(LruCache[K, V]):
    """The most recently used entries, bounded by their number and by their total weight."""

    def __init__(self, entries_max: int, *, weight_max: int, weigh: Callable[[V], int]) -> None:
        super().__init__(entries_max)
        self._weight_max = weight_max
        self._weigh = weigh
        self._weights: dict[K, int] = {}
        self.weight = 0

    def __setitem__(self, key: K, value: V) -> None:
        self._subtract_weight(key)
        self._weights[key] = self._weigh(value)
        self.weight += self._weights[key]
        super().__setitem__(key, value)
        while self._entries and (self.weight > self._weight_max or len(self._entries) > self._entries_max):
            oldest = next(iter(self._entries))
            del self[oldest]

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self._subtract_weight(key)

    def _subtract_weight(self, key: K) -> None:
        self.weight -= self._weights.pop(key, 0)


class BytesLruCache(Generic[K, V]):
    """The most recently used values, bounded by bytes, with counts of hits and misses."""

    def __init__(self, bytes_max: int) -> None:
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        if key in self._entries:
            self.bytes -= self._entries.pop(key)[1]
        if size_bytes > self._bytes_max:
            return
        self._entries[key] = (value, size_bytes)
        self.bytes += size_bytes
        while self.bytes > self._bytes_max:
            _, (_, size) = self._entries.popitem(last=False)
            self.bytes -= size

    def drop(self, key: K) -> None:
        """Remove a value if it is cached."""
        if key in self._entries:
            self.bytes -= self._entries.pop(key)[1]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries
