"""Statistics files and partition statistics files, each belonging to one snapshot."""

import msgspec

from sandur.iceberg.raw_json import Int32, Int64


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
