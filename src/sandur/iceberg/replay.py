"""Natural replay: recognising a commit that was applied before, although its answer was lost."""

from collections.abc import Sequence

from sandur.iceberg.requirements import AssertCreate, Requirement
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddSnapshot, AssignUuid, Update


def is_replay(current: TableMetadata, requirements: Sequence[Requirement], updates: Sequence[Update]) -> bool:
    """Whether `current` already contains this commit.

    A commit that creates the table is recognised by the uuid it assigns, any other one by the snapshots it adds, which
    must all be there with equal content. Ids of snapshots and tables are random, so nothing else can have put them
    there. A commit that does neither is never recognised: applying it again is left to its requirements.
    """
    if any(isinstance(requirement, AssertCreate) for requirement in requirements):
        return _assigns_uuid_of(current, updates)
    added = [update.snapshot for update in updates if isinstance(update, AddSnapshot)]
    return bool(added) and all(_is_present(current, snapshot) for snapshot in added)


def _assigns_uuid_of(current: TableMetadata, updates: Sequence[Update]) -> bool:
    assigned = [update.uuid.lower() for update in updates if isinstance(update, AssignUuid)]
    return bool(assigned) and current.table_uuid is not None and assigned[-1] == current.table_uuid.lower()


def _is_present(current: TableMetadata, snapshot: Snapshot) -> bool:
    return current.snapshot(snapshot.snapshot_id) == snapshot
