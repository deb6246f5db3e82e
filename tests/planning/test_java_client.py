"""Iceberg's Java REST client: it polls submitted plans, fetches tasks in parallel, and cancels."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import IdentityTransform

from tests.differential.java_oracle import OracleUnavailable
from tests.planning.java_planner import JavaPlanner
from tests.planning.plan_servers import paths
from tests.planning.planners import plan
from tests.planning.test_requests import table_with_history
from tests.server.process import server_process

FILES = 12
WANTED = {
    "type": "and",
    "left": {"type": "not-eq", "term": "part", "value": 3},
    "right": {"type": "lt", "term": "id", "value": 9},
}


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
@pytest.mark.parametrize(
    "settings",
    [{}, {"plan_inline_files_max": "1", "plan_task_files": "2"}, {"plan_wait": "PT0S"}],
    ids=["in the answer", "behind tasks", "submitted"],
)
def test_java_gets_all_files_of_every_form_of_plan(tmp_path: Path, java: JavaPlanner, settings: dict[str, str]) -> None:
    with server_process(tmp_path, fsync="never", **{"plan_wait": "PT5M", **settings}) as server:
        catalog = load_catalog("plain", type="rest", uri=server.url)
        catalog.create_namespace("ns")
        rows = pa.table({"id": pa.array(range(FILES), pa.int64()), "part": pa.array(range(FILES), pa.int64())})
        table = catalog.create_table("ns.t", schema=rows.schema)
        with table.update_spec() as update:
            update.add_field("part", IdentityTransform(), "part")
        table.append(rows)
        catalog.close()

        served = java.served_table(server.url, "ns", "t")
        everything = java.count(served.newScan())
        some = java.count(java.scan(served, json.loads(json.dumps(WANTED))))
        metrics = httpx.get(f"{server.url}/metrics").text

    assert everything == FILES
    assert some == 8
    assert 'operation="planTableScan"' in metrics
    assert ('operation="fetchScanTasks"' in metrics) == ("plan_task_files" in settings)
    assert ('operation="fetchPlanningResult"' in metrics) == ("plan_wait" in settings)


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_java_follows_tasks_that_return_more_tasks_and_reads_branches_and_tags(
    tmp_path: Path, java: JavaPlanner
) -> None:
    """A filter of 3 MB leaves room for five files in an answer."""
    long = {"type": "not-in", "term": "name", "values": [f"{number:06d}" + "x" * 300 for number in range(10_000)]}
    with server_process(tmp_path, fsync="never", plan_wait="PT5M") as server:
        catalog = load_catalog("plain", type="rest", uri=server.url)
        catalog.create_namespace("ns")
        rows = pa.table({"name": [f"n{number}" for number in range(FILES)]})
        table = catalog.create_table("ns.t", schema=rows.schema)
        with table.update_spec() as update:
            update.add_field("name", IdentityTransform(), "part")
        table.append(rows.slice(0, 5))
        first = table.current_snapshot()
        assert first is not None
        table.append(rows.slice(5))
        table.manage_snapshots().create_tag(first.snapshot_id, "begun").create_branch(
            first.snapshot_id, "other"
        ).commit()
        table.append(rows.slice(0, 1), branch="other")
        catalog.close()

        served = java.served_table(server.url, "ns", "t")
        followed = java.count(java.scan(served, long))
        metrics = httpx.get(f"{server.url}/metrics").text
        by_ref = [java.count(served.newScan().useRef(ref)) for ref in ("main", "begun", "other")]
        column = java.count(java.selecting(served.newScan(), "name"))

    assert followed == FILES
    counted = [line for line in metrics.splitlines() if line.startswith("sandur_request_seconds_count")]
    assert [line.split()[-1] for line in counted if 'operation="fetchScanTasks"' in line] == ["3.0"]
    assert by_ref == [FILES, 5, 6]
    assert column == FILES


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_java_also_starts_a_range_after_an_expired_snapshot(tmp_path: Path, java: JavaPlanner) -> None:
    table = table_with_history(tmp_path)
    del table.snapshots[0]
    path = table.write()

    ours = [task.path for task in plan(tmp_path, path, start_snapshot_id=1, end_snapshot_id=3)]

    assert ours == paths(2, 4)
    assert set(ours) == java.appended(path, 1, 3, filter_json=True)
    with pytest.raises(Py4JJavaError, match="not a parent ancestor"):  # Our scan is empty.
        java.appended(path, 3, 3, filter_json=True)
