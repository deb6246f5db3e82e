"""Load a Delta table: its record, and its metadata in the form of the Delta API."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaCommit, DeltaTable, Uniform
from sandur.delta.columns import decode_columns, partition_names, struct_for_api
from sandur.delta.properties import LAST_COMMIT_TIMESTAMP, LAST_UPDATE_VERSION, ROW_ID_HIGH_WATER_MARK, number_property
from sandur.errors import Invalid, NotFound, WrongFormat
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.records import namespace_not_found
from sandur.operations.delta.publishing import unpublished_commits
from sandur.operations.delta.tables import (
    DELTA,
    check_takes_commits,
    find_table,
    load_by_id,
    load_delta_table,
    table_not_found,
)
from sandur.operations.lake import BytesLruCache, Lake
from sandur.operations.tables.names import resolve_namespace

_METADATA_BYTES_MAX: Final = 32 << 20
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


def columns_and_partitions(columns: msgspec.Raw) -> tuple[dict[str, object], list[str]]:
    """The columns as a struct, and the names of the partition columns."""
    kept = decode_columns(columns)
    return struct_for_api(kept), partition_names(kept)


def last_metadata_commit(properties: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Version and time of the commit that changed the metadata last; None where the properties do not say."""
    return number_property(properties, LAST_UPDATE_VERSION), number_property(properties, LAST_COMMIT_TIMESTAMP)


class LoadedDelta(NamedTuple):
    """A table in the answer to a client: `metadata` is JSON, `commits` are the unpublished ones, newest first."""

    metadata: bytes
    commits: tuple[DeltaCommit, ...]
    last_version: int
    is_managed: bool
    uniform: Uniform | None


async def load_table(lake: Lake, identifier: Identifier) -> LoadedDelta:
    """Load a table; raises WrongFormat for another format, NotFound with the part of the name that is missing."""
    try:
        table = await load_delta_table(lake, identifier)
    except NotFound:
        await check_parents_exist(lake, identifier)
        raise
    return render_table(lake, table)


async def check_table_exists(lake: Lake, identifier: Identifier) -> None:
    """Raise NotFound unless a table or view of any format has that name."""
    if await find_table(lake, identifier) is None:
        await check_parents_exist(lake, identifier)
        raise table_not_found(identifier)


async def check_parents_exist(lake: Lake, identifier: Identifier) -> None:
    """Raise NotFound if the catalog or the schema of a name is missing, which tells clients the missing part."""
    await load_catalog(lake, identifier.catalog)
    if await resolve_namespace(lake, identifier.namespace) is None:
        raise namespace_not_found(identifier.namespace)


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


def _metadata_cache(_lake: Lake) -> BytesLruCache[str, bytes]:
    """Encoded metadata of tables."""
    return BytesLruCache(_METADATA_BYTES_MAX)


def _metadata(lake: Lake, table: DeltaTable) -> bytes:
    """The encoded metadata, cached by the etag and by the row id mark, which changes without the etag."""
    key = f"{table.uuid} {table.etag} {table.properties.get(ROW_ID_HIGH_WATER_MARK, '')}"
    cache = lake.feature(_metadata_cache)
    cached = cache.get(key)
    if cached is not None:
        return cached
    columns, partitions = columns_and_partitions(table.columns)
    version, timestamp_ms = last_metadata_commit(table.properties)
    body = msgspec.json.encode(
        LoadedMetadata(
            etag=table.etag,
            table_type=table.table_type,
            table_uuid=table.uuid,
            location=table.location,
            created_time=table.created_ms,
            updated_time=table.changed_ms,
            columns=columns,
            partition_columns=partitions,
            properties=table.properties,
            comment=table.comment,
            last_commit_version=version,
            last_commit_timestamp_ms=timestamp_ms,
        )
    )
    cache.put(key, body, len(body) + _OVERHEAD_BYTES)
    return body


class CommitsQuery(NamedTuple):
    """A range of commits of a table; without `end_version` up to the newest."""

    table_id: str
    start_version: int
    end_version: int | None
    table_uri: str | None = None


class Commits(NamedTuple):
    """Unpublished commits, newest first, and the newest version."""

    commits: tuple[DeltaCommit, ...]
    latest_table_version: int


async def list_commits(lake: Lake, query: CommitsQuery) -> Commits:
    """The unpublished commits in the range; at most as many versions as may be unpublished."""
    if query.start_version < 0:
        raise Invalid(f"start_version must be at least 0, found {query.start_version}")
    if query.end_version is not None and query.end_version < query.start_version:
        raise Invalid(f"end_version {query.end_version} is before start_version {query.start_version}")
    table = await load_by_id(lake, query.table_id.lower())
    check_takes_commits(table, query.table_uri)
    oldest = table.commits[0].version if table.commits else 0
    last = max(query.start_version, oldest) + lake.settings.delta_unpublished_max - 1
    if query.end_version is not None:
        last = min(last, query.end_version)
    rows = tuple(row for row in unpublished_commits(lake, table) if query.start_version <= row.version <= last)
    return Commits(rows, table.last_version)
