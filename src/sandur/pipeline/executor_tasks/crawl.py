"""Executor tasks: find Iceberg and Delta tables below a location and read their newest metadata."""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.catalog.locations import normalize_location
from sandur.delta.columns import column_from_field, encode_columns, with_partitions
from sandur.errors import Invalid, NotFound, SandurError
from sandur.iceberg.validation import decode_foreign_table_metadata
from sandur.operations.tables.documents import version_in_name
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.sources.range_reader import KeyRange, each, folder_ranges, listed_in
from sandur.pipeline.tasks import one_task_each

FILE_BYTES_MAX: Final = 512 << 20
LOG_FILES_MAX: Final = 10_000

_ICEBERG: Final = re.compile(r"^(.*?)(?:^|/)metadata/([^/]+\.metadata\.json|[^/]+\.metadata\.json\.gz)$")
_DELTA: Final = re.compile(r"^(.*?)(?:^|/)_delta_log/([0-9]{20}\.(?:json|checkpoint\.parquet))$")
_SEEN: Final = "format string, folder string, file string, number long, modified_ms long"
_FOUND: Final = "format string, folder string, file string, place string, uuid string, columns string, problem string"


class _Described(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of a `metaData` in a Delta log."""

    schema_string: str
    id: str | None = None
    partition_columns: tuple[str, ...] | None = None


class _Fields(msgspec.Struct, frozen=True):
    fields: tuple[dict[str, Any], ...]


def newest_files(spark: SparkSession, options: Mapping[str, str], location: str) -> DataFrame:
    """For every folder below the location that looks like a table: its format, and its newest file of metadata."""
    with open_lake(options) as open_store:
        store, prefix = _at(open_store, location)
        ranges = open_store.wait(folder_ranges(store, prefix))

    def seen(keys: KeyRange) -> Iterator[Any]:
        with open_lake(options) as open_store:
            store, prefix = _at(open_store, location)
            for page in each(open_store, listed_in(store, keys)):
                rows = [
                    row
                    for one in page
                    if (row := _recognised(one.key.removeprefix(prefix), one.modified_ms)) is not None
                ]
                yield _batch(_SEEN, rows)

    everything = one_task_each(spark, ranges, seen, _SEEN)
    newest = F.max_by("file", F.struct("number", "modified_ms", "file")).alias("file")
    return everything.groupBy("format", "folder").agg(newest)


def _at(open_store: BlockingLake, location: str) -> tuple[Any, str]:
    store, key = open_store.lake.locations.holder(f"{location.rstrip('/')}/x")
    return store, key.removesuffix("x")


def _recognised(path: str, modified_ms: int) -> tuple[object, ...] | None:
    """What a file below the location shows: the folder of a table, relative to it; None for any other file."""
    if match := _ICEBERG.match(path):
        return "iceberg", match[1], match[2], version_in_name(match[2]), modified_ms
    if match := _DELTA.match(path):
        return "delta", match[1], match[2], int(match[2][:20]), modified_ms
    return None


def inspect_tables(newest: DataFrame, options: Mapping[str, str], location: str) -> DataFrame:
    """What each table's newest file says: its uuid, or its columns; `problem` when it cannot be read.

    `place` is its address in the one spelling in which addresses are compared.
    """

    def inspect(batches: Any) -> Iterator[Any]:  # noqa: ANN401 - Arrow has no types
        with open_lake(options) as open_store:
            for batch in batches:
                yield _batch(_FOUND, [_inspected(open_store, location, row) for row in batch.to_pylist()])

    return newest.mapInArrow(inspect, _FOUND)


def _inspected(open_store: BlockingLake, location: str, row: Mapping[str, str]) -> tuple[object, ...]:
    place = table_location(location, row["folder"])
    told = row["format"], row["folder"], row["file"], normalize_location(place)
    look = _inspect_iceberg if row["format"] == "iceberg" else _inspect_delta
    try:
        return (*told, *look(open_store, place, row["file"]), None)
    except SandurError as error:
        return (*told, None, None, str(error))


def table_location(location: str, folder: str) -> str:
    """The address of a table that lies in a folder below a location."""
    return f"{location.rstrip('/')}/{folder}".rstrip("/")


def _inspect_iceberg(open_store: BlockingLake, place: str, file: str) -> tuple[str | None, str | None]:
    location = f"{place}/metadata/{file}"
    data = _read(open_store, location)
    if data is None:
        raise NotFound(f"file {location}: is not there", subject="file")
    return decode_foreign_table_metadata(data, metadata_location=location).table_uuid, None


def _inspect_delta(open_store: BlockingLake, place: str, file: str) -> tuple[str | None, str | None]:
    """The columns that the newest description of the table in its log tells."""
    for number in range(int(file[:20]), max(-1, int(file[:20]) - LOG_FILES_MAX), -1):
        described = _described(open_store, f"{place}/_delta_log/{number:020d}")
        if described is not None:
            return described.id, _columns(described)
    raise Invalid(f"table {place}: its log does not say what columns it has")


def _described(open_store: BlockingLake, stem: str) -> _Described | None:
    """The `metaData` of one version, from its checkpoint or its commit; None when neither says anything."""
    checkpoint = _read(open_store, f"{stem}.checkpoint.parquet")
    if checkpoint is not None:
        return _first_described(_in_checkpoint(checkpoint, stem), stem)
    commit = _read(open_store, f"{stem}.json")
    if commit is None:
        raise NotFound(f"file {stem}.json: is not there", subject="file")
    try:
        actions = [msgspec.json.decode(line, type=dict[str, Any]) for line in commit.splitlines() if line.strip()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"file {stem}.json: is not a commit of Delta: {error}") from error
    return _first_described([action.get("metaData") for action in actions], stem)


def _in_checkpoint(data: bytes, stem: str) -> Sequence[object]:
    try:
        rows = pq.read_table(io.BytesIO(data), columns=["metaData"]).column("metaData").to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Invalid(f"file {stem}.checkpoint.parquet: is not a checkpoint of Delta: {error}") from error
    return [{name: value for name, value in row.items() if value is not None} if row else None for row in rows]


def _first_described(found: Sequence[object], stem: str) -> _Described | None:
    try:
        return next((msgspec.convert(one, _Described) for one in found if one is not None), None)
    except msgspec.ValidationError as error:
        raise Invalid(f"version {stem}: its metaData cannot be read: {error}") from error


def _columns(described: _Described) -> str:
    try:
        fields = msgspec.json.decode(described.schema_string, type=_Fields).fields
        columns = tuple(column_from_field(field, position) for position, field in enumerate(fields))
        return bytes(encode_columns(with_partitions(columns, described.partition_columns or ()))).decode()
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, msgspec.DecodeError) as error:
        raise Invalid(f"metaData of a Delta table: it has no schema that can be read: {error}") from error


def _read(open_store: BlockingLake, location: str) -> bytes | None:
    """A file; None when there is none."""
    data = open_store.wait(open_store.lake.locations.read(location))
    if data is not None and len(data) > FILE_BYTES_MAX:
        raise Invalid(f"file {location}: {len(data)} bytes, at most {FILE_BYTES_MAX}")
    return data


def _batch(fields: str, rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = [field.split() for field in fields.split(", ")]
    kinds = {"string": pa.string(), "long": pa.int64()}
    arrays = [pa.array([row[at] for row in rows], type=kinds[kind]) for at, (_, kind) in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])


Work = Callable[[BlockingLake, Mapping[str, Any]], tuple[object, ...]]


def map_rows(rows: DataFrame, options: Mapping[str, str], work: Work, fields: str) -> DataFrame:
    """A row for every row, made by the work in an executor."""

    def run(batches: Any) -> Iterator[Any]:  # noqa: ANN401 - Arrow has no types
        with open_lake(options) as open_store:
            for batch in batches:
                yield _batch(fields, [work(open_store, row) for row in batch.to_pylist()])

    return rows.mapInArrow(run, fields)
