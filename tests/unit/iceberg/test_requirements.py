"""Every requirement of a commit: when it holds, and the message when it fails."""

import pytest

from sandur.errors import Conflict, Invalid
from tests.unit.iceberg.tables import OTHER_UUID, UUID, Json, committed, creation, table

PROPERTIES = {"action": "set-properties", "updates": {"a": "1"}}


def failure(requirement: Json) -> str:
    with pytest.raises(Conflict) as failed:
        committed(table(), PROPERTIES, requirements=[requirement])
    return str(failed.value)


@pytest.mark.parametrize(
    "requirement",
    [
        {"type": "assert-table-uuid", "uuid": UUID},
        {"type": "assert-table-uuid", "uuid": UUID.upper()},
        {"type": "Assert-Table-UUID", "uuid": UUID},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
        {"type": "assert-ref-snapshot-id", "ref": "nobody", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "nobody"},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 6},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
    ],
)
def test_a_requirement_that_holds_lets_the_commit_pass(requirement: Json) -> None:
    assert committed(table(), PROPERTIES, requirements=[requirement]).properties["a"] == "1"


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        ({"type": "assert-create"}, "table already exists"),
        (
            {"type": "assert-table-uuid", "uuid": OTHER_UUID},
            f"UUID does not match: expected {UUID} != {OTHER_UUID}",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
            "branch main has changed: expected id 1 != 2",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "first", "snapshot-id": 2},
            "tag first has changed: expected id 2 != 1",
        ),
        ({"type": "assert-ref-snapshot-id", "ref": "main"}, "branch main was created concurrently"),
        ({"type": "assert-ref-snapshot-id", "ref": "first", "snapshot-id": None}, "tag first was created concurrently"),
        (
            {"type": "assert-ref-snapshot-id", "ref": "x", "snapshot-id": 5},
            "branch or tag x is missing, expected 5",
        ),
        (
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 5},
            "last assigned field id changed: expected id 5 != 6",
        ),
        (
            {"type": "assert-current-schema-id", "current-schema-id": 5},
            "current schema changed: expected id 5 != 0",
        ),
        (
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 5},
            "last assigned partition id changed: expected id 5 != 1000",
        ),
        (
            {"type": "assert-default-spec-id", "default-spec-id": 5},
            "default partition spec changed: expected id 5 != 0",
        ),
        (
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 5},
            "default sort order changed: expected id 5 != 0",
        ),
    ],
)
def test_a_requirement_that_fails_is_a_conflict(requirement: Json, text: str) -> None:
    assert failure(requirement) == f"Requirement failed: {text}"


def test_requirements_are_checked_before_any_update() -> None:
    broken = {"action": "set-current-schema", "schema-id": 99}

    with pytest.raises(Conflict):
        committed(table(), broken, requirements=[{"type": "assert-current-schema-id", "current-schema-id": 5}])


def test_a_requirement_of_views_is_refused_on_tables() -> None:
    with pytest.raises(Invalid) as refused:
        committed(table(), PROPERTIES, requirements=[{"type": "assert-view-uuid", "uuid": UUID}])

    assert str(refused.value) == "Cannot validate assert-view-uuid against a table"


@pytest.mark.parametrize("base", [table(), None])
def test_assert_create_must_be_the_only_requirement(base: object) -> None:
    requirements = [{"type": "assert-create"}, {"type": "assert-table-uuid", "uuid": UUID}]

    with pytest.raises(Invalid) as refused:
        committed(base, *creation(), requirements=requirements)  # type: ignore[arg-type] # A parameter of the test.

    assert str(refused.value) == "Invalid create requirements: assert-create together with assert-table-uuid"


def test_a_table_that_does_not_exist_needs_assert_create() -> None:
    for requirements in ([], [{"type": "assert-table-uuid", "uuid": UUID}]):
        with pytest.raises(Invalid, match="Invalid create requirements"):
            committed(None, *creation(), requirements=requirements)
