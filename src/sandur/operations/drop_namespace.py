"""How a namespace is dropped: mark, look, act (G5, N6)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Claim, NamespaceRecord
from sandur.catalog.sources import Request
from sandur.errors import Busy, NotEmpty, OutcomeUnknown, SandurError, SwapLost
from sandur.operations import indexing
from sandur.operations.claims import ClaimLost
from sandur.operations.exactly_once import claim_of, exactly_once, hold, must_hold
from sandur.operations.homes import is_shown
from sandur.operations.index_truth import child_namespaces, keys_below
from sandur.operations.names import settle
from sandur.operations.namespace_changes import change_of, help_predecessor, is_by, missing, nothing
from sandur.operations.together import together
from sandur.operations.workspace import Workspace
from sandur.storage.cell import Held

T = TypeVar("T")

OPERATION: Final = "drop-namespace"
TRIES_MAX: Final = 8
LOOKS_AT_ONCE: Final = 32


class NamespaceDrop:
    """One request to drop a namespace.

    The claim pins the id of what is dropped (D2): a retry acts on that namespace only, not on one made since. What is
    left behind is signed by the request, and whoever makes the namespace again makes the claim done first (G6): a retry
    that holds the claim and does not find its own signature has not dropped anything.
    """

    def __init__(self, workspace: Workspace, namespace: Namespace, request: Request) -> None:
        self._workspace = workspace
        self._namespace = namespace
        self._cell = workspace.namespace(namespace)
        self._claim = claim_of(workspace, request, OPERATION)
        self._change = change_of(workspace, request, OPERATION)
        self._mark = workspace.clock.new_id()
        self._is_marked = False
        self._is_uncertain = False

    async def run(self) -> None:
        """When this returns the namespace is gone; NotFound, or NotEmpty when it holds something."""
        try:
            await exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked:
                finishing = indexing.finish(self._workspace, self._namespace, self._mark)
                await self._workspace.background.run("index a namespace", finishing)

    async def _replay(self, _: Claim) -> None:
        """It was dropped before."""

    async def _attempt(self, taken: Claim | None) -> None:
        pinned = taken.namespace_id if taken else ""
        for _ in range(TRIES_MAX):
            found = await self._cell.read()
            if found and found.value.state == "dropped" and is_by(found.value, self._change):
                must_hold(self._claim)
                await self._done()
                return
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"namespace {self._namespace}: it may have been dropped, and was changed since")
            if found is None or not await is_shown(self._workspace, self._namespace, found.value):
                raise missing(self._namespace)
            if pinned not in {"", found.value.id}:
                raise missing(self._namespace)
            self._is_marked = True
            await together(
                [
                    hold(self._claim, namespace_id=found.value.id),  # D2, C7
                    indexing.mark(self._workspace, self._namespace, self._mark),  # I1
                ]
            )
            pinned = found.value.id if self._claim.is_keyed else ""
            if await self._is_dropped(found):
                await self._done()
                return
        raise Busy(f"namespace {self._namespace}: somebody keeps putting something into it")

    async def _is_dropped(self, found: Held[NamespaceRecord]) -> bool:
        """Mark, look, act; False to start over. NotEmpty when there is a child."""
        try:
            marked = await self._cell.swap(replace(found.value, state="dropping"), expected=found.version)
        except SwapLost:
            return False
        try:
            child, _ = await asyncio.gather(self._first_child(found.value.id), self._help(found.value))
        except SandurError:
            await self._call_off(marked)
            raise
        if child is not None:
            if not await self._call_off(marked):
                return False  # Somebody changed it: what was a child may be none any more.
            raise NotEmpty(f"Namespace {self._namespace} is not empty. It holds {child}")
        gone = nothing(self._workspace.clock.now_ms(), self._change)
        try:
            await self._cell.swap(gone, expected=marked.version)  # It happens here.
        except SwapLost as lost:
            # Somebody had a child to show (N6).
            self._is_uncertain |= not lost.is_definite
            return False
        return True

    async def _help(self, record: NamespaceRecord) -> None:
        await help_predecessor(self._workspace, record)

    async def _call_off(self, marked: Held[NamespaceRecord]) -> bool:
        try:
            await self._cell.swap(replace(marked.value, state="active"), expected=marked.version)
        except SwapLost:
            return False
        return True

    async def _first_child(self, namespace_id: str) -> str | None:
        """Something that is in the namespace, as it is called; None when it is empty.

        Safe page by page: whatever is written behind the cursor is written by someone who then reads the namespace.
        """
        namespace, name = await together([self._first_namespace(namespace_id), self._first_name(namespace_id)])
        return namespace or name

    async def _first_namespace(self, namespace_id: str) -> str | None:
        children = child_namespaces(self._workspace, self._namespace.catalog, self._namespace)
        async for some in _in_groups(children):
            are_there = await together(self._is_child(child, namespace_id) for child in some)
            if found := [child for child, is_there in zip(some, are_there, strict=True) if is_there]:
                return f"the namespace {found[0]}"
        return None

    async def _first_name(self, namespace_id: str) -> str | None:
        layout = self._workspace.layout
        async for keys in _in_groups(keys_below(self._workspace, layout.names_folder(self._namespace))):
            settled = await together(self._settle(layout.read_name(key), namespace_id) for key in keys)
            if found := [name for name in settled if name]:
                return found[0]
        return None

    async def _is_child(self, child: Namespace, namespace_id: str) -> bool:
        """A `new` namespace counts if it was made for this one, without asking: its creator will."""
        found = await self._workspace.namespace(child).read()
        if found is None or found.value.state == "dropped":
            return False
        return found.value.state != "new" or found.value.parent_id == namespace_id

    async def _settle(self, identifier: Identifier, namespace_id: str) -> str | None:
        spot = await settle(self._workspace, identifier, dropping=namespace_id)
        return f"the {spot.live.name.value.kind} {identifier}" if spot.live else None

    async def _done(self) -> None:
        await self._workspace.background.run("finish drop namespace", self._finish_claim())

    async def _finish_claim(self) -> None:
        with contextlib.suppress(ClaimLost):  # Whoever has it finds what we left behind.
            await self._claim.done()


async def _in_groups(items: AsyncIterator[T]) -> AsyncIterator[list[T]]:
    """So many at a time, in the same order."""
    group: list[T] = []
    async for item in items:
        group.append(item)
        if len(group) == LOOKS_AT_ONCE:
            yield group
            group = []
    if group:
        yield group
