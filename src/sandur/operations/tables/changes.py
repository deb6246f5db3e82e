"""Changes to tables: what a commit request asks for, and what the catalog refuses to change."""

from collections.abc import Sequence
from typing import NamedTuple

from sandur.catalog import locations
from sandur.catalog.identifiers import Identifier
from sandur.iceberg.requests import TableCommit
from sandur.iceberg.requirements import AssertCreate, AssertTableUuid
from sandur.iceberg.table_commit import is_replay, next_metadata
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddSnapshot, RemoveProperties, SetLocation, SetProperties, Update
from sandur.operations.lake import Lake
from sandur.operations.tables.locations import allowed_roots


class TableChange(NamedTuple):
    """A commit of one table and the roots below which its files may lie (empty while nothing asks for them)."""

    commit: TableCommit
    roots: Sequence[str] = ()

    @property
    def creates(self) -> bool:
        return any(isinstance(requirement, AssertCreate) for requirement in self.commit.requirements)

    @property
    def asserted_uuid(self) -> str | None:
        asserted = (r.uuid for r in self.commit.requirements if isinstance(r, AssertTableUuid))
        return next((uuid.lower() for uuid in asserted), None)

    def applied_to(self, base: TableMetadata, *, now_ms: int) -> TableMetadata:
        check_updates(self.commit.updates, base.location, self.roots)
        return next_metadata(base, self.commit.requirements, self.commit.updates, now_ms=now_ms)

    def is_in(self, current: TableMetadata) -> bool:
        return is_replay(current, self.commit.requirements, self.commit.updates)

    def operation_on(self, next_metadata: TableMetadata) -> str:
        for update in self.commit.updates:
            if isinstance(update, AddSnapshot) and update.snapshot.snapshot_id == next_metadata.current_snapshot_id:
                return (update.snapshot.summary or {}).get("operation", "")
        return ""


def check_updates(updates: Sequence[Update], location: str | None, roots: Sequence[str]) -> None:
    """Guardrails: reserved properties, and the location policy for everything that names a place."""
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


def names_places(updates: Sequence[Update]) -> bool:
    """Whether any of the updates says where files lie, so that the catalog's roots have to be known."""
    return any(
        isinstance(update, SetLocation)
        or (isinstance(update, SetProperties) and any(key in locations.PATH_PROPERTIES for key in update.updates))
        for update in updates
    )


async def table_change(lake: Lake, identifier: Identifier, commit: TableCommit) -> TableChange:
    needs_roots = names_places(commit.updates)
    return TableChange(commit, await allowed_roots(lake, identifier.catalog) if needs_roots else ())
