"""Several PyIceberg processes at one table: every row arrives, and arrives once."""

import subprocess
import sys

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from tests.server.process import ServerProcess

APPENDS = 10


def test_rows_appended_by_two_processes_are_all_there_once(
    folder_server: ServerProcess, catalog: RestCatalog, namespace: str
) -> None:
    catalog.create_table((namespace, "t"), pa.schema([pa.field("id", pa.int64())]))
    module = [sys.executable, "-m", "tests.interop.pyiceberg_appender", folder_server.url, namespace, "t"]

    processes = [subprocess.Popen([*module, str(first), str(APPENDS)]) for first in (0, 100)]
    assert [process.wait(240) for process in processes] == [0, 0]

    table = catalog.load_table((namespace, "t"))
    wanted = [*range(APPENDS), *range(100, 100 + APPENDS)]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted
    assert len(table.history()) == 2 * APPENDS
    parents = [snapshot.parent_snapshot_id for snapshot in table.snapshots()]
    assert parents == [None, *(snapshot.snapshot_id for snapshot in table.snapshots()[:-1])]
