"""Columns that were added, dropped or promoted: statistics of an old column do not apply to a new one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.planning.planners import plan
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec

ROW: dict[str, Any] = {"id": 7, "name": "a", "f": 0.1, "i": -5, "day": 3}


def planned(folder: Path, spec: Spec, change: Callable[[dict[str, Any]], None], wanted: Any) -> list[Any]:
    """The residuals of a table of one row whose schema changed after the write."""
    table = MadeTable(folder, [spec])
    table.add_snapshot([MadeManifest(spec, [MadeFile("file:///t/a.parquet", spec.partition(ROW), [ROW])])])
    path = Path(table.write())
    metadata = json.loads(path.read_text())
    for schema in (metadata["schema"], *metadata["schemas"]):
        for column in schema["fields"]:
            change(column)
    path.write_text(json.dumps(metadata))
    return [task.residual for task in plan(folder, str(path), filter=wanted)]


def again(column: dict[str, Any]) -> None:
    """Drop the column `name` and add another with that name."""
    column["id"] = 20 if column["name"] == "name" else column["id"]


@pytest.mark.parametrize(
    "spec", [Spec(0), Spec(1, (("name", "identity", 1000),)), Spec(2, (("name", "bucket[4]", 1001),))]
)
@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "eq", "term": "name", "value": "z"},
        {"type": "is-null", "term": "name"},
        {"type": "not-eq", "term": "name", "value": "a"},
        {"type": "starts-with", "term": "name", "value": "z"},
    ],
)
def test_a_column_added_after_the_file_has_no_statistics(tmp_path: Path, spec: Spec, wanted: Any) -> None:
    assert planned(tmp_path, spec, again, wanted) == [wanted]


WIDENED = {"i": "long", "f": "double"}


def widened(column: dict[str, Any]) -> None:
    column["type"] = WIDENED.get(column["name"], column["type"])


@pytest.mark.parametrize("text", ["void", "identity", "bucket[4]", "truncate[3]"])
@pytest.mark.parametrize(
    ("operator", "value", "is_read"),
    [("eq", -5, True), ("eq", -6, False), ("lt", 2**40, True), ("gt", 2**40, False), ("gt-eq", -5, True)],
)
def test_a_number_is_found_after_its_column_was_widened(
    tmp_path: Path, text: str, operator: str, value: int, *, is_read: bool
) -> None:
    wanted = {"type": operator, "term": "i", "value": value}

    assert bool(planned(tmp_path, Spec(1, (("i", text, 1000),)), widened, wanted)) == is_read


def test_a_float_column_promoted_to_double_keeps_its_values(tmp_path: Path) -> None:
    spec = Spec(0)
    near = 0.10000000149011612

    assert planned(tmp_path, spec, widened, {"type": "eq", "term": "f", "value": near})
    assert not planned(tmp_path, spec, widened, {"type": "lt-eq", "term": "f", "value": 0.1})


def test_a_date_column_promoted_to_timestamp_is_the_start_of_the_day(tmp_path: Path) -> None:
    def promoted(column: dict[str, Any]) -> None:
        column["type"] = "timestamp" if column["name"] == "day" else column["type"]

    assert planned(tmp_path, Spec(0), promoted, {"type": "eq", "term": "day", "value": "1970-01-04T00:00:00"})
    assert not planned(tmp_path, Spec(0), promoted, {"type": "gt", "term": "day", "value": "1970-01-04T00:00:00"})
