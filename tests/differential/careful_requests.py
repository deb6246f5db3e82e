"""Requests of a careful Python client: well formed, with the ids that the catalog would assign, mostly valid.

PyIceberg's `update_table_metadata` trusts its caller where Java checks, so it gets only the requests of such a caller.
"""

from collections.abc import Callable
from copy import deepcopy
from random import Random

from tests.differential import table_updates as updates
from tests.differential.outcomes import JsonObject
from tests.differential.schemas import DEFAULTS, FieldIds, primitive_fields
from tests.differential.table_updates import Draft

STALE = 0.05
CAREFUL_TYPES = tuple(kind for kind in DEFAULTS if not kind.endswith("_ns"))


def careful_create_request(rng: Random, *, now_ms: int) -> JsonObject:
    """A create transaction for Java or us; PyIceberg takes over from its result."""
    del now_ms  # A new table has no snapshots yet.
    version = rng.choice((2, 2, 3))
    ids = FieldIds(0)
    columns = [_column(rng, name, ids) for name in ("id", "data", "ts")]
    changes: list[JsonObject] = [
        {"action": "assign-uuid", "uuid": updates.random_uuid(rng)},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": {"type": "struct", "schema-id": 0, "fields": columns}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": "s3://warehouse/db/table"},
        {"action": "set-properties", "updates": {"owner": "ann"}},
    ]
    return {"requirements": [{"type": "assert-create"}], "updates": changes}


def _column(rng: Random, name: str, ids: FieldIds) -> JsonObject:
    return {"id": ids.next(), "name": name, "required": False, "type": rng.choice(CAREFUL_TYPES)}


def careful_request(rng: Random, metadata: JsonObject, *, now_ms: int) -> JsonObject:
    """A commit as PyIceberg's client sends it."""
    draft = updates.draft_of(metadata, now_ms=now_ms)
    requirements: list[JsonObject] = [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}]
    if rng.random() < STALE:
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": 404})
    if rng.random() < STALE:
        requirements.append({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 404})
    return {"requirements": requirements, "updates": rng.choice(_STORIES)(rng, draft, metadata)}


def _append(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    snapshot_id = rng.randint(1, 2**62)
    added: JsonObject = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": draft.now_ms - rng.randint(100, 2000),  # The client started before the commit.
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "added-records": "5"},
        "schema-id": metadata["current-schema-id"],
    }
    parent = metadata.get("refs", {}).get("main", {}).get("snapshot-id")
    if parent is not None:
        added["parent-snapshot-id"] = parent
    if metadata["format-version"] >= 3:
        added["first-row-id"], added["added-rows"] = metadata["next-row-id"], rng.randint(0, 99)
    name = rng.choice(("main", "main", "audit"))
    ref = {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": snapshot_id}
    return [{"action": "add-snapshot", "snapshot": added}, ref]


def _tag(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    if not draft.snapshots:
        return _append(rng, draft, metadata)
    snapshot_id = rng.choice(draft.snapshots)["snapshot-id"] if rng.random() < 0.9 else 404
    tag: JsonObject = {"action": "set-snapshot-ref", "ref-name": f"tag-{rng.randint(0, 2)}", "type": "tag"}
    return [{**tag, "snapshot-id": snapshot_id, "max-ref-age-ms": rng.randint(1, 9999)}]


def _roll_back(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    if not draft.snapshots:
        return _append(rng, draft, metadata)
    snapshot_id = rng.choice(draft.snapshots)["snapshot-id"]
    return [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}]


def _add_column(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    schema = deepcopy(draft.current_schema)
    schema["schema-id"] = max(s["schema-id"] for s in metadata["schemas"]) + 1
    schema["fields"].append(_column(rng, f"column_{draft.ids.last}", draft.ids))
    return [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]


def _partition(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    source = rng.choice(primitive_fields(draft.current_schema))
    spec_id = max(s["spec-id"] for s in metadata["partition-specs"]) + 1
    name = f"{source['name']}_{spec_id}"
    field = {"source-id": source["id"], "field-id": metadata["last-partition-id"] + 1, "transform": "identity"}
    spec: JsonObject = {"spec-id": spec_id, "fields": [{**field, "name": name}]}
    return [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}]


def _sort(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    # Each order sorts by one more column than all earlier ones, so that it is new.
    count = max(len(order["fields"]) for order in metadata["sort-orders"]) + 1
    sources = primitive_fields(draft.current_schema)[:count]
    if len(sources) < count:
        return _add_column(rng, draft, metadata)
    fields = [
        {"source-id": s["id"], "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
        for s in sources
    ]
    order_id = max(o["order-id"] for o in metadata["sort-orders"]) + 1
    order = {"order-id": order_id, "fields": fields}
    set_default = {"action": "set-default-sort-order", "sort-order-id": -1}
    return [{"action": "add-sort-order", "sort-order": order}, set_default]


def _set_properties(rng: Random, _draft: Draft, _metadata: JsonObject) -> list[JsonObject]:
    properties = {"owner": rng.choice(("ann", "bob")), "write.metadata.previous-versions-max": rng.choice("1359")}
    return [{"action": "set-properties", "updates": properties}]


def _remove_property(rng: Random, _draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    keys = sorted(metadata["properties"])
    return [{"action": "remove-properties", "removals": rng.sample(keys, k=min(1, len(keys)))}]


def _set_location(rng: Random, _draft: Draft, _metadata: JsonObject) -> list[JsonObject]:
    return [{"action": "set-location", "location": f"s3://warehouse/moved-{rng.randint(0, 3)}"}]


def _describe(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    if not draft.snapshots:
        return _append(rng, draft, metadata)
    snapshot_id = rng.choice(draft.snapshots)["snapshot-id"]
    file = {"snapshot-id": snapshot_id, "statistics-path": f"s3://warehouse/{rng.randint(0, 9)}.stats"}
    sizes = {"file-size-in-bytes": 5, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    partition_file = {**file, "file-size-in-bytes": 7}
    return [
        {"action": "set-statistics", "statistics": {**file, **sizes}},
        {"action": "set-partition-statistics", "partition-statistics": partition_file},
    ]


def _forget_statistics(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    described = [file["snapshot-id"] for file in metadata["statistics"]]
    if not described:
        return _describe(rng, draft, metadata)
    return [{"action": "remove-statistics", "snapshot-id": rng.choice(described)}]


def _expire(rng: Random, draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    if not draft.snapshots:
        return _append(rng, draft, metadata)
    return [{"action": "remove-snapshots", "snapshot-ids": [rng.choice(draft.snapshots)["snapshot-id"]]}]


def _remove_ref(rng: Random, _draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    return [{"action": "remove-snapshot-ref", "ref-name": rng.choice((*metadata["refs"], "nowhere"))}]


def _clean_up(rng: Random, _draft: Draft, metadata: JsonObject) -> list[JsonObject]:
    schema_id = rng.choice(metadata["schemas"])["schema-id"]
    spec_id = rng.choice(metadata["partition-specs"])["spec-id"]
    return [
        {"action": "remove-schemas", "schema-ids": [schema_id]},
        {"action": "remove-partition-specs", "spec-ids": [spec_id]},
    ]


_STORIES: tuple[Callable[[Random, Draft, JsonObject], list[JsonObject]], ...] = (
    _append, _append, _append, _append, _tag, _roll_back, _add_column, _partition, _sort, _set_properties,
    _remove_property, _set_location, _describe, _forget_statistics, _expire, _remove_ref, _clean_up,
)  # fmt: skip
