"""The history of Delta tables, and the difference between two versions, from their logs."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from sandur.catalog.records import DeltaTable
from sandur.clock import SystemClock
from sandur.errors import NotFound
from sandur.operations.delta.versions import delta_changes, delta_history, newest_version
from sandur.operations.lake import Lake, Lakes
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore

ONE = pa.table({"id": [1, 2], "day": ["a", "b"]})
WIDER = pa.table({"id": [3], "day": ["c"], "n": [7.5]})
VERSIONS = 13  # With a checkpoint on the way.


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("versions") / "t"
    deltalake.write_deltalake(folder, ONE)
    deltalake.write_deltalake(folder, WIDER, mode="append", schema_mode="merge")
    for _ in range(VERSIONS - 3):
        deltalake.write_deltalake(folder, ONE, mode="append", schema_mode="merge")
    deltalake.DeltaTable(folder).create_checkpoint()
    deltalake.DeltaTable(folder).delete("id = 3")
    return f"file://{folder}"


@pytest.fixture
def lake(tmp_path: Path, written: str) -> Lake:
    settings = Settings(store=f"{tmp_path}/store", allowed_locations=(written,))
    return Lakes(settings, SystemClock(), MemoryStore()).lake("default", "default")


def table_at(location: str) -> DeltaTable:
    return DeltaTable(uuid="u", table_uuid="u", state="live", table_type="EXTERNAL", location=location)


async def test_the_newest_version_of_an_external_table_is_in_its_log(lake: Lake, written: str) -> None:
    assert await newest_version(lake, table_at(written)) == VERSIONS - 1


async def test_the_history_tells_operations_and_counts(lake: Lake, written: str) -> None:
    rows = await delta_history(lake, table_at(written), limit=VERSIONS + 5)

    assert [row.version for row in rows] == list(range(VERSIONS - 1, -1, -1))
    assert (rows[0].operation, rows[0].files_removed) == ("delete", 1)
    assert (rows[-1].rows_added, rows[-1].files_added, rows[-1].source) == (2, 1, "unknown")
    assert rows[-1].engine.startswith("delta-rs")
    assert [row.version for row in await delta_history(lake, table_at(written), limit=2)] == [12, 11]


async def test_two_versions_are_compared_in_both_directions(lake: Lake, written: str) -> None:
    since, to, changes = await delta_changes(lake, table_at(written), before=0, after=1)
    _, _, back = await delta_changes(lake, table_at(written), before=1, after=0)
    last = await delta_changes(lake, table_at(written), before=None, after=None)

    assert (since, to) == (0, 1)
    assert [(one.kind, one.name, one.after) for one in changes if one.area == "column"] == [("added", "n", "double")]
    assert [(one.kind, one.name) for one in back if one.area == "column"] == [("removed", "n")]
    assert {one.name: one.after for one in changes if one.area == "total"}["files"] == "+1"
    assert last[:2] == (VERSIONS - 2, VERSIONS - 1)
    assert {one.area for one in last[2]} == {"total"}


async def test_a_version_that_is_not_there_is_not_found(lake: Lake, written: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="its versions are 0 to 12"):
        await delta_changes(lake, table_at(written), before=0, after=13)
    folder = tmp_path / "cleaned"
    deltalake.write_deltalake(folder, ONE)
    deltalake.write_deltalake(folder, ONE, mode="append")
    (folder / "_delta_log" / f"{0:020}.json").unlink()

    cleaned = Lakes(
        Settings(store=f"{tmp_path}/s", allowed_locations=(f"file://{folder}",)), SystemClock(), MemoryStore()
    ).lake("default", "default")
    (row,) = await delta_history(cleaned, table_at(f"file://{folder}"), limit=5)

    assert row.version == 1
