"""Random commit requests for views: new versions, rollbacks, dropped dialects, truncated histories."""

from copy import deepcopy
from random import Random

from tests.differential.outcomes import JsonObject
from tests.differential.schemas import FieldIds, broken_schema, evolved_schema, random_schema
from tests.differential.table_updates import random_uuid

DIALECTS = ("spark", "trino", "Spark", "duckdb")
WRONG = 0.06


def create_view_request(rng: Random, *, now_ms: int) -> JsonObject:
    """The updates that create a view."""
    schema = random_schema(rng, version=3, ids=FieldIds(0), columns_max=3)
    properties = {"comment": "a view"}
    if rng.random() < 0.5:
        properties["version.history.num-entries"] = rng.choice(("1", "2", "3"))
    if rng.random() < 0.75:
        properties["replace.drop-dialect.allowed"] = "true"
    changes: list[JsonObject] = [
        {"action": "assign-uuid", "uuid": random_uuid(rng)},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "set-location", "location": "s3://warehouse/db/view"},
        {"action": "add-schema", "schema": schema},
        {"action": "add-view-version", "view-version": view_version(rng, schema_id=-1, now_ms=now_ms)},
        {"action": "set-current-view-version", "view-version-id": -1},
        {"action": "set-properties", "updates": properties},
    ]
    return {"requirements": [], "updates": changes}


def view_version(rng: Random, *, schema_id: int, now_ms: int) -> JsonObject:
    dialects = rng.sample(DIALECTS, k=rng.choice((1, 1, 2)))
    version: JsonObject = {
        "version-id": rng.choice((1, 1, 2, 5)),
        "timestamp-ms": now_ms + rng.randint(-2000, 2000),
        "schema-id": schema_id,
        "summary": {"engine-name": rng.choice(("Spark", "Trino"))},
        "default-namespace": rng.choice((["db"], ["a", "b"], [])),
        "representations": [
            {"type": "sql", "sql": f"SELECT {rng.randint(1, 3)}", "dialect": dialect} for dialect in dialects
        ],
    }
    if rng.random() < 0.3:
        version["default-catalog"] = "prod"
    if rng.random() < WRONG:
        _break_version(rng, version)
    return version


def _break_version(rng: Random, version: JsonObject) -> None:
    fault = rng.randint(0, 3)
    if fault == 0:
        version["representations"].append({**version["representations"][0], "sql": "SELECT 9"})
    elif fault == 1:
        version["schema-id"] = 404
    elif fault == 2:  # one of four faults
        del version[rng.choice(("version-id", "timestamp-ms", "summary", "representations", "default-namespace"))]
    else:
        version["representations"][0]["type"] = rng.choice(("dataframe", "sql"))


def commit_view_request(rng: Random, metadata: JsonObject, *, now_ms: int) -> JsonObject:
    """A commit on a view in this state."""
    requirements: list[JsonObject] = []
    if rng.random() < 0.7:
        requirements.append({"type": "assert-view-uuid", "uuid": metadata["view-uuid"]})
    if rng.random() < WRONG:
        requirements.append(deepcopy(rng.choice(_FAILING)))
    changes = _replacement(rng, metadata, now_ms) if rng.random() < 0.6 else _mixture(rng, metadata, now_ms)
    if rng.random() < WRONG:
        changes.insert(rng.randint(0, len(changes)), deepcopy(rng.choice(_MALFORMED)))
    return {"requirements": requirements, "updates": changes}


def _replacement(rng: Random, metadata: JsonObject, now_ms: int) -> list[JsonObject]:
    version = view_version(rng, schema_id=-1, now_ms=now_ms)
    return [
        {"action": "add-schema", "schema": _next_schema(rng, metadata)},
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def _next_schema(rng: Random, metadata: JsonObject) -> JsonObject:
    schema = rng.choice(metadata["schemas"])
    ids = FieldIds(1000 + rng.randint(0, 10_000))
    if rng.random() < 2 * WRONG:
        return broken_schema(rng, schema, ids=ids)
    return evolved_schema(rng, schema, version=3, ids=ids) if rng.random() < 0.9 else deepcopy(schema)


def _mixture(rng: Random, metadata: JsonObject, now_ms: int) -> list[JsonObject]:
    return [_any_update(rng, metadata, now_ms) for _ in range(rng.randint(0, 4))]


def _any_update(rng: Random, metadata: JsonObject, now_ms: int) -> JsonObject:
    version_ids = [version["version-id"] for version in metadata["versions"]]
    schema_ids = [schema["schema-id"] for schema in metadata["schemas"]]
    again = deepcopy(rng.choice(metadata["versions"]))
    choices: tuple[JsonObject, ...] = (
        {"action": "assign-uuid", "uuid": rng.choice((metadata["view-uuid"], random_uuid(rng)))},
        {"action": "upgrade-format-version", "format-version": rng.choice((1, 1, 0, 2))},
        {"action": "set-location", "location": _place(rng, metadata)},
        {"action": "add-schema", "schema": _next_schema(rng, metadata)},
        {"action": "add-view-version", "view-version": {**again, "timestamp-ms": now_ms, "version-id": 1}},
        {
            "action": "add-view-version",
            "view-version": view_version(rng, schema_id=rng.choice((*schema_ids, -1)), now_ms=now_ms),
        },
        {"action": "set-current-view-version", "view-version-id": rng.choice((*version_ids, -1))},
        {"action": "set-current-view-version", "view-version-id": rng.choice((*version_ids, 404))},
        {"action": "set-properties", "updates": _properties(rng)},
        {"action": "remove-properties", "removals": rng.sample(["comment", "replace.drop-dialect.allowed", "no"], k=1)},
    )
    return rng.choice(choices)


def _place(rng: Random, metadata: JsonObject) -> str:
    return rng.choice(
        (metadata["location"], f"{metadata['location']}/", "s3://warehouse/moved", "s3://warehouse/moved/")
    )


def _properties(rng: Random) -> dict[str, str]:
    return rng.choice(
        (
            {},
            {"owner": "ann"},
            {"replace.drop-dialect.allowed": "true"},
            {"replace.drop-dialect.allowed": "false"},
            {"version.history.num-entries": rng.choice(("1", "2", "4", "0", "-1"))},
            {"write.metadata.path": "s3://warehouse/elsewhere"},
        )
    )


_FAILING: tuple[JsonObject, ...] = (
    {"type": "assert-view-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"type": "assert-view-uuid"},
    {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-weather"},
)
_MALFORMED: tuple[JsonObject, ...] = (
    {"action": "shake"},
    {"action": "add-view-version"},
    {"action": "set-current-view-version"},
    {"action": "set-current-view-version", "view-version-id": "1"},
    {"action": "set-current-schema", "schema-id": 0},
    {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
    {"action": "remove-snapshots", "snapshot-ids": [1]},
    {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1, "type": "branch"},
)
