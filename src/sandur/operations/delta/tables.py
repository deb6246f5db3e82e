"""Delta tables and other tables of the Unity Catalog API: staged, created, found, renamed and dropped."""

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind, checked_identifier
from sandur.catalog.locations import checked_location, normalize_location
from sandur.catalog.records import BoundRecord, Claim, DeltaStage, DeltaTable, NameRecord, Uniform
from sandur.catalog.sources import Request
from sandur.delta.protocol import check_table_id
from sandur.errors import BadRequest, Busy, Forbidden, Invalid, NotFound, SandurError, WrongFormat
from sandur.operations.concurrency import gather_all
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.records import namespace_not_found
from sandur.operations.lake import Lake
from sandur.operations.receipts import first_delta_commit
from sandur.operations.tables.creation import Creation, NewRecord, name_taken
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.locations import allowed_roots
from sandur.operations.tables.names import EVERY_FORMAT, ResolvedName, resolve_name, resolve_namespace
from sandur.operations.tables.rename import rename
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned

MANAGED_FOLDER: Final = "__unitystorage"
"""What lies below belongs to the catalog: no external table may lie there."""


async def stage_table(lake: Lake, identifier: Identifier, *, principal: str = "") -> DeltaStage:
    """A place where the files of a managed table may be written; the table itself is made by `create_from_staging`.

    AlreadyExists when the name is taken; any number of places may be asked for under one that is not.
    """
    checked_identifier(identifier)
    roots, namespace, found = await gather_all(
        (
            allowed_roots(lake, identifier.catalog),
            resolve_namespace(lake, identifier.namespace),
            resolve_name(lake, identifier),
        )
    )
    if namespace is None:
        await load_catalog(lake, identifier.catalog)  # Which part of the name it is.
        raise namespace_not_found(identifier.namespace)
    if found:
        raise name_taken(identifier, found.name.value, "table")
    parent = namespace.value.properties.get("location") or roots[0]
    uuid = lake.clock.new_uuid()
    now_ms = lake.clock.now_ms()
    stage = DeltaStage(
        uuid=uuid,
        identifier=identifier,
        location=f"{normalize_location(parent)}/{MANAGED_FOLDER}/tables/{uuid}",
        created_ms=now_ms,
        expires_ms=now_ms + seconds_of(lake.settings.stage_ttl) * 1_000,
        created_by=principal,
    )
    held = await lake.delta_stage(uuid).create(stage)
    return held.value


async def load_stage(lake: Lake, uuid: str) -> DeltaStage:
    """The place of that id; NotFound when there is none, or it was given up."""
    found = await lake.delta_stage(uuid).read()
    if found is None:
        raise NotFound(f"Staging table does not exist: {uuid}", subject="table")
    return found.value


def check_owner(stage: DeltaStage, principal: str) -> None:
    """Forbidden for anybody but the one who staged the place: it is theirs until it is a table."""
    if stage.created_by and stage.created_by != principal:
        raise Forbidden(f"the staging table {stage.uuid} was made by somebody else")


async def load_stage_at(lake: Lake, location: str) -> DeltaStage:
    """The place at a location, which ends in its id; NotFound when nothing was staged there."""
    plain = normalize_location(location)
    missing_there = NotFound(f"Staging table does not exist at location {location}", subject="table")
    try:
        found = await lake.delta_stage(plain.rpartition("/")[2]).read()
    except BadRequest:  # What stands at the end is no id at all.
        raise missing_there from None
    if found is None or normalize_location(found.value.location) != plain:
        raise missing_there
    return found.value


CREATE: Final = "create-delta-table"
DELTA: Final = "DELTA"
_VIEWS: Final = frozenset({"VIEW", "METRIC_VIEW", "MATERIALIZED_VIEW"})


class NewTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table to be created. `columns` is a JSON list in the form of the classic API, complete and checked.

    `last_commit_ms` is the time of version 0, where the client says it.
    """

    identifier: Identifier
    table_type: str
    data_source_format: str = DELTA
    location: str = ""
    columns: msgspec.Raw = msgspec.Raw(b"[]")
    properties: dict[str, str] = {}
    comment: str | None = None
    view_definition: str | None = None
    view_dependencies: msgspec.Raw | None = None
    last_commit_ms: int = 0
    uniform: Uniform | None = None


async def create_external(
    lake: Lake, wanted: NewTable, *, request: Request, external_roots: tuple[str, ...] = ()
) -> DeltaTable:
    """A table whose files are not the catalog's, or a view; AlreadyExists when the name is taken.

    Its location must lie below the catalog's root, an allowed location, or one of `external_roots` (normalized), and
    not where the catalog keeps managed tables.
    """
    checked_identifier(wanted.identifier)
    location = ""
    if wanted.table_type not in _VIEWS:
        roots = await allowed_roots(lake, wanted.identifier.catalog)
        location = _external_location(wanted.location, (*roots, *external_roots))
    draft = _Draft(lake, replace(wanted, location=location), request, uuid=None)
    return await Creation(lake, wanted.identifier, draft, request, CREATE).run()


async def create_from_staging(lake: Lake, wanted: NewTable, *, request: Request) -> DeltaTable:
    """The managed table for which a place was staged, at whose location its first commit lies.

    The same request again is answered alike; another one for a place that has become a table is Invalid.
    """
    checked_identifier(wanted.identifier)
    if wanted.data_source_format != DELTA:
        raise Invalid(f"a managed table must be of the format {DELTA}, not {wanted.data_source_format}")
    stage = await load_stage_at(lake, wanted.location)
    check_owner(stage, request.source.principal)
    check_table_id(wanted.properties, stage.uuid)
    draft = _Draft(lake, replace(wanted, location=stage.location), request, uuid=stage.uuid)
    return await Creation(lake, wanted.identifier, draft, request, CREATE).run()


async def find_table(lake: Lake, identifier: Identifier) -> ResolvedName | None:
    """Whatever table or view has the name, of either format; None when there is none."""
    found = await resolve_name(lake, identifier)
    return found if found and found.name.value.kind in {"table", "view"} else None


async def load_delta_table(lake: Lake, identifier: Identifier) -> DeltaTable:
    """The record of a table that the Unity Catalog API made; WrongFormat for an Iceberg table, NotFound for none."""
    found = await find_table(lake, identifier)
    if found is None:
        raise table_not_found(identifier)
    if not isinstance(found.pointer.value, DeltaTable):
        raise WrongFormat(f"{identifier} is not a Delta table: its format is {found.name.value.format.upper()}")
    return found.pointer.value


async def load_by_id(lake: Lake, uuid: str) -> DeltaTable:
    """The table of that id, whatever its name is by now; NotFound when it does not live."""
    held = await lake.delta_table(uuid).read()
    if held is None or held.value.state in {"dropped", "killed"}:
        raise NotFound(f"Table does not exist: {uuid}", subject="table")
    return held.value


async def drop_table(lake: Lake, identifier: Identifier, *, request: Request) -> None:
    """Drop a table of either format, or a view. The files of a managed Delta table are purged; all others stay."""
    found = await find_table(lake, identifier)
    kind = found.name.value.kind if found else await _dropped_kind(lake, request)
    if kind is None:
        raise table_not_found(identifier)
    table = found.pointer.value if found else None
    is_managed = isinstance(table, DeltaTable) and table.table_type == "MANAGED"
    await drop_name(lake, identifier, kind=kind, purge=is_managed, request=request, formats=EVERY_FORMAT)


async def _dropped_kind(lake: Lake, request: Request) -> Kind | None:
    """What an earlier attempt of this request set out to drop, by its claim; None when there was none."""
    key_hash = request.key_hash
    kinds: tuple[Kind, ...] = ("table", "view")
    for kind in kinds:
        if key_hash and await lake.claim(f"drop-{kind}", key_hash).read():
            return kind
    return None


async def rename_table(lake: Lake, source: Identifier, new_name: str, *, request: Request) -> None:
    """Another name in the same schema, for a table of either format."""
    target = source._replace(name=new_name)
    await rename(lake, source, target, kind="table", request=request, formats=EVERY_FORMAT)


def table_not_found(identifier: Identifier) -> NotFound:
    return NotFound(f"Table does not exist: {identifier.catalog}.{identifier}", subject="table")


def _external_location(location: str, roots: tuple[str, ...]) -> str:
    if not location:
        raise Invalid("an external table needs a storage location")
    plain = normalize_location(location)
    if MANAGED_FOLDER in plain.split("/"):
        raise Invalid(f"Invalid location {location}: {MANAGED_FOLDER} is where managed tables lie")
    checked_location(plain, roots)
    return plain


@dataclass(frozen=True)
class _Draft:
    """A table as the protocol of creation sees it: no file is written, the record is all there is."""

    lake: Lake
    wanted: NewTable
    request: Request
    uuid: str | None
    format: Format = "delta"

    @property
    def kind(self) -> Kind:
        return "view" if self.wanted.table_type in _VIEWS else "table"

    @property
    def is_named_by_uuid(self) -> bool:
        return self.uuid is not None

    def made(self, uuid: str) -> NewRecord[DeltaTable]:
        now_ms = self.lake.clock.now_ms()
        principal = self.request.source.principal
        table = DeltaTable(
            uuid=uuid,
            table_uuid=uuid,
            state="unbound",
            kind=self.kind,
            table_type=self.wanted.table_type,
            data_source_format=self.wanted.data_source_format,
            location=self.wanted.location,
            columns=self.wanted.columns,
            comment=self.wanted.comment,
            properties=self.wanted.properties,
            view_definition=self.wanted.view_definition,
            view_dependencies=self.wanted.view_dependencies,
            etag=self.lake.clock.new_id(),
            owner=principal,
            created_ms=now_ms,
            created_by=principal,
            changed_ms=now_ms,
            changed_by=principal,
            last_commit_ms=self.wanted.last_commit_ms,
            uniform=self.wanted.uniform,
        )
        return NewRecord(table, table)

    async def write(self, made: NewRecord[DeltaTable]) -> None:
        """There are no files of ours."""

    async def found(self, pointer: Versioned[BoundRecord]) -> DeltaTable | None:
        return pointer.value if isinstance(pointer.value, DeltaTable) else None

    async def answered(self, claim: Claim) -> DeltaTable:
        return await load_by_id(self.lake, claim.uuid)

    async def finish(self, pointer: BoundRecord) -> None:
        if isinstance(pointer, DeltaTable) and pointer.table_type == "MANAGED":
            await self.lake.delta_receipts.ensure(pointer, first_delta_commit(pointer))

    def refusal(self, identifier: Identifier, by: NameRecord) -> SandurError:
        return name_taken(identifier, by, self.kind)

    def spent(self, pointer: BoundRecord) -> SandurError | None:
        """A place becomes one table, and a uuid that was given out stands for that one."""
        if self.uuid is None:
            return None
        match pointer.state:
            case "killed":
                return NotFound(f"Staging table does not exist any more: {pointer.uuid}", subject="table")
            case "live" | "dropped":
                return Invalid(f"the staging table {pointer.uuid} was made a table before")
            case _:
                return Busy(f"the staging table {pointer.uuid} is being made a table by another request")
