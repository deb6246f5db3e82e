"""Load a Delta table: its record, and its metadata in the form of the Delta API."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier, checked_uuid
from sandur.catalog.records import DeltaCommit, DeltaTable, Uniform
from sandur.delta.columns import decode_columns, partition_names, struct_for_api
from sandur.delta.properties import LAST_COMMIT_TIMESTAMP, LAST_UPDATE_VERSION, ROW_ID_HIGH_WATER_MARK, number_property
from sandur.errors import Invalid, WrongFormat
from sandur.operations.caches import BytesLruCache
from sandur.operations.delta.publishing import unpublished_commits
from sandur.operations.delta.tables import (
    DELTA,
    check_takes_commits,
    find_allowed_table,
    id_not_found,
    load_delta_table,
)
from sandur.operations.lake import Lake
from sandur.operations.name_access import read_allowed

_METADATA_SHARE: Final = 1 / 16
_OVERHEAD_BYTES: Final = 500


class LoadedMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The metadata in the answer to a load."""

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


class LoadedDelta(NamedTuple):
    """A table in the answer to a client: `metadata` is JSON, `commits` are the unpublished ones, newest first."""

    metadata: bytes
    commits: tuple[DeltaCommit, ...]
    last_version: int
    is_managed: bool
    uniform: Uniform | None


async def load_table(lake: Lake, identifier: Identifier) -> LoadedDelta:
    """Load a table; raises WrongFormat for another format, NotFound with the part of the name that is missing."""
    return render_table(lake, await load_delta_table(lake, identifier))


async def check_table_exists(lake: Lake, identifier: Identifier) -> None:
    """Raise NotFound unless a table or view of any format has that name."""
    await find_allowed_table(lake, identifier)


def render_table(lake: Lake, table: DeltaTable) -> LoadedDelta:
    """The answer for a record; raises WrongFormat if it is not a Delta table."""
    if table.kind != "table" or table.data_source_format != DELTA:
        raise WrongFormat(f"table {table.uuid} is not a Delta table: it is {table.data_source_format or table.kind}")
    return LoadedDelta(
        metadata=_metadata(lake, table),
        commits=unpublished_commits(lake, table),
        last_version=table.last_version,
        is_managed=table.table_type == "MANAGED",
        uniform=table.uniform,
    )


def _metadata_cache(lake: Lake) -> BytesLruCache[str, bytes]:
    """Encoded metadata of tables."""
    return BytesLruCache(lake.cache_bytes(_METADATA_SHARE))


def _metadata(lake: Lake, table: DeltaTable) -> bytes:
    """The encoded metadata, cached by the etag, and by the times of renames and the row id mark, which move alone."""
    key = f"{table.uuid} {table.etag} {table.changed_ms} {table.properties.get(ROW_ID_HIGH_WATER_MARK, '')}"
    cache = lake.feature(_metadata_cache)
    cached = cache.get(key)
    if cached is not None:
        return cached
    columns = decode_columns(table.columns)
    body = msgspec.json.encode(
        LoadedMetadata(
            etag=table.etag,
            table_type=table.table_type,
            table_uuid=table.uuid,
            location=table.location,
            created_time=table.created_ms,
            updated_time=table.changed_ms,
            columns=struct_for_api(columns),
            partition_columns=partition_names(columns),
            properties=table.properties,
            comment=table.comment,
            last_commit_version=number_property(table.properties, LAST_UPDATE_VERSION),
            last_commit_timestamp_ms=number_property(table.properties, LAST_COMMIT_TIMESTAMP),
        )
    )
    cache.put(key, body, len(body) + _OVERHEAD_BYTES)
    return body


async def list_commits(
    lake: Lake, table_id: str, start: int, end: int | None, table_uri: str | None
) -> tuple[tuple[DeltaCommit, ...], int]:
    """The unpublished commits of a table in a range of versions, newest first, and the table's newest version.

    Without `end` the range is open. It has at most as many versions as may be unpublished.
    """
    if start < 0:
        raise Invalid(f"start_version must be at least 0, found {start}")
    if end is not None and end < start:
        raise Invalid(f"end_version {end} is before start_version {start}")
    uuid = checked_uuid("table_id", table_id)
    table = (await read_allowed(lake, lake.delta_table(uuid), missing=id_not_found(uuid))).value
    check_takes_commits(table, table_uri)
    oldest = table.commits[0].version if table.commits else 0
    last = max(start, oldest) + lake.settings.delta_unpublished_max - 1
    if end is not None:
        last = min(last, end)
    return tuple(row for row in unpublished_commits(lake, table) if start <= row.version <= last), table.last_version
