"""Random tables and filters: our plans compared with those of PyIceberg and Java."""

import random  # noqa: TID251 - seeded
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import StaticTable

from tests.differential.java_oracle import OracleUnavailable
from tests.planning.filters import NEGATED, SPECS, column_of, holds
from tests.planning.java_planner import JavaPlanner
from tests.planning.planners import Task, plan, plan_as_if_large
from tests.planning.random_tables import Made
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Row, Spec, is_nan

FILTERS = 6


@pytest.mark.parametrize("seed", range(9))
def test_plans_have_the_files_and_deletes_that_pyiceberg_plans(tmp_path: Path, seed: int) -> None:
    made = Made(tmp_path, seed, version=1 + seed % 3, with_equality=False)
    table = StaticTable.from_metadata(made.path)
    compared = 0
    for _ in range(FILTERS):
        # PyIceberg does not parse texts as bytes, nor transforms as terms.
        wanted = made.filter(without=frozenset({"bin"}), terms=False)
        ours = {task.path: set(task.deletes) for task in plan(tmp_path, made.path, filter=wanted)}
        try:
            tasks = list(table.scan(row_filter=BooleanExpression.model_validate(wanted)).plan_files())
        except TypeError:  # PyIceberg compares nulls in some residuals.
            continue
        theirs = {task.file.file_path: {file.file_path for file in task.delete_files} for task in tasks}
        compared += 1

        for path in ours.keys() - theirs.keys():
            assert is_left_to_readers(wanted, made.rows[path]), (wanted, path)
        for path in theirs.keys() - ours.keys():
            # PyIceberg reads files with only the excluded value, and files with only nulls and NaNs.
            assert operators(wanted) & {"not-eq", "not-in", "not-starts-with"} or has_nan(wanted, made.rows[path]), (
                wanted,
                path,
            )
            assert not any(holds(wanted, row) for row in made.rows[path]), (wanted, path)
        for path, deletes in ours.items():
            assert deletes == made.deletes_of(path)
            if path not in theirs:
                continue
            # PyIceberg does not match partitions of NaN.
            assert deletes <= theirs[path] or any(map(is_nan, made.partition_of(path)))
            for other in theirs[path] - deletes:
                # PyIceberg confuses partitions of different specs with equal values, ignores which file a delete
                # names, and returns position deletes besides the deletion vector that includes them.
                has_vector = any(name.endswith(".puffin") for name in deletes)
                is_elsewhere = made.specs[other] != made.specs[path] or made.named_by(other) not in {None, path}
                assert has_vector or is_elsewhere, (path, other)
    assert compared


def is_left_to_readers(wanted: Any, rows: list[Row]) -> bool:
    """Whether a file has a NaN that may be greater than a number: never to other planners, always to Spark."""
    return has_nan(wanted, rows) and bool(operators(wanted) & {"gt", "gt-eq"})


def has_nan(wanted: Any, rows: list[Row]) -> bool:
    """Whether a column of the filter has a NaN."""
    return any(is_nan(row[name]) for row in rows for name in named(wanted))


def operators(test: Any, *, is_negated: bool = False) -> set[str]:
    """The predicates of a filter after every `not` is moved into them."""
    if test["type"] == "not":
        return operators(test["child"], is_negated=not is_negated)
    if "term" in test:
        return {NEGATED[test["type"]] if is_negated else test["type"]}
    return operators(test["left"], is_negated=is_negated) | operators(test["right"], is_negated=is_negated)


OPERATIONS = ("append", "append", "append", "overwrite", "delete", "replace")


def history(folder: Path, chance: random.Random) -> str:
    """A table of several snapshots. Each adds files and merges all earlier manifests."""
    table = MadeTable(folder, [Spec(0)])
    known: list[MadeFile] = []
    for number in range(1, 8):
        added = [
            MadeFile(f"file:///t/{number}-{place}.parquet", (), [{"id": chance.randrange(10)}], sequence_number=None)
            for place in range(chance.randrange(1, 4))
        ]
        merged = [MadeManifest(Spec(0), list(known), number, number)] if known else []
        operation = chance.choice(OPERATIONS)
        table.add_snapshot([MadeManifest(Spec(0), added, number, number), *merged], summary={"operation": operation})
        known += [replace(file, status=0, snapshot_id=number, sequence_number=number) for file in added]
    return table.write()


@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_plans_have_the_appended_files_that_java_plans(tmp_path: Path, java: JavaPlanner, seed: int) -> None:
    chance = random.Random(seed)
    path = history(tmp_path, chance)
    for _ in range(FILTERS):
        start, end = sorted(chance.sample(range(1, 8), 2))
        wanted = {"type": "lt", "term": "id", "value": chance.randrange(11)}

        ours = [task.path for task in plan(tmp_path, path, start_snapshot_id=start, end_snapshot_id=end, filter=wanted)]

        assert len(set(ours)) == len(ours)
        assert set(ours) == java.appended(path, start, end, wanted), (start, end, wanted)


def named(test: Any) -> set[str]:
    """The columns of a filter."""
    inner = [test[side] for side in ("left", "right", "child") if side in test]
    return {column_of(test["term"])} if "term" in test else set().union(*map(named, inner))


def transformed_columns(test: Any) -> set[str]:
    """The columns that a filter uses with a transform."""
    inner = [test[side] for side in ("left", "right", "child") if side in test]
    found = {column_of(test["term"])} if isinstance(test.get("term"), dict) else set()
    return found.union(*map(transformed_columns, inner))


def is_misread(wanted: Any, task: Task) -> bool:
    """Whether Java misses rows of a file: it confuses a partition column with transforms of it."""
    spec = SPECS[task.file["spec-id"]]
    return any(text == "identity" and source in transformed_columns(wanted) for source, text, _ in spec.fields)


def is_number(value: Any) -> bool:
    return value is not None and not is_nan(value)


def has_zero(test: Any) -> bool:
    """Whether a filter has a floating-point zero."""
    inner = [test[side] for side in ("left", "right", "child") if side in test]
    given = [test.get("value"), *test.get("values", [])]
    return any(isinstance(value, float) and value == 0 for value in given) or any(map(has_zero, inner))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaPlanner]:
    try:
        planner = JavaPlanner()
    except OracleUnavailable as reason:
        pytest.skip(str(reason))
    yield planner
    planner.close()


@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(60))
def test_plans_have_the_files_deletes_and_residuals_that_java_plans(
    tmp_path: Path, java: JavaPlanner, seed: int
) -> None:
    made = Made(tmp_path, 1_000 + seed, version=1 + seed % 3, with_equality=True)
    compared: set[str] = set()
    for _ in range(FILTERS):
        wanted = made.filter()
        ours = {task.path: task for task in plan_as_if_large(tmp_path, made.path, filter=wanted)}
        try:
            theirs = {task.path: task for task in java.plan(made.path, wanted)}
        except Py4JJavaError as error:
            # Java cannot test whether a null partition is in a set, or compare a bucket with a text.
            assert "NullPointerException" in str(error) or transformed_columns(wanted)  # noqa: PT017 - others go on
            continue
        for path in ours.keys() - theirs.keys():
            # If all values are zero, Java skips the file for `!= 0`, although zero has two signs.
            is_right = is_misread(wanted, ours[path]) or is_left_to_readers(wanted, made.rows[path])
            assert has_zero(wanted) or is_right, (wanted, path)
        for path in theirs.keys() - ours.keys():
            # Java reads files with only nulls and NaNs for comparisons, and for transforms that are null.
            assert has_nan(wanted, made.rows[path]) or transformed_columns(wanted), (wanted, path)
            assert not any(holds(wanted, row) for row in made.rows[path]), (wanted, path)
        for path, task in ((path, task) for path, task in ours.items() if path in theirs):
            assert set(task.deletes) == theirs[path].deletes == made.deletes_of(path), path
            # For a null partition, null is the smallest value to Java, and NaN the greatest.
            rows = [row for row in made.rows[path] if all(is_number(row[name]) for name in named(wanted))]
            for row in [] if is_misread(wanted, task) else rows:
                assert holds(task.residual, row) == holds(theirs[path].residual, row), (wanted, row)
            compared.add(path)
    assert compared
