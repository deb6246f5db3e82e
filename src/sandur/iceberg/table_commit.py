"""The next metadata of a table, from its base, the requirements and the updates of a commit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec

from sandur.errors import Conflict, Invalid
from sandur.iceberg import table_updates
from sandur.iceberg import updates as u
from sandur.iceberg.partitioning import check_fits
from sandur.iceberg.requests import AssertCreate, Requirement, check_requirements
from sandur.iceberg.snapshots import (
    BRANCH,
    MAIN_BRANCH,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
    SnapshotSequence,
    check_snapshot,
    checked_ref,
)
from sandur.iceberg.sort_order import check_order_fits
from sandur.iceberg.table_metadata import FORMAT_VERSION_MAX, FORMAT_VERSION_WITH_ROW_LINEAGE, TableMetadata
from sandur.iceberg.table_updates import Draft, integer_property, without_snapshots
from sandur.splicing import JsonArray, encode, shorten

FORMAT_VERSION_DEFAULT = 2

PREVIOUS_VERSIONS_MAX_DEFAULT = 100
# The second name is an old alias of the first.
_DELETES_OLD_FILES_KEYS = (
    "write.metadata.delete-after-commit.enabled",
    "metadata.delete-after-commit.enabled",
    "metadata.delete-after-commit",
)
PREVIOUS_VERSIONS_MAX_KEYS = ("write.metadata.previous-versions-max", "metadata.previous-versions-max")
# The clocks of servers differ; a step back of at most this much is accepted.
CLOCK_SKEW_MAX_MS = 60_000

ROW_ID_MAX = 2**63 - 1


def next_metadata(
    base: TableMetadata | None, requirements: Sequence[Requirement], updates: Sequence[u.Update], *, now_ms: int
) -> TableMetadata:
    """The metadata after a commit, or `base` itself if the commit changes nothing.

    No base means that the commit creates the table. Raises `Conflict` if a requirement fails or a value of the request
    is stale (the caller loads again and retries), and `Invalid` if the request breaks a rule. The new metadata has no
    location yet; that of `base` becomes the newest entry of the metadata log.
    """
    check_requirements(base, requirements)
    if base is None:
        wanted = (update.format_version for update in updates if isinstance(update, u.UpgradeFormatVersion))
        version = supported_format_version(next(wanted, FORMAT_VERSION_DEFAULT))
        draft = Draft(metadata=TableMetadata(format_version=version), is_new=True)
    else:
        draft = Draft(metadata=base)
    for update in updates:
        draft = apply_update(draft, update, now_ms=now_ms)
    if base is not None and not draft.is_changed:
        return base
    return finish_commit(draft, base, now_ms=now_ms)


def check_references_stay(base: TableMetadata, updates: Sequence[u.Update], after: TableMetadata) -> None:
    """Raise Conflict if a branch or tag would go with its snapshot, although the request does not name it.

    A client expires only snapshots that no branch or tag names, so another writer has made it meanwhile.
    """
    if not any(isinstance(update, u.RemoveSnapshots) for update in updates):
        return
    named = {update.ref_name for update in updates if isinstance(update, u.RemoveSnapshotRef)}
    if lost := sorted(base.refs.keys() - after.refs.keys() - named):
        name = lost[0]
        raise Conflict(f"Cannot remove snapshot {base.refs[name].snapshot_id}: branch or tag {shorten(name)} names it")


def supported_format_version(version: int) -> int:
    """`version`; raises `Invalid` if tables of that version cannot be created."""
    if not 1 <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})")
    return version


def apply_update(draft: Draft, update: u.Update, *, now_ms: int) -> Draft:
    """The draft after one update."""
    match update:
        case u.AddSnapshot():
            return add_snapshot(draft, update.snapshot)
        case u.SetSnapshotRef():
            return set_snapshot_ref(draft, update, now_ms=now_ms)
        case u.RemoveSnapshotRef():
            return remove_snapshot_ref(draft, update.ref_name)
        case u.RemoveSnapshots():
            return remove_snapshots(draft, update.snapshot_ids)
        case u.AddViewVersion() | u.SetCurrentViewVersion():
            raise Invalid(f"Cannot apply update {u.tag_of(update)} to a table")
        case _ if isinstance(update, u.DefinitionUpdate):
            return table_updates.apply_definition(draft, update)
        case _:
            return table_updates.apply_attribute(draft, update)


def finish_commit(draft: Draft, base: TableMetadata | None, *, now_ms: int) -> TableMetadata:
    """The metadata of a changed draft; raises `Invalid` if the table as a whole breaks a rule."""
    _check_identity(draft.metadata)
    _check_defaults(draft.metadata, base)
    snapshot_log = _snapshot_log(draft)
    metadata_log = draft.metadata.metadata_log if base is None else _metadata_log(base, draft.metadata)
    _check_times(snapshot_log, metadata_log, now_ms)
    return replace(
        draft.metadata,
        last_updated_ms=now_ms,
        snapshots=draft.metadata.snapshots.encoded(),
        snapshot_log=snapshot_log.encoded(),
        # Every commit cuts this log, which is cheaper while its entries are values.
        metadata_log=metadata_log.encoded(more_than=PREVIOUS_VERSIONS_MAX_DEFAULT),
        metadata_location=None,
    )


def _check_identity(metadata: TableMetadata) -> None:
    version = metadata.format_version
    if metadata.table_uuid is None:
        raise Invalid(f"UUID is required in format v{version}")
    if not metadata.location:
        raise Invalid(f"Table location is required in format v{version}")
    if version == 1 and metadata.last_sequence_number != 0:
        raise Invalid(f"Sequence number must be 0 in v1: {metadata.last_sequence_number}")


def _check_defaults(metadata: TableMetadata, base: TableMetadata | None) -> None:
    """Raise `Invalid` unless the default spec and order exist and fit the current schema; only changes are checked."""
    for items, what in _definitions(metadata):
        if items.is_empty:
            raise Invalid(f"{what.capitalize()}s cannot be null or empty")
    schema_changed = base is None or metadata.current_schema_id != base.current_schema_id
    if base is None or schema_changed or metadata.default_spec_id != base.default_spec_id:
        check_fits(metadata.default_spec, metadata.current_schema)
    if base is None or schema_changed or metadata.default_sort_order_id != base.default_sort_order_id:
        check_order_fits(metadata.default_sort_order, metadata.current_schema)


def _definitions(metadata: TableMetadata) -> Iterable[tuple[JsonArray[Any], str]]:
    names = ("schema", "partition spec", "sort order")
    return zip((metadata.schemas, metadata.specs, metadata.sort_orders), names, strict=True)


def _snapshot_log(draft: Draft) -> JsonArray[SnapshotLogEntry]:
    """The log without snapshots that were current only within this request, and without gaps left by removed ones."""
    metadata = draft.metadata
    intermediate = draft.main_snapshot_ids - {metadata.current_snapshot_id}
    if not intermediate and not draft.has_removed_snapshots:
        return metadata.snapshot_log
    existing = metadata.snapshot_ids
    entries = metadata.snapshot_log
    is_kept = [entry.snapshot_id in existing and entry.snapshot_id not in intermediate for entry in entries]
    if draft.has_removed_snapshots:
        # Entries before a removed one cannot stay: a reader would attribute the time between to another snapshot.
        gap = max((at for at, entry in enumerate(entries) if entry.snapshot_id not in existing), default=-1)
        is_kept[: gap + 1] = [False] * (gap + 1)
    log = metadata.snapshot_log.keep(is_kept)
    last = log.last()
    if metadata.current_snapshot_id is not None and (last is None or last.snapshot_id != metadata.current_snapshot_id):
        raise Invalid("Cannot set invalid snapshot log: latest entry is not the current snapshot")
    return log


def _metadata_log(base: TableMetadata, metadata: TableMetadata) -> JsonArray[MetadataLogEntry]:
    """The log with the base's file as its newest entry, cut to the length in the new properties."""
    log = metadata.metadata_log
    if base.metadata_location is None:
        return log
    entry = MetadataLogEntry(timestamp_ms=base.last_updated_ms, metadata_file=base.metadata_location)
    stored = len(log.elements()) + len(log.appended)
    surplus = stored + 1 - previous_versions_max(metadata.properties)
    if surplus > 0:
        log = log.keep([position >= surplus for position in range(stored)])
    return log.with_appended(entry)


def previous_versions_max(properties: Mapping[str, str]) -> int:
    """The maximal length of the metadata log; raises `Invalid` if the property is not a number."""
    for key in PREVIOUS_VERSIONS_MAX_KEYS:
        number = integer_property(properties, key)
        if number is not None:
            return max(1, number)
    return PREVIOUS_VERSIONS_MAX_DEFAULT


def deletes_old_files(properties: Mapping[str, str]) -> bool:
    """Whether a commit deletes the metadata files that leave the log; the first of the keys that is set counts."""
    found = next((properties[key] for key in _DELETES_OLD_FILES_KEYS if key in properties), "")
    return found.lower() == "true"


def _check_times(
    snapshot_log: JsonArray[SnapshotLogEntry], metadata_log: JsonArray[MetadataLogEntry], now_ms: int
) -> None:
    stored = JsonArray(raw=snapshot_log.raw, item_type=SnapshotLogEntry).last()
    check_sorted([*([] if stored is None else [stored]), *snapshot_log.appended], "snapshot log")
    last = (snapshot_log.last(), "last snapshot log entry at")
    for entry, what in (last, (metadata_log.last(), "the latest metadata log entry timestamp")):
        if entry is not None and now_ms - entry.timestamp_ms < -CLOCK_SKEW_MAX_MS:
            raise Invalid(f"Invalid update timestamp {now_ms}: before {what} {entry.timestamp_ms}")


def check_sorted(entries: Iterable[SnapshotLogEntry | MetadataLogEntry], what: str) -> None:
    """Raise `Invalid` for a log in which time goes back by more than the clocks of servers differ."""
    for before, after in pairwise(entries):
        if after.timestamp_ms - before.timestamp_ms < -CLOCK_SKEW_MAX_MS:
            raise Invalid(f"Expected sorted {what} entries: {after.timestamp_ms} follows {before.timestamp_ms}")


def is_replay(current: TableMetadata, requirements: Sequence[Requirement], updates: Sequence[u.Update]) -> bool:
    """Whether `current` already contains this commit.

    A commit that creates the table is recognised by the uuid that it assigns, any other one by the snapshots that it
    adds, which must all be present with equal content. These ids are random, so no other commit can have added them.
    A commit that does neither is never recognised; its requirements decide whether it applies again.
    """
    if any(isinstance(requirement, AssertCreate) for requirement in requirements):
        assigned = [update.uuid.lower() for update in updates if isinstance(update, u.AssignUuid)]
        return bool(assigned) and current.table_uuid is not None and assigned[-1] == current.table_uuid.lower()
    added = [update.snapshot for update in updates if isinstance(update, u.AddSnapshot)]
    return bool(added) and all(current.snapshot(snapshot.snapshot_id) == snapshot for snapshot in added)


def add_snapshot(draft: Draft, snapshot: Snapshot) -> Draft:
    metadata = draft.metadata
    check_snapshot(snapshot)
    for items, what in _definitions(metadata):
        if items.is_empty:
            raise Invalid(f"Attempting to add a snapshot before a {what} is added")
    if snapshot.snapshot_id in draft.added_snapshots or draft.base_has_snapshot(snapshot.snapshot_id):
        raise Invalid(f"Snapshot already exists for id: {snapshot.snapshot_id}")
    _check_sequence_number(metadata, snapshot)
    return replace(draft, added_snapshots={**draft.added_snapshots, snapshot.snapshot_id: snapshot}).changed(
        snapshots=metadata.snapshots.with_appended(snapshot),
        last_sequence_number=max(metadata.last_sequence_number, snapshot.sequence_number),
        next_row_id=_next_row_id(metadata, snapshot),
    )


def _check_sequence_number(metadata: TableMetadata, snapshot: Snapshot) -> None:
    number, last = snapshot.sequence_number, metadata.last_sequence_number
    if metadata.format_version == 1:
        if number != 0:
            raise Invalid(f"Sequence number must be 0 in v1: {number}")
        return
    # A snapshot without parent starts a new history; its number may equal the last one, never a smaller used one.
    if number > last or (snapshot.parent_snapshot_id is None and number == last):
        return
    used = (found.sequence_number for found in metadata.snapshots.project(SnapshotSequence))
    if snapshot.parent_snapshot_id is not None or number < max(used, default=0):
        raise _stale(f"Cannot add snapshot with sequence number {number} older than last sequence number {last}")


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


def set_snapshot_ref(draft: Draft, update: u.SetSnapshotRef, *, now_ms: int) -> Draft:
    metadata, name = draft.metadata, update.ref_name
    ref = checked_ref(msgspec.convert(update, SnapshotRef, from_attributes=True))
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
        snapshot_log=metadata.snapshot_log.with_appended(entry),
    )


def remove_snapshot_ref(draft: Draft, name: str) -> Draft:
    """Remove a reference. The snapshot log stays, even for main: a replaced table keeps its history."""
    metadata = draft.metadata
    # A file may name a current snapshot without having a main branch.
    current_snapshot_id = None if name == MAIN_BRANCH else metadata.current_snapshot_id
    if name not in metadata.ref_map and current_snapshot_id == metadata.current_snapshot_id:
        return draft
    remaining = {found: ref for found, ref in metadata.ref_map.items() if found != name}
    return draft.changed(ref_map=remaining, current_snapshot_id=current_snapshot_id)


def remove_snapshots(draft: Draft, snapshot_ids: tuple[int, ...]) -> Draft:
    """Remove snapshots with their statistics and every reference to them; unknown ids are ignored."""
    metadata = draft.metadata
    gone = metadata.snapshot_ids & frozenset(snapshot_ids)
    if not gone:
        return draft
    is_kept = [snapshot_id not in gone for snapshot_id in metadata.snapshot_id_list]
    dangling = {name for name, ref in metadata.refs.items() if ref.snapshot_id in gone}
    added = {added_id: snapshot for added_id, snapshot in draft.added_snapshots.items() if added_id not in gone}
    remaining = replace(draft, has_removed_snapshots=True, added_snapshots=added).changed(
        snapshots=metadata.snapshots.keep(is_kept),
        statistics=without_snapshots(metadata.statistics, gone),
        partition_statistics=without_snapshots(metadata.partition_statistics, gone),
    )
    if metadata.current_snapshot_id in gone:
        remaining = remove_snapshot_ref(remaining, MAIN_BRANCH)
    refs = {name: ref for name, ref in remaining.metadata.ref_map.items() if name not in dangling}
    return remaining.changed(ref_map=refs)
