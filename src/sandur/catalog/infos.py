"""Catalogs, schemas, tables and other entities in the form of Unity Catalog's API."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from sandur.catalog.functions import DependencyList, FunctionDefinition
from sandur.catalog.identifiers import Identifier, Namespace, full_name_of
from sandur.catalog.records import (
    Catalog,
    DeltaTable,
    ModelVersion,
    NameRecord,
    NamespaceRecord,
    RegistryEntry,
    Securable,
    VolumeType,
)

R = TypeVar("R", DeltaTable, Securable)

_LOCATION: Final = "location"

COMMENT_CHARS_MAX: Final = 65_536
Comment = Annotated[str, msgspec.Meta(max_length=COMMENT_CHARS_MAX)]
"""A comment in a request."""


class EntityInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields that the infos of most entities share."""

    name: str
    comment: str | None = None
    owner: str | None = None
    created_at: int
    created_by: str | None = None
    updated_at: int
    updated_by: str | None = None


def entity_fields(
    name: str, record: Catalog | NamespaceRecord | DeltaTable | Securable | RegistryEntry
) -> dict[str, Any]:
    """The fields of `EntityInfo`; an empty text in the record means that it is not set."""
    if isinstance(record, Catalog | NamespaceRecord):
        changed_ms, changed_by = record.updated_ms, record.updated_by
    else:
        changed_ms, changed_by = record.changed_ms, record.changed_by
    return {
        "name": name,
        "comment": record.comment,
        "owner": record.owner or None,
        "created_at": record.created_ms,
        "created_by": record.created_by or None,
        "updated_at": changed_ms,
        "updated_by": changed_by or None,
    }


def with_rename(record: R, name: NameRecord) -> R:
    """The record with the rename that gave it its name as the last change, unless it changed later."""
    if name.renamed_by is None or name.updated_ms <= record.changed_ms:
        return record
    return msgspec.structs.replace(record, changed_ms=name.updated_ms, changed_by=name.renamed_by)


class CatalogInfo(EntityInfo, frozen=True, kw_only=True):
    id: str
    properties: dict[str, str]
    storage_location: str
    storage_root: str | None = None


class SchemaInfo(EntityInfo, frozen=True, kw_only=True):
    catalog_name: str
    full_name: str
    schema_id: str
    properties: dict[str, str]
    storage_root: str | None = None
    storage_location: str | None = None


class TableInfo(EntityInfo, frozen=True, kw_only=True):
    """A table or view. `columns` is JSON in the form of the API, as the record stores it."""

    catalog_name: str
    schema_name: str
    table_type: str
    data_source_format: str | None = None
    columns: msgspec.Raw | None = None
    storage_location: str | None = None
    properties: dict[str, str] | None = None
    table_id: str
    view_definition: str | None = None
    view_dependencies: DependencyList | None = None


class VolumeInfo(EntityInfo, frozen=True, kw_only=True):
    catalog_name: str
    schema_name: str
    full_name: str
    volume_id: str
    volume_type: VolumeType
    storage_location: str


class RegisteredModelInfo(EntityInfo, frozen=True, kw_only=True):
    catalog_name: str
    schema_name: str
    full_name: str
    id: str
    storage_location: str


class FunctionInfo(FunctionDefinition, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    catalog_name: str
    schema_name: str
    full_name: str
    function_id: str
    created_at: int
    updated_at: int
    comment: str | None = None
    owner: str | None = None
    created_by: str | None = None
    updated_by: str | None = None


def catalog_info(catalog: Catalog) -> CatalogInfo:
    return CatalogInfo(
        id=catalog.id,
        properties=catalog.properties,
        storage_location=catalog.root,
        storage_root=catalog.asked_root or None,
        **entity_fields(catalog.name, catalog),
    )


def schema_info(namespace: Namespace, record: NamespaceRecord) -> SchemaInfo:
    """The info of a namespace; a comment among the properties, where Iceberg clients and Spark put it, wins."""
    location = record.properties.get(_LOCATION)
    shared = entity_fields(str(namespace), record)
    shared["comment"] = record.properties.get("comment", record.comment)
    shared["owner"] = record.owner or record.properties.get("owner")
    return SchemaInfo(
        catalog_name=namespace.catalog,
        full_name=full_name_of(namespace),
        schema_id=record.id,
        properties={key: value for key, value in record.properties.items() if key != _LOCATION},
        storage_root=location,
        storage_location=location,
        **shared,
    )


def update_schema_record(
    record: NamespaceRecord, *, comment: str | None, properties: Mapping[str, str] | None
) -> NamespaceRecord:
    """The record with a new comment and new properties; None keeps either.

    The location is not a property in Unity Catalog, so it stays.
    """
    kept = record.properties
    if properties is not None:
        own = {key: value for key, value in properties.items() if key != _LOCATION}
        kept = {**own, **({_LOCATION: kept[_LOCATION]} if _LOCATION in kept else {})}
    if comment is None:
        return msgspec.structs.replace(record, properties=kept)
    without = {key: value for key, value in kept.items() if key != "comment"}
    return msgspec.structs.replace(record, comment=comment, properties=without)


def delta_table_info(identifier: Identifier, table: DeltaTable) -> TableInfo:
    """The info of a Delta table, or of another table of the Unity Catalog API."""
    return TableInfo(
        catalog_name=identifier.catalog,
        schema_name=str(identifier.namespace),
        table_type=table.table_type,
        data_source_format=table.data_source_format or None,
        columns=table.columns,
        storage_location=table.location or None,
        properties=table.properties,
        table_id=table.uuid,
        view_definition=table.view_definition,
        view_dependencies=table.view_dependencies,
        **entity_fields(identifier.name, table),
    )


def without_fields(info: bytes | memoryview, omitted: Collection[str]) -> bytes:
    """The info of a table without the fields that the client omits."""
    fields = msgspec.json.decode(info, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: value for name, value in fields.items() if name not in omitted})


def securable_info(identifier: Identifier, record: Securable) -> VolumeInfo | FunctionInfo | RegisteredModelInfo:
    """The info of a volume, a function or a registered model."""
    shared = {
        **entity_fields(identifier.name, record),
        "catalog_name": identifier.catalog,
        "schema_name": str(identifier.namespace),
        "full_name": full_name_of(identifier),
    }
    if record.function is not None:
        definition = msgspec.structs.asdict(record.function)
        return msgspec.convert({**definition, **shared, "function_id": record.uuid}, FunctionInfo, from_attributes=True)
    if record.volume_type is not None:
        volume = {"volume_id": record.uuid, "volume_type": record.volume_type, "storage_location": record.location}
        return msgspec.convert({**shared, **volume}, VolumeInfo)
    model = {"id": record.uuid, "storage_location": record.location}
    return msgspec.convert({**shared, **model}, RegisteredModelInfo)


def version_info(model: Identifier, version: ModelVersion) -> Mapping[str, object]:
    """The info of a model version, without the fields that are not set."""
    info = {
        "model_name": model.name,
        "catalog_name": model.catalog,
        "schema_name": str(model.namespace),
        "version": version.version,
        "source": version.source,
        "status": version.status,
        "storage_location": version.location,
        "id": version.id,
        "created_at": version.created_ms,
        "updated_at": version.changed_ms,
        "run_id": version.run_id,
        "comment": version.comment,
        "created_by": version.created_by or None,
        "updated_by": version.changed_by or None,
    }
    return {name: value for name, value in info.items() if value is not None}
