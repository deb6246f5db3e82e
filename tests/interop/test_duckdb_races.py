"""Processes of DuckDB and PyIceberg append to one table: every row is present exactly once."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.interop.duckdb_sessions import secret
from tests.interop.matrix import operation
from tests.interop.server_address import LATER_ON_S3, Served

INSERTS = 8


@operation("DuckDB", "concurrent writers")
@operation("PyIceberg", "concurrent writers")
@pytest.mark.parametrize("served", LATER_ON_S3, indirect=True)
def test_rows_of_two_engines_are_present_exactly_once(served: Served, catalog: RestCatalog, namespace: str) -> None:
    catalog.create_table((namespace, "t"), pa.schema([pa.field("id", pa.int64())]))
    duck = ["tests.interop.duckdb_appender", served.url, f"sandur.{namespace}.t"]
    secrets = [secret(served.s3)] if served.s3 else []
    commands = [[*duck, str(first), str(INSERTS), *secrets] for first in (0, 100)]
    iceberg = ["tests.interop.pyiceberg_appender", served.url, namespace, "t", "200", str(INSERTS)]
    commands.append([*iceberg, json.dumps(served.pyiceberg_properties)])

    processes = [subprocess.Popen([sys.executable, "-m", *command]) for command in commands]
    assert [process.wait(240) for process in processes] == [0, 0, 0]

    table = catalog.load_table((namespace, "t"))
    wanted = [first + number for first in (0, 100, 200) for number in range(INSERTS)]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted
    assert len(table.history()) == 3 * INSERTS
