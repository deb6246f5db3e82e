"""What each update does to the snapshots of a table and to the references that name them."""

from dataclasses import replace
from typing import assert_never

from sandur.errors import Conflict, Invalid
from sandur.iceberg import updates as u
from sandur.iceberg.snapshots import (
    BRANCH,
    MAIN_BRANCH,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
    SnapshotSequence,
    check_snapshot,
    checked_ref,
)
from sandur.iceberg.table_metadata import FORMAT_VERSION_WITH_ROW_LINEAGE, TableMetadata
from sandur.iceberg.table_updates import Draft, without_snapshots
from sandur.splicing import encode, shorten

ROW_ID_MAX = 2**63 - 1


def apply_snapshot(draft: Draft, update: u.SnapshotUpdate, *, now_ms: int) -> Draft:
    match update:
        case u.AddSnapshot():
            return add_snapshot(draft, update.snapshot)
        case u.SetSnapshotRef():
            return set_snapshot_ref(draft, update.ref_name, update.ref, now_ms=now_ms)
        case u.RemoveSnapshotRef():
            return remove_snapshot_ref(draft, update.ref_name)
        case u.RemoveSnapshots():
            return remove_snapshots(draft, update.snapshot_ids)
        case _:
            assert_never(update)


def add_snapshot(draft: Draft, snapshot: Snapshot) -> Draft:
    metadata = draft.metadata
    check_snapshot(snapshot)
    _check_ready_for_snapshots(metadata)
    if snapshot.snapshot_id in draft.added_snapshots or draft.base_has_snapshot(snapshot.snapshot_id):
        raise Invalid(f"Snapshot already exists for id: {snapshot.snapshot_id}")
    _check_sequence_number(metadata, snapshot)
    return replace(draft, added_snapshots={**draft.added_snapshots, snapshot.snapshot_id: snapshot}).changed(
        snapshot_list=metadata.snapshot_list.with_appended(snapshot),
        last_sequence_number=max(metadata.last_sequence_number, snapshot.sequence_number),
        next_row_id=_next_row_id(metadata, snapshot),
    )


def _check_ready_for_snapshots(metadata: TableMetadata) -> None:
    needed = (
        (metadata.schema_list, "schema"),
        (metadata.spec_list, "partition spec"),
        (metadata.sort_order_list, "sort order"),
    )
    for items, what in needed:
        if items.is_empty:
            raise Invalid(f"Attempting to add a snapshot before a {what} is added")


def _check_sequence_number(metadata: TableMetadata, snapshot: Snapshot) -> None:
    number, last = snapshot.sequence_number, metadata.last_sequence_number
    if metadata.format_version == 1:
        if number != 0:
            raise Invalid(f"Sequence number must be 0 in v1: {number}")
        return
    if number > last:
        return
    # A snapshot without parent starts a new history; it may share the last number but never go below a used one.
    if snapshot.parent_snapshot_id is None and number >= _highest_sequence_number(metadata, at_least=number):
        return
    raise _stale(f"Cannot add snapshot with sequence number {number} older than last sequence number {last}")


def _highest_sequence_number(metadata: TableMetadata, *, at_least: int) -> int:
    if at_least == metadata.last_sequence_number:
        return at_least
    return max((found.sequence_number for found in metadata.snapshot_list.read_only(SnapshotSequence)), default=0)


def _next_row_id(metadata: TableMetadata, snapshot: Snapshot) -> int:
    if metadata.format_version < FORMAT_VERSION_WITH_ROW_LINEAGE:
        return metadata.next_row_id
    if snapshot.first_row_id is None or snapshot.added_rows is None:
        raise Invalid("Cannot add a snapshot: first-row-id is null")
    if snapshot.first_row_id < metadata.next_row_id:
        raise _stale(
            "Cannot add a snapshot, first-row-id is behind table next-row-id: "
            f"{snapshot.first_row_id} < {metadata.next_row_id}"
        )
    next_row_id = snapshot.first_row_id + snapshot.added_rows
    if next_row_id > ROW_ID_MAX:
        raise Invalid(f"Cannot add a snapshot: next-row-id would be {next_row_id}, beyond {ROW_ID_MAX}")
    return next_row_id


def _stale(text: str) -> Conflict:
    return Conflict(f"Validation failed, please retry: {text}")


def set_snapshot_ref(draft: Draft, name: str, requested: SnapshotRef, *, now_ms: int) -> Draft:
    metadata = draft.metadata
    ref = checked_ref(requested)
    if metadata.ref(name) == ref:
        return draft
    added = draft.added_snapshots.get(ref.snapshot_id)
    if added is None and not metadata.has_snapshot(ref.snapshot_id):
        raise Invalid(f"Cannot set {shorten(name)} to unknown snapshot: {ref.snapshot_id}")
    refs = {**metadata.ref_map, name: encode(ref)}
    if name != MAIN_BRANCH:
        return draft.changed(ref_map=refs)
    if ref.type != BRANCH:
        raise Invalid(f"Cannot set {MAIN_BRANCH} to a tag, it must be a branch")
    entry = SnapshotLogEntry(timestamp_ms=now_ms if added is None else added.timestamp_ms, snapshot_id=ref.snapshot_id)
    current = draft.main_snapshot_ids if added is None else draft.main_snapshot_ids | {ref.snapshot_id}
    return replace(draft, main_snapshot_ids=current).changed(
        ref_map=refs,
        current_snapshot_id=ref.snapshot_id,
        snapshot_log_list=metadata.snapshot_log_list.with_appended(entry),
    )


def remove_snapshot_ref(draft: Draft, name: str) -> Draft:
    """The snapshot log stays, also for main: a replaced table keeps its history."""
    metadata = draft.metadata
    # A file may name a current snapshot without having a main branch.
    current_snapshot_id = None if name == MAIN_BRANCH else metadata.current_snapshot_id
    if name not in metadata.ref_map and current_snapshot_id == metadata.current_snapshot_id:
        return draft
    remaining = {found: ref for found, ref in metadata.ref_map.items() if found != name}
    return draft.changed(ref_map=remaining, current_snapshot_id=current_snapshot_id)


def remove_snapshots(draft: Draft, snapshot_ids: tuple[int, ...]) -> Draft:
    """Drop the snapshots with their statistics and every reference to them; unknown ids are ignored."""
    metadata = draft.metadata
    gone = metadata.snapshot_ids & frozenset(snapshot_ids)
    if not gone:
        return draft
    is_kept = [snapshot_id not in gone for snapshot_id in metadata.snapshot_id_list]
    dangling = {name for name, ref in metadata.refs.items() if ref.snapshot_id in gone}
    added = {added_id: snapshot for added_id, snapshot in draft.added_snapshots.items() if added_id not in gone}
    remaining = replace(draft, has_removed_snapshots=True, added_snapshots=added).changed(
        snapshot_list=metadata.snapshot_list.without(is_kept),
        statistics_list=without_snapshots(metadata.statistics_list, gone),
        partition_statistics_list=without_snapshots(metadata.partition_statistics_list, gone),
    )
    if metadata.current_snapshot_id in gone:
        remaining = remove_snapshot_ref(remaining, MAIN_BRANCH)
    refs = {name: ref for name, ref in remaining.metadata.ref_map.items() if name not in dangling}
    return remaining.changed(ref_map=refs)
