"""Response bodies of the Delta REST API; stored JSON is spliced in unchanged."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sandur.catalog.records import DeltaCommit, DeltaStage
from sandur.delta import protocol
from sandur.delta.requests import CommitFile, Uniform, UniformIceberg
from sandur.operations.delta.load import LoadedDelta

_encode: Final = msgspec.json.Encoder().encode

ALLOWED_MAINTENANCE: Final = b'["DATA_REORGANIZATION","DATA_CLEANUP","METADATA_CLEANUP"]'
"""What clients may do to a managed table besides writing: it ends in commits, or removes unreferenced files."""

NEVER_MS: Final = 253_402_300_799_000
"""The expiration time of credentials that do not expire: the end of the year 9999."""


_REQUIRED: Final = protocol.Protocol(
    min_reader_version=protocol.READER_VERSION,
    min_writer_version=protocol.WRITER_VERSION,
    reader_features=protocol.REQUIRED_READER_FEATURES,
    writer_features=protocol.REQUIRED_WRITER_FEATURES,
)


def loaded_body(loaded: LoadedDelta) -> bytes:
    """A table: its stored metadata, and its unpublished commits."""
    commits = _encode([_commit(commit) for commit in loaded.commits])
    parts = [b'{"metadata":', loaded.metadata, b',"commits":', commits]
    if uniform := loaded.uniform:
        iceberg = UniformIceberg(
            metadata_location=uniform.metadata_location,
            converted_delta_version=uniform.converted_delta_version,
            converted_delta_timestamp=uniform.converted_delta_timestamp_ms,
            base_converted_delta_version=uniform.base_converted_delta_version,
        )
        parts += [b',"uniform":', _encode(Uniform(iceberg=iceberg))]
    if loaded.is_managed:
        parts += [b',"latest-table-version":%d' % loaded.last_version]
        parts += [b',"allowed-maintenance-operations":', ALLOWED_MAINTENANCE]
    return b"".join((*parts, b"}"))


def _commit(commit: DeltaCommit) -> CommitFile:
    return CommitFile(
        version=commit.version,
        timestamp=commit.timestamp_ms,
        file_name=commit.file_name,
        file_size=commit.file_size,
        file_modification_timestamp=commit.file_modified_ms,
    )


def stage_body(stage: DeltaStage, credentials: Sequence[Mapping[str, object]]) -> bytes:
    """A location for a new table, and the protocol and properties that the table must have."""
    body = {
        "table-id": stage.uuid,
        "table-type": "MANAGED",
        "location": stage.location,
        "storage-credentials": credentials,
        "required-protocol": _REQUIRED,
        "suggested-protocol": {
            "reader-features": protocol.SUGGESTED_READER_FEATURES,
            "writer-features": protocol.SUGGESTED_WRITER_FEATURES,
        },
        "required-properties": protocol.required_properties(stage.uuid),
        "suggested-properties": protocol.SUGGESTED_PROPERTIES,
    }
    return _encode(body)
