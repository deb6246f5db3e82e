"""Partition values as JSON, and residuals for values that cannot be compared."""

from pathlib import Path

import pytest

from tests.planning.planners import Task, plan
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, float("inf"), float("-inf")])
def test_any_number_as_a_partition_value_is_the_same_number_in_json(tmp_path: Path, value: float) -> None:
    (task,) = plan_of_partition(tmp_path, value)

    assert repr(task.file["partition"]) == repr([value])


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("day", (0, 18_262), ["1970-01-01", "2020-01-01"]),
        ("day", (-719_162, 2_932_896), ["0001-01-01", "9999-12-31"]),
        ("day", (0, 2_932_897), ["1970-01-01", "+10000-01-01"]),
        ("day", (0, -719_529), ["1970-01-01", "-0001-12-31"]),
        ("day", (0, None), ["1970-01-01", None]),
        ("i", (7, -7), [7, -7]),
        ("i", (7, 7), [7, 7]),
        ("i", (7, None), [7, None]),
        ("id", (2**63 - 1, -(2**63)), [2**63 - 1, -(2**63)]),
        ("ts", (0, 1_000_000), ["1970-01-01T00:00:00.000000", "1970-01-01T00:00:01.000000"]),
    ],
)
def test_partition_values_have_the_form_that_clients_read(
    tmp_path: Path, column: str, values: tuple[int | None, ...], expected: list[object]
) -> None:
    spec = Spec(3, ((column, "identity", 1002),))
    table = MadeTable(tmp_path, [spec])
    files = [
        MadeFile(f"file:///t/{place}.parquet", (value,), record_count=1, has_stats=False)
        for place, value in enumerate(values)
    ]
    table.add_snapshot([MadeManifest(spec, files)])

    assert [task.file["partition"] for task in plan(tmp_path, table.write())] == [[one] for one in expected]


def test_a_partition_of_nan_is_not_null_in_json(tmp_path: Path) -> None:
    (task,) = plan_of_partition(tmp_path, float("nan"))

    assert task.file["partition"] == ["NaN"]


@pytest.mark.parametrize(("operator", "files"), [("gt", 1), ("gt-eq", 1), ("lt", 0), ("eq", 0)])
def test_whether_nan_is_greater_than_a_number_is_left_to_the_reader(tmp_path: Path, operator: str, files: int) -> None:
    wanted = {"type": operator, "term": "x", "value": 5.0}

    assert [task.residual for task in plan_of_partition(tmp_path, float("nan"), filter=wanted)] == [wanted] * files


def plan_of_partition(folder: Path, value: float, **said: object) -> list[Task]:
    """A file with one number as partition value, and without statistics."""
    spec = Spec(3, (("x", "identity", 1002),))
    table = MadeTable(folder, [spec])
    file = MadeFile("file:///t/a.parquet", (value,), record_count=1, has_stats=False)
    table.add_snapshot([MadeManifest(spec, [file])])
    return plan(folder, table.write(), **said)
