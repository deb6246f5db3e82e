"""Stage a table: everything of a create but the table. The commit that asserts create makes it."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Stage
from sandur.catalog.sources import Request
from sandur.errors import Busy, NotFound, SandurError, SwapLost, Unsupported
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata
from sandur.operations.claims import ClaimLost, KeyClaim
from sandur.operations.creation import taken
from sandur.operations.homes import look_up_namespace
from sandur.operations.lake import Lake
from sandur.operations.names import look
from sandur.operations.placing import make_room
from sandur.operations.results import LoadedTable
from sandur.settings import seconds_of

STAGE = "stage-table"


async def stage_table(
    lake: Lake, identifier: Identifier, metadata_of: Callable[[str], TableMetadata], request: Request
) -> LoadedTable:
    """What the table would be. Nothing lies under its location but empty folders, and nobody sees it.

    With a key, a retry gets the stage that the first attempt made: the claim pins its uuid.
    """
    if not lake.settings.stage_create:
        raise Unsupported("stage-create is switched off (setting stage_create)")
    key_hash = request.key_hash
    claim = KeyClaim(lake, request, STAGE, lake.claim(STAGE, key_hash) if key_hash else None)
    uuid = lake.clock.new_uuid()
    try:
        return await _staged(lake, identifier, metadata_of(uuid), claim)
    except ClaimLost:
        return await _staged_before(lake, identifier, metadata_of, claim)
    except SandurError:
        await claim.let_go()
        raise


async def _staged(lake: Lake, identifier: Identifier, metadata: TableMetadata, claim: KeyClaim) -> LoadedTable:
    uuid = metadata.table_uuid or ""
    namespace, found = await asyncio.gather(look_up_namespace(lake, identifier.namespace), look(lake, identifier))
    refusal: SandurError | None = None
    if namespace is None:
        refusal = NotFound(f"Namespace does not exist: {identifier.namespace}", subject="namespace")
    elif found:
        refusal = taken(identifier, found.name.value, "table")
    if refusal:
        await claim.done(uuid=uuid, error=refusal)
        raise refusal
    await claim.take(uuid=uuid)
    make_room(lake, metadata.location)
    body = encode_table_metadata(metadata)
    now_ms = lake.clock.now_ms()
    stage = Stage(
        table_uuid=uuid,
        identifier=identifier,
        location=metadata.location,
        created_ms=now_ms,
        expires_ms=now_ms + seconds_of(lake.settings.stage_ttl) * 1_000,
        metadata=msgspec.Raw(body),
    )
    with contextlib.suppress(SwapLost):  # An earlier attempt of this request wrote it.
        await lake.stage(identifier, uuid).create(stage)
    await claim.done(uuid=uuid, location=metadata.location)
    return LoadedTable(metadata=body, table_uuid=uuid)


async def _staged_before(
    lake: Lake, identifier: Identifier, metadata_of: Callable[[str], TableMetadata], claim: KeyClaim
) -> LoadedTable:
    """A retry: the stage of the first attempt, or, if it did not get that far, one with the same uuid."""
    followed = await claim.follow()
    stage = await lake.stage(identifier, followed.uuid).read()
    if stage:
        return LoadedTable(metadata=bytes(stage.value.metadata), table_uuid=followed.uuid)
    if followed.state == "done":  # Committed or expired since; what was answered is still what the client asked for.
        return LoadedTable(metadata=encode_table_metadata(metadata_of(followed.uuid)), table_uuid=followed.uuid)
    try:
        return await _staged(lake, identifier, metadata_of(followed.uuid), claim)
    except ClaimLost:
        raise Busy(f"{identifier}: is being staged") from None


async def forget_stage(lake: Lake, identifier: Identifier, uuid: str) -> None:
    """The stage of a table that was committed; if this is lost, the janitor takes it when it expires."""
    cell = lake.stage(identifier, uuid)
    if stage := await cell.read():
        with contextlib.suppress(SwapLost):
            await cell.empty(expected=stage.version)
