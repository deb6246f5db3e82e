"""The schema and the properties of a Delta table in its log, for tables that the catalog did not create."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from sandur.delta.columns import column_from_field, encode_columns, with_partitions
from sandur.errors import Invalid, NotFound
from sandur.operations.delta.log_files import Form, checkpoint_rows
from sandur.operations.delta.publishing import LOG_FOLDER
from sandur.operations.lake import Lake
from sandur.splicing import NOT_JSON

FILE_BYTES_MAX: Final = 512 << 20
LOG_FILES_MAX: Final = 10_000
_FORM: Final = Form(lambda path: path.startswith("metaData."), row_bytes=0)


class LogMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that are read of a `metaData` action."""

    schema_string: str
    id: str | None = None
    description: str | None = None
    partition_columns: tuple[str, ...] | None = None
    configuration: dict[str, str] | None = None


class _Fields(msgspec.Struct, frozen=True):
    fields: tuple[dict[str, Any], ...]


async def read_log_metadata(lake: Lake, location: str, newest: int) -> LogMetadata:
    """The newest `metaData` action of a log whose newest version is given; Invalid if it has none."""
    for version in range(newest, max(-1, newest - LOG_FILES_MAX), -1):
        metadata = await _metadata_at(lake, f"{location}/{LOG_FOLDER}/{version:020d}")
        if metadata is not None:
            return metadata
    raise Invalid(f"table {location}: its log has no metaData action")


def columns_of(metadata: LogMetadata) -> msgspec.Raw:
    """The columns of a record; Invalid if the schema cannot be decoded."""
    try:
        fields = msgspec.json.decode(metadata.schema_string, type=_Fields).fields
        columns = tuple(column_from_field(field, position) for position, field in enumerate(fields))
        return encode_columns(with_partitions(columns, metadata.partition_columns or ()))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, msgspec.DecodeError) as error:
        raise Invalid(f"metaData of a Delta table: cannot decode its schema: {error}") from error


async def _metadata_at(lake: Lake, stem: str) -> LogMetadata | None:
    """The `metaData` action of one version, from its checkpoint or its commit; None if it has none."""
    checkpoint = await read_bounded(lake, f"{stem}.checkpoint.parquet")
    if checkpoint is not None:
        rows = checkpoint_rows(checkpoint, _FORM, location=f"{stem}.checkpoint.parquet")
        return _first_metadata((row.get("metaData") for row in rows), stem)
    commit = await read_bounded(lake, f"{stem}.json")
    if commit is None:
        raise NotFound(f"file {stem}.json does not exist", subject="file")
    try:
        actions = [msgspec.json.decode(line, type=dict[str, Any]) for line in commit.splitlines() if line.strip()]
    except NOT_JSON as error:
        raise Invalid(f"file {stem}.json: not a Delta commit: {error}") from error
    return _first_metadata([action.get("metaData") for action in actions], stem)


def _first_metadata(actions: Iterable[object], stem: str) -> LogMetadata | None:
    try:
        return next((msgspec.convert(one, LogMetadata) for one in actions if one is not None), None)
    except msgspec.ValidationError as error:
        raise Invalid(f"version {stem}: cannot decode its metaData: {error}") from error


async def read_bounded(lake: Lake, location: str) -> bytes | None:
    """The bytes of a file; None if it does not exist."""
    data = await lake.locations.read(location)
    if data is not None and len(data) > FILE_BYTES_MAX:
        raise Invalid(f"file {location}: {len(data)} bytes, at most {FILE_BYTES_MAX}")
    return data
