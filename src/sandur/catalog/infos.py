"""Catalogs, schemas and tables in the form of Unity Catalog's API."""

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace, full_name_of
from sandur.catalog.records import Catalog, DeltaTable, NamespaceRecord

_COMMENT = "comment"
_LOCATION = "location"
_OWNER = "owner"


class CatalogInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    id: str
    properties: dict[str, str]
    created_at: int
    updated_at: int
    storage_location: str
    storage_root: str | None = None
    comment: str | None = None
    owner: str | None = None
    created_by: str | None = None
    updated_by: str | None = None


class SchemaInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    catalog_name: str
    full_name: str
    schema_id: str
    properties: dict[str, str]
    created_at: int
    updated_at: int
    storage_root: str | None = None
    storage_location: str | None = None
    comment: str | None = None
    owner: str | None = None
    created_by: str | None = None
    updated_by: str | None = None


def catalog_info(catalog: Catalog) -> CatalogInfo:
    return CatalogInfo(
        name=catalog.name,
        id=catalog.id,
        properties=catalog.properties,
        created_at=catalog.created_ms,
        updated_at=catalog.updated_ms,
        storage_location=catalog.root,
        storage_root=catalog.asked_root or None,
        comment=catalog.comment,
        owner=catalog.owner or None,
        created_by=catalog.created_by or None,
        updated_by=catalog.updated_by or None,
    )


def schema_info(namespace: Namespace, record: NamespaceRecord) -> SchemaInfo:
    """A comment among the properties, where Iceberg clients and Spark put it, is shown as the comment, too."""
    location = record.properties.get(_LOCATION)
    return SchemaInfo(
        name=str(namespace),
        catalog_name=namespace.catalog,
        full_name=full_name_of(namespace),
        schema_id=record.id,
        properties={key: value for key, value in record.properties.items() if key != _LOCATION},
        created_at=record.created_ms,
        updated_at=record.updated_ms,
        storage_root=location,
        storage_location=location,
        comment=record.properties.get(_COMMENT, record.comment),
        owner=record.owner or record.properties.get(_OWNER),
        created_by=record.created_by or None,
        updated_by=record.updated_by or None,
    )


def update_schema_record(
    record: NamespaceRecord, *, comment: str | None, properties: dict[str, str] | None
) -> NamespaceRecord:
    """The record with another comment, and these properties in place of all others; None leaves either alone.

    Where its tables lie is not among the properties that Unity Catalog knows, and stays.
    """
    kept = record.properties
    if properties is not None:
        kept = {**properties, **({_LOCATION: kept[_LOCATION]} if _LOCATION in kept else {})}
    if comment is None:
        return msgspec.structs.replace(record, properties=kept)
    without = {key: value for key, value in kept.items() if key != _COMMENT}
    return msgspec.structs.replace(record, comment=comment, properties=without)


NO_COLUMNS = msgspec.Raw(b"[]")


class TableInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`columns` is JSON in the form of the API, as it is kept."""

    name: str
    catalog_name: str
    schema_name: str
    table_type: str
    data_source_format: str | None = None
    columns: msgspec.Raw | None = None
    storage_location: str | None = None
    properties: dict[str, str] | None = None
    table_id: str
    created_at: int
    updated_at: int
    comment: str | None = None
    owner: str | None = None
    created_by: str | None = None
    updated_by: str | None = None
    view_definition: str | None = None
    view_dependencies: msgspec.Raw | None = None


def delta_table_info(identifier: Identifier, table: DeltaTable) -> TableInfo:
    """A Delta table, or another that this API made."""
    return TableInfo(
        name=identifier.name,
        catalog_name=identifier.catalog,
        schema_name=str(identifier.namespace),
        table_type=table.table_type,
        data_source_format=table.data_source_format or None,
        columns=table.columns,
        storage_location=table.location or None,
        properties=table.properties,
        table_id=table.uuid,
        created_at=table.created_ms,
        updated_at=table.changed_ms,
        comment=table.comment,
        owner=table.owner or None,
        created_by=table.created_by or None,
        updated_by=table.changed_by or None,
        view_definition=table.view_definition,
        view_dependencies=table.view_dependencies,
    )


def without_fields(info: bytes | memoryview, *, omit_columns: bool, omit_properties: bool) -> bytes:
    """The info of a table without what the client does not want."""
    fields = msgspec.json.decode(info, type=dict[str, msgspec.Raw])
    if omit_columns:
        fields.pop("columns", None)
    if omit_properties:
        fields.pop("properties", None)
    return msgspec.json.encode(fields)
