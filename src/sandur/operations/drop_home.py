"""How what holds other things, a namespace or a catalog, is dropped: mark, look, act (G5, N6)."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import Place
from sandur.catalog.records import Catalog, Claim, LastChange, NamespaceRecord
from sandur.catalog.sources import Request
from sandur.errors import Busy, NotEmpty, NotFound, OutcomeUnknown, SandurError, SwapLost
from sandur.operations import indexing
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, claim_for, hold_claim, require_claim, run_exactly_once
from sandur.operations.index_truth import child_namespaces
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import change_of, help_predecessor, is_by
from sandur.storage.cell import Cell, Held

T = TypeVar("T")
H = TypeVar("H", Catalog, NamespaceRecord)

TRIES_MAX: Final = 8
LOOKS_AT_ONCE: Final = 32


class Home(Protocol[H]):
    """What is dropped. `text` is what errors call it, `operation` what its claims are kept under."""

    @property
    def text(self) -> str: ...

    @property
    def operation(self) -> str: ...

    @property
    def cell(self) -> Cell[H]: ...

    @property
    def place(self) -> Place:
        """Its entry in a list."""
        ...

    def missing(self) -> NotFound:
        """What to say when there is none."""
        ...

    async def is_there(self, record: H) -> bool:
        """Whether readers see it; one that is being dropped is there."""
        ...

    async def is_emptied(self) -> bool:
        """Drop what it holds, if it is to be taken along; False when it is not."""
        ...

    async def first_child(self, home_id: str) -> str | None:
        """Something that it holds, as it is called; None when it is empty.

        Safe page by page: whatever is written behind the cursor is written by someone who then reads the home.
        """
        ...

    def gone(self, record: H, change: LastChange, now_ms: int) -> H:
        """What stands where it was."""
        ...


async def drop_home(lake: Lake, home: Home[H], request: Request) -> None:
    """When this returns it is gone; NotFound, or NotEmpty when it holds something that is not to be taken along."""
    await _HomeDrop(lake, home, request).run()


async def first_child_namespace(lake: Lake, catalog: str, parent: Namespace | None, home_id: str) -> str | None:
    """A namespace one level below, as it is called; None when there is none."""

    async def looked(child: Namespace) -> str | None:
        """A `new` one counts if it was made for this home, without asking: its creator will."""
        found = await lake.namespace(child).read()
        if found is None or found.value.state == "dropped":
            return None
        is_child = found.value.state != "new" or found.value.parent_id == home_id
        return f"the namespace {child}" if is_child else None

    return await first_found(child_namespaces(lake, catalog, parent), looked)


async def first_found(items: AsyncIterator[T], look: Callable[[T], Awaitable[str | None]]) -> str | None:
    """What looking at the items finds first, in their order; so many are looked at together."""
    group: list[T] = []
    async for item in items:
        group.append(item)
        if len(group) == LOOKS_AT_ONCE:
            if found := await _first_of(group, look):
                return found
            group = []
    return await _first_of(group, look)


async def _first_of(group: list[T], look: Callable[[T], Awaitable[str | None]]) -> str | None:
    return next((found for found in await gather_all(look(item) for item in group) if found), None)


@dataclass
class _HomeDrop(Generic[H]):
    """One request to drop a home.

    The claim pins the id of what is dropped (D2): a retry acts on that home only, not on one made since. What is left
    behind is signed by the request, and whoever makes the home again makes the claim done first (G6): a retry that
    holds the claim and does not find its own signature has not dropped anything.
    """

    lake: Lake
    home: Home[H]
    request: Request
    _is_marked: bool = False
    _is_uncertain: bool = False

    async def run(self) -> None:
        self._mark = self.lake.clock.new_id()
        self._claim = claim_for(self.lake, self.request, self.home.operation)
        self._change = change_of(self.lake, self.request, self.home.operation)
        try:
            await run_exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked:
                finishing = indexing.finish_place(self.lake, self.home.place, self._mark)
                await self.lake.background.run(f"index {self.home.text}", finishing)

    async def _replay(self, _: Claim) -> None:
        """It was dropped before."""

    async def _attempt(self, taken: Claim | None) -> None:
        pinned = taken.namespace_id if taken else ""
        for _ in range(TRIES_MAX):
            found = await self.home.cell.read()
            if found and found.value.state == "dropped" and is_by(found.value, self._change):
                require_claim(self._claim)
                return await self._done()
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"{self.home.text}: it may have been dropped, and was changed since")
            if found is None or not await self.home.is_there(found.value) or pinned not in {"", found.value.id}:
                raise self.home.missing()
            self._is_marked = True
            await gather_all(
                [
                    hold_claim(self._claim, namespace_id=found.value.id),  # D2, C7
                    indexing.mark_place(self.lake, self.home.place, self._mark),  # I1
                ]
            )
            pinned = found.value.id if self._claim.is_keyed else ""
            if await self._is_dropped(found, is_emptied=await self.home.is_emptied()):
                return await self._done()
        raise Busy(f"{self.home.text}: somebody keeps putting something into it")

    async def _is_dropped(self, found: Held[H], *, is_emptied: bool) -> bool:
        """Mark, look, act; False to start over. NotEmpty when there is a child that is not to be taken along."""
        try:
            marked = await self.home.cell.swap(replace(found.value, state="dropping"), expected=found.version)
        except SwapLost:
            return False
        try:
            child, _ = await gather_all([self.home.first_child(found.value.id), self._helped(found.value)])
        except SandurError:
            await self._call_off(marked)
            raise
        if child is not None:
            # When somebody changed it since, what was a child may be none any more.
            if not await self._call_off(marked) or is_emptied:
                return False
            raise NotEmpty(f"{self.home.text} is not empty. It holds {child}")
        gone = self.home.gone(found.value, self._change, self.lake.clock.now_ms())
        try:
            await self.home.cell.swap(gone, expected=marked.version)  # It happens here.
        except SwapLost as lost:  # Somebody had a child to show (N6).
            self._is_uncertain |= not lost.is_definite
            return False
        return True

    async def _helped(self, record: H) -> None:
        await help_predecessor(self.lake, record)

    async def _call_off(self, marked: Held[H]) -> bool:
        try:
            await self.home.cell.swap(replace(marked.value, state="active"), expected=marked.version)
        except SwapLost:
            return False
        return True

    async def _done(self) -> None:
        await self.lake.background.run(f"finish dropping {self.home.text}", self._finish_claim())

    async def _finish_claim(self) -> None:
        with contextlib.suppress(ClaimLost):  # Whoever has it finds what we left behind.
            await self._claim.done()
