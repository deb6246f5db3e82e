"""A store that counts its calls by operation, and the rounds of calls that each request waits for."""

import time
from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from typing import Final, TypeVar

from sandur.errors import OutcomeUnknown, SwapLost, Unavailable
from sandur.server.metrics import STORAGE_CALLS, STORAGE_SECONDS, SWAP_CONFLICTS, Metrics
from sandur.storage.contract import (
    LIST_LIMIT_MAX,
    Expected,
    Listed,
    ObjectStore,
    Stored,
    Unchanged,
    Version,
    folders_of,
)

T = TypeVar("T")

NO_REQUEST: Final = "background"

_AREAS: Final = frozenset(
    {
        "catalogs",
        "namespaces",
        "names",
        "iceberg_pointers",
        "delta_tables",
        "iceberg_idempotency",
        "idempotency",
        "iceberg_transactions",
        "iceberg_staged",
        "delta_staged",
        "securables",
        "model_versions",
        "grants",
        "unity",
        "events",
        "index",
        "core",
        "operational",
    }
)


class Rounds:
    """Counts the storage rounds of one request: calls that overlap share a round, a later call begins the next."""

    __slots__ = ("_ended", "count", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.count = 0
        self._ended = 0

    def begin(self) -> int:
        depth = self._ended + 1
        self.count = max(self.count, depth)
        return depth

    def end(self, depth: int) -> None:
        self._ended = max(self._ended, depth)


current_rounds: Final[ContextVar[Rounds | None]] = ContextVar("current_rounds", default=None)
"""The request that the current task belongs to, also after its answer; None during startup and for janitors."""


class MeasuredStore:
    """Passes every call on, and counts and times it."""

    def __init__(self, inner: ObjectStore, metrics: Metrics) -> None:
        self._inner = inner
        self._metrics = metrics
        self.folders = folders_of(inner)
        self.has_instant_reads = inner.has_instant_reads

    def version_now(self, key: str) -> Version | None:
        """Counted, but not timed: timing costs more than the call."""
        found = self._inner.version_now(key)
        rounds = current_rounds.get()
        if rounds:
            rounds.count = max(rounds.count, 1)
        operation = rounds.operation if rounds else NO_REQUEST
        self._metrics.count(STORAGE_CALLS, operation, area_of(key), "version_now", "ok" if found else "absent")
        return found

    async def get(self, key: str) -> Stored | None:
        return await self._measured("get", key, self._inner.get(key))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        return await self._measured("get_if_changed", key, self._inner.get_if_changed(key, seen=seen))

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        key = versions[0][0] if versions else ""
        return await self._measured("are_current", key, self._inner.are_current(versions))

    async def head(self, key: str) -> Listed | None:
        return await self._measured("head", key, self._inner.head(key))

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        return await self._measured("put", key, self._inner.put(key, data, expected=expected))

    async def delete(self, key: str, *, expected: Version) -> None:
        return await self._measured("delete", key, self._inner.delete(key, expected=expected))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        return await self._measured("list", prefix, self._inner.list(prefix, after=after, limit=limit))

    async def close(self) -> None:
        await self._inner.close()

    async def _measured(self, call: str, key: str, answer: Awaitable[T]) -> T:
        rounds = current_rounds.get()
        depth = rounds.begin() if rounds else 0
        operation = rounds.operation if rounds else NO_REQUEST
        began = time.perf_counter()
        result = "failed"
        try:
            found = await answer
            result = "absent" if found is None and call != "delete" else "ok"
        except SwapLost:
            result = "lost"
            self._metrics.count(SWAP_CONFLICTS, operation, area_of(key))
            raise
        except Unavailable:
            result = "unavailable"
            raise
        except OutcomeUnknown:
            result = "unknown"
            raise
        finally:
            self._metrics.count(STORAGE_CALLS, operation, area_of(key), call, result)
            self._metrics.observe(STORAGE_SECONDS, time.perf_counter() - began, call)
            if rounds:
                rounds.end(depth)
        return found


def area_of(key: str) -> str:
    """The part of the layout that a key belongs to: one of a bounded set, so that it can be a label."""
    area = key.partition("/_catalog/")[2].partition("/")[0]
    return area if area in _AREAS else "files"
