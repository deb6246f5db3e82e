"""DuckDB plans scans itself. If its extension learns to request plans, this fails, and docs/planning.md changes."""

from pathlib import Path

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import IdentityTransform

from demo.duckdb_sessions import session
from tests.server.process import server_process


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_duckdb_reads_a_table_without_a_plan_request(tmp_path: Path) -> None:
    with server_process(tmp_path, fsync="never") as server:
        with load_catalog("plain", type="rest", uri=server.url) as catalog:
            catalog.create_namespace("ns")
            rows = pa.table({"id": pa.array(range(12), pa.int64()), "part": pa.array(range(12), pa.int64())})
            table = catalog.create_table("ns.t", schema=rows.schema)
            with table.update_spec() as update:
                update.add_field("part", IdentityTransform(), "part")
            table.append(rows)

        opened = session(server.url)
        found = opened.execute("SELECT count(*), sum(id) FROM sandur.ns.t WHERE part <> 3 AND id < 9").fetchall()
        with pytest.raises(duckdb.Error, match=r"(?i)scan_planning_mode"):
            opened.execute(
                f"ATTACH 'main' AS other (TYPE iceberg, ENDPOINT '{server.url}', AUTHORIZATION_TYPE 'none',"
                " SCAN_PLANNING_MODE 'server')"
            )
        opened.close()
        metrics = httpx.get(f"{server.url}/metrics").text

    assert found == [(8, 33)]
    assert 'operation="loadTable"' in metrics
    assert 'operation="planTableScan"' not in metrics
