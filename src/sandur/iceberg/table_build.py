"""The end of a commit: the checks on the whole table, and its two logs."""

from collections.abc import Mapping
from itertools import pairwise

from sandur.errors import Invalid
from sandur.iceberg.draft import Draft
from sandur.iceberg.partitioning import check_fits
from sandur.iceberg.properties import integer_property
from sandur.iceberg.raw_json import JsonArray
from sandur.iceberg.snapshots import MetadataLogEntry, SnapshotLogEntry
from sandur.iceberg.sorting import check_order_fits
from sandur.iceberg.table_metadata import TableMetadata, replaced

PREVIOUS_VERSIONS_MAX_DEFAULT = 100
# The second name is an old alias of the first.
PREVIOUS_VERSIONS_MAX_KEYS = ("write.metadata.previous-versions-max", "metadata.previous-versions-max")
# Servers' clocks differ; a step back of up to this much is no error.
CLOCK_SKEW_MAX_MS = 60_000


def finished(draft: Draft, base: TableMetadata | None, *, now_ms: int) -> TableMetadata:
    """The metadata that a changed draft becomes; raises `Invalid` if the table as a whole breaks a rule."""
    _check_identity(draft.metadata)
    _check_defaults(draft.metadata, base)
    snapshot_log = _snapshot_log(draft)
    metadata_log = draft.metadata.metadata_log_list if base is None else _metadata_log(base, draft.metadata)
    _check_times(snapshot_log, metadata_log, now_ms)
    return replaced(
        draft.metadata,
        last_updated_ms=now_ms,
        snapshot_list=draft.metadata.snapshot_list.folded(),
        snapshot_log_list=snapshot_log.folded(),
        # Cut to size by every commit, which is cheaper while its entries are values.
        metadata_log_list=metadata_log.folded(more_than=PREVIOUS_VERSIONS_MAX_DEFAULT),
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
    """The default spec and order exist and fit the current schema; what did not change since the base still does."""
    if metadata.schema_list.is_empty:
        raise Invalid("Schemas cannot be null or empty")
    if metadata.spec_list.is_empty:
        raise Invalid("Partition specs cannot be null or empty")
    if metadata.sort_order_list.is_empty:
        raise Invalid("Sort orders cannot be null or empty")
    schema_changed = base is None or metadata.current_schema_id != base.current_schema_id
    if base is None or schema_changed or metadata.default_spec_id != base.default_spec_id:
        check_fits(metadata.default_spec, metadata.current_schema)
    if base is None or schema_changed or metadata.default_sort_order_id != base.default_sort_order_id:
        check_order_fits(metadata.default_sort_order, metadata.current_schema)


def _snapshot_log(draft: Draft) -> JsonArray[SnapshotLogEntry]:
    """The log without snapshots that were current only within this request, and without gaps left by removed ones."""
    metadata = draft.metadata
    intermediate = draft.main_snapshot_ids - {metadata.current_snapshot_id}
    if not intermediate and not draft.has_removed_snapshots:
        return metadata.snapshot_log_list
    existing = metadata.snapshot_ids
    entries = metadata.snapshot_log
    is_kept = [entry.snapshot_id in existing and entry.snapshot_id not in intermediate for entry in entries]
    if draft.has_removed_snapshots:
        # What lies before an entry that is gone cannot stay: the time between would be read as belonging to another.
        gap = max((at for at, entry in enumerate(entries) if entry.snapshot_id not in existing), default=-1)
        is_kept[: gap + 1] = [False] * (gap + 1)
    log = metadata.snapshot_log_list.without(is_kept)
    last = log.last()
    if metadata.current_snapshot_id is not None and (last is None or last.snapshot_id != metadata.current_snapshot_id):
        raise Invalid("Cannot set invalid snapshot log: latest entry is not the current snapshot")
    return log


def _metadata_log(base: TableMetadata, metadata: TableMetadata) -> JsonArray[MetadataLogEntry]:
    """The log with the base's file as its newest entry, no longer than the new properties allow."""
    log = metadata.metadata_log_list
    if base.metadata_location is None:
        return log
    entry = MetadataLogEntry(timestamp_ms=base.last_updated_ms, metadata_file=base.metadata_location)
    stored = len(log.elements()) + len(log.appended)
    surplus = stored + 1 - previous_versions_max(metadata.properties)
    if surplus > 0:
        log = log.without([position >= surplus for position in range(stored)])
    return log.with_appended(entry)


def previous_versions_max(properties: Mapping[str, str]) -> int:
    """How many previous files the metadata log names; raises `Invalid` if the property is no number."""
    for key in PREVIOUS_VERSIONS_MAX_KEYS:
        number = integer_property(properties, key)
        if number is not None:
            return max(1, number)
    return PREVIOUS_VERSIONS_MAX_DEFAULT


def _check_times(
    snapshot_log: JsonArray[SnapshotLogEntry], metadata_log: JsonArray[MetadataLogEntry], now_ms: int
) -> None:
    stored = JsonArray(raw=snapshot_log.raw, item_type=SnapshotLogEntry).last()
    entries = [*([] if stored is None else [stored]), *snapshot_log.appended]
    for before, after in pairwise(entries):
        if after.timestamp_ms - before.timestamp_ms < -CLOCK_SKEW_MAX_MS:
            raise Invalid(f"Expected sorted snapshot log entries: {after.timestamp_ms} follows {before.timestamp_ms}")
    if entries and now_ms - entries[-1].timestamp_ms < -CLOCK_SKEW_MAX_MS:
        raise Invalid(
            f"Invalid update timestamp {now_ms}: before last snapshot log entry at {entries[-1].timestamp_ms}"
        )
    previous = metadata_log.last()
    if previous is not None and now_ms - previous.timestamp_ms < -CLOCK_SKEW_MAX_MS:
        raise Invalid(
            f"Invalid update timestamp {now_ms}: before the latest metadata log entry timestamp {previous.timestamp_ms}"
        )
