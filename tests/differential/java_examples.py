"""The smallest commit with each intended difference from the Java builder."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.older_forms import UNKNOWN_FIELD
from tests.differential.outcomes import JsonObject

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LOCATION = "s3://warehouse/db/table"
COLUMNS: tuple[JsonObject, ...] = (
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "data", "required": False, "type": "string"},
)


@dataclass(frozen=True)
class Example:
    """A table of this version, commits without a difference that prepare it, and the commit with the difference.

    `updates` gets the time, because both engines compare timestamps with their clocks.
    """

    updates: Callable[[int], list[JsonObject]]
    version: int = 2
    before: Callable[[int], list[JsonObject]] | None = None
    requirements: tuple[JsonObject, ...] = ()
    left_out: str | None = None  # The action that is missing from a create transaction.
    unknown_field: bool = False


def creation(version: int) -> list[JsonObject]:
    return [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": schema(*COLUMNS)},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": [partition(1, "bucket[4]", "id_bucket", 1000)]}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": LOCATION},
    ]


def schema(*fields: JsonObject, **more: object) -> JsonObject:
    return {"type": "struct", "schema-id": 0, "fields": list(fields), **more}


def partition(source_id: int, transform: str, name: str, field_id: int | None = None) -> JsonObject:
    field: JsonObject = {"source-id": source_id, "transform": transform, "name": name}
    return field if field_id is None else {**field, "field-id": field_id}


def _column(kind: object, *, more: JsonObject | None = None) -> JsonObject:
    return {"id": 3, "name": "x", "required": False, "type": kind, **(more or {})}


def _snapshot(snapshot_id: int, now_ms: int, **more: object) -> JsonObject:
    snapshot: JsonObject = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": now_ms,
        "manifest-list": "s3://warehouse/m.avro",
    }
    snapshot["summary"] = {"operation": "append"}
    snapshot.update({key.replace("_", "-"): value for key, value in more.items()})
    return {"action": "add-snapshot", "snapshot": snapshot}


def _main(snapshot_id: int, kind: str = "branch") -> JsonObject:
    return {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": snapshot_id, "type": kind}


def _add_schema(*fields: JsonObject, **more: object) -> JsonObject:
    return {"action": "add-schema", "schema": schema(*COLUMNS, *fields, **more)}


def _add_spec(*fields: JsonObject) -> JsonObject:
    return {"action": "add-spec", "spec": {"spec-id": 0, "fields": list(fields)}}


def _always(*updates: JsonObject) -> Callable[[int], list[JsonObject]]:
    return lambda _now_ms: list(updates)


_STALE: JsonObject = {"type": "assert-current-schema-id", "current-schema-id": 404}
_INNER: JsonObject = {"id": 4, "name": "inner", "required": True, "type": "int"}
_REPEATED_CHILD: JsonObject = {"type": "list", "element-id": 5, "element": "int", "element-required": False}
_MINUTES_MS = 10 * 60_000

TABLE_EXAMPLES: dict[str, Example] = {
    "minus-one-may-mean-an-existing-entry": Example(
        _always(_add_spec(partition(1, "bucket[4]", "id_bucket")), {"action": "set-default-spec", "spec-id": -1})
    ),
    "table-uuid-cannot-change": Example(_always({"action": "assign-uuid", "uuid": UUID.replace("9", "8")})),
    "create-requires-uuid": Example(_always(), left_out="assign-uuid"),
    "create-requires-location": Example(_always(), left_out="set-location"),
    "reserved-properties-are-not-stored": Example(
        _always({"action": "set-properties", "updates": {"owner": "ann", "uuid": "5"}})
    ),
    "row-ids-are-never-reused": Example(
        lambda now_ms: [_snapshot(5, now_ms, sequence_number=1, first_row_id=10, added_rows=5)], version=3
    ),
    "first-row-id-below-next-row-id-conflicts": Example(
        lambda now_ms: [
            _snapshot(5, now_ms, sequence_number=1, first_row_id=10, added_rows=5),
            _snapshot(6, now_ms, sequence_number=2, first_row_id=12, added_rows=5),
        ],
        version=3,
    ),
    "unknown-fields-are-kept": Example(
        _always({"action": "set-properties", "updates": {"owner": "ann"}}), unknown_field=True
    ),
    "remove-snapshots-ignores-unknown-ids": Example(_always({"action": "remove-snapshots", "snapshot-ids": [1, 2]})),
    "removing-unknown-ids-writes-no-file": Example(_always({"action": "remove-schemas", "schema-ids": [88]})),
    "trailing-slash-is-not-a-new-location": Example(_always({"action": "set-location", "location": f"{LOCATION}/"})),
    "partition-field-ids-are-never-reused": Example(_always(_add_spec(partition(2, "identity", "data_identity")))),
    "sequence-number-never-decreases": Example(
        lambda now_ms: [_snapshot(6, now_ms, sequence_number=3)],
        before=lambda now_ms: [_snapshot(5, now_ms, sequence_number=7)],
    ),
    "v1-sequence-number-is-refused-first": Example(
        lambda now_ms: [_snapshot(5, now_ms, sequence_number=5), _snapshot(6, now_ms)], version=1
    ),
    "removed-spec-or-schema-cannot-become-default": Example(
        _always({"action": "remove-partition-specs", "spec-ids": [1]}, {"action": "set-default-spec", "spec-id": 1}),
        before=_always(_add_spec(partition(2, "identity", "data_identity", 1001))),
    ),
    "main-must-be-a-branch": Example(lambda now_ms: [_snapshot(5, now_ms, sequence_number=1), _main(5, "tag")]),
    "requirements-are-checked-first": Example(
        _always(_add_schema(_column("unknown", more={"required": True}))), requirements=(_STALE,)
    ),
    "missing-snapshot-operation-is-not-added": Example(
        lambda now_ms: [_snapshot(5, now_ms, sequence_number=1, summary={"total-records": "5"})]
    ),
    "sort-order-id-is-optional": Example(_always({"action": "add-sort-order", "sort-order": {"fields": []}})),
    "malformed-field-error-has-json-path": Example(_always({"action": "set-location"})),
    "duplicate-field-error-names-the-field": Example(_always(_add_schema({**_column("int"), "id": 2}))),
    "duplicate-name-error-names-outermost-column": Example(
        _always(_add_schema(_column(_REPEATED_CHILD), {**_column({**_REPEATED_CHILD, "element-id": 7}), "id": 6}))
    ),
    "transform-type-error-names-the-transform": Example(_always(_add_spec(partition(2, "hour", "h")))),
    "identifier-field-error-names-parent-by-path": Example(
        _always(_add_schema(_column({"type": "struct", "fields": [_INNER]}), **{"identifier-field-ids": [4]}))
    ),
    "variant-default-error-names-the-default": Example(
        _always(_add_schema(_column("variant", more={"write-default": 5}))), version=3
    ),
    "errors-use-update-names-of-the-protocol": Example(
        _always({"action": "set-current-view-version", "view-version-id": 1})
    ),
    "schema-problems-have-a-fixed-order": Example(
        _always(_add_schema(_column("date", more={"initial-default": "2024-12-17"})))
    ),
    "spec-is-printed-on-one-line": Example(_always(_add_spec(partition(2, "identity", "d", 1005))), version=1),
    "unsorted-log-is-not-reported-as-a-bug": Example(
        lambda now_ms: [_snapshot(6, now_ms - _MINUTES_MS, sequence_number=2), _main(6)],
        before=lambda now_ms: [_snapshot(5, now_ms, sequence_number=1), _main(5)],
    ),
    "error-contains-the-commit-time": Example(
        lambda now_ms: [_snapshot(5, now_ms + _MINUTES_MS, sequence_number=1), _main(5)]
    ),
    "commit-reports-another-of-several-errors": Example(
        _always(
            {"action": "set-current-schema", "schema-id": 77}, _add_schema(_column("unknown", more={"required": True}))
        )
    ),
}


def with_unknown_field(metadata: JsonObject) -> JsonObject:
    return {**metadata, UNKNOWN_FIELD: {"kept": True}}


# Texts that clients and the compatibility kit look for; generated histories must reach each of them.
REFERENCE_TEXTS = (
    "Requirement failed: table already exists",
    "Requirement failed: UUID does not match: expected ",
    "Requirement failed: branch main has changed: expected id ",
    "Requirement failed: branch main was created concurrently",
    "Requirement failed: branch or tag nowhere is missing, expected ",
    "Requirement failed: last assigned field id changed: expected id ",
    "Requirement failed: current schema changed: expected id ",
    "Requirement failed: last assigned partition id changed: expected id ",
    "Requirement failed: default partition spec changed: expected id ",
    "Requirement failed: default sort order changed: expected id ",
    "Invalid create requirements: ",
    "Validation failed, please retry: Cannot add snapshot with sequence number ",
    "Validation failed, please retry: Cannot add a snapshot, first-row-id is behind table next-row-id",
    "Cannot add a snapshot: first-row-id is null",
    "Invalid first-row-id (cannot be negative)",
    "Invalid added-rows (cannot be negative)",
    "Snapshot already exists for id: ",
    "Sequence number must be 0 in v1",
    "Cannot upgrade table to unsupported format version",
    "Cannot downgrade v",
    "Cannot set last added schema: no schema has been added",
    "Cannot set last added spec: no spec has been added",
    "Cannot set last added sort order: no sort order has been added",
    "Cannot set current schema to unknown schema: ",
    "Cannot set main to unknown snapshot: ",
    "Cannot remove the default partition spec",
    "Cannot remove the current schema",
    "Tags do not support setting minSnapshotsToKeep",
    "Tags do not support setting maxSnapshotAgeMs",
    "Max reference age must be greater than 0",
    "Min snapshots to keep must be greater than 0",
    "Max snapshot age must be greater than 0",
    "Invalid update timestamp ",
    "is not supported until v3",
    "Cannot find source column for partition field: ",
    "Cannot find source column for sort field: ",
    "Cannot use partition name more than once: ",
    "Cannot create identity partition sourced from different field in schema: ",
    "Spec does not use sequential IDs that are required in v1",
    "Sort order ID 0 is reserved for unsorted order",
    "Unsorted order ID must be 0",
    "as an identifier field: not a required field",
    "as an identifier field: must not be float or double field",
    "as an identifier field: not a primitive type field",
    "as an identifier field: field does not exist",
    "Cannot create required field with unknown type: ",
)
