"""What Unity Catalog's API shows of a name: a table or view of any format, a volume, a function or a model."""

from typing import assert_never

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.infos import NO_COLUMNS, TableInfo, delta_table_info
from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import BoundRecord, DeltaTable, NameRecord, Pointer, Securable
from sandur.catalog.securables import FunctionInfo, RegisteredModelInfo, VolumeInfo, securable_info
from sandur.delta import columns
from sandur.errors import BadRequest, NotFound
from sandur.iceberg.schema import Schema
from sandur.iceberg.spark_types import identity_partitions, spark_fields
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES, VIEWS, Document, load_document

Info = TableInfo | VolumeInfo | FunctionInfo | RegisteredModelInfo

MANAGED = "MANAGED"
EXTERNAL = "EXTERNAL"


async def info_of(lake: Lake, identifier: Identifier, name: NameRecord, record: BoundRecord) -> Info:
    """The info for lists and loads; with the bare minimum if the metadata of an Iceberg table cannot be read."""
    match record:
        case DeltaTable():
            return delta_table_info(identifier, record)
        case Securable():
            return securable_info(identifier, record)
        case Pointer():
            return await _iceberg_info(lake, identifier, name, record)
        case _:
            assert_never(record)


async def _iceberg_info(lake: Lake, identifier: Identifier, name: NameRecord, pointer: Pointer) -> TableInfo:
    location = pointer.head.metadata_location if pointer.head else ""
    try:
        if name.kind == "view":
            view = await load_document(lake, VIEWS, location)
            return _view_info(identifier, name, view)
        table = await load_document(lake, TABLES, location)
        roots = lake.catalog(identifier.catalog).last_seen or await lake.catalog(identifier.catalog).read()
        return _table_info(identifier, name, table, normalize_location(roots.value.root) if roots else "")
    except (NotFound, BadRequest):  # The metadata file is missing or invalid. An unavailable store still raises.
        return _bare_info(identifier, name, "VIEW" if name.kind == "view" else EXTERNAL)


def _table_info(identifier: Identifier, name: NameRecord, document: Document[TableMetadata], root: str) -> TableInfo:
    metadata = document.metadata
    table_columns = columns.with_partitions(_columns(metadata.current_schema), identity_partitions(metadata))
    is_managed = bool(root) and is_within(normalize_location(metadata.location), root)
    return msgspec.structs.replace(
        _bare_info(identifier, name, MANAGED if is_managed else EXTERNAL),
        columns=columns.encode_columns(table_columns),
        storage_location=metadata.location,
        properties=dict(metadata.properties),
        comment=metadata.properties.get("comment"),
        owner=metadata.properties.get("owner"),
        updated_at=metadata.last_updated_ms or name.updated_ms,
    )


def _view_info(identifier: Identifier, name: NameRecord, document: Document[ViewMetadata]) -> TableInfo:
    view = document.metadata
    version = view.current_version
    texts = [one.sql for one in version.representations if one.sql]
    return msgspec.structs.replace(
        _bare_info(identifier, name, "VIEW"),
        columns=columns.encode_columns(_columns(view.current_schema)),
        storage_location=view.location,
        properties=dict(view.properties),
        comment=view.properties.get("comment"),
        owner=view.properties.get("owner"),
        updated_at=version.timestamp_ms,
        view_definition=texts[0] if texts else None,
    )


def _columns(schema: Schema) -> tuple[columns.ColumnInfo, ...]:
    return tuple(columns.column_from_field(field, position) for position, field in enumerate(spark_fields(schema)))


def _bare_info(identifier: Identifier, name: NameRecord, table_type: str) -> TableInfo:
    return TableInfo(
        name=identifier.name,
        catalog_name=identifier.catalog,
        schema_name=str(identifier.namespace),
        table_type=table_type,
        data_source_format="ICEBERG",
        columns=NO_COLUMNS,
        storage_location="",
        properties={},
        table_id=name.uuid,
        created_at=name.updated_ms,
        updated_at=name.updated_ms,
    )
