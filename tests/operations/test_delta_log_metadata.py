"""The metadata in the log of a Delta table that something else wrote, also after its oldest log files were removed."""

from pathlib import Path

import deltalake
import msgspec
import pyarrow as pa
import pytest

from sandur.delta.columns import decode_columns
from sandur.errors import Invalid, NotFound
from sandur.operations.delta.log_metadata import LogMetadata, columns_of, read_log_metadata
from sandur.operations.delta.versions import newest_in_log
from sandur.operations.lake import Lake
from sandur.storage.local import LocalStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_lake(LocalStore(tmp_path, fsync="never"), FixedClock(), own=tmp_path.as_uri())


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A table of four versions with a checkpoint at the last one, without the log files before it."""
    table = str(tmp_path / "t")
    for number in range(4):
        rows = pa.table({"id": [number], "day": ["a"]})
        deltalake.write_deltalake(
            table, rows, mode="append", partition_by=["day"], configuration={"delta.appendOnly": "true"}
        )
    deltalake.DeltaTable(table).create_checkpoint()
    for version in range(4):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    return (tmp_path / "t").as_uri()


async def test_a_checkpoint_has_the_schema_when_the_log_files_are_gone(lake: Lake, location: str) -> None:
    newest = await newest_in_log(lake, location, at_least=0)
    metadata = await read_log_metadata(lake, location, newest)

    assert newest == 3
    assert [(one.name, one.partition_index) for one in decode_columns(columns_of(metadata))] == [
        ("id", None),
        ("day", 0),
    ]


async def test_what_is_not_a_log_is_refused(lake: Lake, tmp_path: Path) -> None:
    log = tmp_path / "bad" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.checkpoint.parquet").write_bytes(b"PAR1 no")
    (log / f"{1:020d}.json").write_bytes(b"{")
    place = (tmp_path / "bad").as_uri()

    with pytest.raises(Invalid, match="cannot be read as a Delta checkpoint"):
        await read_log_metadata(lake, place, 0)
    with pytest.raises(Invalid, match="not a Delta commit"):
        await read_log_metadata(lake, place, 1)
    with pytest.raises(NotFound):
        await read_log_metadata(lake, place, 2)
    with pytest.raises(Invalid, match="cannot decode its schema"):
        columns_of(LogMetadata(schema_string=msgspec.json.encode({"fields": 1}).decode()))
