"""Carry out a plan to create a Delta table without an engine: the first commit is a small file, and it is written here.

Managed: a place is staged, version 0 written there, then the table is made (it happens by its name, as every creation).
By path: version 0 is written if there is none, and that is all; with a name it is registered after that.
"""

from typing import Final, NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import checked_location, normalized
from sandur.catalog.records import DeltaTable
from sandur.catalog.sources import Request
from sandur.delta.columns import encoded
from sandur.delta.create_plan import CreatePlan, TableAsked, first_commit, planned
from sandur.delta.properties import stored_properties
from sandur.errors import AlreadyExists, SwapLost
from sandur.operations.creation import taken
from sandur.operations.delta.loading import check_home
from sandur.operations.delta.publishing import LOG_FOLDER
from sandur.operations.delta.staging import stage_table
from sandur.operations.delta.tables import NewTable, create_external, create_from_staging, find_table, load_delta_table
from sandur.operations.lake import Lake
from sandur.operations.placing import allowed_roots

ENGINE: Final = "Sandur"


class Created(NamedTuple):
    """What a creation made. `table` is None for a table that only has a path; `is_new` false when it was there."""

    location: str
    table: DeltaTable | None
    is_new: bool


async def create_managed(
    lake: Lake, identifier: Identifier, asked: TableAsked, *, request: Request, engine: str = ENGINE
) -> Created:
    """A managed table; AlreadyExists before anything is written when the name is taken."""
    await check_home(lake, identifier)
    stage = await stage_table(lake, identifier, principal=request.source.principal)
    plan = planned(asked, location=stage.location, table_id=stage.uuid, committer="catalog")
    now_ms = lake.clock.now_ms()
    await write_first_commit(lake, plan, engine=engine, now_ms=now_ms)
    table = await create_from_staging(lake, _registration(identifier, plan, now_ms, "MANAGED"), request=request)
    return Created(stage.location, table, is_new=True)


async def create_external_at(
    lake: Lake,
    identifier: Identifier,
    location: str,
    asked: TableAsked,
    *,
    request: Request,
    engine: str = ENGINE,
) -> Created:
    """A table at a place of the client's choice, registered once its first commit is there."""
    await check_home(lake, identifier)
    if found := await find_table(lake, identifier):
        raise taken(identifier, found.name.value, "table")
    plan, now_ms = await _planned_at(lake, location, asked, identifier.catalog)
    await write_first_commit(lake, plan, engine=engine, now_ms=now_ms)
    wanted = _registration(identifier, plan, now_ms, "EXTERNAL")
    table = await create_external(lake, wanted, request=request)
    return Created(plan.location, table, is_new=True)


async def create_at_path(
    lake: Lake, location: str, asked: TableAsked, *, catalog: str, engine: str = ENGINE
) -> Created:
    """A table that no catalog knows. `catalog` says below which roots it may lie."""
    plan, now_ms = await _planned_at(lake, location, asked, catalog)
    await write_first_commit(lake, plan, engine=engine, now_ms=now_ms)
    return Created(plan.location, None, is_new=True)


async def existing(lake: Lake, identifier: Identifier) -> Created | None:
    """The table of that name, for a creation that does not mind (IF NOT EXISTS); None when there is none."""
    if await find_table(lake, identifier) is None:
        return None
    table = await load_delta_table(lake, identifier)
    return Created(table.location, table, is_new=False)


async def has_first_commit(lake: Lake, location: str) -> bool:
    return await lake.locations.exists(_first_file(normalized(location)))


async def write_first_commit(lake: Lake, plan: CreatePlan, *, engine: str, now_ms: int) -> None:
    """Version 0, put where nothing was; AlreadyExists when there is a table at the location."""
    body = first_commit(plan, engine=engine, now_ms=now_ms, transaction_id=lake.clock.new_uuid())
    try:
        await lake.locations.create(_first_file(plan.location), body)
    except SwapLost as lost:
        raise AlreadyExists(f"Delta table already exists at {plan.location}", subject="table") from lost


async def _planned_at(lake: Lake, location: str, asked: TableAsked, catalog: str) -> tuple[CreatePlan, int]:
    plain = normalized(location)
    checked_location(plain, await allowed_roots(lake, catalog))
    plan = planned(asked, location=plain, table_id=lake.clock.new_uuid(), committer="path")
    return plan, lake.clock.now_ms()


def _registration(identifier: Identifier, plan: CreatePlan, now_ms: int, table_type: str) -> NewTable:
    return NewTable(
        identifier=identifier,
        table_type=table_type,
        location=plan.location,
        columns=encoded(plan.columns),
        properties=stored_properties(plan.properties, plan.protocol, plan.domains, now_ms),
        comment=plan.comment,
        last_commit_ms=now_ms,
    )


def _first_file(location: str) -> str:
    return f"{location}/{LOG_FOLDER}/{0:020d}.json"
