"""The versions of a registered model."""

from typing import Literal

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Change, Record

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
    change: Change | None = None
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
