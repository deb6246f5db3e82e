"""`sandur_metadata`: the metadata of tables and views as rows of the published datasets."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import asdict

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable
from sandur.errors import BadRequest
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import FieldType, ListType, MapType, StructType
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES as TABLE_FILES
from sandur.operations.tables.documents import VIEWS as VIEW_FILES
from sandur.operations.tables.documents import load_document
from sandur.pipeline.sources.catalog import name_row
from sandur.pipeline.sources.range_reader import KeyRange, RangeSource, Row, folder_ranges, gather_bounded
from sandur.pipeline.tables import COLUMNS, OF_METADATA, PARTITION_SPECS, REFS, SCHEMAS, SNAPSHOTS, TABLES, clamped_ms
from sandur.splicing import count_in
from sandur.storage.contract import Listed

Rows = Mapping[str, Sequence[Row]]
"""Rows by dataset name, without the columns of the table's name; times are milliseconds."""

TEXT_MAX: Final = 20_000
PARTS: Final = {shape.name: shape for shape in OF_METADATA}


class SandurMetadata(RangeSource):
    """One part of the current metadata of every table and view; each name is resolved as a load resolves it.

    Option `part`: `tables` (the default), `columns`, `schema_history`, `partition_spec_history`, `snapshots` or `refs`.
    Option `table`: only that table, as `catalog.namespace.name`. A name that cannot be read has a row with a `problem`
    in `tables`, and no row in the other parts.
    """

    source_name = "sandur_metadata"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        name = options.get("part", TABLES.name)
        if name not in PARTS:
            raise BadRequest(f"option part: expected one of {', '.join(PARTS)}, found {name!r}")
        self.shape = PARTS[name]

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        if "table" in self.options:
            key = lake.layout.name(self._wanted())
            return [KeyRange(key.rpartition("/")[0] + "/", key[:-1], key)]
        return await folder_ranges(lake.store, lake.layout.all_names_folder())

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        wanted = lake.layout.name(self._wanted()) if "table" in self.options else None
        keys = [one for one in listed if wanted in {None, one.key}]
        found = await gather_bounded(keys, lambda one: self._rows_of(lake, one.key))
        return [row for rows in found for row in rows]

    async def _rows_of(self, lake: Lake, key: str) -> Sequence[Row]:
        about = await name_row(lake, key)
        if about and about.get("problem"):
            return [about] if self.shape.name == TABLES.name else []
        if not about or not about["is_shown"] or not about.get("metadata_location"):
            return []
        rows = await rows_of_table(lake, about)
        return [{**about, **row} for row in rows.get(self.shape.name, ())]

    def _wanted(self) -> Identifier:
        catalog, *levels, name = (*self.options["table"].split("."), "")[:-1] or ("",)
        if not levels:
            raise BadRequest(f"option table: expected catalog.namespace.name, found {self.options['table']!r}")
        return Identifier(catalog, tuple(levels), name)


async def rows_of_table(lake: Lake, table: Mapping[str, Any]) -> Rows:
    """The rows of all parts: from the metadata file of a table or view, from the record of a Delta table."""
    uuid, location = table["uuid"], table["metadata_location"]
    if table["format"] == "delta":
        held = await lake.delta_table(uuid).read()
        return delta_rows(uuid, held.value) if held else {}
    if table["kind"] == "view":
        return view_rows(uuid, (await load_document(lake, VIEW_FILES, location)).metadata)
    return table_rows(uuid, (await load_document(lake, TABLE_FILES, location)).metadata)


def table_rows(uuid: str, metadata: TableMetadata) -> Rows:
    """The rows of a table's metadata file; `uuid` is the one in the table's name record."""
    snapshot = next((one for one in metadata.snapshots if one.snapshot_id == metadata.current_snapshot_id), None)
    summary = (snapshot.summary or {}) if snapshot else {}
    about = {
        "default_spec_id": metadata.default_spec_id,
        "last_sequence_number": metadata.last_sequence_number,
        "last_updated_at": clamped_ms(metadata.last_updated_ms),
        "snapshot_count": len(metadata.snapshots),
        "record_count": count_in(summary.get("total-records")),
        "file_count": count_in(summary.get("total-data-files")),
        "size_bytes": count_in(summary.get("total-files-size")),
    }
    return {
        **_common_rows(uuid, metadata, metadata.current_schema_id, about),
        PARTITION_SPECS.name: [_spec_row(spec, metadata.default_spec_id) for spec in metadata.specs],
        SNAPSHOTS.name: [_snapshot_row(one, metadata.current_snapshot_id) for one in metadata.snapshots],
        REFS.name: [{"ref": name, **asdict(ref)} for name, ref in metadata.refs.items()],
    }


def view_rows(uuid: str, metadata: ViewMetadata) -> Rows:
    version = next((one for one in metadata.versions if one.version_id == metadata.current_version_id), None)
    about = {"last_updated_at": clamped_ms(version.timestamp_ms) if version else None}
    return _common_rows(uuid, metadata, version.schema_id if version else -1, about)


def _common_rows(uuid: str, metadata: TableMetadata | ViewMetadata, schema_id: int, about: Row) -> Rows:
    current = next((schema for schema in metadata.schemas if schema.schema_id == schema_id), None)
    row: Row = {
        "location": metadata.location,
        "format_version": metadata.format_version,
        "current_schema_id": schema_id,
        "column_count": len(current.fields) if current else 0,
        "properties_json": _json(dict(metadata.properties)),
        **about,
    }
    return {
        TABLES.name: [row],
        COLUMNS.name: _column_rows(uuid, current) if current else [],
        SCHEMAS.name: [_schema_row(schema, schema_id) for schema in metadata.schemas],
    }


class _DeltaColumn(msgspec.Struct):
    """A column in the catalog's record of a Delta table."""

    name: str = ""
    type_text: str = ""
    position: int = 0
    nullable: bool = True
    comment: str | None = None


def delta_rows(uuid: str, table: DeltaTable) -> Rows:
    """The rows of a Delta table's record; columns have no field ids, so their positions serve as ids."""
    columns = msgspec.json.decode(table.columns, type=list[_DeltaColumn])
    about: Row = {
        "location": table.location,
        "last_sequence_number": table.last_version,
        "last_updated_at": clamped_ms(table.last_commit_ms or table.changed_ms or table.created_ms),
        "column_count": len(columns),
        "properties_json": _json(table.properties),
    }
    return {
        TABLES.name: [about],
        COLUMNS.name: [
            {
                "id": column_id(uuid, column.position),
                "field_id": column.position,
                "ordinal": column.position,
                "path": column.name,
                "column_name": column.name,
                "type": column.type_text[:TEXT_MAX],
                "is_required": not column.nullable,
                "is_identifier": False,
                "doc": column.comment,
            }
            for column in columns
        ],
    }


def type_of(field_type: FieldType) -> str:
    """A type as text, with all nested fields."""
    match field_type:
        case str():
            return field_type
        case StructType(fields=fields):
            return f"struct<{', '.join(f'{field.name}: {type_of(field.type)}' for field in fields)}>"
        case ListType(element=element):
            return f"list<{type_of(element)}>"
        case MapType(key=key, value=value):
            return f"map<{type_of(key)}, {type_of(value)}>"
        case _:
            assert_never(field_type)


def column_id(uuid: str, field_id: int) -> str:
    """An id that survives renames of the column: a hash of the table and the field id."""
    return hashlib.sha256(f"{uuid}\n{field_id}".encode()).hexdigest()[:32]


def _column_rows(uuid: str, schema: Schema) -> Sequence[Row]:
    identifiers = set(schema.identifier_field_ids or ())
    return [
        {
            "id": column_id(uuid, column.id),
            "schema_id": schema.schema_id,
            "field_id": column.id,
            "parent_field_id": column.parent_id,
            "ordinal": ordinal,
            "path": column.path,
            "column_name": column.name,
            "type": type_of(column.type)[:TEXT_MAX],
            "is_required": column.required,
            "is_identifier": column.id in identifiers,
            "doc": column.field.doc if column.field else None,
        }
        for ordinal, column in enumerate(schema.columns.values())
    ]


def _schema_row(schema: Schema, current_id: int) -> Row:
    return {
        "schema_id": schema.schema_id,
        "is_current": schema.schema_id == current_id,
        "column_count": len(schema.fields),
        "schema_json": msgspec.json.encode(schema).decode(),
    }


def _spec_row(spec: PartitionSpec, default_id: int) -> Row:
    return {
        "spec_id": spec.spec_id,
        "is_default": spec.spec_id == default_id,
        "field_count": len(spec.fields),
        "spec": ", ".join(f"{one.transform}({', '.join(map(str, one.sources))}) as {one.name}" for one in spec.fields),
        "fields_json": msgspec.json.encode(spec.fields).decode(),
    }


def _snapshot_row(snapshot: Snapshot, current_id: int | None) -> Row:
    summary = snapshot.summary or {}
    return {
        **asdict(snapshot),
        "committed_at": clamped_ms(snapshot.timestamp_ms),
        "operation": summary.get("operation"),
        "is_current": snapshot.snapshot_id == current_id,
        "added_records": count_in(summary.get("added-records")),
        "deleted_records": count_in(summary.get("deleted-records")),
        "total_records": count_in(summary.get("total-records")),
        "summary_json": _json(summary),
    }


def _json(value: Mapping[str, str]) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
