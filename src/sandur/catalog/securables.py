"""Volumes, functions, registered models and model versions: known to Unity Catalog's API only."""

from typing import Literal

import msgspec

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.catalog.records import FunctionDefinition, LastChange, Record, Securable, VolumeType


class VolumeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    catalog_name: str
    schema_name: str
    full_name: str
    volume_id: str
    volume_type: VolumeType
    storage_location: str
    created_at: int
    updated_at: int
    comment: str | None = None
    owner: str | None = None
    created_by: str | None = None
    updated_by: str | None = None


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


class RegisteredModelInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    catalog_name: str
    schema_name: str
    full_name: str
    id: str
    storage_location: str
    created_at: int
    updated_at: int
    comment: str | None = None
    owner: str | None = None
    created_by: str | None = None
    updated_by: str | None = None


class _Named(msgspec.Struct, frozen=True):
    """What the infos of all kinds say alike."""

    name: str
    catalog_name: str
    schema_name: str
    full_name: str
    created_at: int
    updated_at: int
    comment: str | None
    owner: str | None
    created_by: str | None
    updated_by: str | None


def _named(identifier: Identifier, record: Securable) -> dict[str, object]:
    common = _Named(
        name=identifier.name,
        catalog_name=identifier.catalog,
        schema_name=str(identifier.namespace),
        full_name=full_name_of(identifier),
        created_at=record.created_ms,
        updated_at=record.changed_ms,
        comment=record.comment,
        owner=record.owner or None,
        created_by=record.created_by or None,
        updated_by=record.changed_by or None,
    )
    return msgspec.structs.asdict(common)


def securable_info(identifier: Identifier, record: Securable) -> VolumeInfo | FunctionInfo | RegisteredModelInfo:
    """What clients are shown of it, by its kind."""
    named = _named(identifier, record)
    if record.function is not None:
        definition = msgspec.structs.asdict(record.function)
        return msgspec.convert({**definition, **named, "function_id": record.uuid}, FunctionInfo, from_attributes=True)
    if record.volume_type is not None:
        volume = {"volume_id": record.uuid, "volume_type": record.volume_type, "storage_location": record.location}
        return msgspec.convert({**named, **volume}, VolumeInfo)
    model = {"id": record.uuid, "storage_location": record.location}
    return msgspec.convert({**named, **model}, RegisteredModelInfo)


Status = Literal["PENDING_REGISTRATION", "FAILED_REGISTRATION", "READY"]


class ModelVersion(Record, frozen=True, kw_only=True):
    """One version. Like a name it is never deleted by an operation, only swapped to `dropped`."""

    version: int
    id: str
    state: Literal["live", "dropped"] = "live"
    status: Status = "PENDING_REGISTRATION"
    source: str = ""
    run_id: str | None = None
    location: str = ""
    comment: str | None = None
    change: LastChange | None = None
    created_ms: int = 0
    created_by: str = ""
    changed_ms: int = 0
    changed_by: str = ""


class ModelVersionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model_name: str
    catalog_name: str
    schema_name: str
    version: int
    source: str
    status: Status
    storage_location: str
    id: str
    created_at: int
    updated_at: int
    run_id: str | None = None
    comment: str | None = None
    created_by: str | None = None
    updated_by: str | None = None


def version_info(model: Identifier, version: ModelVersion) -> ModelVersionInfo:
    return ModelVersionInfo(
        model_name=model.name,
        catalog_name=model.catalog,
        schema_name=str(model.namespace),
        version=version.version,
        source=version.source,
        status=version.status,
        storage_location=version.location,
        id=version.id,
        created_at=version.created_ms,
        updated_at=version.changed_ms,
        run_id=version.run_id,
        comment=version.comment,
        created_by=version.created_by or None,
        updated_by=version.changed_by or None,
    )
