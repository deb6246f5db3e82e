"""The largest allowed commits take at most seconds, for every kind of content."""

import pytest

from sandur.iceberg.requests import CHANGES_MAX, DEFINITIONS_MAX
from tests.unit.iceberg.tables import (
    Json,
    add_snapshot,
    column,
    committed,
    schema,
    set_main,
    set_ref,
    snapshot,
    sort_field,
    spec_field,
    table,
)

CHANGES, DEFINITIONS = range(CHANGES_MAX), range(DEFINITIONS_MAX)
MANY: dict[str, list[Json]] = {
    "snapshots": [add_snapshot(10 + at, 10 + at) for at in CHANGES],
    "appends": [
        update
        for at in CHANGES[: CHANGES_MAX // 2]
        for update in (add_snapshot(10 + at, 10 + at, parent=2), set_main(10 + at))
    ],
    "properties": [{"action": "set-properties", "updates": {f"key{at}": "x"}} for at in CHANGES],
    "references": [set_ref(f"tag{at}", 1, "tag") for at in CHANGES],
    "schemas": [{"action": "add-schema", "schema": schema(column(1, f"c{at}"))} for at in DEFINITIONS],
    "specs": [
        {"action": "add-spec", "spec": {"fields": [spec_field(1, f"p{at}", f"bucket[{at + 1}]")]}} for at in DEFINITIONS
    ],
    "orders": [
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [sort_field(1, f"bucket[{at + 1}]")]}}
        for at in DEFINITIONS
    ],
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", MANY)
def test_the_largest_commit_of_each_kind_is_applied_in_time(kind: str) -> None:
    base = table(snapshots=[snapshot(at, 2) for at in range(1, 3)])

    grown = committed(base, *MANY[kind])

    sizes = (len(grown.snapshots), len(grown.properties), len(grown.refs), len(grown.schemas), len(grown.specs))
    assert max(*sizes, len(grown.sort_orders)) >= DEFINITIONS_MAX
