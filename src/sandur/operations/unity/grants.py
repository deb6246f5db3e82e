"""Grants on whatever has an id: kept under that id, so that they follow a rename and end with the thing."""

from collections.abc import Sequence
from typing import Final, assert_never

from sandur.catalog.grants import Grants, PermissionsChange, SecurableType, apply_permission_changes
from sandur.catalog.identifiers import Kind, parse_full_name, parse_schema_name
from sandur.catalog.records import Record
from sandur.catalog.sources import Request
from sandur.catalog.storage_registry import credential_named, location_named
from sandur.errors import NotFound, SwapLost
from sandur.operations.catalogs import load_catalog
from sandur.operations.lake import Lake
from sandur.operations.record_changes import RecordChange
from sandur.operations.tables.names import resolve_name
from sandur.operations.unity.registry import load_registry
from sandur.operations.unity.schemas import load_schema
from sandur.operations.unity.securables import missing
from sandur.operations.unity.tables import load_table
from sandur.storage.cell import Cell

UPDATE: Final = "update-permissions"


class Metastore(Record, frozen=True, kw_only=True):
    """What a whole workspace is called."""

    id: str


async def metastore_id(lake: Lake) -> str:
    """The id of the workspace, made when it is first asked for."""
    cell = Cell(lake.store, lake.layout.metastore(), Metastore, lake.clock)
    found = await cell.read()
    if found is None:
        try:
            found = await cell.create(Metastore(id=lake.clock.new_uuid()))
        except SwapLost:  # Somebody else was faster.
            found = await cell.read()
    return found.value.id if found else ""


async def load_grants(lake: Lake, securable_type: SecurableType, full_name: str) -> Grants | None:
    """The grants on a securable; None when there are none, NotFound when there is no such thing."""
    found = await _cell(lake, securable_type, await _id_of(lake, securable_type, full_name)).read()
    return found.value if found else None


async def update_grants(
    lake: Lake,
    securable_type: SecurableType,
    full_name: str,
    changes: Sequence[PermissionsChange],
    request: Request,
) -> Grants:
    cell = _cell(lake, securable_type, await _id_of(lake, securable_type, full_name))
    return await RecordChange(lake, cell, request, UPDATE, lambda found: apply_permission_changes(found, changes)).run()


def _cell(lake: Lake, securable_type: SecurableType, securable_id: str) -> Cell[Grants]:
    return Cell(lake.store, lake.layout.grants(securable_type, securable_id), Grants, lake.clock)


async def _id_of(lake: Lake, securable_type: SecurableType, full_name: str) -> str:  # noqa: PLR0911 - one line per type
    match securable_type:
        case "metastore":
            found = await metastore_id(lake)
            if full_name not in {found, "metastore"}:
                raise NotFound(f"Metastore does not exist: {full_name}", subject="metastore")
            return found
        case "catalog":
            return (await load_catalog(lake, full_name)).id
        case "schema":
            return (await load_schema(lake, parse_schema_name(full_name))).schema_id
        case "table":
            return (await load_table(lake, parse_full_name(full_name))).table_id
        case "function" | "volume":
            return await _named(lake, full_name, securable_type)
        case "registered_model":
            return await _named(lake, full_name, "model")
        case "external_location":
            return location_named(await load_registry(lake), full_name).id
        case "credential":
            return credential_named(await load_registry(lake), full_name).id
        case _:
            assert_never(securable_type)


async def _named(lake: Lake, full_name: str, kind: Kind) -> str:
    identifier = parse_full_name(full_name)
    await load_catalog(lake, identifier.catalog)
    found = await resolve_name(lake, identifier)
    if found is None or found.name.value.kind != kind:
        raise missing(identifier, kind)
    return found.uuid
