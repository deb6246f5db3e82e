"""Commit to a table that exists, or create it by the commit."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sandur.catalog import locations
from sandur.catalog.identifiers import Identifier, Kind, checked_identifier
from sandur.catalog.records import NameRecord, Request
from sandur.errors import Conflict, SandurError
from sandur.iceberg.requests import AssertCreate, AssertTableUuid, TableCommit
from sandur.iceberg.table_commit import is_replay, next_metadata
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddSnapshot, AssignUuid, RemoveProperties, SetLocation, SetProperties, Update
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit as commit_change
from sandur.operations.tables.create import FirstDocument, create_document, forget_stage
from sandur.operations.tables.creation import name_taken
from sandur.operations.tables.documents import TABLES, Document, LoadedTable, encode_document, loaded_table
from sandur.operations.tables.locations import allowed_roots, default_location

CREATE_BY_COMMIT: Final = "create-table-by-commit"


async def commit_table(lake: Lake, identifier: Identifier, commit: TableCommit, request: Request) -> LoadedTable:
    """The table after the commit. A commit that asserts create creates the table; it needs no stage."""
    creates = any(isinstance(requirement, AssertCreate) for requirement in commit.requirements)
    needs_roots = creates or _sets_paths(commit.updates)
    change = TableChange(commit, await allowed_roots(lake, identifier.catalog) if needs_roots else ())
    if creates:
        return await _create_by_commit(lake, identifier, change, request)
    return loaded_table(lake, await commit_change(lake, TABLES, identifier, change, request))


class TableChange(NamedTuple):
    """The commit of one table, and the roots below which its files may lie (empty if the commit sets no path)."""

    commit: TableCommit
    roots: Sequence[str] = ()

    @property
    def asserted_uuid(self) -> str | None:
        asserted = (r.uuid for r in self.commit.requirements if isinstance(r, AssertTableUuid))
        return next((uuid.lower() for uuid in asserted), None)

    def apply(self, base: TableMetadata, *, now_ms: int) -> TableMetadata:
        check_updates(self.commit.updates, base.location, self.roots)
        return next_metadata(base, self.commit.requirements, self.commit.updates, now_ms=now_ms)

    def is_applied(self, current: TableMetadata) -> bool:
        return is_replay(current, self.commit.requirements, self.commit.updates)

    def operation(self, next_metadata: TableMetadata) -> str:
        for update in self.commit.updates:
            if isinstance(update, AddSnapshot) and update.snapshot.snapshot_id == next_metadata.current_snapshot_id:
                return (update.snapshot.summary or {}).get("operation", "")
        return ""


def check_updates(updates: Sequence[Update], location: str | None, roots: Sequence[str]) -> None:
    """Refuse changes of reserved properties, and locations outside of the roots."""
    for update in updates:
        match update:
            case SetProperties():
                locations.check_property_keys(update.updates)
                locations.check_paths(update.updates, roots)
            case RemoveProperties():
                locations.check_property_keys(update.removals)
            case SetLocation():
                locations.check_moved_location(update.location, location, roots)
            case _:
                pass


def _sets_paths(updates: Sequence[Update]) -> bool:
    return any(
        isinstance(update, SetLocation)
        or (isinstance(update, SetProperties) and any(key in locations.PATH_PROPERTIES for key in update.updates))
        for update in updates
    )


async def _create_by_commit(lake: Lake, identifier: Identifier, change: TableChange, request: Request) -> LoadedTable:
    """The end of a create transaction: the commit's own updates build the table, whatever was staged."""
    checked_identifier(identifier)
    metadata = created_metadata(lake, identifier, change)

    def document(uuid: str) -> Document[TableMetadata]:
        del uuid  # The metadata has its own.
        return encode_document(lake, TABLES, metadata, version=0, request=request)

    # A table of its uuid under the name is this very one (C9).
    draft = FirstDocument(document, uuid=metadata.table_uuid, is_named_by_uuid=True)
    created = await create_document(
        lake, TABLES, identifier, draft, request=request, operation=CREATE_BY_COMMIT, refusal=_create_refusal
    )
    await lake.background.run("forget stage", forget_stage(lake, identifier, metadata.table_uuid or ""))
    return loaded_table(lake, created)


def created_metadata(lake: Lake, identifier: Identifier, change: TableChange) -> TableMetadata:
    """The metadata that the updates of a commit build from nothing."""
    updates = with_defaults(lake, identifier, change.commit.updates, change.roots)
    return next_metadata(None, change.commit.requirements, updates, now_ms=lake.clock.now_ms())


def with_defaults(
    lake: Lake, identifier: Identifier, updates: Sequence[Update], roots: Sequence[str]
) -> Sequence[Update]:
    """The updates that create a table or view, with a uuid and a location if they set none."""
    check_updates(updates, None, roots)
    complete = list(updates)
    uuid = next((update.uuid for update in updates if isinstance(update, AssignUuid)), None)
    if uuid is None:
        uuid = lake.clock.new_uuid()
        complete.insert(0, AssignUuid(uuid=uuid))
    if not any(isinstance(update, SetLocation) for update in updates):
        complete.append(SetLocation(location=default_location(roots[0], identifier, uuid)))
    return complete


def _create_refusal(identifier: Identifier, by: NameRecord, kind: Kind) -> SandurError:
    """The refusal of the commit route, in terms of its requirements; a view in the way is refused as everywhere."""
    if by.kind == "table":
        return Conflict("Requirement failed: table already exists")
    return name_taken(identifier, by, kind)
