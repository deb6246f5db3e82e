"""How a namespace comes to be: like a table, as a child of another one or of the catalog (N3, N4, N6)."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.locations import checked_location, normalize_location
from sandur.catalog.records import Catalog, Claim, NamespaceRecord
from sandur.catalog.sources import Request
from sandur.errors import AlreadyExists, Busy, OutcomeUnknown, SwapLost
from sandur.operations import indexing
from sandur.operations.catalogs import load_catalog
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, claim_for, hold_claim, run_exactly_once
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import change_of, help_predecessor, missing_parent, nothing
from sandur.operations.tables.names import confirm_parent, is_namespace_visible, resolve_namespace
from sandur.storage.cell import Held
from sandur.storage.contract import ABSENT

OPERATION: Final = "create-namespace"
TRIES_MAX: Final = 8


class NamespaceCreation:
    """One request to create a namespace.

    The claim pins the id of the namespace, so that a retry recognises its own record. Nobody changes the record further
    without making the claim done (G6), so a retry that does not find its record, and holds the claim, was never carried
    out. A lost answer shows in the same way; without a key it stays unknown.
    """

    def __init__(
        self,
        lake: Lake,
        namespace: Namespace,
        properties: Mapping[str, str],
        request: Request,
        *,
        comment: str | None = None,
    ) -> None:
        self._lake = lake
        self._namespace = namespace
        self._properties = dict(properties)
        self._comment = comment
        self._principal = request.source.principal
        self._cell = lake.namespace(namespace)
        self._claim = claim_for(lake, request, OPERATION)
        self._change = change_of(lake, request, OPERATION)
        self._id = lake.clock.new_uuid()
        self._is_marked = False
        self._is_uncertain = False
        self._made: NamespaceRecord | None = None

    @property
    def made(self) -> NamespaceRecord:
        """What was made, once `run` has returned; for a replay, what the same request made before."""
        return self._made or self._record("")

    async def run(self) -> Catalog:
        """The catalog in which the namespace is now; AlreadyExists, or NotFound when there is no parent."""
        try:
            return await run_exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked:
                await self._lake.background.run("index a namespace", self._finish_index())

    async def _replay(self, claim: Claim) -> Catalog:
        self._id = claim.namespace_id
        found = await self._cell.read()
        self._made = found.value if found and found.value.id == self._id else None
        return await load_catalog(self._lake, self._namespace.catalog)

    async def _attempt(self, taken: Claim | None) -> Catalog:
        if taken:
            self._id = taken.namespace_id
        for _ in range(TRIES_MAX):
            catalog, found, parent = await asyncio.gather(
                load_catalog(self._lake, self._namespace.catalog), self._cell.read(), self._parent_id()
            )
            self._check_location(catalog)
            if found and found.value.id == self._id:
                if await self._is_confirmed(found):
                    return catalog
                continue
            parent = catalog.id if self._namespace.parent is None else parent
            await self._expect_free(found, parent)
            await self._write_aside(found)
            written = await self._write(found, parent or "")
            if written and await self._is_confirmed(written):
                return catalog
        raise Busy(f"namespace {self._namespace}: it keeps changing")

    async def _parent_id(self) -> str | None:
        """The id of the namespace above; None when it does not exist, and for a first level."""
        if self._namespace.parent is None:
            return None
        found = await resolve_namespace(self._lake, self._namespace.parent)
        return found.value.id if found else None

    def _check_location(self, catalog: Catalog) -> None:
        check_namespace_location(self._lake, catalog, self._properties)

    async def _expect_free(self, found: Held[NamespaceRecord] | None, parent: str | None) -> None:
        if self._is_uncertain and not self._claim.is_keyed:
            raise OutcomeUnknown(f"namespace {self._namespace}: it may have been created, and was changed since")
        if parent is None:
            raise missing_parent(self._namespace)
        if found and await is_namespace_visible(self._lake, self._namespace, found.value):
            raise AlreadyExists(f"Namespace already exists: {self._namespace}", subject="namespace")

    async def _write_aside(self, found: Held[NamespaceRecord] | None) -> None:
        """N2, in one round: the claim (C7), the mark (I1), and what the record we replace is evidence of (G6)."""
        before = found.value if found else None
        failed_by = missing_parent(self._namespace) if before and before.state == "new" else None
        self._is_marked = True
        await gather_all(
            [
                hold_claim(self._claim, namespace_id=self._id),
                indexing.mark(self._lake, self._namespace, self._id),
                help_predecessor(self._lake, before, failed_by=failed_by),
            ]
        )

    async def _write(self, found: Held[NamespaceRecord] | None, parent: str) -> Held[NamespaceRecord] | None:
        """N3: it happens here, subject to its parent. None when somebody was faster."""
        try:
            return await self._cell.swap(self._record(parent), expected=found.version if found else ABSENT)
        except SwapLost as lost:
            self._is_uncertain |= not lost.is_definite
            return None

    def _record(self, parent: str) -> NamespaceRecord:
        now_ms = self._lake.clock.now_ms()
        return NamespaceRecord(
            state="new",
            id=self._id,
            parent_id=parent,
            comment=self._comment,
            properties=self._properties,
            owner=self._principal,
            change=self._change,
            created_ms=now_ms,
            created_by=self._principal,
            updated_ms=now_ms,
            updated_by=self._principal,
        )

    async def _is_confirmed(self, held: Held[NamespaceRecord]) -> bool:
        """N4: it counts once its parent is seen to be there; if that is gone, it is taken away again.

        False when it cannot be taken away: somebody saw it, and may have changed or dropped it before its parent went.
        """
        if held.value.state == "new":
            if not await confirm_parent(self._lake, self._namespace, held.value.parent_id):
                try:
                    await self._cell.swap(nothing(self._lake.clock.now_ms()), expected=held.version)
                except SwapLost:
                    self._is_uncertain = True
                    return False
                raise missing_parent(self._namespace)
            await self._lake.background.run("activate a namespace", self._activate(held))
        self._made = held.value
        await self._lake.background.run("finish create namespace", self._finish_claim())
        return True

    async def _activate(self, held: Held[NamespaceRecord]) -> None:
        """There is nothing left to confirm. Whoever changed it meanwhile is right."""
        with contextlib.suppress(SwapLost):
            await self._cell.swap(replace(held.value, state="active"), expected=held.version)

    async def _finish_claim(self) -> None:
        with contextlib.suppress(ClaimLost):  # Whoever has it finds the namespace by its id.
            await self._claim.done()

    async def _finish_index(self) -> None:
        await indexing.finish(self._lake, self._namespace, self._id)


def check_namespace_location(lake: Lake, catalog: Catalog, properties: Mapping[str, str]) -> None:
    """A namespace may say where its tables lie only within the storage of its catalog."""
    if location := properties.get("location"):
        checked_location(location, (normalize_location(catalog.root), *lake.locations.others))
