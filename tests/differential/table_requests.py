"""Random commit requests for tables, in the order of real clients, and with their mistakes."""

from collections.abc import Callable
from copy import deepcopy
from random import Random

from tests.differential import table_updates as updates
from tests.differential.outcomes import JsonObject
from tests.differential.schemas import FieldIds, random_schema
from tests.differential.table_updates import UPDATES, Draft

REQUIREMENTS_WRONG = 0.08
MALFORMED = 0.04

Story = Callable[[Random, Draft], list[JsonObject]]


def create_request(rng: Random, *, now_ms: int) -> JsonObject:
    """A create transaction in the order of Java's client, followed by its recorded changes; sometimes incomplete."""
    version = rng.choice((1, 2, 2, 3, 3, 4))
    draft = updates.empty_draft(rng, version=version, now_ms=now_ms)
    draft.schemas.append(draft.current_schema)
    changes: list[JsonObject] = [
        {"action": "assign-uuid", "uuid": updates.random_uuid(rng)},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": deepcopy(draft.current_schema), "last-column-id": draft.ids.last},
        {"action": "set-current-schema", "schema-id": -1},
        updates.add_spec(rng, draft),
        {"action": "set-default-spec", "spec-id": -1},
        updates.add_sort_order(rng, draft),
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": rng.choice(("s3://warehouse/db/table", "s3://warehouse/db/table/"))},
        {"action": "set-properties", "updates": {"created-by": "a test"}},
    ]
    if rng.random() < 0.4:
        changes += rng.choice(_STORIES)(rng, draft)
    if rng.random() < 0.12:
        del changes[rng.randrange(len(changes))]
    requirements: list[JsonObject] = [{"type": "assert-create"}]
    if rng.random() < 0.04:
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": 0})
    return {"requirements": requirements, "updates": changes}


def commit_request(rng: Random, metadata: JsonObject, *, now_ms: int) -> JsonObject:
    """A commit on a table in this state."""
    draft = updates.draft_of(metadata, now_ms=now_ms)
    requirements = _requirements(rng, metadata)
    story = rng.choice(_STORIES) if rng.random() < 0.75 else _mixture
    request: JsonObject = {"requirements": requirements, "updates": story(rng, draft)}
    if rng.random() < MALFORMED:
        _break_request(rng, request)
    return request


def _append(rng: Random, draft: Draft) -> list[JsonObject]:
    added = updates.add_snapshot(rng, draft)
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": added["snapshot"]["snapshot-id"]}
    return [added, {**ref, "type": "branch"}]


def _append_twice(rng: Random, draft: Draft) -> list[JsonObject]:
    return _append(rng, draft) + _append(rng, draft)


def _append_to_branch(rng: Random, draft: Draft) -> list[JsonObject]:
    added = updates.add_snapshot(rng, draft)
    name = rng.choice(("audit", "dev"))
    ref: JsonObject = {"action": "set-snapshot-ref", "ref-name": name, "type": "branch"}
    return [added, {**ref, "snapshot-id": added["snapshot"]["snapshot-id"], "min-snapshots-to-keep": 2}]


def _fast_forward(rng: Random, draft: Draft) -> list[JsonObject]:
    """Moves main to an existing snapshot: a rollback, or the publication of a branch."""
    if not draft.snapshots:
        return _append(rng, draft)
    snapshot_id = rng.choice(draft.snapshots)["snapshot-id"]
    return [{"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": snapshot_id, "type": "branch"}]


def _evolve_schema(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.add_schema(rng, draft), {"action": "set-current-schema", "schema-id": -1}]


def _evolve_spec(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.add_spec(rng, draft), {"action": "set-default-spec", "spec-id": -1}]


def _evolve_order(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.add_sort_order(rng, draft), {"action": "set-default-sort-order", "sort-order-id": -1}]


def _evolve_everything(rng: Random, draft: Draft) -> list[JsonObject]:
    schema = updates.add_schema(rng, draft)
    draft.current_schema = schema["schema"]
    return [
        schema,
        {"action": "set-current-schema", "schema-id": -1},
        *_evolve_spec(rng, draft),
        *_evolve_order(rng, draft),
    ]


def _replace_table(rng: Random, draft: Draft) -> list[JsonObject]:
    ids = FieldIds(draft.ids.last)
    schema = random_schema(rng, version=draft.version, ids=ids)
    draft.current_schema, draft.ids = schema, ids
    draft.schemas.append(schema)
    changes: list[JsonObject] = [
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        *_evolve_spec(rng, draft),
        *_evolve_order(rng, draft),
    ]
    return changes + (_append(rng, draft) if rng.random() < 0.5 else [])


def _expire(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.remove_snapshots(rng, draft), updates.remove_snapshot_ref(rng, draft)]


def _clean_up(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.remove_partition_specs(rng, draft), updates.remove_schemas(rng, draft)]


def _describe(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.set_statistics(rng, draft), updates.set_partition_statistics(rng, draft)]


def _configure(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.set_properties(rng, draft), updates.remove_properties(rng, draft)]


def _encrypt(rng: Random, draft: Draft) -> list[JsonObject]:
    return [updates.add_encryption_key(rng, draft), *_append(rng, draft)]


def _single(rng: Random, draft: Draft) -> list[JsonObject]:
    return [rng.choice(list(UPDATES.values()))(rng, draft)]


def _mixture(rng: Random, draft: Draft) -> list[JsonObject]:
    return [rng.choice(list(UPDATES.values()))(rng, draft) for _ in range(rng.randint(0, 5))]


_STORIES: tuple[Story, ...] = (
    _append, _append, _append, _append_twice, _append_to_branch, _fast_forward, _evolve_schema, _evolve_schema,
    _evolve_spec, _evolve_order, _evolve_everything, _replace_table, _expire, _expire, _clean_up, _describe, _configure,
    _encrypt, _single, _single,
)  # fmt: skip


def _requirements(rng: Random, metadata: JsonObject) -> list[JsonObject]:
    """Requirements that hold, and sometimes one that fails or does not exist."""
    refs = metadata.get("refs", {})
    name = rng.choice((*refs, "absent"))
    holding: list[JsonObject] = [
        {"type": "assert-table-uuid", "uuid": _recased(rng, metadata["table-uuid"])},
        {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": refs.get(name, {}).get("snapshot-id")},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata["last-column-id"]},
        {"type": "assert-current-schema-id", "current-schema-id": metadata["current-schema-id"]},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": metadata["last-partition-id"]},
        {"type": "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"]},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": metadata["default-sort-order-id"]},
    ]
    chosen = rng.sample(holding, k=rng.randint(0, 3))
    if rng.random() < REQUIREMENTS_WRONG:
        chosen.insert(rng.randint(0, len(chosen)), rng.choice(_FAILING))
    return chosen


def _recased(rng: Random, uuid: str) -> str:
    return uuid.upper() if rng.random() < 0.1 else uuid


_FAILING: tuple[JsonObject, ...] = (
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"type": "assert-table-uuid"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 404},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "main"},
    {"type": "assert-ref-snapshot-id", "ref": "nowhere", "snapshot-id": 404},
    {"type": "assert-ref-snapshot-id", "ref": "v1.0", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": 404},
    {"type": "assert-ref-snapshot-id", "snapshot-id": 404},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 404},
    {"type": "assert-last-assigned-field-id"},
    {"type": "assert-current-schema-id", "current-schema-id": 404},
    {"type": "assert-current-schema-id", "current-schema-id": "0"},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 404},
    {"type": "assert-default-spec-id", "default-spec-id": 404},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 404},
    {"type": "assert-view-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"type": "assert-weather", "is": "fine"},
    {"no-type": 1},
)


def _break_request(rng: Random, request: JsonObject) -> None:
    broken = rng.choice(_MALFORMED)
    changes = request["updates"]
    changes.insert(rng.randint(0, len(changes)), deepcopy(broken))


_MALFORMED: tuple[JsonObject, ...] = (
    {"action": "shake"},
    {"no-action": True},
    {"action": 7},
    {"action": "assign-uuid"},
    {"action": "assign-uuid", "uuid": None},
    {"action": "upgrade-format-version"},
    {"action": "upgrade-format-version", "format-version": "2"},
    {"action": "add-schema"},
    {"action": "add-schema", "schema": []},
    {"action": "add-schema", "schema": {"type": "struct"}},
    {"action": "set-current-schema"},
    {"action": "set-current-schema", "schema-id": 1.5},
    {"action": "set-current-schema", "schema-id": None},
    {"action": "add-spec"},
    {"action": "add-spec", "spec": {"spec-id": 0}},
    {"action": "add-spec", "spec": {"spec-id": 0, "fields": {}}},
    {"action": "set-default-spec", "spec-id": True},
    {"action": "add-sort-order", "sort-order": {"fields": []}},
    {"action": "set-default-sort-order"},
    {"action": "add-snapshot"},
    {"action": "add-snapshot", "snapshot": {}},
    {"action": "add-snapshot", "snapshot": {"snapshot-id": 5, "timestamp-ms": "now", "manifest-list": "x"}},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"},
    {"action": "set-snapshot-ref", "snapshot-id": 5, "type": "branch"},
    {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 5},
    {"action": "remove-snapshot-ref"},
    {"action": "remove-snapshots"},
    {"action": "remove-snapshots", "snapshot-ids": None},
    {"action": "remove-snapshots", "snapshot-ids": ["1"]},
    {"action": "set-location"},
    {"action": "set-location", "location": None},
    {"action": "set-properties"},
    {"action": "set-properties", "updates": {"a": 1}},
    {"action": "set-properties", "updates": {"a": None}},
    {"action": "remove-properties"},
    {"action": "remove-properties", "removals": [1]},
    {"action": "remove-properties", "removals": "a"},
    {"action": "set-statistics"},
    {"action": "remove-statistics"},
    {"action": "set-partition-statistics"},
    {"action": "remove-partition-statistics"},
    {"action": "remove-partition-specs"},
    {"action": "remove-schemas"},
    {"action": "add-encryption-key"},
    {"action": "remove-encryption-key"},
    {"action": "add-view-version", "view-version": {}},
    {"action": "set-current-view-version", "view-version-id": 1},
)
