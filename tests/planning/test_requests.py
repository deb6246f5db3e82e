"""Plan requests: snapshots by branch and tag, ranges, columns, and requests of extreme size."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandur.errors import BadRequest
from sandur.iceberg.scan.requests import REQUEST_BYTES_MAX
from sandur.operations.planning.plans import Completed
from tests.planning.plan_servers import PLAIN, Fleet, everything, made_table, numbered, paths, request_plan
from tests.planning.planners import plan
from tests.planning.tables import MadeFile, MadeManifest, MadeTable


def table_with_history(folder: Path) -> MadeTable:
    """Three snapshots in a line. Each appends one file to the manifest of the one before."""
    table = MadeTable(folder, [PLAIN])
    files: list[MadeFile] = []
    for number in (1, 2, 3):
        (added,) = numbered(number, 1)
        table.add_snapshot([MadeManifest(PLAIN, [*files, added], snapshot_id=number, sequence_number=number)])
        files.append(replace(added, status=0, snapshot_id=number, sequence_number=number))
    return table


def planned(folder: Path, table: MadeTable, **said: Any) -> list[str]:
    return [task.path for task in plan(folder, table.write(), **said)]


@pytest.mark.parametrize(("start", "end", "first", "stop"), [(1, 3, 2, 4), (2, 3, 3, 4), (1, 2, 2, 3), (3, 3, 0, 0)])
def test_a_range_excludes_its_start_and_includes_its_end(
    tmp_path: Path, start: int, end: int, first: int, stop: int
) -> None:
    table = table_with_history(tmp_path)

    assert planned(tmp_path, table, start_snapshot_id=start, end_snapshot_id=end) == paths(first, stop)


def test_a_range_can_start_after_an_expired_snapshot(tmp_path: Path) -> None:
    table = table_with_history(tmp_path)
    del table.snapshots[0]

    assert planned(tmp_path, table, start_snapshot_id=1, end_snapshot_id=3) == paths(2, 4)


@pytest.mark.parametrize(("start", "end", "reason"), [(99, 3, "not an ancestor"), (1, 99, "Cannot find snapshot")])
def test_a_range_of_unknown_snapshots_is_refused(tmp_path: Path, start: int, end: int, reason: str) -> None:
    table = table_with_history(tmp_path)

    with pytest.raises(BadRequest, match=reason):
        planned(tmp_path, table, start_snapshot_id=start, end_snapshot_id=end)


def test_a_range_across_an_expired_snapshot_is_refused(tmp_path: Path) -> None:
    table = table_with_history(tmp_path)
    del table.snapshots[1]

    with pytest.raises(BadRequest, match="not an ancestor"):
        planned(tmp_path, table, start_snapshot_id=1, end_snapshot_id=3)


def test_a_branch_or_tag_is_scanned_even_if_its_snapshot_is_not_an_ancestor(tmp_path: Path) -> None:
    table = table_with_history(tmp_path)
    aside = MadeManifest(PLAIN, numbered(4, 1), snapshot_id=4, sequence_number=4)
    branch = table.add_snapshot([aside], **{"parent-snapshot-id": 1})
    table.snapshots.insert(0, table.snapshots.pop())  # Make the last one current.

    assert planned(tmp_path, table) == paths(1, 4)
    assert planned(tmp_path, table, snapshot_id=branch) == paths(4, 5)
    assert planned(tmp_path, table, snapshot_id=1) == paths(1, 2)


@pytest.mark.parametrize(
    "said",
    [
        {"select": ["id", "s.inner", "s"]},
        {"select": []},
        {"select": ["id", "id", "_file", "_pos", "_deleted"]},
        {"select": ["ID", "S.Inner"], "case_sensitive": False},
        {"select": ["name"], "filter": {"type": "gt", "term": "id", "value": 1}},
    ],
    ids=str,
)
def test_the_selected_columns_do_not_change_the_planned_files(tmp_path: Path, said: dict[str, Any]) -> None:
    table = table_with_history(tmp_path)

    assert planned(tmp_path, table, **said) == planned(tmp_path, table, **{**said, "select": None})


@pytest.mark.parametrize("name", ["s.none", "ID", "s.inner.x", "", "id "])
def test_a_missing_column_cannot_be_selected(tmp_path: Path, name: str) -> None:
    table = table_with_history(tmp_path)

    with pytest.raises(BadRequest, match="Cannot find field"):
        planned(tmp_path, table, select=["id", name])


MANY = 100_000


@pytest.mark.parametrize(
    ("wanted", "first", "stop"),
    [
        ({"type": "in", "term": "id", "values": [*range(3, 6), *range(MANY, 2 * MANY)]}, 3, 6),
        ({"type": "in", "term": "name", "values": ["n4", *(f"other {n}" for n in range(MANY))]}, 4, 5),
        ({"type": "not-in", "term": "id", "values": list(range(4, MANY))}, 0, 4),
    ],
    ids=["numbers", "texts", "others"],
)
async def test_a_filter_may_have_a_hundred_thousand_literals(
    tmp_path: Path, wanted: dict[str, Any], first: int, stop: int
) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 5, 5))

    result = await request_plan(server, filter=wanted)

    assert isinstance(result, Completed)
    assert list(await everything(server, result)) == paths(first, stop)


@pytest.mark.parametrize("kind", [{"type": "reference", "name": "id"}, ["reference"], None, 1, True, "none"], ids=str)
@pytest.mark.parametrize(
    "spot",
    [
        lambda found: found,
        lambda found: {"type": "is-null", "term": found},
        lambda found: {"type": "eq", "term": "id", "value": found},
        lambda found: {"type": "eq", "left": found, "right": found},
        lambda found: {"type": "in", "term": "id", "values": found},
        lambda found: {"type": "eq", "term": {"type": "transform", "transform": "day", "term": found}, "value": 1},
        lambda found: {"type": "eq", "left": {"type": "apply", "function": "day", "arguments": [found]}, "right": 1},
    ],
)
def test_a_predicate_type_that_is_not_a_text_is_refused(tmp_path: Path, kind: Any, spot: Any) -> None:
    table = table_with_history(tmp_path)

    with pytest.raises(BadRequest, match="filter"):
        planned(tmp_path, table, filter=spot({"type": kind, "name": "id", "value": 1}))


def balanced(leaves: int) -> dict[str, Any]:
    if leaves == 1:
        return {"type": "eq", "term": "id", "value": 7}
    return {"type": "or", "left": balanced(leaves // 2), "right": balanced(leaves - leaves // 2)}


async def test_a_filter_may_have_thousands_of_predicates(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 10))

    result = await request_plan(server, filter=balanced(5_000))

    assert list(await everything(server, result)) == paths(7, 8)


def nested(depth: int) -> bytes:
    return b'{"type":"not","child":' * depth + b'{"type":"true"}' + b"}" * depth


@pytest.mark.parametrize(
    "body",
    [
        b'{"filter":' + nested(1_000) + b"}",
        b'{"filter":' + nested(100_000) + b"}",
        b'{"filter":' + b"[" * 1_000_000 + b"}",
        b'{"select":' + b"[" * 1_000_000 + b"}",
        json.dumps({"select": ["id"] * 1_000_000}).encode(),
        json.dumps({"filter": {"type": "in", "term": "id", "values": [10**9] * 1_000_000}}).encode(),
        b'{"filter":{"type":"eq","term":"id","value":' + b"9" * 1_000_000 + b"}}",
        b'{"filter":{"type":"eq","term":"' + b"x" * 1_000_000 + b'","value":1}}',
        b'{"filter":{"type":"eq","term":"id","value":1}} ' + b" " * REQUEST_BYTES_MAX,
    ],
    ids=lambda body: body[:30].decode(),
)
async def test_a_very_large_request_is_refused_with_a_short_message(tmp_path: Path, body: bytes) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 2))

    with pytest.raises(BadRequest) as caught:
        await request_plan(server, body=body)

    assert len(str(caught.value)) < 1_000
