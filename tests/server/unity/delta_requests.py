"""Requests of the Delta REST API for tests: staging, creation and commits."""

from typing import Any, Final

import httpx

from tests.server.unity.client import Json, Unity

SCHEMA: Final = "/delta/v1/catalogs/main/schemas/s"
T: Final = f"{SCHEMA}/tables/t"
TIME_MS: Final = 1_767_225_600_000
FEATURES: Final = ["catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"]
COLUMNS: Final[Json] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "the key"}},
        {
            "name": "tags",
            "type": {
                "type": "map",
                "key-type": "string",
                "value-type": {"type": "array", "element-type": "decimal(10,2)", "contains-null": True},
                "value-contains-null": False,
            },
            "nullable": True,
            "metadata": {},
        },
    ],
}


def creation(stage: Json, name: str = "t", **fields: Any) -> Json:
    """The request that creates a table from a staging table."""
    body = {
        "name": name,
        "location": stage["location"],
        "table-type": "MANAGED",
        "columns": COLUMNS,
        "partition-columns": ["id"],
        "protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": FEATURES,
            "writer-features": [*FEATURES, "inCommitTimestamp"],
        },
        "properties": stage["required-properties"],
        "last-commit-timestamp-ms": TIME_MS,
    }
    return {**body, **{key.replace("_", "-"): value for key, value in fields.items()}}


async def staged(unity: Unity, name: str = "t") -> Json:
    return await unity.made(f"{SCHEMA}/staging-tables", {"name": name})


async def created(unity: Unity, name: str = "t") -> Json:
    return await unity.made(f"{SCHEMA}/tables", creation(await staged(unity, name), name))


def commit(version: int, name: str = "") -> Json:
    return {
        "version": version,
        "timestamp": TIME_MS + version,
        "file-name": name or f"{version:020d}.a.json",
        "file-size": 1_000,
        "file-modification-timestamp": TIME_MS + version,
    }


def update(uuid: str, *updates: Json, etag: str | None = None) -> Json:
    requirements: list[Json] = [{"type": "assert-table-uuid", "uuid": uuid}]
    if etag is not None:
        requirements.append({"type": "assert-etag", "etag": etag})
    return {"requirements": requirements, "updates": list(updates)}


def add_commit(version: int, name: str = "") -> Json:
    return {"action": "add-commit", "commit": commit(version, name)}


def problem(answer: httpx.Response) -> tuple[int, str]:
    """The status and the type of an error, which must have the form that clients expect."""
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert error["message"]
    return answer.status_code, error["type"]
