"""Rows of tables in a confined process: the right rows, and nothing else that a query may try."""

from collections.abc import Iterator
from pathlib import Path

import deltalake
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from sandur.settings import Settings
from tests.cli.commands import User
from tests.interop.server_address import server_settings
from tests.server.logins import ADMIN_SECRET, created_api_key
from tests.server.process import ServerProcess, server_process

ROWS = pa.table({"id": [1, 2, 3], "country": ["IS", "DK", "x" * 3_000]})
ORDERS = "main.sales.orders"
PATIENT = "PT4M"  # This machine may be busy.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the table `orders`, one row of which is deleted, and with an external Delta table."""
    folder = tmp_path_factory.mktemp("preview")
    settings = {"authentication": "on", "admin_secret": ADMIN_SECRET, "fsync": "never", "preview": "sql"}
    settings["preview_timeout"] = PATIENT
    with server_process(folder, "--allow-location", f"file://{folder}/outside", **settings) as running:
        key = created_api_key(running.url)
        catalog = load_catalog("sandur", type="rest", uri=running.url, warehouse="main", token=key)
        catalog.create_namespace("sales")
        orders = catalog.create_table("sales.orders", ROWS.schema)
        orders.append(ROWS)
        orders.delete("id = 2")
        deltalake.write_deltalake(f"{folder}/outside/events", pa.table({"id": [7, 8], "day": ["a", "b"]}))
        yield running


@pytest.fixture(scope="module")
def admin(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> User:
    token = created_api_key(server.url)
    return User(tmp_path_factory.mktemp("admin"), SANDUR_SERVER=server.url, SANDUR_TOKEN=token)


def test_the_rows_of_a_table_are_printed_without_deleted_ones_and_long_cells_are_cut(admin: User) -> None:
    done = admin.run("preview", ORDERS, "--limit", "2")

    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == ["id", "country"], done.err
    assert sorted((id_, len(country)) for id_, country in lines[1:]) == [("1", 2), ("3", 1_001)]


def test_a_query_reads_the_tables_that_it_names(admin: User) -> None:
    counted = "select o.id, count(*) as n, o.id from {t} o join {t} p on o.id <= p.id group by o.id order by 1"

    found = admin.run("sql", counted.format(t=ORDERS), "-o", "csv", "--limit", "1")

    assert (found.code, found.out) == (0, "id,n,id_2\n1,2,1\n"), found.err
    assert "There are more rows" in found.err
    assert admin.run("sql", "select 1").code == 1


def test_delta_tables_are_read_managed_and_external(admin: User, server: ServerProcess) -> None:
    made = admin.run("create", "table", "main.sales.managed", "--format", "delta", "--columns", "id BIGINT")
    columns = [
        {
            "name": name,
            "type_text": kind,
            "type_json": f'{{"name":"{name}","type":"{kind}","nullable":true,"metadata":{{}}}}',
        }
        for name, kind in (("id", "long"), ("day", "string"))
    ]
    body = {
        "name": "events",
        "catalog_name": "main",
        "schema_name": "sales",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": f"file://{server.folder}/outside/events",
        "columns": [{**one, "type_name": "LONG", "position": place} for place, one in enumerate(columns)],
    }
    headers = {"Authorization": f"Bearer {admin.environment['SANDUR_TOKEN']}"}
    created = httpx.post(f"{server.url}/api/2.1/unity-catalog/tables", json=body, headers=headers, timeout=60)

    assert (made.code, created.status_code) == (0, 200), (made.err, created.text)
    assert admin.run("preview", "main.sales.managed", "--json").json == []
    assert sorted(row["id"] for row in admin.run("preview", "main.sales.events", "--json").json) == [7, 8]


@pytest.mark.slow
def test_a_query_that_needs_too_much_memory_or_time_is_ended(tmp_path: Path) -> None:
    store, user = str(tmp_path / "store"), User(tmp_path / "user", SANDUR_PREVIEW_TIMEOUT="PT3S", SANDUR_FSYNC="never")
    user.run("catalog", "create", "other", "--store", store)
    user.run("create", "namespace", "main.a", "--store", store)
    user.run("create", "table", "main.a.t", "--columns", "id INT", "--store", store)
    endless = "select count(*) from range(10000000000) a, range(10000000000) b where a.range + b.range = 7"
    large = "select list(repeat('x', 1000000) || range) from range(100000)"

    slow = user.run("sql", endless, "--table", "main.a.t", "--store", store)
    greedy = user.run("sql", large, "--table", "main.a.t", "--store", store)
    patient = User(tmp_path / "patient", SANDUR_PREVIEW_TIMEOUT=PATIENT)
    after = patient.run("sql", "select 1 as one", "--table", "main.a.t", "--store", store, "--json")

    assert (slow.code, "3 seconds" in slow.err) == (7, True), slow.err
    assert greedy.code == 7, greedy
    assert after.json == [{"one": 1}]


def test_a_preview_needs_the_data_and_no_restrictions(admin: User, server: ServerProcess, tmp_path: Path) -> None:
    reader = User(tmp_path / "reader", SANDUR_SERVER=server.url, SANDUR_TOKEN=created_api_key(server.url, "reader"))
    for statement in ("USE CATALOG on main to reader", "USE SCHEMA, BROWSE on main.sales to reader"):
        assert admin.run("grant", *statement.split()).code == 0
    browsing = reader.run("preview", ORDERS)
    admin.run("grant", "SELECT", "on", ORDERS, "to", "reader")
    reading = reader.run("preview", ORDERS, "--json")
    row_filter = {"type": "eq", "term": "country", "value": "IS"}
    headers = {"Authorization": f"Bearer {admin.environment['SANDUR_TOKEN']}"}
    address = f"{server.url}/api/sandur/v1/restrictions/{ORDERS}"
    put = httpx.put(address, json={"required-row-filter": row_filter}, headers=headers, timeout=60)

    restricted = reader.run("preview", ORDERS)
    httpx.delete(address, headers=headers, timeout=60)

    assert put.status_code == 204, put.text
    assert (browsing.code, "SELECT" in browsing.err) == (4, True)
    assert len(reading.json) == 2
    assert (restricted.code, "row filters" in restricted.err) == (4, True), restricted


@pytest.mark.slow
def test_previews_can_be_switched_off(tmp_path: Path) -> None:
    user = User(tmp_path / "user")
    (tmp_path / "rows").mkdir()
    with server_process(tmp_path / "rows", fsync="never", preview_timeout=PATIENT) as rows:
        user.run("create", "namespace", "main.a", "--server", rows.url)
        user.run("create", "table", "main.a.t", "--columns", "id INT", "--server", rows.url)
        allowed = user.run("preview", "main.a.t", "--server", rows.url)
        refused = user.run("sql", "select * from main.a.t", "--server", rows.url)
        malformed = [
            httpx.post(f"{rows.url}/api/sandur/v1/preview", json=body, timeout=60).status_code
            for body in ({}, {"tables": [["a"]]}, {"tables": [], "limit": 0}, {"tables": [["a", "b", "c"]], "x": 1})
        ]

    assert allowed.code == 0, allowed.err
    assert (refused.code, "needs 'sql'" in refused.err) == (1, True)
    assert malformed == [400] * 4


@pytest.mark.slow
@pytest.mark.parametrize("access", ["none", "vend"])
def test_a_table_on_s3_is_read_with_credentials(request: pytest.FixtureRequest, tmp_path: Path, access: str) -> None:
    settings: Settings = request.getfixturevalue("seaweedfs_settings" if access == "none" else "seaweedfs_sts")
    options = {**server_settings(settings.s3), "preview": "sql", "preview_timeout": PATIENT}
    store, user = f"s3://sandur/{tmp_path.name}-{access}", User(tmp_path / "user")
    with server_process(tmp_path, "--store", store, **options) as running:
        given = {"s3.endpoint": settings.s3.endpoint, "s3.region": settings.s3.region}
        keys = {"s3.access-key-id": settings.s3.access_key_id, "s3.secret-access-key": settings.s3.secret_access_key}
        catalog = load_catalog("sandur", type="rest", uri=running.url, warehouse="main", **given, **keys)
        catalog.create_namespace("sales")
        orders = catalog.create_table("sales.orders", ROWS.schema)
        orders.append(ROWS)
        orders.delete("id = 2")
        user.run("create", "table", "main.sales.d", "--format", "delta", "--columns", "id INT", "--server", running.url)

        rows = user.run("preview", ORDERS, "--json", "--server", running.url)
        delta = user.run("preview", "main.sales.d", "--json", "--server", running.url)
        other = user.run("sql", f"from '{store}/**/*.parquet'", "--table", ORDERS, "--server", running.url)
        secrets = user.run("sql", "from duckdb_secrets()", "--table", ORDERS, "--server", running.url)

    assert sorted(row["id"] for row in rows.json) == [1, 3]
    assert delta.json == []
    assert (other.code, secrets.code) == (1, 1), (other, secrets)
