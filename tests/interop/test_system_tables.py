"""The system tables of the pipeline, queried by Spark, DuckDB and Trino like any other table."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from sandur.pipeline.tables import OWNERS, SHAPES
from tests.interop.duckdb_sessions import Duck
from tests.interop.engines.machines import JAVA
from tests.interop.engines.registry import opened
from tests.interop.matrix import S3
from tests.interop.server_address import Served, created_namespace, server_settings
from tests.interop.spark.flavours import ON_S3
from tests.interop.spark.spark_processes import SPARKS

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(3_000),
    # A store that all three can read: Trino reads no local files.
    pytest.mark.parametrize("served", [S3], indirect=True, scope="module"),
]

Rows = list[list[Any]]
PIPELINE_SECONDS_MAX: Final = 900
PUBLISHED: Final = sorted(name for name in SHAPES if name != OWNERS.name)

ENGINES: Final[Mapping[str, Callable[[Served, str], Sequence[Sequence[Any]]]]] = {
    "DuckDB": lambda served, statement: Duck(served, "system")(statement),
    "Spark": lambda served, statement: SPARKS.on(ON_S3, served).sql(statement),
    "Trino": lambda served, statement: opened("Trino", served).sql(statement),
}


@pytest.fixture(scope="module")
def namespace(served: Served) -> str:
    """A namespace with a table of two commits, after a run of the pipeline."""
    name = created_namespace(served)
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "country": ["IS", "DK"]})
    with load_catalog("sandur", type="rest", uri=served.url, warehouse="main", **served.pyiceberg_properties) as known:
        known.create_table((name, "orders"), schema=rows.schema).append(rows)
    _run_pipeline(served)
    return name


def _run_pipeline(served: Served) -> None:
    assert served.s3 is not None
    JAVA.take(lambda: None)  # It runs on Java as well, and ends before the engines start.
    store = f"s3://sandur/{served.server.folder.name}"
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "run", "all", "--store", store]
    environment = {f"SANDUR_{name.upper()}": value for name, value in server_settings(served.s3).items()}
    done = subprocess.run(
        [*command, "--master", "local[2]", "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PIPELINE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]


def _selected(engine: str, served: Served, statement: str) -> Rows:
    return [list(row) for row in ENGINES[engine](served, statement)]


@pytest.mark.parametrize("engine", ENGINES, scope="module")
def test_the_history_and_the_columns_of_a_table_can_be_queried(engine: str, served: Served, namespace: str) -> None:
    of_table = f"WHERE namespace = '{namespace}' AND name = 'orders'"

    commits = _selected(
        engine,
        served,
        f"SELECT metadata_version, operation, source, snapshot_id IS NULL, previous_metadata_location IS NULL "
        f"FROM sandur.system.commits {of_table} ORDER BY metadata_version",
    )
    columns = _selected(
        engine, served, f"SELECT column_name, type, field_id FROM sandur.system.columns {of_table} ORDER BY ordinal"
    )
    current = _selected(
        engine,
        served,
        "SELECT c.name, t.is_current FROM sandur.system.commits c JOIN sandur.system.timeline t "
        f"ON c.commit_key = t.commit_key WHERE c.namespace = '{namespace}' ORDER BY c.metadata_version",
    )

    assert commits == [[0, "create", "rest", True, True], [1, "append", "rest", False, False]]
    assert columns == [["id", "long", 1], ["country", "string", 2]]
    assert current == [["orders", False], ["orders", True]]


@pytest.mark.parametrize("engine", ENGINES, scope="module")
def test_every_engine_counts_the_same_rows(engine: str, served: Served, namespace: str) -> None:
    del namespace  # The table was published.
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM sandur.system.{name}" for name in PUBLISHED)
    with load_catalog("sandur", type="rest", uri=served.url, warehouse="main", **served.pyiceberg_properties) as known:
        expected = [[name, known.load_table(("system", name)).scan().count()] for name in PUBLISHED]

    found = sorted(_selected(engine, served, counts))

    assert found == expected
