"""How a catalog is dropped: mark, look, act (G5), as a namespace is; and emptied first, when that is asked for."""

import contextlib
from typing import Final

from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, Place
from sandur.catalog.records import Catalog, Claim
from sandur.catalog.sources import Request
from sandur.errors import Busy, Invalid, NotEmpty, OutcomeUnknown, SandurError, SwapLost
from sandur.operations import indexing
from sandur.operations.claims import ClaimLost
from sandur.operations.emptying import empty_catalog
from sandur.operations.exactly_once import claim_of, exactly_once, hold, must_hold
from sandur.operations.homes import exists
from sandur.operations.index_truth import child_namespaces
from sandur.operations.namespace_changes import change_of, help_predecessor, is_by, missing_catalog
from sandur.operations.together import together
from sandur.operations.workspace import Workspace
from sandur.storage.cell import Held

OPERATION: Final = "drop-catalog"
TRIES_MAX: Final = 8


async def drop_catalog(workspace: Workspace, name: str, *, force: bool, request: Request) -> None:
    """When this returns the catalog is gone; NotFound, or NotEmpty when it holds something and `force` is not set."""
    if name == workspace.settings.default_catalog:
        raise Invalid(f"Catalog {name} cannot be dropped: it is the default catalog of this server")
    await _CatalogDrop(workspace, name, force=force, request=request).run()


class _CatalogDrop:
    """One request to drop a catalog.

    What is left behind is signed by the request, and whoever makes the catalog again makes the claim done first (G6).
    The claim pins the id of what is dropped (D2): a retry acts on that catalog only, not on one made since.
    """

    def __init__(self, workspace: Workspace, name: str, *, force: bool, request: Request) -> None:
        self._workspace = workspace
        self._name = name
        self._force = force
        self._request = request
        self._cell = workspace.catalog(name)
        self._place = Place(CATALOGS, name)
        self._claim = claim_of(workspace, request, OPERATION)
        self._change = change_of(workspace, request, OPERATION)
        self._mark = workspace.clock.new_id()
        self._is_marked = False
        self._is_uncertain = False

    async def run(self) -> None:
        try:
            await exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked:
                finishing = indexing.finish_place(self._workspace, self._place, self._mark)
                await self._workspace.background.run("index a catalog", finishing)

    async def _replay(self, _: Claim) -> None:
        """It was dropped before."""

    async def _attempt(self, taken: Claim | None) -> None:
        pinned = taken.namespace_id if taken else ""
        for _ in range(TRIES_MAX):
            found = await self._cell.read()
            if found and found.value.state == "dropped" and is_by(found.value, self._change):
                must_hold(self._claim)
                return await self._done()
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"catalog {self._name}: it may have been dropped, and was changed since")
            if found is None or not exists(found.value) or pinned not in {"", found.value.id}:
                raise missing_catalog(self._name)
            self._is_marked = True
            await together(
                [
                    hold(self._claim, namespace_id=found.value.id),  # D2, C7
                    indexing.mark_place(self._workspace, self._place, self._mark),  # I1
                ]
            )
            pinned = found.value.id if self._claim.is_keyed else ""
            if self._force:
                await empty_catalog(self._workspace, self._name, self._request.source)
            if await self._is_dropped(found):
                return await self._done()
        raise Busy(f"catalog {self._name}: somebody keeps putting something into it")

    async def _is_dropped(self, found: Held[Catalog]) -> bool:
        """Mark, look, act; False to start over. NotEmpty when there is a namespace and it is not to be taken along."""
        try:
            marked = await self._cell.swap(replace(found.value, state="dropping"), expected=found.version)
        except SwapLost:
            return False
        try:
            child, _ = await together([self._first_child(found.value.id), self._helped(found.value)])
        except SandurError:
            await self._call_off(marked)
            raise
        if child is not None:
            if not await self._call_off(marked) or self._force:
                return False
            raise NotEmpty(f"Catalog {self._name} is not empty. It holds the schema {child}")
        now_ms = self._workspace.clock.now_ms()
        gone = replace(found.value, state="dropped", properties={}, change=self._change, updated_ms=now_ms)
        try:
            await self._cell.swap(gone, expected=marked.version)  # It happens here.
        except SwapLost as lost:  # Somebody had a child to show (N6).
            self._is_uncertain |= not lost.is_definite
            return False
        return True

    async def _helped(self, record: Catalog) -> None:
        await help_predecessor(self._workspace, record)

    async def _call_off(self, marked: Held[Catalog]) -> bool:
        try:
            await self._cell.swap(replace(marked.value, state="active"), expected=marked.version)
        except SwapLost:
            return False
        return True

    async def _first_child(self, catalog_id: str) -> Namespace | None:
        """Safe page by page: whatever is written behind the cursor is written by someone who then reads the catalog."""
        async for child in child_namespaces(self._workspace, self._name, None):
            found = await self._workspace.namespace(child).read()
            if found is None or found.value.state == "dropped":
                continue
            # A `new` one counts if it was made for this catalog, without asking: its creator will.
            if found.value.state != "new" or found.value.parent_id == catalog_id:
                return child
        return None

    async def _done(self) -> None:
        await self._workspace.background.run("finish drop catalog", self._finish_claim())

    async def _finish_claim(self) -> None:
        with contextlib.suppress(ClaimLost):  # Whoever has it finds what we left behind.
            await self._claim.done()
