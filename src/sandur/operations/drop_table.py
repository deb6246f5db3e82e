"""Drop a table or view (rules D1–D4): at the name first, then at the pointer, and purge only when asked."""

import contextlib
from typing import Final

from sandur.catalog.identifiers import Identifier, Kind
from sandur.catalog.records import NameRecord, Pointer
from sandur.catalog.sources import Request
from sandur.errors import Busy, NotFound, SandurError, SwapLost
from sandur.operations import indexing, transactions_met
from sandur.operations.claims import ClaimLost, KeyClaim
from sandur.operations.documents import TABLES, load_document
from sandur.operations.load_table import loaded
from sandur.operations.names import Found, dropped_pointer, finish_drop, settle
from sandur.operations.purging import queue_purge
from sandur.operations.results import LoadedTable
from sandur.operations.together import together
from sandur.operations.workspace import Workspace
from sandur.storage.cell import Held

TRIES_MAX: Final = 8


async def drop_name(
    workspace: Workspace, identifier: Identifier, *, kind: Kind, purge: bool = False, request: Request
) -> None:
    """The name is free again and the table is gone; its files stay unless `purge` asks for them to go, later."""
    await _Drop(workspace, identifier, kind, purge=purge, request=request).run()


async def unregister_table(workspace: Workspace, identifier: Identifier, request: Request) -> LoadedTable:
    """Let go of a table: no file is deleted. What comes back is its last state; no commit comes to it any more."""
    pointer = await _Drop(workspace, identifier, "table", purge=False, request=request).run()
    head = pointer.value.head
    if head is None:
        raise TABLES.missing(identifier)
    return loaded(workspace, await load_document(workspace, TABLES, head.metadata_location))


class _Drop:
    """One request to drop something."""

    def __init__(
        self, workspace: Workspace, identifier: Identifier, kind: Kind, *, purge: bool, request: Request
    ) -> None:
        operation = f"drop-{kind}"
        key_hash = request.key_hash
        self._workspace = workspace
        self._identifier = identifier
        self._kind = kind
        self._purge = purge
        self._by = key_hash or workspace.clock.new_id()
        self._claim = KeyClaim(
            workspace, request, operation, workspace.claim(operation, key_hash) if key_hash else None
        )

    async def run(self) -> Held[Pointer]:
        """The pointer of what was dropped, as it is from now on."""
        try:
            return await self._run()
        except SandurError:
            await self._claim.let_go()
            raise

    async def _run(self) -> Held[Pointer]:
        for _ in range(TRIES_MAX):
            _, live = await together([indexing.mark(self._workspace, self._identifier, self._by), self._live()])  # I1
            try:
                live = await self._pinned(live)
            except ClaimLost:
                await self._workspace.background.run("finish drop", self._finish_index())
                return await self._retried()
            if dropped := await self._dropped(live):
                return dropped
        raise Busy(f"{self._identifier}: the name keeps changing")

    async def _live(self) -> Found | None:
        """D1: what is there to drop."""
        live = (await settle(self._workspace, self._identifier)).live
        return live if live and live.name.value.kind == self._kind else None

    async def _pinned(self, live: Found | None) -> Found:
        """D2: the claim names the table before anything happens to it; a refusal is kept before it is answered (G3)."""
        if live is None:
            await self._claim.done(error=self._missing())
            await self._workspace.background.run("finish drop", self._finish())
            raise self._missing()
        await self._claim.take(uuid=live.uuid)
        return live

    async def _retried(self) -> Held[Pointer]:
        """D2: a retry acts on the table of the claim, and on no other that has the name by now."""
        claim = await self._claim.follow()
        live = await self._live()
        if claim.state == "open" and live and live.uuid == claim.uuid:
            for _ in range(TRIES_MAX):
                if dropped := await self._dropped(live):
                    return dropped
                live = await self._live()
                if live is None or live.uuid != claim.uuid:
                    break
        pointer = await self._workspace.pointer(claim.uuid).read()
        if pointer and pointer.value.state == "dropped" and (claim.state == "done" or pointer.value.by == self._by):
            await self._finish_claim()
            return pointer
        if claim.state == "done" and pointer:
            return pointer
        await self._claim.done(error=self._missing())
        raise self._missing()

    async def _dropped(self, live: Found) -> Held[Pointer] | None:
        """D3, D4: the drop happens at the name. None when the swap was lost."""
        record = live.name.value
        dropped = NameRecord(
            state="dropped",
            uuid=record.uuid,
            kind=record.kind,
            format=record.format,
            by=self._by,
            updated_ms=self._workspace.clock.now_ms(),
        )
        cell = self._workspace.name(self._identifier)
        if self._purge:
            await queue_purge(self._workspace, live, drop=self._by)
        try:
            await cell.swap(dropped, expected=live.name.version)  # The drop happens here.
        except SwapLost as lost:
            if lost.is_definite or not await self._is_ours():
                return None
        pointer = await self._drop_pointer(live, dropped)
        await self._workspace.background.run("finish drop", self._finish())
        return pointer

    async def _is_ours(self) -> bool:
        found = await self._workspace.name(self._identifier).read()
        return found is not None and (found.value.state, found.value.by) == ("dropped", self._by)

    async def _drop_pointer(self, live: Found, dropped: NameRecord) -> Held[Pointer]:
        """D4: from the pointer as it was seen, which mostly is still so; otherwise as everyone does who finds this."""
        cell = self._workspace.pointer(live.uuid)
        with contextlib.suppress(SwapLost):
            pointer = await transactions_met.pushed_aside(self._workspace, live.pointer, drops=True)
            gone = dropped_pointer(pointer.value, self._identifier, by=self._by, now_ms=dropped.updated_ms)
            return await cell.swap(gone, expected=pointer.version)
        await finish_drop(self._workspace, self._identifier, dropped)
        found = await cell.read()
        if found is None:
            raise Busy(f"{self._identifier}: its pointer is gone")
        return found

    async def _finish(self) -> None:
        await together([self._finish_index(), self._finish_claim()])

    async def _finish_index(self) -> None:
        await indexing.finish(self._workspace, self._identifier, self._by)

    async def _finish_claim(self) -> None:
        if self._claim.is_open:
            with contextlib.suppress(ClaimLost):
                await self._claim.done()

    def _missing(self) -> NotFound:
        return NotFound(f"{self._kind.capitalize()} does not exist: {self._identifier}", subject=self._kind)
