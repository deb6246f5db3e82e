"""Create, load, update, rename and drop volumes, functions and registered models."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sandur.catalog.functions import FunctionDefinition
from sandur.catalog.identifiers import Format, Identifier, Kind, checked_identifier
from sandur.catalog.index import place_of
from sandur.catalog.infos import with_rename
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import BoundRecord, Claim, Request, Securable, VolumeType
from sandur.errors import Invalid, NotFound
from sandur.operations.access import authorize_name
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.records import RecordChange, with_creation
from sandur.operations.events import record_subject
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import default_location
from sandur.operations.name_access import authorize_places, authorize_schema, find_allowed, naming_missing_parent
from sandur.operations.tables.creation import Creation
from sandur.operations.tables.drafts import Draft, NewRecord
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import ResolvedName, resolve_name
from sandur.operations.tables.rename import rename
from sandur.storage.cell import Versioned, gather_all

_new: Final = functools.partial(Securable, uuid="", table_uuid="", state="unbound")
UNITY: Final[tuple[Format, ...]] = ("unity",)


async def create_volume(
    lake: Lake,
    identifier: Identifier,
    *,
    volume_type: VolumeType,
    location: str | None,
    comment: str | None,
    request: Request,
) -> Securable:
    """Create a volume.

    Invalid if an external one is outside of the locations that the settings allow, or if anything else is at, below or
    above its location; Busy while the files of a dropped table there wait for deletion.
    """
    await load_catalog(lake, identifier.catalog)
    if volume_type == "EXTERNAL":
        if not location:
            raise Invalid(f"Volume {identifier}: an external volume needs a storage_location")
        await authorize_schema(lake, identifier.namespace)
        await authorize_places(lake, identifier.catalog, (location,))
        location = normalize_location(location)
    elif location:
        raise Invalid(f"Volume {identifier}: the catalog places a managed volume; remove storage_location {location}")

    new = _new(kind="volume", comment=comment, volume_type=volume_type, location=location or "")
    return await _create(lake, identifier, new, request)


async def create_function(
    lake: Lake,
    identifier: Identifier,
    function: FunctionDefinition,
    *,
    comment: str | None,
    request: Request,
) -> Securable:
    await load_catalog(lake, identifier.catalog)

    new = _new(kind="function", comment=comment, function=function)
    return await _create(lake, identifier, new, request)


async def create_model(lake: Lake, identifier: Identifier, *, comment: str | None, request: Request) -> Securable:
    await load_catalog(lake, identifier.catalog)

    return await _create(lake, identifier, _new(kind="model", comment=comment), request)


async def load_securable(lake: Lake, identifier: Identifier, kind: Kind, *, situation: str = "") -> Securable:
    """Load a volume, function or model; NotFound if no securable of that kind has the name."""
    missing = securable_not_found(identifier, kind)
    found = await find_allowed(lake, identifier, lambda one: _is_a(one, kind), missing=missing, situation=situation)
    record = found.pointer.value
    if not isinstance(record, Securable):
        raise missing
    return with_rename(record, found.name.value)


async def update_securable(
    lake: Lake,
    identifier: Identifier,
    kind: Kind,
    *,
    comment: str | None,
    new_name: str | None,
    request: Request,
) -> tuple[Identifier, Securable]:
    """Update the comment, then rename; None keeps the current value. Returns the new name and the record.

    Each step happens at most once per key. After a crash in between, a retry does the second step. The name itself
    records who renamed it and when, so that a rename is one change.
    """
    is_renamed = new_name not in {None, "", identifier.name}
    changed = None
    if comment is not None:
        changed = await _update_comment(lake, identifier, kind, comment, request, is_followed=is_renamed)
    if not is_renamed:
        return identifier, changed or await load_securable(lake, identifier, kind)
    renamed = checked_identifier(identifier._replace(name=new_name or ""))
    async with naming_missing_parent(lake, identifier.namespace):
        first = changed.uuid if changed else ""  # Both steps change one object, whatever has the name by now.
        uuid = await rename(lake, identifier, renamed, kind=kind, request=request, formats=UNITY, uuid=first)
    record, name = await gather_all((lake.securable(uuid).read(), lake.name(renamed).read()))
    if changed is None:
        if record is None:
            raise securable_not_found(identifier, kind)
        changed = record.value
    return renamed, with_rename(changed, name.value) if name and name.value.uuid == uuid else changed


async def drop_securable(lake: Lake, identifier: Identifier, kind: Kind, request: Request) -> None:
    """Drop the securable; the files at its location stay."""
    async with naming_missing_parent(lake, identifier.namespace):
        await drop_name(lake, identifier, kind=kind, request=request, formats=UNITY)


def securable_not_found(identifier: Identifier, kind: Kind) -> NotFound:
    return NotFound(f"{kind.capitalize()} does not exist: {identifier.catalog}.{identifier}", subject=kind)


async def _update_comment(
    lake: Lake, identifier: Identifier, kind: Kind, comment: str, request: Request, *, is_followed: bool
) -> Securable:
    missing = securable_not_found(identifier, kind)
    first = await resolve_name(lake, identifier)
    uuid = first.uuid if first and _is_a(first, kind) else ""

    def decide(current: Securable | None) -> Securable:
        if current is None:
            raise missing
        if current.comment == comment:
            return current
        now_ms, principal = max(lake.clock.now_ms(), current.changed_ms), request.source.principal
        return replace(current, comment=comment, state="live", changed_ms=now_ms, changed_by=principal)

    async def read() -> Versioned[Securable] | None:
        """The record that the name leads to, if it is still the first one: only its cell is swapped."""
        found = await resolve_name(lake, identifier)
        record = found.pointer.value if found else None
        if found is None or not isinstance(record, Securable) or not _is_a(found, kind) or found.uuid != uuid:
            return None
        await authorize_name(lake, found, missing=missing)  # A6: after the record was read.
        return Versioned(with_rename(record, found.name.value), found.pointer.version)

    change = RecordChange(
        lake,
        lake.securable(uuid),
        request,
        f"update-{kind}",
        decide,
        place=place_of(identifier),
        read=read,
        subject=lambda record: record_subject(identifier, record),
        uuid=uuid,
        is_followed=is_followed,
    )
    async with naming_missing_parent(lake, identifier.namespace):
        return await change.run()


def _is_a(found: ResolvedName, kind: Kind) -> bool:
    return isinstance(found.pointer.value, Securable) and found.is_a(kind, UNITY)


async def _create(lake: Lake, identifier: Identifier, new: Securable, request: Request) -> Securable:
    draft = _Draft(lake, identifier, with_creation(lake, new, request))
    return await Creation(lake, checked_identifier(identifier), draft, request, f"create-{new.kind}").run()


@dataclass(frozen=True)
class _Draft(Draft[Securable]):
    """A volume, function or model for the creation engine: it has no files to write.

    Without a location it gets one below its namespace's, unless it is a function.
    """

    lake: Lake
    identifier: Identifier
    new: Securable
    format: Format = "unity"

    @property
    def named_locations(self) -> Sequence[str]:
        return (self.new.location,) if self.new.location else ()

    @property
    def kind(self) -> Kind:
        return self.new.kind

    def made(self, uuid: str) -> NewRecord[Securable]:
        made = replace(self.new, uuid=uuid, table_uuid=uuid)
        if made.kind != "function" and not made.location:
            made = replace(made, location=default_location(self.lake, self.identifier, uuid))
        return NewRecord(made, made, locations=(made.location,) if made.location else ())

    async def found(self, pointer: Versioned[BoundRecord]) -> Securable | None:
        return pointer.value if isinstance(pointer.value, Securable) else None

    async def answered(self, claim: Claim) -> Securable:
        found = await self.lake.securable(claim.uuid).read()
        return found.value if found else self.made(claim.uuid).answer
