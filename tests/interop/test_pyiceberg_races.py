"""Several PyIceberg processes append to one table: every row is present exactly once."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.interop.matrix import operation
from tests.interop.server_address import LATER_ON_S3, Served

PYICEBERG = "PyIceberg"
APPENDS = 10


@operation(PYICEBERG, "concurrent writers")
@pytest.mark.parametrize("served", LATER_ON_S3, indirect=True)
def test_rows_appended_by_two_processes_are_present_exactly_once(
    served: Served, catalog: RestCatalog, namespace: str
) -> None:
    catalog.create_table((namespace, "t"), pa.schema([pa.field("id", pa.int64())]))
    module = [sys.executable, "-m", "tests.interop.pyiceberg_appender", served.url, namespace, "t"]
    more = [json.dumps(served.pyiceberg_properties)]

    processes = [subprocess.Popen([*module, str(first), str(APPENDS), *more]) for first in (0, 100)]
    assert [process.wait(240) for process in processes] == [0, 0]

    table = catalog.load_table((namespace, "t"))
    wanted = [*range(APPENDS), *range(100, 100 + APPENDS)]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted
    assert len(table.history()) == 2 * APPENDS
    parents = [snapshot.parent_snapshot_id for snapshot in table.snapshots()]
    assert parents == [None, *(snapshot.snapshot_id for snapshot in table.snapshots()[:-1])]
