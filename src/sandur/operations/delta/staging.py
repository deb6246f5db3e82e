"""Places for managed Delta tables that do not exist yet: given out, found again, and given up."""

from typing import Final

from sandur.catalog.identifiers import Identifier, checked_identifier
from sandur.catalog.locations import normalized
from sandur.catalog.records import DeltaStage
from sandur.errors import BadRequest, Forbidden, NotFound
from sandur.operations.catalogs import load_catalog
from sandur.operations.creation import taken
from sandur.operations.homes import look_up_namespace
from sandur.operations.lake import Lake
from sandur.operations.names import look
from sandur.operations.namespace_changes import missing
from sandur.operations.placing import allowed_roots
from sandur.operations.together import all_three
from sandur.settings import seconds_of

MANAGED_FOLDER: Final = "__unitystorage"
"""What lies below belongs to the catalog: no external table may lie there."""


async def stage_table(lake: Lake, identifier: Identifier, *, principal: str = "") -> DeltaStage:
    """A place where the files of a managed table may be written; the table itself is made by `create_from_staging`.

    AlreadyExists when the name is taken; any number of places may be asked for under one that is not.
    """
    checked_identifier(identifier)
    roots, namespace, found = await all_three(
        allowed_roots(lake, identifier.catalog),
        look_up_namespace(lake, identifier.namespace),
        look(lake, identifier),
    )
    if namespace is None:
        await load_catalog(lake, identifier.catalog)  # Which part of the name it is.
        raise missing(identifier.namespace)
    if found:
        raise taken(identifier, found.name.value, "table")
    parent = namespace.value.properties.get("location") or roots[0]
    uuid = lake.clock.new_uuid()
    now_ms = lake.clock.now_ms()
    stage = DeltaStage(
        uuid=uuid,
        identifier=identifier,
        location=f"{normalized(parent)}/{MANAGED_FOLDER}/tables/{uuid}",
        created_ms=now_ms,
        expires_ms=now_ms + seconds_of(lake.settings.stage_ttl) * 1_000,
        created_by=principal,
    )
    held = await lake.delta_stage(uuid).create(stage)
    return held.value


async def stage_of(lake: Lake, uuid: str) -> DeltaStage:
    """The place of that id; NotFound when there is none, or it was given up."""
    found = await lake.delta_stage(uuid).read()
    if found is None:
        raise NotFound(f"Staging table does not exist: {uuid}", subject="table")
    return found.value


def check_owner(stage: DeltaStage, principal: str) -> None:
    """Forbidden for anybody but the one who staged the place: it is theirs until it is a table."""
    if stage.created_by and stage.created_by != principal:
        raise Forbidden(f"the staging table {stage.uuid} was made by somebody else")


async def stage_at(lake: Lake, location: str) -> DeltaStage:
    """The place at a location, which ends in its id; NotFound when nothing was staged there."""
    plain = normalized(location)
    missing_there = NotFound(f"Staging table does not exist at location {location}", subject="table")
    try:
        found = await lake.delta_stage(plain.rpartition("/")[2]).read()
    except BadRequest:  # What stands at the end is no id at all.
        raise missing_there from None
    if found is None or normalized(found.value.location) != plain:
        raise missing_there
    return found.value
