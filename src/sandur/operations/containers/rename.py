"""Rename catalogs and namespaces: exchange the keys of two names by one swap of the manifest (rules X1–X5).

Everything in the container keeps its key, its id and its grants. The other name then leads to the key that the new name
had, where no container is.
"""

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.aliases import ALIASES_MAX, Aliases
from sandur.catalog.events import CatalogEvent, EventSubject, ObjectType
from sandur.catalog.identifiers import Identifier, Namespace, checked_catalog, checked_namespace
from sandur.catalog.record_versions import WITH_RENAMES, in_place_of
from sandur.catalog.records import Catalog, NamespaceRecord, Request
from sandur.catalog.security.manifest import Authority
from sandur.errors import AlreadyExists, Busy, Conflict, Invalid, SwapLost, Unavailable
from sandur.operations.access import require
from sandur.operations.containers.records import catalog_not_found
from sandur.operations.events import event_of
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.securable_chains import catalog_chain, namespace_chain
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.names import catalog_exists, is_namespace_visible, namespace_not_found, resolve_namespace
from sandur.storage.contract import ABSENT

DESTINATION: Final = "destination"
FENCES_MAX: Final = 8


async def rename_catalog(lake: Lake, name: str, new_name: str, request: Request) -> str:
    """Rename a catalog and return its id; NotFound without it, AlreadyExists if the new name is taken."""
    checked_catalog(new_name)
    if lake.settings.default_catalog in {name, new_name}:
        raise Invalid(f"Catalog {name} cannot be renamed to {new_name}: the server has a default catalog of that name")
    return await _Rename(lake, Namespace(name, ()), Namespace(new_name, ()), request, "rename-catalog").run()


async def rename_namespace(lake: Lake, namespace: Namespace, new_name: str, request: Request) -> str:
    """Rename a namespace within its parent and return its id; what is below it is then below its new name."""
    target = checked_namespace(Namespace(namespace.catalog, (*namespace.levels[:-1], new_name)))
    return await _Rename(lake, namespace, target, request, "rename-namespace").run()


@dataclass
class _Rename:
    """One request to rename a container; a catalog is a namespace without levels."""

    lake: Lake
    source: Namespace
    target: Namespace
    request: Request
    operation: str

    def __post_init__(self) -> None:
        self._id = ""
        self._event: CatalogEvent | None = None
        self._change = SecurityChange(self.lake, self.request, self.operation, self._decide, self._prepare)

    async def run(self) -> str:
        if not self.lake.form.is_read:
            await self.lake.form.read()
        if not self.lake.form.has_reached(WITH_RENAMES):  # An older server would show the old name (V1, V3).
            raise Unavailable("catalogs and namespaces cannot be renamed before the store is upgraded: sandur upgrade")
        if self.lake.names:  # `_prepare` resolves the names by the manifest that the swap replaces.
            self.lake.names.is_done = True
        answer = await self._change.run()
        receipt = self.lake.feature(CatalogReceipts).ensure(self._event)
        await self.lake.background.run("write the receipt of a rename", receipt)
        return msgspec.json.decode(answer, type=str)

    async def _prepare(self, authority: Authority) -> None:
        """Read both containers by the names that the swap will replace, check the rights, and fence the new name."""
        manifest = authority.manifest
        aliases = Aliases(manifest.aliases, manifest.renames)
        lake = self.lake.with_aliases(aliases)
        last = manifest.last_rename
        if self._change.has_made(manifest):  # A retry: it happened, and nothing changed since.
            self._event = last
            return
        self._id = await self._authorized(lake, authority)
        await self._fence(lake)
        name = Identifier(*self.target, "")
        kind: ObjectType = "namespace" if self.source.levels else "catalog"
        subject = EventSubject(kind, self._id, name, renamed_from=Identifier(*self.source, ""))
        self._event = await event_of(lake, "renamed", subject, self.request.source, before=last)

    async def _authorized(self, lake: Lake, authority: Authority) -> str:
        """The id of the container, which the caller may rename."""
        if not self.source.levels:
            missing = catalog_not_found(self.source.catalog)
            found = await lake.catalog(self.source.catalog).read()
            if found is None or not catalog_exists(found.value):
                raise missing
            chain = catalog_chain(authority, found.value)
            require(lake, authority, chain, missing=missing)
            require(lake, authority, chain[:-1], missing=missing, situation=DESTINATION)
            return found.value.id
        missing = namespace_not_found(self.source)
        held = await resolve_namespace(lake, self.source)
        if held is None:
            raise missing
        chain = await namespace_chain(lake, authority, self.source, held.value.id, missing=missing)
        require(lake, authority, chain, missing=missing)
        require(lake, authority, chain[:-1], missing=missing, situation=DESTINATION)
        return held.value.id

    async def _fence(self, lake: Lake) -> None:
        """X3: mark the key of the new name, so that a creation there first makes this swap lose."""
        for _ in range(FENCES_MAX):
            try:
                return await (self._fence_namespace(lake) if self.target.levels else self._fence_catalog(lake))
            except SwapLost:
                continue
        raise Busy(f"{self.target.catalog}.{self.target}: other requests keep changing it")

    async def _fence_namespace(self, lake: Lake) -> None:
        cell = lake.namespace(self.target)
        found = await cell.read()
        if found and await is_namespace_visible(lake, self.target, found.value):
            raise AlreadyExists(f"Namespace already exists: {self.target}", subject="namespace")
        gone = found.value if found and found.value.state == "dropped" else NamespaceRecord(state="dropped", id="")
        fenced = replace(in_place_of(found.value if found else None, gone), is_fenced=True)
        await cell.swap(fenced, expected=found.version if found else ABSENT)

    async def _fence_catalog(self, lake: Lake) -> None:
        name = self.target.catalog
        cell = lake.catalog(name)
        found = await cell.read()
        if found and catalog_exists(found.value):
            raise AlreadyExists(f"Catalog already exists: {name}", subject="catalog")
        gone = found.value if found else Catalog(name=name, id="", root="", state="dropped")
        await cell.swap(replace(gone, is_fenced=True), expected=found.version if found else ABSENT)

    def _decide(self, authority: Authority) -> SecurityEdit:
        manifest = authority.manifest
        aliases = Aliases(manifest.aliases, manifest.renames)
        above = (self.source.catalog, *self.source.levels)[:-1]
        old, new = (self.source.catalog, *self.source.levels)[-1], (self.target.catalog, *self.target.levels)[-1]
        wanted = aliases.exchanged(aliases.key_path(above), old, new)
        if len(wanted.listed) > ALIASES_MAX:
            raise Conflict(f"at most {ALIASES_MAX} catalogs and namespaces may have another name than their first")
        return SecurityEdit(aliases=wanted, rename=self._event, answer=self._id)
