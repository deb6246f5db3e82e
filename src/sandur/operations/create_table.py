"""Create a table: at once, or by a commit that asserts it is new."""

from dataclasses import dataclass
from typing import Final

from sandur.catalog import locations
from sandur.catalog.identifiers import Identifier, Kind, Namespace, checked_identifier
from sandur.catalog.records import NameRecord
from sandur.catalog.sources import Request
from sandur.errors import Conflict, SandurError
from sandur.iceberg.requests import CreateTable
from sandur.iceberg.table_commit import next_metadata
from sandur.iceberg.table_create import create_table_metadata
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AssignUuid, SetLocation, Update
from sandur.operations.creation import taken
from sandur.operations.document_creation import create_document
from sandur.operations.documents import TABLES, Document, new_location, written_as
from sandur.operations.lake import Lake
from sandur.operations.load_table import loaded
from sandur.operations.placing import allowed_roots, chosen_location, default_location
from sandur.operations.results import LoadedTable
from sandur.operations.staging import forget_stage, stage_table
from sandur.operations.table_changes import TableChange, check_updates

CREATE: Final = "create-table"
CREATE_BY_COMMIT: Final = "create-table-by-commit"


async def create_table(lake: Lake, namespace: Namespace, create: CreateTable, request: Request) -> LoadedTable:
    """The new table, or, when the request says so, one that is only staged."""
    identifier = checked_identifier(Identifier(*namespace, create.name))
    properties = create.properties or {}
    locations.check_property_keys(properties)
    roots = await allowed_roots(lake, namespace.catalog)
    locations.check_paths(properties, roots)
    draft = _Created(lake, identifier, create, request, roots)
    if create.stage_create:
        return await stage_table(lake, identifier, draft.metadata, request)
    document = await create_document(lake, TABLES, identifier, draft, request=request, operation=CREATE)
    return loaded(lake, document)


async def create_by_commit(lake: Lake, identifier: Identifier, change: TableChange, request: Request) -> LoadedTable:
    """The end of a create transaction: built from nothing by the commit's own updates, whatever was staged."""
    checked_identifier(identifier)
    roots = await allowed_roots(lake, identifier.catalog)
    metadata = created_metadata(lake, identifier, change, roots)
    draft = _Built(lake, metadata, request)
    document = await create_document(
        lake, TABLES, identifier, draft, request=request, operation=CREATE_BY_COMMIT, refusal=lost_race
    )
    await lake.background.run("forget stage", forget_stage(lake, identifier, metadata.table_uuid or ""))
    return loaded(lake, document)


def created_metadata(lake: Lake, identifier: Identifier, change: TableChange, roots: tuple[str, ...]) -> TableMetadata:
    """What the updates of a create transaction make of nothing; a uuid or a location they leave out is given."""
    updates: list[Update] = list(change.commit.updates)
    check_updates(updates, None, roots)
    uuid = next((update.uuid for update in updates if isinstance(update, AssignUuid)), None)
    if uuid is None:
        uuid = lake.clock.new_uuid()
        updates.insert(0, AssignUuid(uuid=uuid))
    if not any(isinstance(update, SetLocation) for update in updates):
        updates.append(SetLocation(location=default_location(roots[0], identifier, uuid)))
    return next_metadata(None, change.commit.requirements, updates, now_ms=lake.clock.now_ms())


def lost_race(identifier: Identifier, by: NameRecord, kind: Kind) -> SandurError:
    """The commit route speaks of requirements; a view in the way is told as everywhere."""
    if by.kind == "table":
        return Conflict("Requirement failed: table already exists")
    return taken(identifier, by, kind)


@dataclass(frozen=True)
class _Created:
    """A table as a create request describes it; its uuid is not known yet."""

    lake: Lake
    identifier: Identifier
    create: CreateTable
    request: Request
    roots: tuple[str, ...]
    uuid: str | None = None
    is_named_by_uuid: bool = False
    is_written: bool = False

    def metadata(self, uuid: str) -> TableMetadata:
        location = chosen_location(self.create.location, self.roots, self.identifier, uuid)
        now_ms = self.lake.clock.now_ms()
        return create_table_metadata(self.create, location=location, table_uuid=uuid, now_ms=now_ms)

    def document(self, uuid: str) -> Document[TableMetadata]:
        return first_document(self.lake, self.metadata(uuid), self.request)


@dataclass(frozen=True)
class _Built:
    """A table as a create transaction built it; a table of its uuid under the name is this very one (C9)."""

    lake: Lake
    built: TableMetadata
    request: Request
    is_named_by_uuid: bool = True
    is_written: bool = False

    @property
    def uuid(self) -> str | None:
        return self.built.table_uuid

    def document(self, uuid: str) -> Document[TableMetadata]:
        del uuid  # The metadata has its own.
        return first_document(self.lake, self.built, self.request)


def first_document(lake: Lake, metadata: TableMetadata, request: Request) -> Document[TableMetadata]:
    location = new_location(lake, TABLES, metadata, version=0, request_hash=request.key_hash or request.hash)
    return written_as(TABLES, metadata, location)
