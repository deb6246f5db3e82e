"""What a server remembers about its indexes: changes in progress, shared marks, and the last rebuild."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from sandur.catalog.index import Place, Scope
from sandur.operations.caches import LruCache
from sandur.storage.contract import Version

if TYPE_CHECKING:
    from sandur.operations.index.update import DeferredUpdate


REBUILD_EVERY_MS: Final = 10_000
UNDER_WAY_MS_MAX: Final = 300_000
_MARKS_MAX: Final = 20_000
_SCOPES_MAX: Final = 20_000


class Batch:
    """Names of one scope that wait to be put right together: one swap serves all who wait."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.lock = asyncio.Lock()
        self.users = 0


class IndexMemory:
    """For one workspace in one process; nothing here is needed for anything to be right in the end."""

    def __init__(self) -> None:
        self.mark_versions: LruCache[str, Version] = LruCache(_MARKS_MAX)
        self._rebuilt_ms: LruCache[Scope, int] = LruCache(_SCOPES_MAX)
        self._under_way: LruCache[Scope, dict[tuple[str, str], int]] = LruCache(_SCOPES_MAX)
        self._batches: dict[Scope, Batch] = {}
        # Marks that are shared by commits; see `relisting`.
        self.relistings: dict[Place, DeferredUpdate] = {}

    def begin(self, place: Place, operation_id: str, now_ms: int) -> None:
        """An operation is about to change what the entry should say."""
        self._under_way.setdefault(place.scope, {})[place.name, operation_id] = now_ms

    def end(self, place: Place, operation_id: str) -> None:
        """The index says the truth about the entry."""
        changes = self._under_way.get(place.scope, {})
        changes.pop((place.name, operation_id), None)
        if not changes:
            self._under_way.pop(place.scope, None)

    def under_way(self, scope: Scope, now_ms: int) -> Sequence[str]:
        """The names about which the index may not say yet what operations of this process did.

        An operation that ended without a word is forgotten after a while; its mark is not.
        """
        changes = self._under_way.get(scope)
        if not changes:
            return ()
        for change, since_ms in list(changes.items()):
            if since_ms + UNDER_WAY_MS_MAX < now_ms:
                del changes[change]
        return sorted({name for name, _ in changes})

    def may_rebuild(self, scope: Scope, now_ms: int) -> bool:
        """Whether it is time to make the index anew; asking counts as doing."""
        last_ms = self._rebuilt_ms.get(scope)
        if last_ms is not None and now_ms < last_ms + REBUILD_EVERY_MS:
            return False
        self._rebuilt_ms[scope] = now_ms
        return True

    def is_being_put_right(self, scope: Scope) -> bool:
        """Whether somebody in this process is at the index: whoever comes now joins them."""
        return scope in self._batches

    @contextlib.asynccontextmanager
    async def batch(self, scope: Scope) -> AsyncIterator[Batch]:
        """The batch of a scope, for as long as somebody uses it."""
        batch = self._batches.setdefault(scope, Batch())
        batch.users += 1
        try:
            yield batch
        finally:
            batch.users -= 1
            if not batch.users:
                self._batches.pop(scope, None)
