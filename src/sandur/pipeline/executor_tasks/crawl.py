"""Executor tasks: find Iceberg and Delta tables below a location and read their newest metadata."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.catalog.locations import normalize_location
from sandur.delta.columns import column_from_field, encode_columns, with_partitions
from sandur.errors import Invalid, NotFound, SandurError
from sandur.iceberg.validation import decode_foreign_table_metadata
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import version_in_name
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.sources.range_reader import KeyRange, folder_ranges, list_range
from sandur.pipeline.tasks import Row, map_rows, record_batch, run_per_item
from sandur.storage.contract import ObjectStore

FILE_BYTES_MAX: Final = 512 << 20
LOG_FILES_MAX: Final = 10_000

_ICEBERG: Final = re.compile(r"^(.*?)(?:^|/)metadata/([^/]+\.metadata\.json|[^/]+\.metadata\.json\.gz)$")
_DELTA: Final = re.compile(r"^(.*?)(?:^|/)_delta_log/([0-9]{20}\.(?:json|checkpoint\.parquet))$")
_LISTED: Final = "format string, folder string, file string, number long, modified_ms long"
_FOUND: Final = "format string, folder string, file string, place string, uuid string, columns string, problem string"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that are read of a `metaData` action in a Delta log."""

    schema_string: str
    id: str | None = None
    partition_columns: tuple[str, ...] | None = None


class _Fields(msgspec.Struct, frozen=True):
    fields: tuple[dict[str, Any], ...]


def newest_files(spark: SparkSession, options: Mapping[str, str], location: str) -> DataFrame:
    """The format and the newest metadata file of every folder below the location that looks like a table."""
    with open_lake(options) as blocking:
        store, prefix = _store_at(blocking.lake, location)
        ranges = blocking.wait(folder_ranges(store, prefix))

    def list_metadata(keys: KeyRange) -> Iterator[Any]:
        with open_lake(options) as blocking:
            store, prefix = _store_at(blocking.lake, location)
            for page in blocking.iterate(list_range(store, keys)):
                rows = (_metadata_file(one.key.removeprefix(prefix), one.modified_ms) for one in page)
                yield record_batch(_LISTED, [row for row in rows if row])

    everything = run_per_item(spark, ranges, list_metadata, _LISTED)
    newest = F.max_by("file", F.struct("number", "modified_ms", "file")).alias("file")
    return everything.groupBy("format", "folder").agg(newest)


def _store_at(lake: Lake, location: str) -> tuple[ObjectStore, str]:
    """The store of a location, and the location's prefix in it."""
    store, key = lake.locations.holder(f"{location.rstrip('/')}/x")
    return store, key.removesuffix("x")


def _metadata_file(path: str, modified_ms: int) -> tuple[object, ...] | None:
    """The table folder that a file belongs to, relative to the location; None if it is not a metadata file."""
    if match := _ICEBERG.match(path):
        return "iceberg", match[1], match[2], version_in_name(match[2]), modified_ms
    if match := _DELTA.match(path):
        return "delta", match[1], match[2], int(match[2][:20]), modified_ms
    return None


def inspect_tables(newest: DataFrame, options: Mapping[str, str], location: str) -> DataFrame:
    """The uuid or the columns in each table's newest file; `problem` if it cannot be read.

    `place` is the normalized location of the table.
    """
    return map_rows(newest, options, partial(_inspect_table, location), _FOUND)


async def _inspect_table(location: str, lake: Lake, row: Row) -> tuple[object, ...]:
    place = table_location(location, row["folder"])
    known = row["format"], row["folder"], row["file"], normalize_location(place)
    inspect = _inspect_iceberg if row["format"] == "iceberg" else _inspect_delta
    try:
        return (*known, *await inspect(lake, place, row["file"]), None)
    except SandurError as error:
        return (*known, None, None, str(error))


def table_location(location: str, folder: str) -> str:
    """The location of the table in a folder below a location."""
    return f"{location.rstrip('/')}/{folder}".rstrip("/")


async def _inspect_iceberg(lake: Lake, place: str, file: str) -> tuple[str | None, str | None]:
    location = f"{place}/metadata/{file}"
    data = await _read(lake, location)
    if data is None:
        raise NotFound(f"file {location} does not exist", subject="file")
    return decode_foreign_table_metadata(data, metadata_location=location).table_uuid, None


async def _inspect_delta(lake: Lake, place: str, file: str) -> tuple[str | None, str | None]:
    """The id and the columns in the newest `metaData` action of the log."""
    for number in range(int(file[:20]), max(-1, int(file[:20]) - LOG_FILES_MAX), -1):
        metadata = await _delta_metadata(lake, f"{place}/_delta_log/{number:020d}")
        if metadata is not None:
            return metadata.id, _columns(metadata)
    raise Invalid(f"table {place}: its log has no metaData action")


async def _delta_metadata(lake: Lake, stem: str) -> _Metadata | None:
    """The `metaData` action of one version, from its checkpoint or its commit; None if it has none."""
    checkpoint = await _read(lake, f"{stem}.checkpoint.parquet")
    if checkpoint is not None:
        return _first_metadata(_checkpoint_actions(checkpoint, stem), stem)
    commit = await _read(lake, f"{stem}.json")
    if commit is None:
        raise NotFound(f"file {stem}.json does not exist", subject="file")
    try:
        actions = [msgspec.json.decode(line, type=dict[str, Any]) for line in commit.splitlines() if line.strip()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"file {stem}.json: not a Delta commit: {error}") from error
    return _first_metadata([action.get("metaData") for action in actions], stem)


def _checkpoint_actions(data: bytes, stem: str) -> Sequence[object]:
    try:
        rows = pq.read_table(io.BytesIO(data), columns=["metaData"]).column("metaData").to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Invalid(f"file {stem}.checkpoint.parquet: not a Delta checkpoint: {error}") from error
    return [{name: value for name, value in row.items() if value is not None} if row else None for row in rows]


def _first_metadata(actions: Sequence[object], stem: str) -> _Metadata | None:
    try:
        return next((msgspec.convert(one, _Metadata) for one in actions if one is not None), None)
    except msgspec.ValidationError as error:
        raise Invalid(f"version {stem}: cannot decode its metaData: {error}") from error


def _columns(metadata: _Metadata) -> str:
    try:
        fields = msgspec.json.decode(metadata.schema_string, type=_Fields).fields
        columns = tuple(column_from_field(field, position) for position, field in enumerate(fields))
        return bytes(encode_columns(with_partitions(columns, metadata.partition_columns or ()))).decode()
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, msgspec.DecodeError) as error:
        raise Invalid(f"metaData of a Delta table: cannot decode its schema: {error}") from error


async def _read(lake: Lake, location: str) -> bytes | None:
    """The bytes of a file; None if it does not exist."""
    data = await lake.locations.read(location)
    if data is not None and len(data) > FILE_BYTES_MAX:
        raise Invalid(f"file {location}: {len(data)} bytes, at most {FILE_BYTES_MAX}")
    return data
