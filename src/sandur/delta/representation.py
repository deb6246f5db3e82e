"""A Delta table as the Delta API shows it."""

from collections.abc import Mapping

import msgspec

from sandur.delta.columns import decoded, partition_names, struct_of
from sandur.delta.properties import LAST_COMMIT_TIMESTAMP, LAST_UPDATE_VERSION, number_in


class ShownMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What a load tells about a table beside its commits."""

    etag: str
    table_type: str
    table_uuid: str
    location: str
    created_time: int
    updated_time: int
    columns: object
    partition_columns: list[str]
    properties: Mapping[str, str]
    comment: str | None = None
    last_commit_version: int | None = None
    last_commit_timestamp_ms: int | None = None


def columns_shown(columns: msgspec.Raw) -> tuple[dict[str, object], list[str]]:
    """The struct of the columns, and the names of the partition columns."""
    kept = decoded(columns)
    return struct_of(kept), partition_names(kept)


def last_change(properties: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Version and time of the commit that changed the metadata last, as far as the properties say."""
    return number_in(properties, LAST_UPDATE_VERSION), number_in(properties, LAST_COMMIT_TIMESTAMP)
