"""What a commit changes: the change of a table, and the places and properties that its updates touch."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from sandur.catalog import locations
from sandur.catalog.property_keys import check_new_keys
from sandur.errors import Conflict, Invalid
from sandur.iceberg.requests import AssertTableUuid, TableCommit, check_requirements
from sandur.iceberg.table_commit import is_replay, next_metadata
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddSnapshot, RemoveProperties, SetLocation, SetProperties, Update
from sandur.operations.tables.documents import M
from sandur.operations.tables.manifest_places import check_added_manifests


def sets_paths(updates: Sequence[Update]) -> bool:
    return any(
        isinstance(update, SetLocation)
        or (isinstance(update, SetProperties) and any(key in locations.PATH_PROPERTIES for key in update.updates))
        for update in updates
    )


def check_updates(updates: Sequence[Update]) -> None:
    """Refuse changes of reserved properties."""
    for update in updates:
        match update:
            case SetProperties():
                check_new_keys(update.updates)
            case RemoveProperties():
                locations.check_property_keys(update.removals)


def changes_places(updates: Sequence[Update], location: str | None, properties: Mapping[str, str]) -> bool:
    """Whether the updates change the location, a path property or a `gc.` property of a table or view."""
    for update in updates:
        match update:
            case SetLocation() if location is None or not locations.is_same(update.location, location):
                return True
            case SetProperties():
                changed = [key for key, value in update.updates.items() if properties.get(key) != value]
            case RemoveProperties():
                changed = [key for key in update.removals if key in properties]
            case _:
                changed = []
        if any(key in locations.PATH_PROPERTIES or key.startswith("gc.") for key in changed):
            return True
    return False


def named_places(updates: Sequence[Update]) -> Sequence[str]:
    """The locations and paths that the updates of a commit name."""
    places = [update.location for update in updates if isinstance(update, SetLocation)]
    for update in updates:
        if isinstance(update, SetProperties):
            places += locations.paths_of(update.updates)
    return places


class Change(Protocol[M]):
    """What a commit changes."""

    @property
    def asserted_uuid(self) -> str | None:
        """The uuid that the table must have; None if the request asserts none."""

    def apply(self, base: M, *, now_ms: int) -> M:
        """The metadata after the commit, or `base` itself if nothing changes. Raises Conflict or Invalid."""

    def is_possible(self, base: M) -> bool:
        """Whether the metadata meets the requirements; the updates may still be refused."""

    def relocates(self, base: M) -> bool:
        """Whether it changes where files lie or who may delete them, which needs more than the right to commit."""

    def is_applied(self, current: M) -> bool:
        """Whether the metadata shows that this very change was made before (C9)."""

    def operation(self, next_metadata: M) -> str:
        """The kind of change, for the receipt; empty if the change does not touch the table's data."""

    @property
    def sets_paths(self) -> bool:
        """Whether the change may add a place (P9)."""


class TableChange(NamedTuple):
    """The commit of one table."""

    commit: TableCommit

    @property
    def asserted_uuid(self) -> str | None:
        asserted = (r.uuid for r in self.commit.requirements if isinstance(r, AssertTableUuid))
        return next((uuid.lower() for uuid in asserted), None)

    def apply(self, base: TableMetadata, *, now_ms: int) -> TableMetadata:
        after = next_metadata(base, self.commit.requirements, self.commit.updates, now_ms=now_ms)
        check_added_manifests(self.commit.updates, base, after)  # M1
        return after

    def is_possible(self, base: TableMetadata) -> bool:
        try:
            check_requirements(base, self.commit.requirements)
        except (Conflict, Invalid):
            return False
        return True

    def relocates(self, base: TableMetadata) -> bool:
        return changes_places(self.commit.updates, base.location, base.properties)

    def is_applied(self, current: TableMetadata) -> bool:
        return is_replay(current, self.commit.requirements, self.commit.updates)

    def operation(self, next_metadata: TableMetadata) -> str:
        for update in self.commit.updates:
            if isinstance(update, AddSnapshot) and update.snapshot.snapshot_id == next_metadata.current_snapshot_id:
                return (update.snapshot.summary or {}).get("operation", "")
        return ""

    @property
    def sets_paths(self) -> bool:
        return sets_paths(self.commit.updates)
