"""Creates managed Delta tables over HTTP as Spark does: it adopts everything that the staging answer suggests."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

UNITY: Final = "/api/2.1/unity-catalog"
TIME_MS: Final = 1_767_225_600_000
MAPPING_MODE: Final = "delta.columnMapping.mode"
FIELDS: Final = (
    {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
    {"name": "text", "type": "string", "nullable": True, "metadata": {}},
    {"name": "amount", "type": "double", "nullable": True, "metadata": {}},
)


def create_as_suggested(url: str, schema: str, name: str, properties: Mapping[str, str] | None = None) -> Path:
    """Create a table with the columns FIELDS, whatever was suggested and these properties; returns its folder."""
    base = f"{url}{UNITY}/delta/v1/catalogs/main/schemas/{schema}"
    stage = httpx.post(f"{base}/staging-tables", json={"name": name}).raise_for_status().json()
    suggested = {key: value or f"_{key.rpartition('.')[2]}" for key, value in stage["suggested-properties"].items()}
    configuration = {**suggested, **stage["required-properties"], **(properties or {})}
    fields = FIELDS if MAPPING_MODE not in configuration else _mapped(FIELDS)
    if fields is not FIELDS:
        configuration["delta.columnMapping.maxColumnId"] = str(len(fields))
    protocol = _protocol(stage, configuration)
    location = Path(stage["location"].removeprefix("file://"))
    _write_first_commit(location, stage["table-id"], fields, configuration, protocol)
    body = {
        "name": name,
        "location": stage["location"],
        "table-type": "MANAGED",
        "columns": {"type": "struct", "fields": fields},
        "protocol": protocol,
        "properties": configuration,
        "last-commit-timestamp-ms": TIME_MS,
    }
    httpx.post(f"{base}/tables", json=body).raise_for_status()
    return location


def _mapped(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields with ids and physical names, as every engine assigns them to a new table."""
    return [
        {
            **field,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            },
        }
        for number, field in enumerate(fields, start=1)
    ]


def _protocol(stage: Mapping[str, Any], configuration: Mapping[str, str]) -> dict[str, Any]:
    required, suggested = stage["required-protocol"], stage["suggested-protocol"]
    mapped = ["columnMapping"] if MAPPING_MODE in configuration else []
    names = ("reader-features", "writer-features")
    features = {name: sorted({*required[name], *(suggested.get(name) or ()), *mapped}) for name in names}
    return {"min-reader-version": 3, "min-writer-version": 7, **features}


def _write_first_commit(
    location: Path,
    table_id: str,
    fields: Sequence[Mapping[str, Any]],
    configuration: Mapping[str, str],
    protocol: Mapping[str, Any],
) -> None:
    actions = [
        {"commitInfo": {"inCommitTimestamp": TIME_MS, "timestamp": TIME_MS, "operation": "CREATE TABLE"}},
        {
            "metaData": {
                "id": table_id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
                "partitionColumns": [],
                "configuration": dict(configuration),
                "createdTime": TIME_MS,
            }
        },
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": protocol["reader-features"],
                "writerFeatures": protocol["writer-features"],
            }
        },
    ]
    log = location / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True, exist_ok=True)
    (log / f"{0:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions), encoding="utf-8")
