"""Delta tables and other tables of the Unity Catalog API: staged, created, found, renamed and dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.events import Source
from sandur.catalog.functions import DependencyList
from sandur.catalog.identifiers import Format, Identifier, Kind, checked_identifier
from sandur.catalog.infos import with_rename
from sandur.catalog.locations import canonical_address, check_length, normalize_location
from sandur.catalog.records import BoundRecord, Claim, DeltaStage, DeltaTable, Request, Uniform
from sandur.delta.protocol import check_table_id
from sandur.errors import Busy, Invalid, NotFound, SandurError, WrongFormat
from sandur.operations.containers.records import with_creation
from sandur.operations.delta.publishing import STAGED_FOLDER
from sandur.operations.idempotency import claim_for, key_hash_of, run_exactly_once
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import allowed_roots, default_location, resolve_placed_namespace
from sandur.operations.name_access import (
    authorize_places,
    authorize_schema,
    find_allowed,
    missing_as,
    naming_missing_parent,
)
from sandur.operations.receipts import DeltaReceipts, first_delta_commit
from sandur.operations.tables.creation import Creation
from sandur.operations.tables.drafts import Draft, NewRecord, name_taken
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import EVERY_FORMAT, ResolvedName, is_alive, namespace_not_found, resolve_name
from sandur.operations.tables.rename import rename
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned, gather_all
from sandur.storage.contract import ABSENT

CREATE: Final = "create-delta-table"
_STAGE: Final = "stage-delta-table"
DELTA: Final = "DELTA"
UNKNOWN_SOURCE: Final = Source()
_VIEWS: Final = frozenset({"VIEW", "METRIC_VIEW", "MATERIALIZED_VIEW"})


async def stage_table(
    lake: Lake, identifier: Identifier, *, source: Source = UNKNOWN_SOURCE, request: Request | None = None
) -> DeltaStage:
    """Reserve a location for the files of a managed table, which `create_from_staging` then creates.

    Raises AlreadyExists if the name is taken. The same free name can be staged any number of times; a `request` with a
    key gets the stage of its first attempt again.
    """
    sent = request or Request(hash="", source=source)
    checked_identifier(identifier)
    await authorize_schema(lake, identifier.namespace)  # A9: before the claim.
    claim = claim_for(lake, sent, _STAGE)

    async def attempt(taken: Claim | None) -> DeltaStage:
        cell = lake.delta_stage(taken.uuid if taken else lake.clock.new_uuid())
        held = await cell.read() if taken else None
        if held is None:
            stage = await _new_stage(lake, identifier, lake.layout.parse_delta_stage(cell.key), sent.source)
            await claim.take(uuid=stage.uuid)
            held = await cell.try_swap(stage, expected=ABSENT) or await cell.read()
        if held is None:
            raise Busy(f"{identifier}: the stage was neither created nor found")
        await claim.done(uuid=held.value.uuid, location=held.value.location)
        return held.value

    async def replay(done: Claim) -> DeltaStage:
        held = await lake.delta_stage(done.uuid).read()
        if held:
            return held.value
        # A table or expired since; the first answer is still what the client wants.
        began_ms = done.started_ms
        return DeltaStage(
            uuid=done.uuid, identifier=identifier, location=done.location, created_ms=began_ms, expires_ms=began_ms
        )

    return await run_exactly_once(claim, attempt, replay)


async def _new_stage(lake: Lake, identifier: Identifier, uuid: str, source: Source) -> DeltaStage:
    """A stage under that uuid; raises AlreadyExists if the name is taken."""
    await allowed_roots(lake, identifier.catalog)
    namespace, found = await gather_all(
        (resolve_placed_namespace(lake, identifier.namespace), resolve_name(lake, identifier))
    )
    if namespace is None:
        raise namespace_not_found(identifier.namespace)
    if found:
        raise name_taken(identifier, found.name.value, "table")
    now_ms = lake.clock.now_ms()
    return DeltaStage(
        uuid=uuid,
        identifier=identifier,
        location=normalize_location(default_location(lake, identifier, uuid)),
        created_ms=now_ms,
        expires_ms=now_ms + seconds_of(lake.settings.stage_ttl) * 1_000,
        created_by=source.principal,
        owner_id=source.principal_id,
    )


async def load_stage(lake: Lake, uuid: str, source: Source) -> DeltaStage:
    """The stage with that id; NotFound if it does not exist, and for everyone but the principal that made it.

    The caller must also still have the right to create the table.
    """
    missing = NotFound(f"Staging table does not exist: {uuid}", subject="table")
    found = await lake.delta_stage(uuid).read()
    if found is None or not _is_staged_by(found.value, source):
        raise missing
    with missing_as(missing):
        await authorize_schema(lake, found.value.identifier.namespace, situation="stage")
    return found.value


def _is_staged_by(stage: DeltaStage, source: Source) -> bool:
    """Whether the principal made the stage; the id counts, because a name may be given to another principal later."""
    if stage.owner_id or source.principal_id:
        return stage.owner_id == source.principal_id
    return not stage.created_by or stage.created_by == source.principal


async def load_stage_at(lake: Lake, location: str, source: Source) -> DeltaStage:
    """The stage at a location, which ends in the stage's id; NotFound if this principal has made none there."""
    check_length("location", location)
    plain = normalize_location(location)
    uuid = canonical_address(location).generated_for
    missing_there = NotFound(f"Staging table does not exist at location {location}", subject="table")
    found = await lake.delta_stage(uuid).read() if uuid else None
    if found is None or normalize_location(found.value.location) != plain or not _is_staged_by(found.value, source):
        raise missing_there
    return found.value


class NewTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table to create. `columns` is a JSON list in the form of the classic API, complete and checked.

    `last_commit_ms` is the time of version 0 if the client sent it.
    """

    identifier: Identifier
    table_type: str
    data_source_format: str = DELTA
    location: str = ""
    columns: msgspec.Raw = msgspec.Raw(b"[]")
    properties: dict[str, str] = {}
    comment: str | None = None
    view_definition: str | None = None
    view_dependencies: DependencyList | None = None
    last_commit_ms: int = 0
    uniform: Uniform | None = None


async def create_external(lake: Lake, wanted: NewTable, *, request: Request) -> DeltaTable:
    """Create a view, or a table whose files the catalog does not own; raises AlreadyExists if the name is taken.

    The location must be below the catalog's root or an allowed location, and outside the folders of managed tables.
    """
    checked_identifier(wanted.identifier)
    location = ""
    if wanted.table_type not in _VIEWS:
        if not wanted.location:
            raise Invalid("an external table needs a storage location")
        await authorize_schema(lake, wanted.identifier.namespace)
        await authorize_places(lake, wanted.identifier.catalog, (wanted.location,))
        await allowed_roots(lake, wanted.identifier.catalog)
        location = normalize_location(wanted.location)
    situation = "view" if wanted.table_type in _VIEWS else ""
    draft = _Draft(lake, replace(wanted, location=location), request, situation=situation)
    return await Creation(lake, wanted.identifier, draft, request, CREATE).run()


async def create_from_staging(lake: Lake, wanted: NewTable, *, request: Request) -> DeltaTable:
    """Create the managed table of a stage; its first commit is already at the stage's location.

    The same request again gets the same answer. Raises Invalid if the stage has become a table by another request.
    """
    checked_identifier(wanted.identifier)
    if wanted.data_source_format != DELTA:
        raise Invalid(f"a managed table must be of the format {DELTA}, not {wanted.data_source_format}")
    stage = await load_stage_at(lake, wanted.location, request.source)
    check_table_id(wanted.properties, stage.uuid)
    # On a file system, Delta Kernel writes commits only into a directory that exists.
    lake.locations.make_folders(f"{stage.location}/{STAGED_FOLDER}")
    draft = _Draft(lake, replace(wanted, location=stage.location), request, stage.uuid, is_named_by_uuid=True)
    return await Creation(lake, wanted.identifier, draft, request, CREATE).run()


async def find_table(lake: Lake, identifier: Identifier) -> ResolvedName | None:
    """The table or view of any format with that name; None if the name is free."""
    found = await resolve_name(lake, identifier)
    return found if found and is_table(found) else None


async def find_allowed_table(lake: Lake, identifier: Identifier, *, situation: str = "") -> ResolvedName:
    """The table or view of any format, if the caller may do with it what the route declares; otherwise NotFound."""
    missing = table_not_found(identifier)
    return await find_allowed(lake, identifier, is_table, missing=missing, situation=situation)


def is_table(found: ResolvedName) -> bool:
    return found.name.value.kind in {"table", "view"}


async def load_delta_table(lake: Lake, identifier: Identifier, *, situation: str = "") -> DeltaTable:
    """The record of a table of the Unity Catalog API; raises WrongFormat for an Iceberg table, else NotFound."""
    found = await find_allowed_table(lake, identifier, situation=situation)
    if not isinstance(found.pointer.value, DeltaTable):
        raise WrongFormat(f"{identifier} is not a Delta table: its format is {found.name.value.format.upper()}")
    return with_rename(found.pointer.value, found.name.value)


async def find_by_id(lake: Lake, uuid: str) -> Versioned[DeltaTable]:
    """The table with that id under any name; raises NotFound if it does not exist or was dropped."""
    held = await lake.delta_table(uuid).read()
    if held is None or not is_alive(held):
        raise id_not_found(uuid)
    # Created or brought back, and not confirmed: it exists only under its name (N4, U1).
    if held.value.state != "live" and (await _find_unconfirmed(lake, held.value)) is None:
        raise id_not_found(uuid)
    return held


async def _find_unconfirmed(lake: Lake, table: DeltaTable) -> ResolvedName | None:
    found = await resolve_name(lake, table.made_for) if table.made_for else None
    return found if found and found.uuid == table.uuid else None


def id_not_found(uuid: str) -> NotFound:
    return NotFound(f"Table does not exist: {uuid}", subject="table")


async def drop_table(lake: Lake, identifier: Identifier, *, request: Request) -> None:
    """Drop a table or view of any format. The files of a managed Delta table are purged; all other files stay."""
    missing = table_not_found(identifier)
    async with naming_missing_parent(lake, identifier.namespace):
        found = await find_table(lake, identifier)
        # Read after the name: an earlier attempt of this request that freed it had claimed the key before.
        kind = await _dropped_kind(lake, request) or (found.name.value.kind if found else None)
        if kind is None:
            raise missing
        with missing_as(missing):
            await drop_name(lake, identifier, kind=kind, purge=_is_managed, request=request, formats=EVERY_FORMAT)


def _is_managed(found: ResolvedName) -> bool:
    table = found.pointer.value
    return isinstance(table, DeltaTable) and table.table_type == "MANAGED"


async def _dropped_kind(lake: Lake, request: Request) -> Kind | None:
    """The kind in the claim of an earlier attempt of this request; None if there is no claim."""
    kinds: tuple[Kind, ...] = ("table", "view")
    key_hash = key_hash_of(request)
    if key_hash is None:
        return None
    claims = await gather_all(lake.claim(f"drop-{kind}", key_hash).read() for kind in kinds)
    return next((kind for kind, claim in zip(kinds, claims, strict=True) if claim), None)


async def rename_table(lake: Lake, source: Identifier, new_name: str, *, request: Request) -> None:
    """Rename a table of any format within its schema."""
    target = source._replace(name=new_name)
    await rename(lake, source, target, kind="table", request=request, formats=EVERY_FORMAT)


def check_takes_commits(table: DeltaTable, table_uri: str | None) -> None:
    """Raise WrongFormat or Invalid unless the table is a managed Delta table, and at `table_uri` if that is given."""
    if table.data_source_format != DELTA or table.kind != "table":
        raise WrongFormat(f"table {table.uuid} is not a Delta table")
    if table.table_type != "MANAGED":
        raise Invalid(f"table {table.uuid}: only a managed table takes commits, this one is {table.table_type}")
    if table_uri is not None and normalize_location(table_uri) != normalize_location(table.location):
        raise Invalid(f"table {table.uuid}: table_uri is {table_uri}, the location is {table.location}")


def table_not_found(identifier: Identifier) -> NotFound:
    return NotFound(f"Table does not exist: {identifier.catalog}.{identifier}", subject="table")


@dataclass(frozen=True)
class _Draft(Draft[DeltaTable]):
    """A new table for the creation engine: the client writes the files."""

    lake: Lake
    wanted: NewTable
    request: Request
    uuid: str | None = None
    is_named_by_uuid: bool = False
    format: Format = "delta"
    situation: str = ""

    @property
    def named_locations(self) -> Sequence[str]:
        return (self.wanted.location,) if self.wanted.location and self.uuid is None else ()

    @property
    def kind(self) -> Kind:
        return "view" if self.wanted.table_type in _VIEWS else "table"

    def made(self, uuid: str) -> NewRecord[DeltaTable]:
        content = msgspec.structs.asdict(self.wanted)
        del content["identifier"]
        etag = self.lake.clock.new_id()
        table = DeltaTable(uuid=uuid, table_uuid=uuid, state="unbound", kind=self.kind, etag=etag, **content)
        table = with_creation(self.lake, table, self.request)
        table = msgspec.structs.replace(table, created_source=self.request.source)
        return NewRecord(table, table, locations=(table.location,) if table.location else ())

    async def found(self, pointer: Versioned[BoundRecord]) -> DeltaTable | None:
        return pointer.value if isinstance(pointer.value, DeltaTable) else None

    async def answered(self, claim: Claim) -> DeltaTable:
        return (await find_by_id(self.lake, claim.uuid)).value

    async def finish(self, pointer: BoundRecord) -> None:
        if isinstance(pointer, DeltaTable) and pointer.table_type == "MANAGED":
            await self.lake.feature(DeltaReceipts).ensure(pointer, first_delta_commit(pointer))

    def spent(self, pointer: BoundRecord) -> SandurError | None:
        """A stage becomes at most one table."""
        if self.uuid is None:
            return None
        match pointer.state:
            case "killed":
                return NotFound(f"Staging table no longer exists: {pointer.uuid}", subject="table")
            case "live" | "dropped" | "purging":
                return Invalid(f"the staging table {pointer.uuid} is already a table")
            case _:
                return Busy(f"the staging table {pointer.uuid} is being created as a table by another request")
