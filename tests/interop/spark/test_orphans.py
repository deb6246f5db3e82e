"""Orphans are found by Iceberg, and condemned and deleted by Sandur in two runs."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.interop.spark.flavours import ON_A_FOLDER, shows
from tests.interop.spark.spark_processes import Sql
from tests.interop.spark.test_maintenance_procedures import LONG_AGO_SECONDS, folder_of, make_small_files


def run(sql: Sql, folder: Path, name: str, days: float, **options: float) -> dict[str, Any]:
    store = str(folder).partition("/tables/default/")[0]
    result: dict[str, Any] = sql.job(
        "remove_orphans",
        store=store,
        namespace=sql.here.removeprefix("sandur."),
        table="t",
        run=name,
        days=days,
        **options,
    )
    return result


@pytest.mark.slow
@shows("orphan files", by=ON_A_FOLDER)
def test_an_orphan_that_iceberg_finds_is_deleted_by_the_second_run(sql: Sql) -> None:
    make_small_files(sql, 3)
    sql("ALTER TABLE t CREATE TAG kept")
    sql("DELETE FROM t WHERE id = 1")
    folder = folder_of(sql)
    orphan = folder / "data" / "orphan.parquet"
    hidden = folder / "data" / "_temporary.parquet"
    for file in (orphan, hidden):
        file.write_bytes(b"an orphan")
    for file in folder.rglob("*.*"):
        os.utime(file, (LONG_AGO_SECONDS, LONG_AGO_SECONDS))
    before = {file for file in folder.rglob("*.*") if file.is_file()}

    found = run(sql, folder, "first", 0)
    early = run(sql, folder, "second", 0.5)
    done = run(sql, folder, "third", 1.1)

    assert (found["files_found"], found.get("files_deleted", 0)) == (1, 0), found
    assert early.get("files_deleted", 0) == 0
    assert (done["files_deleted"], done["bytes_deleted"]) == (1, 9)
    assert before - {file for file in folder.rglob("*.*") if file.is_file()} == {orphan}
    assert sql.column("SELECT id FROM t ORDER BY id") == [2, 3]
    assert sql.column("SELECT id FROM t VERSION AS OF 'kept' ORDER BY id") == [1, 2, 3]
    sql("INSERT INTO t VALUES (4, 'w4')")  # A commit on the marked pointer.
    assert sql.column("SELECT id FROM t ORDER BY id") == [2, 3, 4]


@pytest.mark.slow
@shows("orphan files", by=ON_A_FOLDER)
def test_a_table_that_looks_orphaned_for_the_most_part_is_left_alone(sql: Sql) -> None:
    make_small_files(sql, 1)
    folder = folder_of(sql)
    for number in range(30):
        file = folder / "data" / f"{number}.parquet"
        file.write_bytes(b"x")
        os.utime(file, (LONG_AGO_SECONDS, LONG_AGO_SECONDS))

    found = run(sql, folder, "first", 0)

    assert found["state"] == "skipped"
    assert "look like orphans, more than 50%" in found["reason"]
