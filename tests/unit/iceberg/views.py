"""Views, versions and commits to test with."""

import json
from collections.abc import Sequence
from typing import Any

from sandur.iceberg.view_commit import ViewCommit, decode_view_commit, next_view_metadata
from sandur.iceberg.view_metadata import ViewMetadata, decode_view_metadata, encode_view_metadata

VIEW_UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"
OTHER_UUID = "11111111-2222-3333-4444-555555555555"
LOCATION = "s3://bucket/view"
NOW_MS = 1_700_000_100_000
BASE_MS = 1_700_000_000_000
BASE_FILE = f"{LOCATION}/metadata/00003-x.gz.metadata.json"

Json = dict[str, Any]


def column(field_id: int, name: str, kind: object = "long", **more: object) -> Json:
    return {"id": field_id, "name": name, "required": False, "type": kind, **more}


def schema(*fields: Json, **more: object) -> Json:
    return {"type": "struct", "fields": list(fields), **more}


COLUMNS = (column(3, "id"), column(7, "data", "string"))


def query(dialect: str = "spark", sql: str = "SELECT 1", **more: object) -> Json:
    return {"type": "sql", "sql": sql, "dialect": dialect, **more}


def version(version_id: int, *representations: Json, schema_id: int = 0, **more: object) -> Json:
    """A version with a query that contains its id, unless representations are given."""
    return {
        "version-id": version_id,
        "timestamp-ms": BASE_MS + version_id,
        "schema-id": schema_id,
        "summary": {"engine-name": "Spark"},
        "default-namespace": ["db"],
        "representations": list(representations) or [query(sql=f"SELECT {version_id}")],
        **more,
    }


def log_entry(version_id: int, timestamp_ms: int | None = None) -> Json:
    return {"timestamp-ms": BASE_MS + version_id if timestamp_ms is None else timestamp_ms, "version-id": version_id}


def document(*versions: Json, **more: object) -> Json:
    """A view with these versions, or with versions 1 and 2; each was current once, and the last one is."""
    stored = list(versions) or [version(1), version(2)]
    return {
        "view-uuid": VIEW_UUID,
        "format-version": 1,
        "location": LOCATION,
        "properties": {"comment": "a view"},
        "schemas": [schema(*COLUMNS, **{"schema-id": 0})],
        "current-version-id": stored[-1]["version-id"],
        "versions": stored,
        "version-log": [log_entry(item["version-id"]) for item in stored],
        **more,
    }


def view(*versions: Json, **more: object) -> ViewMetadata:
    return read(document(*versions, **more))


def read(fields: Json) -> ViewMetadata:
    return decode_view_metadata(json.dumps(fields).encode(), metadata_location=BASE_FILE)


def written(metadata: ViewMetadata) -> Json:
    fields: Json = json.loads(encode_view_metadata(metadata))
    return fields


def commit(updates: Sequence[Json], requirements: Sequence[Json] = ()) -> ViewCommit:
    return decode_view_commit(json.dumps({"requirements": list(requirements), "updates": list(updates)}).encode())


def committed(
    base: ViewMetadata | None, *updates: Json, requirements: Sequence[Json] = (), now_ms: int = NOW_MS
) -> ViewMetadata:
    parsed = commit(updates, requirements)
    return next_view_metadata(base, parsed.requirements, parsed.updates, now_ms=now_ms)


def after(base: ViewMetadata | None, *updates: Json, **more: Any) -> Json:
    """The content of the file that the commit writes."""
    return written(committed(base, *updates, **more))


def creation() -> list[Json]:
    """The updates that create a view."""
    return [
        {"action": "assign-uuid", "uuid": VIEW_UUID},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "set-location", "location": LOCATION},
        add_schema(*COLUMNS),
        add_version(1, schema_id=-1),
        set_current(-1),
    ]


def add_schema(*fields: Json, **more: object) -> Json:
    return {"action": "add-schema", "schema": schema(*fields, **more)}


def add_version(*args: Any, **more: Any) -> Json:
    return {"action": "add-view-version", "view-version": version(*args, **more)}


def set_current(version_id: int) -> Json:
    return {"action": "set-current-view-version", "view-version-id": version_id}


def set_properties(**properties: str) -> Json:
    return {"action": "set-properties", "updates": properties}


def ids(fields: Json) -> list[int]:
    return [item["version-id"] for item in fields["versions"]]


def logged(fields: Json) -> list[int]:
    return [entry["version-id"] for entry in fields["version-log"]]
