"""Response bodies of Delta tables, for REST and gRPC; stored JSON is spliced in unchanged."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from sandur.catalog.credentials.properties import delta_config
from sandur.catalog.records import DeltaCommit, DeltaStage
from sandur.delta import protocol
from sandur.delta.requests import CommitFile, Uniform, UniformIceberg
from sandur.errors import Invalid, Unavailable
from sandur.operations.delta.load import LoadedDelta
from sandur.operations.lake import Lake
from sandur.operations.unity.credentials import credential_for

_encode: Final = msgspec.json.Encoder().encode

ALLOWED_MAINTENANCE: Final = b'["DATA_REORGANIZATION","DATA_CLEANUP","METADATA_CLEANUP"]'
"""What clients may do to a managed table besides writing: it ends in commits, or removes unreferenced files."""

FileOperation = Literal["READ", "READ_WRITE"]

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


async def storage_credentials(lake: Lake, location: str, operation: FileOperation) -> Sequence[Mapping[str, object]]:
    """Credentials for all files below a location: an empty configuration when it needs none, which clients expect."""
    credential = await credential_for(lake, (location,), writes=operation == "READ_WRITE")
    config = delta_config(credential) if credential else {}
    expires_ms = credential.expires_ms if credential else 0
    return (
        {"prefix": location, "operation": operation, "config": config, "expiration-time-ms": expires_ms or NEVER_MS},
    )


async def stage_body(lake: Lake, stage: DeltaStage) -> bytes:
    """A location for a new table with credentials, and the protocol and properties that the table must have."""
    try:
        credentials = await storage_credentials(lake, stage.location, "READ_WRITE")
    except (Invalid, Unavailable):
        # The table is staged all the same: a client without credentials of its own requests them, and gets the error.
        credentials = ()
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
