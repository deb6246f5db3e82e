"""Catalogs and schemas as Unity Catalog's API shows them, in lists and alone."""

import msgspec

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Catalog, NamespaceRecord
from sandur.catalog.unity_names import full_name_of

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


def updated_schema(
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
