"""Tables and views as Unity Catalog's API shows them, whatever their format."""

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable

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


def slim(info: bytes | memoryview, *, omit_columns: bool, omit_properties: bool) -> bytes:
    """The info of a table without what the client does not want."""
    fields = msgspec.json.decode(info, type=dict[str, msgspec.Raw])
    if omit_columns:
        fields.pop("columns", None)
    if omit_properties:
        fields.pop("properties", None)
    return msgspec.json.encode(fields)
