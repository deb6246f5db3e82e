"""What a process remembers of the list indexes: its own changes under way, and the names that wait for shared work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.catalog.index import Entry, Place, Scope
from sandur.errors import Busy, SandurError
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake
from sandur.storage.contract import Version

REBUILD_EVERY_MS: Final = 10_000
UNDER_WAY_MS_MAX: Final = 300_000
_MARKS_MAX: Final = 20_000
_SCOPES_MAX: Final = 20_000
_FORGOTTEN_EACH: Final = 256


Found = Mapping[str, Entry | SandurError | None]
"""The entries of some names: None for a name that does not exist, or the error of this name alone."""

Work = Callable[[Collection[str]], Awaitable[Found]]


class _Turn:
    """One piece of work, for the names of all callers that waited when it began."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.found: Found | None = None
        self.error: SandurError | None = None

    async def carry_out(self, work: Work) -> None:
        try:
            self.found = await work(self.names)
        except Exception as error:  # Not if only this caller leaves: then the next one does the work.
            self.error = error if isinstance(error, SandurError) else Busy("the index was not read or updated")
            raise

    def entries(self, names: Iterable[str]) -> dict[str, Entry | None]:
        """What was found for these names, as far as it was; raises the error of the work or of one of them."""
        if self.error:
            raise self.error
        entries: dict[str, Entry | None] = {}
        found = self.found or {}
        for name in names:
            if name in found:
                entry = found[name]
                if isinstance(entry, SandurError):
                    raise entry
                entries[name] = entry
        return entries


class Batch:
    """Names of one scope that wait for the same work, which concurrent callers share."""

    def __init__(self) -> None:
        self.users = 0
        self._waiting: _Turn | None = None
        self._lock = asyncio.Lock()

    async def share(self, names: Sequence[str], work: Work) -> dict[str, Entry | None]:
        """What `work` finds for these names; what it does not return is left out. It begins after this call.

        One caller does it for all that wait. If it fails, all of them get its error.
        """
        turn = self._waiting = self._waiting or _Turn()
        turn.names.update(names)
        async with self._lock:
            if turn.found is None and turn.error is None:
                if self._waiting is turn:
                    self._waiting = None
                await turn.carry_out(work)
        return turn.entries(names)


class DeferredUpdate:
    """A mark that several commits share until the index is updated."""

    def __init__(self, identifier: Identifier, uuid: str, mark: str) -> None:
        self.identifier = identifier
        self.uuid = uuid
        self.mark = mark
        self.users = 1
        self.is_marked = asyncio.Event()
        self.is_unused = asyncio.Event()

    def end(self) -> None:
        """A commit that shares the mark has ended, successfully or not."""
        self.users -= 1
        if not self.users:
            self.is_unused.set()


class IndexMemory:
    """The memory of one lake in one process. It saves work and makes own changes visible at once.

    Losing it loses no update: the marks in the store remain.
    """

    def __init__(self, _: Lake) -> None:
        self.mark_versions: LruCache[str, Version] = LruCache(_MARKS_MAX)
        self._rebuilt_ms: LruCache[Scope, int] = LruCache(_SCOPES_MAX)
        self._under_way: LruCache[Scope, dict[tuple[str, str], int]] = LruCache(_SCOPES_MAX)
        self.updates: dict[Scope, Batch] = {}
        self.reads: dict[Scope, Batch] = {}
        self.deferred: dict[tuple[Identifier, str], DeferredUpdate] = {}

    def begin(self, place: Place, operation_id: str, now_ms: int) -> None:
        """An operation is about to change the record of an entry."""
        changes = self._under_way.setdefault(place.scope, {})
        changes[place.name, operation_id] = now_ms
        if len(changes) % _FORGOTTEN_EACH == 0:  # Also in a scope without lists.
            _forget_old(changes, now_ms)

    def end(self, place: Place, operation_id: str) -> None:
        """The entry is up to date."""
        changes = self._under_way.get(place.scope, {})
        changes.pop((place.name, operation_id), None)
        if not changes:
            self._under_way.pop(place.scope, None)

    def under_way(self, scope: Scope, now_ms: int) -> Sequence[str]:
        """The names whose entries may not have the changes of this process yet.

        An operation that never ends is forgotten after UNDER_WAY_MS_MAX; its mark stays in the store.
        """
        changes = self._under_way.get(scope)
        if not changes:
            return ()
        _forget_old(changes, now_ms)
        return sorted({name for name, _ in changes})

    def may_rebuild(self, scope: Scope, now_ms: int) -> bool:
        """Whether a rebuild is due; if so, it counts as done now."""
        last_ms = self._rebuilt_ms.get(scope)
        if last_ms is not None and now_ms < last_ms + REBUILD_EVERY_MS:
            return False
        self._rebuilt_ms[scope] = now_ms
        return True


@contextlib.asynccontextmanager
async def batch_of(batches: dict[Scope, Batch], scope: Scope) -> AsyncIterator[Batch]:
    """The batch of a scope; it exists while it has users."""
    batch = batches.setdefault(scope, Batch())
    batch.users += 1
    try:
        yield batch
    finally:
        batch.users -= 1
        if not batch.users:
            batches.pop(scope, None)


def _forget_old(changes: dict[tuple[str, str], int], now_ms: int) -> None:
    for change, since_ms in list(changes.items()):
        if since_ms + UNDER_WAY_MS_MAX < now_ms:
            del changes[change]
