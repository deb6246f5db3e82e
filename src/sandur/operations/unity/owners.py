"""Change the owner of a securable: its record first, then the manifest (A12)."""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from sandur.catalog.grants import subject_id
from sandur.catalog.identifiers import Identifier, parse_schema_name
from sandur.catalog.index import CATALOGS, Place, place_of
from sandur.catalog.privileges import SecurableType
from sandur.catalog.records import BoundRecord, Catalog, NamespaceRecord, Request, Securable
from sandur.catalog.security import Authority
from sandur.catalog.storage_registry import Credential, ExternalLocation, StorageRegistry
from sandur.catalog.users import user_not_found
from sandur.operations.access import Security, require
from sandur.operations.containers.records import RecordChange
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.names import pointer_cell
from sandur.operations.unity.grants import Target, find_target
from sandur.storage.cell import Cell

R = TypeVar("R", Catalog, NamespaceRecord, Securable, StorageRegistry)
C = TypeVar("C", Catalog, NamespaceRecord, Securable, BoundRecord, Credential, ExternalLocation)


async def change_owner(
    lake: Lake, securable_type: SecurableType, full_name: str, owner: str, request: Request, *, situation: str = ""
) -> None:
    """Give a securable to a principal, group or role; NotFound for a name that is not registered.

    The manifest is bumped after the record: a grant by the old owner that was decided before is decided again.
    """
    change = _OwnerChange(lake, securable_type, full_name, owner, request, situation)
    authority = await lake.feature(Security).read()
    target = await change.authorize(authority)
    if securable_type != "metastore":
        await change.swap(target)
    owner_id = change.owner_id if securable_type == "metastore" else None

    def decide(_authority: Authority) -> SecurityEdit:
        return SecurityEdit(owner=owner_id, bumps=True)

    bump = request._replace(key=None)  # The same request again bumps again, whatever happened to the first one.
    await SecurityChange(lake, bump, "change-owner", decide, change.authorize_again).run()


class _OwnerChange:
    """One request to change an owner."""

    def __init__(
        self, lake: Lake, type_: SecurableType, full_name: str, owner: str, request: Request, situation: str
    ) -> None:
        self._lake = lake
        self._type: SecurableType = type_
        self._full_name = full_name
        self._owner = owner
        self._request = request
        self._situation = situation
        self.owner_id = ""

    async def authorize(self, authority: Authority) -> Target:
        """The securable, if the caller may give it away; reads its record after the manifest."""
        target = await find_target(self._lake, authority, self._type, self._full_name)
        require(self._lake, authority, target.chain, missing=target.missing, situation=self._situation)
        found = subject_id(authority, self._owner)
        if found is None and self._owner == self._request.source.principal:
            found = self._request.source.principal_id
        if found is None and self._lake.access is None:
            found = ""  # Without authentication, an owner is a name without rights.
        if found is None:
            raise user_not_found(self._owner)
        self.owner_id = found
        return target

    async def authorize_again(self, authority: Authority) -> None:
        """The caller had the right when the record changed; it may have given that right away."""
        if self._type == "metastore":
            await self.authorize(authority)

    async def swap(self, target: Target) -> None:
        """Write the new owner into the record, and into the lists."""
        lake = self._lake
        record = target.found.pointer.value if target.found else None
        match self._type:
            case "catalog":
                place = Place(CATALOGS, self._full_name)
                await self._change(lake.catalog(self._full_name), target, place, self._owned)
            case "schema":
                namespace = parse_schema_name(self._full_name)
                await self._change(lake.namespace(namespace), target, place_of(namespace), self._owned)
            case "external_location" | "credential":
                await self._change(lake.storage_registry(), target, None, self._with_owned_entry)
            case _ if target.found and isinstance(record, Securable):
                place = place_of(target.found.identifier)
                await self._change(lake.securable(record.uuid), target, place, self._owned)
            case _ if target.found:
                await self._update(pointer_cell(lake, target.found.name.value), target, target.found.identifier)
            case _:
                raise target.missing

    async def _change(self, cell: Cell[R], target: Target, place: Place | None, owned: Callable[[R], R | None]) -> None:
        """Change a record at most once per idempotency key."""

        async def authorize(_record: R | None) -> None:
            # A6: the right is decided after the version that is swapped was read.
            current = await self.authorize(await self._lake.feature(Security).read())
            if current.id != target.id:
                raise target.missing

        def decide(record: R | None) -> R:
            changed = owned(record) if record is not None else None
            if changed is None:
                raise target.missing
            return changed

        await RecordChange(
            self._lake, cell, self._request, "change-owner", decide, place=place, authorize=authorize
        ).run()

    async def _update(self, cell: Cell[BoundRecord], target: Target, identifier: Identifier) -> None:
        """Change the record of a table. It keeps no idempotency keys: the same request again sets the owner again."""

        async def decide(record: BoundRecord | None) -> BoundRecord | None:
            current = await self.authorize(await self._lake.feature(Security).read())
            if record is None or current.id != target.id:
                raise target.missing
            owned = self._owned(record)
            return None if owned == record else owned

        mark = self._lake.clock.new_id()
        await update.mark(self._lake, identifier, mark)  # I1
        try:
            await cell.update(decide, is_idempotent=True)
        finally:
            await self._lake.background.run("index an owner", update.finish(self._lake, identifier, mark))

    def _owned(self, record: C) -> C:
        fields: dict[str, Any] = {"owner": self._owner, "owner_id": self.owner_id}
        return replace(record, **fields)

    def _with_owned_entry(self, registry: StorageRegistry) -> StorageRegistry | None:
        """The registry with the entry and its new owner; None if the entry is gone."""
        name = self._full_name
        if self._type == "credential" and (credential := registry.credentials.get(name)):
            return replace(registry, credentials={**registry.credentials, name: self._owned(credential)})
        if self._type == "external_location" and (location := registry.locations.get(name)):
            return replace(registry, locations={**registry.locations, name: self._owned(location)})
        return None
