"""Random table updates, one function per action, each mostly valid and sometimes invalid."""

import base64
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from tests.differential.outcomes import JsonObject
from tests.differential.schemas import FieldIds, broken_schema, evolved_schema, primitive_fields, random_schema

MINUTE_MS = 60_000
WRONG = 0.06  # The probability that one update of a request is invalid on purpose.
TRANSFORMS = ("identity", "bucket[4]", "truncate[3]", "year", "month", "day", "hour", "void", "bucket[16]")
OPERATIONS = ("append", "overwrite", "delete", "replace")
RESERVED = ("format-version", "uuid", "snapshot-count", "current-snapshot-id", "current-schema", "default-sort-order")


@dataclass
class Draft:
    """The state of the table as the generator assumes it while it builds one request."""

    version: int
    now_ms: int
    ids: FieldIds
    schemas: list[JsonObject]
    current_schema: JsonObject
    specs: list[JsonObject]
    orders: list[JsonObject]
    snapshots: list[JsonObject]
    refs: dict[str, JsonObject]
    properties: dict[str, str]
    last_sequence_number: int
    next_row_id: int
    last_partition_id: int
    keys: list[str] = field(default_factory=list)
    location: str = "s3://warehouse/db/table"


def draft_of(metadata: JsonObject, *, now_ms: int) -> Draft:
    schemas = deepcopy(metadata["schemas"])
    current = next((s for s in schemas if s["schema-id"] == metadata["current-schema-id"]), schemas[0])
    return Draft(
        version=metadata["format-version"],
        now_ms=now_ms,
        ids=FieldIds(metadata["last-column-id"]),
        schemas=schemas,
        current_schema=current,
        specs=deepcopy(metadata["partition-specs"]),
        orders=deepcopy(metadata["sort-orders"]),
        snapshots=list(metadata.get("snapshots", [])),
        refs=dict(metadata.get("refs", {})),
        properties=dict(metadata.get("properties", {})),
        last_sequence_number=metadata.get("last-sequence-number", 0),
        next_row_id=metadata.get("next-row-id", 0),
        last_partition_id=metadata.get("last-partition-id", 999),
        keys=[key["key-id"] for key in metadata.get("encryption-keys", [])],
        location=metadata["location"],
    )


def empty_draft(rng: Random, *, version: int, now_ms: int) -> Draft:
    ids = FieldIds(0)
    schema = random_schema(rng, version=version, ids=ids)
    return Draft(
        version=version, now_ms=now_ms, ids=ids, schemas=[], current_schema=schema, specs=[], orders=[], snapshots=[],
        refs={}, properties={}, last_sequence_number=0, next_row_id=0, last_partition_id=999,
    )  # fmt: skip


def random_uuid(rng: Random) -> str:
    hexes = f"{rng.getrandbits(128):032x}"
    return f"{hexes[:8]}-{hexes[8:12]}-{hexes[12:16]}-{hexes[16:20]}-{hexes[20:]}"


def assign_uuid(rng: Random, _draft: Draft) -> JsonObject:
    return {"action": "assign-uuid", "uuid": random_uuid(rng)}


def upgrade_format_version(rng: Random, draft: Draft) -> JsonObject:
    version = rng.choice((draft.version, draft.version, draft.version + 1, draft.version - 1, 5))
    if draft.version < version <= 4:
        draft.version = version
    return {"action": "upgrade-format-version", "format-version": version}


def add_schema(rng: Random, draft: Draft) -> JsonObject:
    roll = rng.random()
    if roll < WRONG * 3:
        schema = broken_schema(rng, draft.current_schema, ids=draft.ids)
    elif roll < 0.35:
        schema = {**deepcopy(rng.choice(draft.schemas or [draft.current_schema])), "schema-id": rng.randint(0, 9)}
    else:
        schema = evolved_schema(rng, draft.current_schema, version=draft.version, ids=draft.ids)
    draft.schemas.append(schema)
    update: JsonObject = {"action": "add-schema", "schema": schema}
    if rng.random() < 0.2:
        update["last-column-id"] = rng.choice((draft.ids.last, 1))
    return update


def set_current_schema(rng: Random, draft: Draft) -> JsonObject:
    schema_id = _chosen_id(rng, [s.get("schema-id", 0) for s in draft.schemas])
    if draft.schemas:
        draft.current_schema = draft.schemas[-1]
    return {"action": "set-current-schema", "schema-id": schema_id}


def _chosen_id(rng: Random, known: list[int]) -> int:
    """Mostly the last added id, else an existing one, sometimes an unknown one."""
    roll = rng.random()
    if roll < 0.6 or not known:
        return -1
    return rng.choice(known) if roll < 0.92 else rng.choice((77, -2, 5))


def add_spec(rng: Random, draft: Draft) -> JsonObject:
    if draft.specs and rng.random() < 0.2:
        spec = {**deepcopy(rng.choice(draft.specs)), "spec-id": rng.randint(0, 5)}
    else:
        spec = {"spec-id": rng.randint(0, 3), "fields": _partition_fields(rng, draft)}
    draft.specs.append(spec)
    return {"action": "add-spec", "spec": spec}


def _partition_fields(rng: Random, draft: Draft) -> list[JsonObject]:
    sources = primitive_fields(draft.current_schema)
    fields: list[JsonObject] = []
    first_id = 1000 if rng.random() < 0.5 else draft.last_partition_id + 1
    has_ids = rng.random() < 0.6
    for index, source in enumerate(rng.sample(sources, k=min(len(sources), rng.choice((0, 1, 1, 2))))):
        transform = _fitting_transform(rng, str(source.get("type")))
        name = f"{source.get('name')}_{transform.split('[')[0]}" if rng.random() < 0.9 else source.get("name")
        partition: JsonObject = {"source-id": source.get("id"), "name": name, "transform": transform}
        if has_ids:
            partition["field-id"] = first_id + index
        fields.append(partition)
    if fields and rng.random() < WRONG * 2:
        _break_partition_field(rng, fields)
    return fields


def _fitting_transform(rng: Random, kind: str) -> str:
    if rng.random() < WRONG:
        return rng.choice((*TRANSFORMS, "zorder[2]", "bucket[0]", "bucket[x]", "truncate", "Identity"))
    if kind.startswith(("timestamp", "date")):
        allowed = ("identity", "year", "month", "day", "void") + (("hour",) if kind != "date" else ())
        return rng.choice(allowed)
    if kind in {"int", "long", "string", "binary"} or kind.startswith("decimal"):
        return rng.choice(("identity", "bucket[4]", "truncate[3]", "void", "bucket[16]"))
    return "identity" if kind in {"boolean", "uuid", "time"} or kind.startswith("fixed") else "void"


def _break_partition_field(rng: Random, fields: list[JsonObject]) -> None:
    faults: tuple[JsonObject, ...] = (
        {"name": ""},
        {"name": "id"},
        {"source-id": 999},
        {"field-id": 1005},
        {"transform": 7},
        {"name": None},
    )
    rng.choice(fields).update(rng.choice(faults))
    if rng.random() < 0.3:
        fields.append({**fields[0]})


def set_default_spec(rng: Random, draft: Draft) -> JsonObject:
    return {"action": "set-default-spec", "spec-id": _chosen_id(rng, [s.get("spec-id", 0) for s in draft.specs])}


def add_sort_order(rng: Random, draft: Draft) -> JsonObject:
    if draft.orders and rng.random() < 0.2:
        order = deepcopy(rng.choice(draft.orders))
    else:
        fields = _sort_fields(rng, draft)
        order = {"order-id": rng.randint(1, 4) if fields else 0, "fields": fields}
        if rng.random() < WRONG:
            order["order-id"] = rng.choice((0, 3))
    draft.orders.append(order)
    return {"action": "add-sort-order", "sort-order": order}


def _sort_fields(rng: Random, draft: Draft) -> list[JsonObject]:
    sources = primitive_fields(draft.current_schema)
    fields: list[JsonObject] = []
    for source in rng.sample(sources, k=min(len(sources), rng.choice((0, 1, 1, 2)))):
        sort: JsonObject = {
            "transform": _fitting_transform(rng, str(source.get("type"))),
            "source-id": source.get("id"),
        }
        sort["direction"] = rng.choice(("asc", "desc"))
        sort["null-order"] = rng.choice(("nulls-first", "nulls-last"))
        fields.append(sort)
    if fields and rng.random() < WRONG:
        faults: tuple[JsonObject, ...] = ({"source-id": 999}, {"direction": "up"}, {"null-order": "last"})
        rng.choice(fields).update(rng.choice(faults))
    return fields


def set_default_sort_order(rng: Random, draft: Draft) -> JsonObject:
    order_id = _chosen_id(rng, [o.get("order-id", 0) for o in draft.orders])
    return {"action": "set-default-sort-order", "sort-order-id": order_id}


def add_snapshot(rng: Random, draft: Draft) -> JsonObject:
    snapshot_id = rng.randint(1, 2**63 - 1)
    snapshot: JsonObject = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": draft.now_ms + rng.randint(-2000, 2000),
        "manifest-list": f"{draft.location}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": rng.choice(OPERATIONS), "added-records": str(rng.randint(0, 99))},
    }
    _add_snapshot_numbers(rng, draft, snapshot)
    if rng.random() < WRONG * 2:
        _break_snapshot(rng, draft, snapshot)
    draft.last_sequence_number = max(draft.last_sequence_number, snapshot.get("sequence-number") or 0)
    draft.snapshots.append(snapshot)
    return {"action": "add-snapshot", "snapshot": snapshot}


def _add_snapshot_numbers(rng: Random, draft: Draft, snapshot: JsonObject) -> None:
    if draft.snapshots and rng.random() < 0.85:
        snapshot["parent-snapshot-id"] = rng.choice(draft.snapshots)["snapshot-id"]
    if draft.version > 1:
        snapshot["sequence-number"] = draft.last_sequence_number + rng.choice((1, 1, 1, 5))
    if rng.random() < 0.8:
        snapshot["schema-id"] = rng.choice(draft.schemas or [{}]).get("schema-id", 0)
    if draft.version >= 3:
        snapshot["first-row-id"] = draft.next_row_id + rng.choice((0, 0, 0, 0, 10))
        snapshot["added-rows"] = rng.choice((0, 1, 25, 10**12))
        draft.next_row_id = snapshot["first-row-id"] + snapshot["added-rows"]
    if draft.keys and rng.random() < 0.5:
        snapshot["key-id"] = rng.choice(draft.keys)


def _break_snapshot(rng: Random, draft: Draft, snapshot: JsonObject) -> None:
    faults: list[JsonObject] = [
        {"sequence-number": draft.last_sequence_number},
        {"sequence-number": 3},
        {"sequence-number": 0},
        {"timestamp-ms": draft.now_ms + 10 * MINUTE_MS},
        {"timestamp-ms": draft.now_ms - 10 * MINUTE_MS},
        {"first-row-id": 0, "added-rows": 1},
        {"first-row-id": None, "added-rows": None},
        {"first-row-id": -1, "added-rows": 4},
        {"first-row-id": 10**13, "added-rows": -4},
        {"added-rows": None},
        {"summary": {"total-records": "5"}},
        {"manifest-list": None},
        {"snapshot-id": "12"},
    ]
    if draft.snapshots:
        faults.append({"snapshot-id": rng.choice(draft.snapshots)["snapshot-id"]})
    snapshot.update(rng.choice(faults))
    for key in [key for key, value in snapshot.items() if value is None]:
        del snapshot[key]


def set_snapshot_ref(rng: Random, draft: Draft) -> JsonObject:
    name = rng.choice(("main", "main", "main", "audit", "v1.0", *draft.refs))
    kind = "branch" if name == "main" or rng.random() < 0.5 else "tag"
    snapshot_id = rng.choice(draft.snapshots[-3:])["snapshot-id"] if draft.snapshots else 404
    update: JsonObject = {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind}
    if rng.random() < 0.3:
        update["max-ref-age-ms"] = rng.randint(1, 10**12)
    if kind == "branch" and rng.random() < 0.3:
        update["min-snapshots-to-keep"] = rng.randint(1, 100)
        update["max-snapshot-age-ms"] = rng.randint(1, 10**12)
    if rng.random() < 4 * WRONG:
        faults: tuple[JsonObject, ...] = (
            {"snapshot-id": 404},
            {"ref-name": "main", "type": "tag"},
            {"type": "tag", "min-snapshots-to-keep": 3},
            {"type": "tag", "max-snapshot-age-ms": 3},
            {"max-ref-age-ms": 0},
            {"type": "branch", "min-snapshots-to-keep": -1},
            {"type": "branch", "max-snapshot-age-ms": 0},
            {"type": "bookmark"},
            {"type": "BRANCH"},
        )
        update.update(rng.choice(faults))
    draft.refs[str(update["ref-name"])] = {"snapshot-id": update["snapshot-id"], "type": update["type"]}
    return update


def remove_snapshot_ref(rng: Random, draft: Draft) -> JsonObject:
    name = rng.choice((*draft.refs, "nowhere"))
    draft.refs.pop(name, None)
    return {"action": "remove-snapshot-ref", "ref-name": name}


def remove_snapshots(rng: Random, draft: Draft) -> JsonObject:
    ids = [s["snapshot-id"] for s in draft.snapshots]
    chosen = rng.sample(ids, k=min(len(ids), rng.randint(0, 2)))
    if rng.random() < 0.2:
        chosen.append(404)
    draft.snapshots = [s for s in draft.snapshots if s["snapshot-id"] not in chosen]
    return {"action": "remove-snapshots", "snapshot-ids": chosen}


def set_location(rng: Random, draft: Draft) -> JsonObject:
    location = rng.choice((draft.location, "s3://warehouse/moved", "s3://warehouse/moved/", "file:///tmp/t//"))
    return {"action": "set-location", "location": location}


def set_properties(rng: Random, draft: Draft) -> JsonObject:
    choices = [
        ("owner", rng.choice(("ann", "bob"))),
        ("commit.retry.num-retries", rng.choice(("3", "x"))),
        ("write.metadata.previous-versions-max", rng.choice(("1", "2", "3", "0", "-4", "100"))),
        ("schema.name-mapping.default", '[{"field-id": 1, "names": ["id"]}]'),
    ]
    updates = dict(rng.sample(choices, k=rng.choice((0, 1, 1, 2))))
    if rng.random() < WRONG:
        updates[rng.choice(RESERVED)] = "2"
    if rng.random() < 0.02:
        updates["write.metadata.previous-versions-max"] = "many"
    draft.properties.update(updates)
    return {"action": "set-properties", rng.choice(("updates", "updates", "updates", "updated")): updates}


def remove_properties(rng: Random, draft: Draft) -> JsonObject:
    known = [*draft.properties, "unknown.key"]
    removals = rng.sample(known, k=rng.randint(0, min(2, len(known))))
    return {"action": "remove-properties", rng.choice(("removals", "removals", "removals", "removed")): removals}


def _a_snapshot_id(rng: Random, draft: Draft) -> int:
    ids = [s["snapshot-id"] for s in draft.snapshots]
    return int(rng.choice(ids)) if ids and rng.random() < 0.8 else 404


def set_statistics(rng: Random, draft: Draft) -> JsonObject:
    snapshot_id = _a_snapshot_id(rng, draft)
    blob: JsonObject = {
        "type": "apache-datasketches-theta-v1",
        "snapshot-id": snapshot_id,
        "sequence-number": 1,
        "fields": [1],
    }
    if rng.random() < 0.5:
        blob["properties"] = {"ndv": "3"}
    statistics: JsonObject = {
        "snapshot-id": snapshot_id,
        "statistics-path": f"s3://warehouse/stats-{rng.randint(0, 9)}.puffin",
        "file-size-in-bytes": 413,
        "file-footer-size-in-bytes": 42,
        "blob-metadata": [blob] if rng.random() < 0.7 else [],
    }
    if rng.random() < WRONG:
        del statistics[rng.choice(("snapshot-id", "statistics-path", "file-size-in-bytes", "blob-metadata"))]
    update: JsonObject = {"action": "set-statistics", "statistics": statistics}
    if rng.random() < 0.3:
        update["snapshot-id"] = snapshot_id
    return update


def remove_statistics(rng: Random, draft: Draft) -> JsonObject:
    return {"action": "remove-statistics", "snapshot-id": _a_snapshot_id(rng, draft)}


def set_partition_statistics(rng: Random, draft: Draft) -> JsonObject:
    statistics = {
        "snapshot-id": _a_snapshot_id(rng, draft),
        "statistics-path": f"s3://warehouse/partition-stats-{rng.randint(0, 9)}.parquet",
        "file-size-in-bytes": 43,
    }
    if rng.random() < WRONG:
        del statistics[rng.choice(("snapshot-id", "statistics-path", "file-size-in-bytes"))]
    return {"action": "set-partition-statistics", "partition-statistics": statistics}


def remove_partition_statistics(rng: Random, draft: Draft) -> JsonObject:
    return {"action": "remove-partition-statistics", "snapshot-id": _a_snapshot_id(rng, draft)}


def remove_partition_specs(rng: Random, draft: Draft) -> JsonObject:
    known = [s.get("spec-id", 0) for s in draft.specs]
    return {"action": "remove-partition-specs", "spec-ids": rng.sample([*known, 88], k=rng.choice((0, 1, 1)))}


def remove_schemas(rng: Random, draft: Draft) -> JsonObject:
    known = [s.get("schema-id", 0) for s in draft.schemas]
    return {"action": "remove-schemas", "schema-ids": rng.sample([*known, 88], k=rng.choice((0, 1, 1)))}


def add_encryption_key(rng: Random, draft: Draft) -> JsonObject:
    key_id = f"key-{rng.randint(0, 3)}"
    metadata = base64.b64encode(rng.randbytes(rng.randint(1, 12))).decode()
    key: JsonObject = {"key-id": key_id, "encrypted-key-metadata": metadata}
    if rng.random() < 0.5:
        key["encrypted-by-id"] = "kek"
        key["properties"] = {"algorithm": "AES"}
    if rng.random() < WRONG:
        del key[rng.choice(("key-id", "encrypted-key-metadata"))]
    draft.keys.append(key_id)
    return {"action": "add-encryption-key", "encryption-key": key}


def remove_encryption_key(rng: Random, _draft: Draft) -> JsonObject:
    return {"action": "remove-encryption-key", "key-id": f"key-{rng.randint(0, 3)}"}


UPDATES: dict[str, Callable[[Random, Draft], JsonObject]] = {
    "assign-uuid": assign_uuid,
    "upgrade-format-version": upgrade_format_version,
    "add-schema": add_schema,
    "set-current-schema": set_current_schema,
    "add-spec": add_spec,
    "set-default-spec": set_default_spec,
    "add-sort-order": add_sort_order,
    "set-default-sort-order": set_default_sort_order,
    "add-snapshot": add_snapshot,
    "set-snapshot-ref": set_snapshot_ref,
    "remove-snapshot-ref": remove_snapshot_ref,
    "remove-snapshots": remove_snapshots,
    "set-location": set_location,
    "set-properties": set_properties,
    "remove-properties": remove_properties,
    "set-statistics": set_statistics,
    "remove-statistics": remove_statistics,
    "set-partition-statistics": set_partition_statistics,
    "remove-partition-statistics": remove_partition_statistics,
    "remove-partition-specs": remove_partition_specs,
    "remove-schemas": remove_schemas,
    "add-encryption-key": add_encryption_key,
    "remove-encryption-key": remove_encryption_key,
}
