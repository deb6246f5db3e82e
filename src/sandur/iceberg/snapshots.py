"""Snapshots and what belongs to them: references, logs, statistics files and encryption keys."""

import msgspec

from sandur.errors import BadRequest, Invalid
from sandur.splicing import Int32, Int64, shorten

MAIN_BRANCH = "main"
BRANCH, TAG = "branch", "tag"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A snapshot in its stored form: absent fields and the sequence number 0 are left out."""

    sequence_number: Int64 = 0
    snapshot_id: Int64
    parent_snapshot_id: Int64 | None = None
    timestamp_ms: Int64
    summary: dict[str, str] | None = None
    manifest_list: str | None = None
    manifests: tuple[str, ...] | None = None
    schema_id: Int32 | None = None
    first_row_id: Int64 | None = None
    added_rows: Int64 | None = None
    key_id: str | None = None


class SnapshotId(msgspec.Struct, frozen=True, rename="kebab"):
    """Only the id of a snapshot, or the snapshot id of a file that belongs to one."""

    snapshot_id: Int64


class SnapshotSequence(msgspec.Struct, frozen=True, rename="kebab"):
    """Only the id and the sequence number of a snapshot."""

    snapshot_id: Int64
    sequence_number: Int64 = 0


class SnapshotRef(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A branch or a tag."""

    snapshot_id: Int64
    type: str
    min_snapshots_to_keep: Int32 | None = None
    max_snapshot_age_ms: Int64 | None = None
    max_ref_age_ms: Int64 | None = None


class SnapshotLogEntry(msgspec.Struct, frozen=True, rename="kebab"):
    timestamp_ms: Int64
    snapshot_id: Int64


class MetadataLogEntry(msgspec.Struct, frozen=True, rename="kebab"):
    timestamp_ms: Int64
    metadata_file: str


def check_snapshot(snapshot: Snapshot) -> None:
    """Raise `Invalid` or `BadRequest` for a snapshot that no format version allows."""
    if snapshot.manifest_list is None and snapshot.manifests is None:
        raise BadRequest(f"snapshot {snapshot.snapshot_id} has neither manifest-list nor manifests")
    if snapshot.first_row_id is not None and snapshot.first_row_id < 0:
        raise Invalid(f"Invalid first-row-id (cannot be negative): {snapshot.first_row_id}")
    if snapshot.added_rows is not None and snapshot.added_rows < 0:
        raise Invalid(f"Invalid added-rows (cannot be negative): {snapshot.added_rows}")
    if snapshot.first_row_id is not None and snapshot.added_rows is None:
        raise Invalid("Invalid added-rows (required when first-row-id is set): null")


def checked_ref(ref: SnapshotRef) -> SnapshotRef:
    """The reference in canonical form; raises `Invalid` if its kind or its retention breaks a rule."""
    kind = ref.type.lower()
    if kind not in {BRANCH, TAG}:
        raise Invalid(f"Invalid snapshot ref type: {shorten(ref.type)}")
    if kind == TAG and ref.min_snapshots_to_keep is not None:
        raise Invalid("Tags do not support setting minSnapshotsToKeep")
    if ref.min_snapshots_to_keep is not None and ref.min_snapshots_to_keep <= 0:
        raise Invalid("Min snapshots to keep must be greater than 0")
    if kind == TAG and ref.max_snapshot_age_ms is not None:
        raise Invalid("Tags do not support setting maxSnapshotAgeMs")
    if ref.max_snapshot_age_ms is not None and ref.max_snapshot_age_ms <= 0:
        raise Invalid("Max snapshot age must be greater than 0 ms")
    if ref.max_ref_age_ms is not None and ref.max_ref_age_ms <= 0:
        raise Invalid("Max reference age must be greater than 0")
    return msgspec.structs.replace(ref, type=kind)


class BlobMetadata(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    type: str
    snapshot_id: Int64
    sequence_number: Int64
    fields: tuple[Int32, ...]
    properties: dict[str, str] | None = None


class StatisticsFile(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    snapshot_id: Int64
    statistics_path: str
    file_size_in_bytes: Int64
    file_footer_size_in_bytes: Int64
    blob_metadata: tuple[BlobMetadata, ...]
    key_metadata: str | None = None


class PartitionStatisticsFile(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    snapshot_id: Int64
    statistics_path: str
    file_size_in_bytes: Int64


class EncryptedKey(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A key wrapped by another one; `encrypted_key_metadata` is base64 text and is not decoded."""

    key_id: str
    encrypted_key_metadata: str
    encrypted_by_id: str | None = None
    properties: dict[str, str] | None = None
