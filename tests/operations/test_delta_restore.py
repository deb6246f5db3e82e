"""RESTORE of Delta tables that delta-rs wrote: every earlier version comes back, or nothing changes."""

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandur.clock import SystemClock
from sandur.errors import BadRequest, Conflict, Invalid, NotFound, WrongFormat
from sandur.operations.delta.create import register_external
from sandur.operations.delta.restore import preview_restore, restore_table
from sandur.operations.lake import Lake, Lakes
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.operations.delta_requests import D
from tests.operations.requests import create, identifier_of, request, set_up_catalog

ONE = pa.table({"id": [1, 2], "day": ["a/b", "ü %"]})
WIDER = pa.table({"id": [3], "day": ["c"], "n": [7.5]})


def write_history(folder: Path) -> int:
    """A partitioned table with appends, a wider schema, a checkpoint, a delete, an update and a replacement."""
    deltalake.write_deltalake(folder, ONE, partition_by=["day"])
    deltalake.write_deltalake(folder, WIDER, mode="append", schema_mode="merge")
    deltalake.DeltaTable(folder).create_checkpoint()
    deltalake.DeltaTable(folder).delete("id = 1")
    deltalake.write_deltalake(folder, ONE, mode="append", schema_mode="merge")
    deltalake.DeltaTable(folder).update(updates={"id": "id + 10"})
    deltalake.DeltaTable(folder).optimize.compact()
    deltalake.DeltaTable(folder).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    deltalake.write_deltalake(folder, WIDER, mode="overwrite", schema_mode="overwrite")
    return deltalake.DeltaTable(folder).version()


def rows_of(folder: Path, version: int | None = None) -> tuple[list[str], list[dict[str, Any]]]:
    table = deltalake.DeltaTable(folder, version=version)
    rows = table.to_pyarrow_table().to_pylist()
    return [field.name for field in table.schema().fields], sorted(rows, key=lambda row: json.dumps(row, default=str))


def log_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "_delta_log").glob("*.json")}


def written(folder: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_of(folder)[f"{version:020d}.json"].splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.fixture
async def lake(tmp_path: Path) -> Lake:
    settings = Settings(store=f"{tmp_path}/store", allowed_locations=(tmp_path.as_uri(),))
    made = Lakes(settings, SystemClock(), MemoryStore()).lake("default", "default")
    await set_up_catalog(made)
    return made


async def register(lake: Lake, folder: Path) -> None:
    await register_external(lake, D, folder.as_uri(), comment=None, request=request("register"))


async def restore(lake: Lake, version: int, expected: int, *, key: str | None = None) -> int:
    sent = request(f"restore {version} {expected}", key=key)
    done = await restore_table(lake, D, version, expected=expected, request=sent)
    assert done.new_version is not None
    return done.new_version


async def test_every_earlier_version_comes_back_one_after_another(lake: Lake, folder: Path) -> None:
    newest = write_history(folder)
    await register(lake, folder)

    for version in range(newest):
        before = newest
        newest = await restore(lake, version, newest)
        assert newest == before + 1
        assert rows_of(folder) == rows_of(folder, version), f"version {version}"

    info = written(folder, newest)[0]["commitInfo"]
    assert (info["operation"], info["readVersion"]) == ("RESTORE", newest - 1)
    table = await lake.delta_table((await preview_restore(lake, D, 0)).table_id).read()
    assert table is not None
    assert [column["name"] for column in json.loads(bytes(table.value.columns))] == rows_of(folder)[0]
    deltalake.write_deltalake(folder, ONE, mode="append", schema_mode="merge")  # Other writers go on.


async def test_a_preview_says_what_would_happen_and_changes_nothing(lake: Lake, folder: Path) -> None:
    newest = write_history(folder)
    await register(lake, folder)
    before = log_of(folder)

    planned = await preview_restore(lake, D, 0)

    assert (planned.version, planned.base_version, planned.new_version) == (0, newest, None)
    assert (planned.files_added, planned.files_removed) == (2, 1)
    assert {(one.area, one.name) for one in planned.changes} >= {("column", "n")}
    assert log_of(folder) == before


async def test_a_version_whose_files_were_vacuumed_is_refused(lake: Lake, folder: Path) -> None:
    newest = write_history(folder)
    await register(lake, folder)
    deltalake.DeltaTable(folder).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    newest = deltalake.DeltaTable(folder).version()
    before = log_of(folder)

    with pytest.raises(NotFound, match="2 of its files were removed"):
        await restore(lake, 0, newest)

    assert log_of(folder) == before


async def test_a_version_whose_log_is_gone_is_refused(lake: Lake, folder: Path) -> None:
    newest = write_history(folder)
    await register(lake, folder)
    (folder / "_delta_log" / f"{0:020d}.json").unlink()

    with pytest.raises(NotFound, match="version 0 of the log is gone"):
        await restore(lake, 0, newest)
    assert await restore(lake, 1, newest) == newest + 1  # The checkpoint is at version 1.
    assert rows_of(folder) == rows_of(folder, 1)


@pytest.mark.parametrize("version", [-1, 8, 9, 1 << 40])
async def test_what_is_not_an_earlier_version_is_refused(lake: Lake, folder: Path, version: int) -> None:
    newest = write_history(folder)
    await register(lake, folder)

    with pytest.raises(BadRequest, match=f"the table is at version {newest}"):
        await restore(lake, version if version != 8 else newest, newest)


async def test_the_state_that_the_table_has_already_is_refused(lake: Lake, folder: Path) -> None:
    newest = write_history(folder)
    await register(lake, folder)
    newest = await restore(lake, 3, newest)

    with pytest.raises(BadRequest, match="already"):
        await restore(lake, 3, newest)


async def test_a_commit_since_the_preview_is_a_conflict(lake: Lake, folder: Path) -> None:
    newest = write_history(folder)
    await register(lake, folder)
    deltalake.write_deltalake(folder, WIDER, mode="append")

    with pytest.raises(Conflict, match=f"at version {newest + 1}, not {newest}"):
        await restore(lake, 0, newest)


async def test_a_retry_with_its_key_is_recognised_and_another_request_is_not(lake: Lake, folder: Path) -> None:
    newest = write_history(folder)
    await register(lake, folder)

    made = await restore(lake, 0, newest, key="one")
    again = await restore(lake, 0, newest, key="one")

    assert (made, again) == (newest + 1, newest + 1)
    assert deltalake.DeltaTable(folder).version() == newest + 1
    with pytest.raises(Conflict):
        await restore(lake, 0, newest, key="other")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"]}}, "uses later"),
        ({"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}, "uses protocol 9/9"),
        ({"configuration": {"delta.appendOnly": "true"}}, "appendOnly"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "columnMapping.mode was changed"),
        ({"configuration": {"delta.universalFormat.enabledFormats": "iceberg"}}, "Iceberg metadata"),
    ],
)
async def test_rules_that_a_restore_would_break_are_refused(
    lake: Lake, folder: Path, change: dict[str, Any], error: str
) -> None:
    newest = write_history(folder)
    await register(lake, folder)
    metadata = next(one["metaData"] for one in written(folder, 1) if "metaData" in one)
    action = {"metaData": {**metadata, **change}} if "configuration" in change else change
    path = folder / "_delta_log" / f"{newest + 1:020d}.json"
    path.write_text(json.dumps({"commitInfo": {"timestamp": 1}}) + "\n" + json.dumps(action))

    with pytest.raises(Invalid, match=error):
        await restore(lake, 0, newest + 1)

    assert not path.with_name(f"{newest + 2:020d}.json").exists()


async def test_only_delta_tables_are_restored(lake: Lake) -> None:
    await create(lake, "t")

    with pytest.raises(WrongFormat):
        await preview_restore(lake, identifier_of("t"), 0)
    with pytest.raises(NotFound):
        await preview_restore(lake, identifier_of("nothing"), 0)


def checkpointed_log(folder: Path, sidecar: str) -> None:
    """A table of three versions, whose checkpoint of version 1 names a sidecar."""
    for number in range(2):
        deltalake.write_deltalake(folder, ONE.slice(number, 1), mode="append")
    deltalake.DeltaTable(folder).create_checkpoint()
    deltalake.write_deltalake(folder, ONE, mode="append")
    file = folder / "_delta_log" / f"{1:020d}.checkpoint.parquet"
    made = pq.read_table(file, columns=["metaData", "protocol"])
    schema = made.schema.append(pa.field("sidecar", pa.struct({"path": pa.string()})))
    pq.write_table(pa.Table.from_pylist([*made.to_pylist(), {"sidecar": {"path": sidecar}}], schema=schema), file)


@pytest.mark.parametrize("sidecar", ["{other}", "../../../other/_delta_log/{name}", "..", "{other}/../x"])
async def test_no_sidecar_of_another_table_is_read(lake: Lake, folder: Path, tmp_path: Path, sidecar: str) -> None:
    """Attack 5, for Delta: a checkpoint that the caller wrote names that of another table, to learn its columns."""
    other = tmp_path / "other"
    deltalake.write_deltalake(other, pa.table({"salary": [1]}))
    deltalake.DeltaTable(other).create_checkpoint()
    name = f"{0:020d}.checkpoint.parquet"
    checkpointed_log(folder, sidecar.format(other=(other / "_delta_log" / name).as_uri(), name=name))
    await register(lake, folder)

    with pytest.raises(Invalid, match="sidecar") as refused:
        await preview_restore(lake, D, 1)

    assert "salary" not in str(refused.value)


@pytest.mark.parametrize("there", [True, False])
async def test_a_restore_does_not_tell_which_files_exist_outside_of_the_table(
    lake: Lake, folder: Path, tmp_path: Path, *, there: bool
) -> None:
    """A log that the caller wrote names files of others: the server answers the same, whether or not they exist."""
    (tmp_path / "other").mkdir()
    probed = tmp_path / "other" / "secret.parquet"
    if there:
        probed.write_bytes(b"x")
    deltalake.write_deltalake(folder, ONE)
    added = {"path": probed.as_uri(), "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    removed = {"path": probed.as_uri(), "deletionTimestamp": 1, "dataChange": True}
    for version, action in ((1, {"add": added}), (2, {"remove": removed})):
        (folder / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(action), encoding="utf-8")
    await register(lake, folder)

    with pytest.raises(Invalid, match="outside of the table"):
        await preview_restore(lake, D, 1)
