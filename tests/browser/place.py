"""A server with tables as people have them: with rows, history, branches, grants, lineage and measured health."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import deltalake
import httpx
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

from sandur.clock import SystemClock
from sandur.storage.local import LocalStore
from tests.crash.unity_mutations import FUNCTION
from tests.events.deliveries import SEALING_KEY
from tests.server.logins import ADMIN_SECRET, PRINCIPALS, TOKENS
from tests.server.process import server_process
from tests.ui.published import publish

ORDERS: Final = "/ui/data/main/sales/tables/orders"
LONG: Final = "a_name_that_does_not_fit_in_any_column_of_a_page_" * 4
LONG_NAMESPACE: Final = f"/ui/data/main/{LONG}"
LONG_TABLE: Final = f"{LONG_NAMESPACE}/tables/{LONG}"
_COUNTRIES: Final = ("IS", "DK", "NO", "SE", "FO")
_SECONDS_MAX: Final = 60


class Place:
    """A running server; `token` is the administrator's, `secret` that of ann, who may read the table of orders."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.http = httpx.Client(base_url=url, timeout=_SECONDS_MAX)
        form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": ADMIN_SECRET}
        token = self.http.post(TOKENS, data=form).raise_for_status().json()["access_token"]
        self.http.headers["Authorization"] = f"Bearer {token}"
        self.token = str(token)
        self.secret = ""
        self.subscription = ""
        self.dropped = ""

    def send(self, method: str, path: str, body: object = None) -> Any:
        answer = self.http.request(method, path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    def commit(self, **properties: str) -> None:
        """A commit of somebody else: it changes properties of the table of orders."""
        updates = [{"action": "set-properties", "updates": properties}]
        self.send("POST", "/v1/main/namespaces/sales/tables/orders", {"requirements": [], "updates": updates})

    def append(self, rows: int = 1) -> None:
        """Rows that somebody else writes."""
        _table(self, "sales.orders").append(_rows(rows, 1_000))


@contextlib.contextmanager
def place_in(folder: Path) -> Iterator[Place]:
    """A server in the folder, filled, until the block ends."""
    options = {"authentication": "on", "admin_secret": ADMIN_SECRET, "fsync": "never", "deliveries": "false"}
    places = ("--allow-location", f"file://{folder}")
    keys = {"sealing_keys": SEALING_KEY}
    with server_process(folder, *places, **options, **keys, preview_timeout="PT4M") as process:
        place = Place(process.url, folder)
        with contextlib.closing(place.http):
            _fill(place)
            yield place


def _fill(place: Place) -> None:
    catalog = load_catalog("sandur", type="rest", uri=place.url, warehouse="main", token=place.token)
    catalog.create_namespace("sales", {"comment": "What customers buy"})
    catalog.create_namespace("web")
    orders = catalog.create_table("sales.orders", _rows(1, 0).schema, properties={"comment": "One row per order"})
    for number in range(6):
        orders.append(_rows(200 * (number + 1), number * 10_000))
    orders.manage_snapshots().create_tag(orders.history()[2].snapshot_id, "quarter-1").commit()
    with orders.update_schema() as update:
        update.add_column("channel", StringType(), doc="web, shop or phone")
    orders.delete("country = 'FO'")
    daily = catalog.create_table("sales.by_country", pa.schema([("country", pa.string()), ("total", pa.float64())]))
    daily.append(pa.table({"country": list(_COUNTRIES), "total": [10.5, 20.0, 7.25, 3.0, 1.0]}))
    visits = catalog.create_table("web.visits", pa.schema([("at", pa.timestamp("us")), ("page", pa.string())]))
    _governance(place)
    _unity_objects(place)
    _long_names(place)
    asyncio.run(_publish(place, [str(one.metadata.table_uuid) for one in (orders, daily, visits)]))


def _governance(place: Place) -> None:
    version = {
        "version-id": 1,
        "timestamp-ms": 1_767_225_600_000,
        "schema-id": 0,
        "summary": {"engine-name": "spark"},
        "default-namespace": ["sales"],
        "representations": [{"type": "sql", "sql": "SELECT * FROM orders\nWHERE amount > 50", "dialect": "spark"}],
    }
    fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
    view = {"name": "large_orders", "schema": {"type": "struct", "fields": fields}, "view-version": version}
    place.send("POST", "/v1/main/namespaces/sales/views", {**view, "properties": {"comment": "Orders above 50"}})
    place.secret = place.send("POST", PRINCIPALS, {"name": "ann"})["client_secret"]
    place.send("POST", "/api/sandur/v1/groups", {"name": "analysts"})
    own = "/api/sandur/v1"
    use = {"changes": [{"principal": "ann", "add": ["USE CATALOG", "USE SCHEMA"]}]}
    place.send("PATCH", f"{own}/grants/catalog/main", use)
    read = {"changes": [{"principal": "ann", "add": ["SELECT"]}, {"principal": "analysts", "add": ["BROWSE"]}]}
    place.send("PATCH", f"{own}/grants/table/main.sales.orders", read)
    place.send("PATCH", f"{own}/tags/table/main.sales.orders", {"set": {"domain": "sales", "pii": "no"}})


def _unity_objects(place: Place) -> None:
    """A Delta table with two versions, a volume, a function, a model, a subscription, and a view that was dropped."""
    folder, unity = place.folder / "clicks", "/api/2.1/unity-catalog"
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "country": ["IS", "DK", "IS"]})
    deltalake.write_deltalake(folder, rows, partition_by=["country"])
    deltalake.write_deltalake(folder, rows, mode="append")
    columns = [
        {"name": name, "type_text": text, "type_name": text.upper(), "type_json": f'"{text}"', "position": number}
        for number, (name, text) in enumerate((("id", "long"), ("country", "string")))
    ]
    columns[1]["partition_index"] = 0
    where = {"catalog_name": "main", "schema_name": "web"}
    table = {"name": "clicks", "table_type": "EXTERNAL", "data_source_format": "DELTA", "comment": "Clicks of visitors"}
    place.send(
        "POST", f"{unity}/tables", {**where, **table, "storage_location": f"file://{folder}", "columns": columns}
    )
    place.send("POST", f"{unity}/volumes", {**where, "name": "raw", "volume_type": "MANAGED", "comment": "Raw files"})
    place.send("POST", f"{unity}/models", {**where, "name": "forecast", "comment": "Demand of the next week"})
    version = {"model_name": "forecast", "source": "s3://runs/17", "run_id": "run-17", "comment": "The first one"}
    place.send("POST", f"{unity}/models/versions", {**where, **version})
    function = {name: getattr(FUNCTION, name) for name in FUNCTION.__struct_fields__}
    known = {name: value for name, value in function.items() if value is not None}
    parameter = {"name": "x", "type_text": "int", "type_name": "INT", "type_json": "{}", "position": 0}
    info = {
        **known,
        **where,
        "name": "plus",
        "input_params": {"parameters": [parameter]},
        "routine_definition": "x + 1",
    }
    place.send("POST", f"{unity}/functions", {"function_info": {**info, "comment": "Adds one"}})
    wanted = {"url": "https://hooks.example.org/a", "description": "To the data team"}
    place.subscription = place.send("POST", "/api/sandur/v1/subscriptions", wanted)["id"]
    gone = {"name": "gone", "schema": {"type": "struct", "fields": []}}
    place.send("POST", "/v1/main/namespaces/web/tables", gone)
    place.dropped = place.send("GET", "/api/sandur/v1/objects/main/web/gone")["id"]
    place.send("DELETE", "/v1/main/namespaces/web/tables/gone")


def _long_names(place: Place) -> None:
    """A table whose names and texts have no place where a line could end."""
    fields = [{"id": one, "name": f"c{one}{LONG}", "type": "string", "required": False, "doc": LONG} for one in (1, 2)]
    table = {"name": LONG, "schema": {"type": "struct", "fields": fields}, "properties": {"comment": LONG, LONG: LONG}}
    place.send("POST", "/v1/main/namespaces", {"namespace": [LONG], "properties": {"comment": LONG}})
    place.send("POST", f"/v1/main/namespaces/{LONG}/tables", table)
    place.send("PATCH", f"/api/sandur/v1/tags/table/main.{LONG}.{LONG}", {"set": {LONG[:100]: LONG}})


def _rows(count: int, first: int) -> pa.Table:
    ids = list(range(first, first + count))
    columns = {
        "id": pa.array(ids, pa.int64()),
        "country": [_COUNTRIES[one % len(_COUNTRIES)] for one in ids],
        "amount": [round((one * 37) % 500 / 3, 2) for one in ids],
        "ordered": pa.array([dt.date(2026, 1, 1) + dt.timedelta(days=one % 365) for one in ids], pa.date32()),
    }
    return pa.table(columns)


def _table(place: Place, name: str) -> Any:
    return load_catalog("sandur", type="rest", uri=place.url, warehouse="main", token=place.token).load_table(name)


async def _publish(place: Place, uuids: list[str]) -> None:
    """What the pipeline publishes about the tables."""
    names = (("sales", "orders"), ("sales", "by_country"), ("web", "visits"))
    now_ms = SystemClock().now_ms()
    now = dt.datetime.fromtimestamp(now_ms / 1_000, tz=dt.UTC)
    tables = [
        {"catalog": "main", "namespace": namespace, "name": name, "uuid": uuid, "table_uuid": uuid}
        for (namespace, name), uuid in zip(names, uuids, strict=True)
    ]
    orders = tables[0]
    size = {"kind": "table", "format": "iceberg", "properties_json": '{"comment": "One row per order"}'}
    commit = {
        "kind": "table",
        "format": "iceberg",
        "operation": "append",
        "source": "rest",
        "client": "PyIceberg/0.12.0",
    }
    who = {"source": "pipeline", "principal": "etl", "client": "Spark/4.1.4", "run_id": "daily-17"}
    days = [(now - dt.timedelta(days=one)).date().isoformat() for one in range(30)]
    edge = {"job_namespace": "airflow", "job_name": "daily", "confidence": "verified", "runs": 30}
    ends = {"first_seen": now, "last_seen": now}
    datasets: dict[str, list[dict[str, Any]]] = {
        "tables": [{**one, **size, "record_count": 4_200, "size_bytes": 73_000} for one in tables],
        "columns": [
            {**orders, "id": str(place), "path": name, "column_name": name, "type": "string"}
            for place, name in enumerate(("id", "country", "amount", "ordered", "channel"))
        ],
        "commits": [
            {
                **tables[one % 2],
                **commit,
                "principal": "admin",
                **(who if one % 2 else {}),
                "metadata_version": one // 2,
                "committed_at": now - dt.timedelta(minutes=37 * (5 - one)),
                "committed_at_ms": now_ms - 37 * 60_000 * (5 - one),
            }
            for one in range(6)
        ],
        "timeline": [],
        "activity": [
            {"table_uuid": uuids[0], "day": day, "commits": (place * 7) % 23} for place, day in enumerate(days)
        ],
        "table_health": [
            {
                **orders,
                "format": "iceberg",
                "mode": "report",
                "needs_json": '[{"operation": "compaction", "reason": "6 files are smaller than 384 MB"}]',
                "benefit": 1.0,
                "measured_at": now,
                "last_commit_at": now,
                "last_commit_ms": now_ms,
                "data_files": 6,
                "small_files": 6,
                "excess_files": 5,
                "small_bytes": 60_000,
                "policy_json": "[]",
            }
        ],
        "lineage": [
            {
                **edge,
                **ends,
                "edge_id": source + target,
                "source_uuid": source,
                "target_uuid": target,
                "source_name": source_name,
                "target_name": target_name,
            }
            for source, target, source_name, target_name in (
                (uuids[0], uuids[1], "main.sales.orders", "main.sales.by_country"),
                (uuids[2], uuids[0], "main.web.visits", "main.sales.orders"),
            )
        ],
        "column_lineage": [],
    }
    await publish(LocalStore(place.folder / "data"), datasets, published_ms=now_ms)
