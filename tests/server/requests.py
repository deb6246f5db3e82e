"""Request bodies of the Iceberg REST API."""

from typing import Any, Final

Json = dict[str, Any]

SCHEMA: Final[Json] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "text", "type": "string", "required": False},
    ],
}
SNAPSHOT_ID: Final = 4_611_686_018_427_387_905  # Not representable as a double.


def create_table(name: str, **fields: object) -> Json:
    return {"name": name, "schema": SCHEMA, **{key.replace("_", "-"): value for key, value in fields.items()}}


def set_properties(**properties: str) -> Json:
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": properties}]}


def add_snapshot(metadata: Json, *, snapshot_id: int = SNAPSHOT_ID, parent: int | None = None, number: int = 1) -> Json:
    """A commit to the table of that metadata."""
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": number,
        "timestamp-ms": metadata["last-updated-ms"] + number,
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    }


def create_view(name: str, sql: str = "select 1") -> Json:
    version = {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {"engine-name": "test"},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    return {"name": name, "schema": SCHEMA, "view-version": version, "properties": {}}


def rename(source: str, destination: str, *, namespace: str = "ns", to_namespace: str | None = None) -> Json:
    return {
        "source": {"namespace": [namespace], "name": source},
        "destination": {"namespace": [to_namespace or namespace], "name": destination},
    }
