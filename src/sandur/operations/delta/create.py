"""Create Delta tables: from a first commit that a client wrote, or from a plan that is carried out here.

Managed: stage a location, write version 0 there, then create the table; it exists once its name is written.
By path: write version 0 if the location has none; with a name, register the table after that.
"""

from typing import Final, NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import DeltaTable, Request
from sandur.delta.columns import columns_from_api, encode_columns
from sandur.delta.coordination import check_uniform, published_name
from sandur.delta.create_plan import CreatePlan, TableDefinition, first_commit_body, plan_table
from sandur.delta.properties import stored_properties
from sandur.delta.protocol import TABLE_ID, check_contract
from sandur.delta.requests import CreateTable
from sandur.errors import AlreadyExists, Invalid, NotFound, SwapLost
from sandur.operations.delta.commit import uniform_record
from sandur.operations.delta.log_metadata import columns_of, read_log_metadata
from sandur.operations.delta.publishing import LOG_FOLDER
from sandur.operations.delta.tables import (
    NewTable,
    create_external,
    create_from_staging,
    find_table,
    load_delta_table,
    stage_table,
)
from sandur.operations.delta.versions import newest_in_log
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import allowed_roots, check_place
from sandur.operations.name_access import authorize_places, authorize_schema, check_parents, naming_missing_parent
from sandur.operations.tables.drafts import name_taken

ENGINE: Final = "Sandur"


async def create_table(lake: Lake, identifier: Identifier, create: CreateTable, *, request: Request) -> DeltaTable:
    """Create a table whose first commit a client wrote; a managed one must fulfil the contract of its stage.

    Raises NotFound with the missing part of the name, or if nothing is staged at the location.
    """
    is_managed = create.table_type == "MANAGED"
    if not create.location.strip():
        raise Invalid("location is required")
    columns = encode_columns(columns_from_api(create.columns, create.partition_columns))
    domains = create.domain_metadata.names if create.domain_metadata else ()
    if is_managed:
        waives = lake.settings.delta_waive_deletion_vectors
        check_contract(create.protocol, domains, create.properties, waives_deletion_vectors=waives)
    check_uniform(create.properties, create.uniform, location=normalize_location(create.location), version=None)
    wanted = NewTable(
        identifier=identifier,
        table_type=create.table_type,
        location=create.location,
        columns=columns,
        properties=stored_properties(
            create.properties, create.protocol, create.domain_metadata, create.last_commit_timestamp_ms
        ),
        comment=create.comment,
        last_commit_ms=create.last_commit_timestamp_ms,
        uniform=uniform_record(create.uniform),
    )
    async with naming_missing_parent(lake, identifier.namespace):
        return await (create_from_staging if is_managed else create_external)(lake, wanted, request=request)


class Created(NamedTuple):
    """The result of a creation. `table` is None for a table without a name; `is_new` is false if it existed before."""

    location: str
    table: DeltaTable | None
    is_new: bool


async def create_managed(
    lake: Lake, identifier: Identifier, definition: TableDefinition, *, request: Request
) -> Created:
    """Create a managed table; raises AlreadyExists before it writes anything if the name is taken."""
    await check_parents(lake, identifier.namespace)
    stage = await stage_table(lake, identifier, source=request.source)
    plan = plan_table(definition, location=stage.location, table_id=stage.uuid, committer="catalog")
    now_ms = await _write_first_commit(lake, plan)
    table = await create_from_staging(lake, _registration(identifier, plan, now_ms, "MANAGED"), request=request)
    return Created(stage.location, table, is_new=True)


async def create_external_at(
    lake: Lake, identifier: Identifier, location: str, definition: TableDefinition, *, request: Request
) -> Created:
    """Create a table at a given location: write its first commit, then register it."""
    await _check_external(lake, identifier, location)
    plan = await _planned_at(lake, location, definition, identifier.catalog)
    wanted = _registration(identifier, plan, await _write_first_commit(lake, plan), "EXTERNAL")
    return Created(plan.location, await create_external(lake, wanted, request=request), is_new=True)


async def register_external(
    lake: Lake, identifier: Identifier, location: str, *, comment: str | None, request: Request
) -> Created:
    """Register a table that exists at a location, with the columns of its log. Its files stay as they are."""
    await _check_external(lake, identifier, location)
    await allowed_roots(lake, identifier.catalog)
    plain = normalize_location(location)
    await check_place(lake, identifier.catalog, plain)
    try:
        metadata = await read_log_metadata(lake, plain, await newest_in_log(lake, plain, at_least=0))
    except NotFound as error:
        raise NotFound(f"No Delta table can be read at {plain}: {error}", subject="file") from error
    if TABLE_ID in (metadata.configuration or {}):
        raise Invalid(f"The Delta table at {plain} is managed by a catalog, which decides about its commits")
    wanted = NewTable(
        identifier=identifier,
        table_type="EXTERNAL",
        location=plain,
        columns=columns_of(metadata),
        comment=comment or metadata.description,
    )
    return Created(plain, await create_external(lake, wanted, request=request), is_new=True)


async def _check_external(lake: Lake, identifier: Identifier, location: str) -> None:
    """Raise before anything is read or written at the location, if the caller may not, or the name is taken."""
    await check_parents(lake, identifier.namespace)
    await authorize_schema(lake, identifier.namespace)
    await authorize_places(lake, identifier.catalog, (location,))
    if found := await find_table(lake, identifier):
        raise name_taken(identifier, found.name.value, "table")


async def create_at_path(lake: Lake, location: str, definition: TableDefinition, *, catalog: str) -> Created:
    """Create a table without a name. The location must be below the roots of `catalog`."""
    plan = await _planned_at(lake, location, definition, catalog)
    await _write_first_commit(lake, plan)
    return Created(plan.location, None, is_new=True)


async def find_existing(lake: Lake, identifier: Identifier) -> Created | None:
    """The table with that name, for IF NOT EXISTS; None if the name is free."""
    if await find_table(lake, identifier) is None:
        return None
    table = await load_delta_table(lake, identifier)
    return Created(table.location, table, is_new=False)


async def has_first_commit(lake: Lake, location: str) -> bool:
    return await lake.locations.exists(_first_file(normalize_location(location)))


async def _write_first_commit(lake: Lake, plan: CreatePlan) -> int:
    """Write version 0 of the log and return its time; raises AlreadyExists if the location has one."""
    now_ms = lake.clock.now_ms()
    body = first_commit_body(plan, engine=ENGINE, now_ms=now_ms, transaction_id=lake.clock.new_uuid())
    try:
        await lake.locations.create(_first_file(plan.location), body)
    except SwapLost as lost:
        raise AlreadyExists(f"Delta table already exists at {plan.location}", subject="table") from lost
    return now_ms


async def _planned_at(lake: Lake, location: str, definition: TableDefinition, catalog: str) -> CreatePlan:
    plain = normalize_location(location)
    await allowed_roots(lake, catalog)
    await check_place(lake, catalog, plain)
    return plan_table(definition, location=plain, table_id=lake.clock.new_uuid(), committer="path")


def _registration(identifier: Identifier, plan: CreatePlan, now_ms: int, table_type: str) -> NewTable:
    return NewTable(
        identifier=identifier,
        table_type=table_type,
        location=plan.location,
        columns=encode_columns(plan.columns),
        properties=stored_properties(plan.properties, plan.protocol, plan.domains, now_ms),
        comment=plan.comment,
        last_commit_ms=now_ms,
    )


def _first_file(location: str) -> str:
    return f"{location}/{LOG_FOLDER}/{published_name(0)}"
