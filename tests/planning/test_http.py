"""Planning over HTTP: PyIceberg with server-side planning, and the body of each status."""

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from tests.server.process import ServerProcess, server_process

CONTEXT = ssl.create_default_context()  # Started once, because a start takes longer than a request.
ROWS = 120
FILTERS = (
    "id >= 0",
    "country = 'IS'",
    "id > 60 and country != 'DK'",
    "id in (1, 2, 99)",
    "not (amount < 12.5)",
    "country like 'N%'",
    "amount is null",
)


DEEP_TASK = base64.urlsafe_b64encode(b'[1,"plan",1,[],' + b"[" * 3_000 + b"]" * 3_000 + b"]").rstrip(b"=").decode()


@pytest.fixture(scope="module", params=[1_000, 2], ids=["in the answer", "behind tasks"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    limits = {"plan_inline_files_max": str(request.param), "plan_task_files": "3", "plan_wait": "PT2M"}
    with server_process(tmp_path_factory.mktemp("planning"), fsync="never", **limits) as running:
        yield running


@pytest.fixture(scope="module")
def table(server: ServerProcess) -> Iterator[Table]:
    """A table with two specs and deleted rows."""
    catalog: Catalog = load_catalog("plain", type="rest", uri=server.url)
    catalog.create_namespace("scans")
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "country": ["IS", "DK", "NO", "SE"] * (ROWS // 4),
            "amount": [None if number % 7 == 0 else number / 4 for number in range(ROWS)],
        }
    )
    made = catalog.create_table("scans.t", schema=rows.schema)
    made.append(rows.slice(0, 40))
    first = made.current_snapshot()
    assert first is not None
    with made.update_spec() as update:
        update.add_field("country", IdentityTransform(), "country")
    made.append(rows.slice(40, 40))
    with made.update_spec() as update:
        update.remove_field("country")
    made.append(rows.slice(80))
    made.delete("id = 50")
    made.manage_snapshots().create_tag(first.snapshot_id, "begun").create_branch(first.snapshot_id, "other").commit()
    made.append(rows.slice(0, 3), branch="other")
    yield made
    catalog.close()


@pytest.fixture(scope="module")
def planning(server: ServerProcess) -> Iterator[RestCatalog]:
    catalog = load_catalog("planning", type="rest", uri=server.url, **{"scan-planning-mode": "server"})
    assert isinstance(catalog, RestCatalog)
    yield catalog
    catalog.close()


@pytest.mark.parametrize("wanted", FILTERS)
def test_pyiceberg_reads_the_same_rows_from_either_planner(table: Table, planning: RestCatalog, wanted: str) -> None:
    assert planning.supports_server_side_planning()
    served = planning.load_table("scans.t").scan(row_filter=wanted)

    local = table.refresh().scan(row_filter=wanted)

    assert {task.file.file_path for task in served.plan_files()} == {task.file.file_path for task in local.plan_files()}
    assert served.to_arrow().sort_by("id").to_pydict() == local.to_arrow().sort_by("id").to_pydict()
    assert served.count() == local.count()


@pytest.mark.parametrize("wanted", FILTERS[:3])
@pytest.mark.parametrize(("ref", "rows"), [("begun", 40), ("other", 43), ("main", ROWS - 1)])
def test_pyiceberg_reads_branches_and_tags_from_either_planner(
    table: Table, planning: RestCatalog, wanted: str, ref: str, rows: int
) -> None:
    served = planning.load_table("scans.t").scan(row_filter=wanted).use_ref(ref)
    local = table.refresh().scan(row_filter=wanted).use_ref(ref)

    assert served.to_arrow().sort_by("id").to_pydict() == local.to_arrow().sort_by("id").to_pydict()
    assert wanted != "id >= 0" or served.count() == rows


@pytest.mark.parametrize(
    ("fields", "is_case_sensitive"), [(("id",), True), (("amount", "country"), True), (("ID", "Country"), False)]
)
def test_pyiceberg_reads_some_columns_from_either_planner(
    table: Table, planning: RestCatalog, fields: tuple[str, ...], *, is_case_sensitive: bool
) -> None:
    said: dict[str, Any] = {"row_filter": "id > 60", "selected_fields": fields, "case_sensitive": is_case_sensitive}
    served = planning.load_table("scans.t").scan(**said).to_arrow()
    local = table.refresh().scan(**said).to_arrow()

    assert served.column_names == local.column_names
    assert len(served.column_names) == len(fields)
    assert sorted(map(str, served.to_pylist())) == sorted(map(str, local.to_pylist()))


def test_pyiceberg_cannot_parse_a_null_partition(table: Table, planning: RestCatalog) -> None:
    """docs/planning.md names the versions. If this fails, PyIceberg has learned it: change the page."""
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "country": ["IS", None]})
    made = table.catalog.create_table_if_not_exists("scans.with_null", schema=rows.schema)
    with made.update_spec() as update:
        update.add_field("country", IdentityTransform(), "country")
    made.append(rows)
    served = planning.load_table("scans.with_null")

    assert served.scan(row_filter="country = 'IS'").count() == 1
    with pytest.raises(ValueError, match=r"file-scan-tasks\.\d+\.data-file\.partition"):
        served.scan(row_filter="country is null").to_arrow()


def call(server: ServerProcess, method: str, path: str, body: Any = None) -> httpx.Response:
    return httpx.request(method, f"{server.url}/v1/namespaces/scans/tables/{path}", json=body, verify=CONTEXT)


@pytest.mark.usefixtures("table")
def test_a_plan_is_completed_fetched_again_and_cancelled(server: ServerProcess) -> None:
    made = call(server, "POST", "t/plan", {}).json()
    fetched = call(server, "GET", f"t/plan/{made['plan-id']}").json()

    assert made["status"] == fetched["status"] == "completed"
    assert fetched["plan-id"] == made["plan-id"]
    assert fetched["file-scan-tasks"] == made["file-scan-tasks"]
    assert made["file-scan-tasks"] or made["plan-tasks"]
    assert call(server, "DELETE", f"t/plan/{made['plan-id']}").status_code == 204
    assert call(server, "GET", f"t/plan/{made['plan-id']}").json() == {"status": "cancelled"}


def nested(depth: int) -> Any:
    found: Any = True
    for _ in range(depth):
        found = {"type": "not", "child": found}
    return found


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("GET", "t/plan/nothing", None, 404, "NoSuchPlanIdException"),
        ("DELETE", "t/plan/nothing", None, 404, "NoSuchPlanIdException"),
        ("POST", "t/tasks", {"plan-task": "nothing"}, 404, "NoSuchPlanTaskException"),
        ("POST", "t/tasks", {"plan-task": DEEP_TASK}, 404, "NoSuchPlanTaskException"),
        ("POST", "t/tasks", {}, 400, "BadRequestException"),
        ("POST", "none/plan", {}, 404, "NoSuchTableException"),
        ("GET", "none/plan/nothing", None, 404, "NoSuchTableException"),
        ("POST", "none/tasks", {"plan-task": "WzEsInAiLDEsW11d"}, 404, "NoSuchTableException"),
        ("POST", "t/plan", {"filter": None}, 400, "BadRequestException"),
        ("POST", "t/plan", {"filter": {"type": "eq", "term": "none", "value": 1}}, 400, "BadRequestException"),
        ("POST", "t/plan", {"snapshot-id": 1}, 400, "BadRequestException"),
        ("POST", "t/plan", {"snapshot-id": 1, "end-snapshot-id": 1}, 400, "BadRequestException"),
        ("POST", "t/plan", {"select": ["none"]}, 400, "BadRequestException"),
        ("POST", "t/plan", {"filter": nested(500)}, 400, "BadRequestException"),
        (
            "POST",
            "t/plan",
            {"filter": {"type": "in", "term": "id", "values": ["x"] * 100_000}},
            400,
            "BadRequestException",
        ),
        ("POST", "t/plan", {"select": ["id"] * 1_000_000}, 400, "BadRequestException"),
        ("POST", "t/tasks", {"plan-task": "A" * 10_000_000}, 404, "NoSuchPlanTaskException"),
        ("POST", "t/plan", [], 400, "BadRequestException"),
    ],
)
def test_unknown_ids_and_invalid_requests_have_the_errors_of_the_protocol(
    server: ServerProcess, method: str, path: str, body: Any, status: int, kind: str
) -> None:
    answer = call(server, method, path, body)

    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


@pytest.mark.usefixtures("table")
def test_a_failed_plan_has_only_a_status_and_an_error(server: ServerProcess) -> None:
    with load_catalog("plain", type="rest", uri=server.url) as catalog:
        rows = pa.table({"id": [1, 2]})
        broken = catalog.create_table("scans.broken", schema=rows.schema)
        broken.append(rows)
    snapshot = broken.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file:")).unlink()

    answer = call(server, "POST", "broken/plan", {})

    assert answer.status_code == 200
    assert answer.json().keys() == {"status", "error"}
    assert answer.json()["status"] == "failed"
    assert answer.json()["error"]["code"] == 404
    assert snapshot.manifest_list in answer.json()["error"]["message"]


@pytest.mark.usefixtures("table")
def test_a_plan_exists_only_under_its_own_table(server: ServerProcess) -> None:
    with load_catalog("plain", type="rest", uri=server.url) as catalog:
        catalog.create_table("scans.other", schema=pa.schema([pa.field("id", pa.int64())]))
    made = call(server, "POST", "t/plan", {}).json()

    answers = [
        call(server, "GET", f"other/plan/{made['plan-id']}"),
        call(server, "DELETE", f"other/plan/{made['plan-id']}"),
        *(call(server, "POST", "other/tasks", {"plan-task": task}) for task in made["plan-tasks"]),
    ]

    assert {(answer.status_code, answer.json()["error"]["type"]) for answer in answers} <= {
        (404, "NoSuchPlanIdException"),
        (404, "NoSuchPlanTaskException"),
    }
    assert call(server, "GET", f"t/plan/{made['plan-id']}").json()["status"] == "completed"


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("part", [b"[", b'{"type":"not","child":', b'{"a":[', b'"'])
def test_a_filter_with_too_many_levels_is_a_bad_request(server: ServerProcess, part: bytes) -> None:
    url = f"{server.url}/v1/namespaces/scans/tables/t"

    for body in (b'{"filter":' + part * 100_000, b'{"plan-task":' + part * 100_000, part * 100_000):
        for operation in ("plan", "tasks"):
            answer = httpx.post(f"{url}/{operation}", content=body, verify=CONTEXT)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")


def test_pyiceberg_follows_tasks_that_return_more_tasks(tmp_path: Path) -> None:
    """A filter of 3 MB leaves room for five files in an answer."""
    values = [f"{number:06d}" + "x" * 300 for number in range(10_000)]
    long = BooleanExpression.model_validate({"type": "not-in", "term": "name", "values": values})
    with server_process(tmp_path, fsync="never", plan_wait="PT2M") as running:
        rows = pa.table({"name": [f"n{number}" for number in range(12)]})
        with load_catalog("plain", type="rest", uri=running.url) as catalog:
            catalog.create_namespace("scans")
            table = catalog.create_table("scans.t", schema=rows.schema)
            with table.update_spec() as update:
                update.add_field("name", IdentityTransform(), "part")
            table.append(rows)
        with load_catalog("served", type="rest", uri=running.url, **{"scan-planning-mode": "server"}) as served:
            found = [task.file.file_path for task in served.load_table("scans.t").scan(row_filter=long).plan_files()]
        metrics = httpx.get(f"{running.url}/metrics", verify=CONTEXT).text

    assert len(found) == len(set(found)) == 12
    counted = [line for line in metrics.splitlines() if line.startswith("sandur_request_seconds_count")]
    assert [line.split()[-1] for line in counted if 'operation="fetchScanTasks"' in line] == ["3.0"]


def until_completed(server: ServerProcess, plan_id: str) -> Iterator[dict[str, Any]]:
    """The answers to fetches of a plan until it is no longer submitted."""
    for _ in range(500):
        answer = call(server, "GET", f"t/plan/{plan_id}").json()
        yield answer
        if answer["status"] != "submitted":
            return


def test_a_submitted_plan_has_no_tasks_until_it_is_completed(tmp_path: Path) -> None:
    with server_process(tmp_path, fsync="never", plan_wait="PT0S") as slow:
        catalog = load_catalog("slow", type="rest", uri=slow.url)
        catalog.create_namespace("scans")
        rows = pa.table({"id": [1, 2]})
        catalog.create_table("scans.t", schema=rows.schema).append(rows)
        catalog.close()

        made = call(slow, "POST", "t/plan", {}).json()
        answers = list(until_completed(slow, made["plan-id"]))

    assert made.keys() == {"status", "plan-id"}
    assert made["status"] == "submitted"
    *submitted, completed = answers
    assert completed["status"] == "completed"
    assert len(completed["file-scan-tasks"]) == 1
    assert all(answer == {"status": "submitted"} for answer in submitted)
