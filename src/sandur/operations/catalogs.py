"""Catalogs: made once, found by name, never taken away."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from sandur.catalog.guardrails import check_property_keys
from sandur.catalog.identifiers import checked_catalog
from sandur.catalog.index import CATALOGS, Place
from sandur.catalog.locations import checked_location, folder_name, normalized
from sandur.catalog.records import Catalog, Claim
from sandur.catalog.sources import Request
from sandur.errors import AlreadyExists, NotFound, SwapLost
from sandur.operations import indexing
from sandur.operations.claims import ClaimLost, KeyClaim
from sandur.operations.exactly_once import claim_of, exactly_once, hold
from sandur.operations.index_pages import entries_page
from sandur.operations.together import together
from sandur.operations.workspace import Workspace

OPERATION: Final = "create-catalog"


async def load_catalog(workspace: Workspace, name: str) -> Catalog:
    """The catalog of that name; NotFound when there is none. The default catalog makes itself when first asked for."""
    found = await workspace.catalog(name).read()
    if found is not None:
        return found.value
    if name == workspace.settings.default_catalog:
        return await ensure_default_catalog(workspace)
    raise NotFound(f"Catalog does not exist: {name}", subject="catalog")


async def ensure_default_catalog(workspace: Workspace) -> Catalog:
    """The default catalog, which is made if it is not there."""
    name = workspace.settings.default_catalog
    found = await workspace.catalog(name).read()
    if found is not None:
        return found.value
    try:
        return await create_catalog(workspace, name, root=None, properties={}, request=Request(hash=""))
    except AlreadyExists:  # Somebody else was faster.
        return await load_catalog(workspace, name)


async def list_catalogs(workspace: Workspace) -> Sequence[Catalog]:
    """All catalogs, sorted by name."""
    page = await entries_page(workspace, CATALOGS, last=None, wanted=None)
    found = await together(workspace.catalog(entry.name).read() for entry in page.entries)
    return [held.value for held in found if held]


async def create_catalog(
    workspace: Workspace, name: str, *, root: str | None, properties: Mapping[str, str], request: Request
) -> Catalog:
    """A new catalog; AlreadyExists when there is one of that name.

    Catalogs are never taken away, so a retry under the same key recognises its own by the id that the claim pins.
    """
    checked_catalog(name)
    check_property_keys(properties)
    now_ms = workspace.clock.now_ms()
    wanted = Catalog(
        name=name,
        id=workspace.clock.new_uuid(),
        root=_checked_root(workspace, name, root),
        properties=dict(properties),
        created_ms=now_ms,
        updated_ms=now_ms,
    )
    creation = _Creation(workspace, wanted, claim_of(workspace, request, OPERATION))
    return await exactly_once(creation.claim, creation.attempt, creation.replay)


def _checked_root(workspace: Workspace, name: str, root: str | None) -> str:
    """Where the tables of a catalog lie: what was asked for, in the workspace's area or where the settings allow."""
    if root is None:
        return f"{workspace.area}/{folder_name(name)}"
    if normalized(root) in workspace.locations.others:
        return root.rstrip("/")
    return checked_location(root.rstrip("/"), (normalized(workspace.area), *workspace.locations.others))


class _Creation:
    """One request to make a catalog."""

    def __init__(self, workspace: Workspace, wanted: Catalog, claim: KeyClaim) -> None:
        self._workspace = workspace
        self._wanted = wanted
        self._place = Place(CATALOGS, wanted.name)
        self.claim = claim

    async def replay(self, _: Claim) -> Catalog:
        return await load_catalog(self._workspace, self._wanted.name)

    async def attempt(self, taken: Claim | None) -> Catalog:
        wanted = replace(self._wanted, id=taken.namespace_id) if taken else self._wanted
        cell = self._workspace.catalog(wanted.name)
        found = await cell.read()
        if found is None:
            marked = indexing.mark_place(self._workspace, self._place, wanted.id)
            await together([hold(self.claim, namespace_id=wanted.id), marked])
            try:
                found = await cell.create(wanted)  # It happens here.
            except SwapLost:
                found = await cell.read()
            # Behind the answer also when another was faster: the mark has to go.
            await self._workspace.background.run("index a catalog", self._finish_index(wanted.id))
        if found is None or found.value.id != wanted.id:
            raise AlreadyExists(f"Catalog already exists: {wanted.name}", subject="catalog")
        await self._workspace.background.run("finish create catalog", self._finish_claim())
        return found.value

    async def _finish_index(self, operation_id: str) -> None:
        await indexing.finish_place(self._workspace, self._place, operation_id)

    async def _finish_claim(self) -> None:
        with contextlib.suppress(ClaimLost):  # Whoever has it finds the catalog by its id.
            await self.claim.done()
