"""Change the record of a securable of any type; for a new owner its record first, then the manifest (A12)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.credentials.registry import Credential, ExternalLocation, StorageRegistry, without_secrets
from sandur.catalog.events import EventSubject
from sandur.catalog.identifiers import Namespace, parse_schema_name
from sandur.catalog.index import CATALOGS, Place, place_of
from sandur.catalog.records import BoundRecord, Catalog, NamespaceRecord, Request, Securable
from sandur.catalog.security.grants import subject_id
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import SecurableType
from sandur.catalog.security.users import user_not_found
from sandur.errors import KeyReused
from sandur.operations.access import Security, require
from sandur.operations.containers.records import RecordChange
from sandur.operations.events import (
    catalog_subject,
    changed_fields,
    event_of,
    namespace_subject,
    record_subject,
    storage_subject,
    with_event,
)
from sandur.operations.idempotency import ClaimLost, claim_for
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.names import ResolvedName, pointer_cell
from sandur.operations.unity.grants import Target, find_target
from sandur.storage.cell import Cell, Versioned, gather_all

R = TypeVar("R", Catalog, NamespaceRecord, Securable, StorageRegistry)
C = TypeVar("C", Catalog, NamespaceRecord, Securable, BoundRecord, Credential, ExternalLocation)


async def change_owner(
    lake: Lake, securable_type: SecurableType, full_name: str, owner: str, request: Request, *, situation: str = ""
) -> None:
    """Give a securable to a principal, group or role; NotFound for a name that is not registered.

    The manifest is bumped after the record: a grant by the old owner that was decided before is decided again.
    """
    change = _OwnerChange(
        lake=lake,
        type=securable_type,
        full_name=full_name,
        request=request,
        operation="change-owner",
        situation=situation,
        owner=owner,
    )
    authority = await lake.feature(Security).read()
    target = await change.authorize(authority)
    if securable_type != "metastore":
        await change.swap(target)
    owner_id = change.owner_id if securable_type == "metastore" else None

    def decide(_authority: Authority) -> SecurityEdit:
        return SecurityEdit(owner=owner_id, bumps=True)

    bump = request._replace(key=None)  # The same request again bumps again, whatever happened to the first one.
    await SecurityChange(lake, bump, "change-owner", decide, change.authorize_again).run()


def _schema_subject(namespace: Namespace, record: NamespaceRecord) -> EventSubject:
    return namespace_subject(namespace, record.id)


def _answer(record: msgspec.Struct) -> bytes:
    """What a replay needs: the record, without the secrets of storage credentials."""
    return msgspec.json.encode(without_secrets(record) if isinstance(record, StorageRegistry) else record)


def _changed(target: Target, found: ResolvedName, record: BoundRecord) -> Target:
    return target._replace(found=found._replace(pointer=Versioned(record, found.pointer.version)))


@dataclass(kw_only=True)
class SecurableEdit:
    """One request to change the record of a securable of any type but the metastore.

    `edited` returns the changed record; the right to change it is decided again on every version that is swapped (A6).
    """

    lake: Lake
    type: SecurableType
    full_name: str
    request: Request
    operation: str
    situation: str = ""

    def edited(self, record: C) -> C:
        raise NotImplementedError

    async def authorize(self, authority: Authority) -> Target:
        """The securable, if the caller may change it; reads its record after the manifest."""
        target = await find_target(self.lake, authority, self.type, self.full_name)
        require(self.lake, authority, target.chain, missing=target.missing, situation=self.situation)
        return target

    async def swap(self, target: Target) -> Target:
        """Write the change into the record, and into the lists. Returns the target, if it has a name as it is now."""
        lake = self.lake
        record = target.found.pointer.value if target.found else None
        match self.type:
            case "catalog":
                place = Place(CATALOGS, self.full_name)
                await self._change(lake.catalog(self.full_name), target, place, self.edited, catalog_subject)
            case "schema":
                namespace = parse_schema_name(self.full_name)
                subject = partial(_schema_subject, namespace)
                await self._change(lake.namespace(namespace), target, place_of(namespace), self.edited, subject)
            case "external_location" | "credential":
                registry = lake.storage_registry()
                await self._change(registry, target, None, self._with_edited_entry, storage_subject)
            case _ if target.found and isinstance(record, Securable):
                place = place_of(target.found.identifier)
                of_record = partial(record_subject, target.found.identifier)
                cell = lake.securable(record.uuid)
                changed = await self._change(cell, target, place, self.edited, of_record, uuid=record.uuid)
                return _changed(target, target.found, changed)
            case _ if target.found:
                return _changed(target, target.found, await self._update(target.found, target))
            case _:
                raise target.missing
        return target

    async def _change(
        self,
        cell: Cell[R],
        target: Target,
        place: Place | None,
        edit: Callable[[R], R | None],
        subject: Callable[[R], EventSubject],
        *,
        uuid: str = "",
    ) -> R:
        """Change a record at most once per idempotency key."""

        async def authorize(_record: R | None) -> None:
            # A6: the right is decided after the version that is swapped was read.
            current = await self.authorize(await self.lake.feature(Security).read())
            if current.id != target.id:
                raise target.missing

        def decide(record: R | None) -> R:
            changed = edit(record) if record is not None else None
            if changed is None:
                raise target.missing
            return changed

        return await RecordChange(
            self.lake,
            cell,
            self.request,
            self.operation,
            decide,
            place=place,
            answer=_answer,
            authorize=authorize,
            subject=subject,
            uuid=uuid,
        ).run()

    async def _update(self, found: ResolvedName, target: Target) -> BoundRecord:
        """Change the record of a table. The same request again makes the same change, but never to another table."""
        claim = claim_for(self.lake, self.request, f"{self.operation}-of-table")
        try:
            await claim.take(uuid=found.uuid)  # D2: the key belongs to this table.
        except ClaimLost:
            held = await claim.read()
            if held and held.value.request_hash != self.request.hash:
                raise KeyReused(
                    f"Idempotency-Key {self.request.key} was already used for a different request"
                ) from None
            if held is None or held.value.uuid != found.uuid:
                if held and held.value.state == "done":
                    return found.pointer.value
                raise target.missing from None

        async def decide(record: BoundRecord | None) -> BoundRecord | None:
            current = await self.authorize(await self.lake.feature(Security).read())
            if record is None or current.id != target.id:
                raise target.missing
            edited = self.edited(record)
            if edited == record:
                return None
            await self.lake.feature(CatalogReceipts).ensure(record.last_change)  # E2
            subject, details = record_subject(found.identifier, record), changed_fields(record, edited)
            source, last = self.request.source, record.last_change
            event = await event_of(self.lake, "changed", subject, source, before=last, details=details)
            return with_event(edited, event or last)

        cell, mark = pointer_cell(self.lake, found.name.value), self.lake.clock.new_id()
        await update.mark(self.lake, found.identifier, mark, uuid=found.uuid)  # I1
        finish = partial(update.finish, self.lake, found.identifier, mark, uuid=found.uuid)
        async with update.finishing(self.lake, "index a changed securable", finish):
            changed = await cell.update(decide, is_idempotent=True)
            if changed is None:
                raise target.missing
            receipt = self.lake.feature(CatalogReceipts).ensure(changed.value.last_change)
            await self.lake.background.run("write a receipt", gather_all((claim.finish(), receipt)))
            return changed.value

    def _with_edited_entry(self, registry: StorageRegistry) -> StorageRegistry | None:
        """The registry with the changed entry; None if the entry is gone."""
        name = self.full_name
        if self.type == "credential" and (credential := registry.credentials.get(name)):
            return replace(registry, credentials={**registry.credentials, name: self.edited(credential)})
        if self.type == "external_location" and (location := registry.locations.get(name)):
            return replace(registry, locations={**registry.locations, name: self.edited(location)})
        return None


@dataclass(kw_only=True)
class _OwnerChange(SecurableEdit):
    """One request to change an owner."""

    owner: str
    owner_id: str = ""

    async def authorize(self, authority: Authority) -> Target:
        """The securable, if the caller may give it away to a subject that exists."""
        target = await super().authorize(authority)
        found = subject_id(authority, self.owner)
        if found is None and self.owner == self.request.source.principal:
            found = self.request.source.principal_id
        if found is None and self.lake.access is None:
            found = ""  # Without authentication, an owner is a name without rights.
        if found is None:
            raise user_not_found(self.owner)
        self.owner_id = found
        return target

    async def authorize_again(self, authority: Authority) -> None:
        """The caller had the right when the record changed; it may have given that right away."""
        if self.type == "metastore":
            await self.authorize(authority)

    def edited(self, record: C) -> C:
        fields: dict[str, Any] = {"owner": self.owner, "owner_id": self.owner_id}
        return replace(record, **fields)
