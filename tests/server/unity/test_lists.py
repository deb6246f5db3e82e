"""Lists of the Unity Catalog API: from the index, or from the records when there is no index; and what is logged."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from typer.testing import CliRunner

from sandur.catalog.index import CATALOGS, Scope
from sandur.cli.main import app
from sandur.settings import UnityCatalogSettings
from sandur.storage.contract import list_all
from sandur.storage.layout import Layout
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.requests import add_snapshot, create_table, set_properties
from tests.server.unity.client import Unity, code

MAIN = Scope("schemas", "main")
WHERE = {"catalog_name": "main", "schema_name": "s"}
LISTS: list[Any] = [
    pytest.param("/catalogs", {}, "catalogs", Layout().list_index(CATALOGS), id="catalogs"),
    pytest.param("/schemas", {"catalog_name": "main"}, "schemas", Layout().list_index(MAIN), id="schemas"),
    pytest.param("/tables", WHERE, "tables", Layout().root + "index/tables/main/s.v1.json", id="tables"),
]


async def filled(catalogs: Catalogs, store: MemoryStore | SpyStore, **settings: object) -> Unity:
    """A server with a few catalogs, schemas and tables, and no background work left."""
    unity = Unity(await catalogs.open(store=store, janitors=False, deliveries=False, **settings))
    for name in ("a", "b"):
        await unity.made("/catalogs", {"name": name})
    for name in ("s", "t"):
        await unity.made("/schemas", {"catalog_name": "main", "name": name})
    for name in ("x", "y", "z"):
        made = await unity.http.post("/v1/namespaces/s/tables", json=create_table(name))
        assert made.status_code == 200
    await settled()
    return unity


async def settled() -> None:
    for _ in range(5_000):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("path", "params", "key", "index"), LISTS)
async def test_a_list_reads_the_index_and_lists_no_prefix(
    catalogs: Catalogs, path: str, params: Any, key: str, index: str
) -> None:
    spy = SpyStore(MemoryStore())
    unity = await filled(catalogs, spy)
    await unity.get(path, **params)
    await settled()
    spy.reset()

    answer = await unity.get(path, **params)

    assert len(answer.json()[key]) >= 2
    assert not [call for call in spy.calls if call.name == "list"]
    assert [call.key for call in spy.calls if "/index/" in call.key] == [index]
    assert not [call for call in spy.calls if "/names/" in call.key or "/iceberg_pointers/" in call.key]


@pytest.mark.parametrize("damage", ["missing", "corrupt", "of an older form"])
@pytest.mark.parametrize(("path", "params", "key", "index"), LISTS)
async def test_a_list_without_its_index_is_the_same_and_rebuilds_the_index(
    catalogs: Catalogs, path: str, params: Any, key: str, index: str, damage: str
) -> None:
    store = MemoryStore()
    before = (await (await filled(catalogs, store)).get(path, **params)).json()
    found = await store.get(index)
    assert found is not None
    if damage == "missing":
        await store.delete(index, expected=found.version)
    else:
        manifest = json.loads(found.data)
        entries = [{name: value for name, value in entry.items() if name != "info"} for entry in manifest["entries"]]
        body = b"nonsense" if damage == "corrupt" else json.dumps({**manifest, "entries": entries}).encode()
        await store.put(index, body, expected=found.version)
    unity = Unity(await catalogs.open(store=store))

    with capture_logs() as logs:
        after = (await unity.get(path, **params)).json()
    await settled()
    with capture_logs() as later:
        again = (await unity.get(path, **params)).json()

    assert after[key] == again[key] == before[key]
    assert [log["fallback_used"] for log in [*logs, *later] if log["event"] == "list"] == [True, False]


@pytest.mark.parametrize(("path", "params", "key", "index"), LISTS)
async def test_the_index_contains_the_entries_of_the_list(
    catalogs: Catalogs, path: str, params: Any, key: str, index: str
) -> None:
    store = MemoryStore()
    unity = await filled(catalogs, store)

    listed = (await unity.get(path, **params)).json()[key]

    found = await store.get(index)
    assert found is not None
    manifest = json.loads(found.data)
    assert manifest["version"] == 1
    assert [entry["info"] for entry in manifest["entries"]] == listed


async def test_every_list_is_logged(unity: Unity) -> None:
    structlog.reset_defaults()
    with capture_logs() as logs:
        await unity.http.get("/api/2.1/unity-catalog/catalogs", headers={"X-Request-Id": "mine"})

    (line,) = [log for log in logs if log["event"] == "list"]
    assert {name: line[name] for name in ("tenant", "workspace", "request_id", "collection", "index_path")} == {
        "tenant": "default",
        "workspace": "default",
        "request_id": "mine",
        "collection": "catalogs",
        "index_path": Layout().list_index(CATALOGS),
    }


async def test_reads_updates_rebuilds_and_fallbacks_are_counted(catalogs: Catalogs) -> None:
    store = MemoryStore()
    await filled(catalogs, store)
    found = await store.get(Layout().list_index(MAIN))
    assert found is not None
    await store.put(Layout().list_index(MAIN), b"nonsense", expected=found.version)
    unity = Unity(await catalogs.open(store=store))

    await unity.get("/schemas", catalog_name="main")
    await settled()
    await unity.get("/schemas", catalog_name="main")
    await unity.made("/schemas", {"catalog_name": "main", "name": "more"})
    await settled()
    metrics = (await unity.http.get("/metrics")).text

    for count in (
        'uc_preview_index_read_total{result="hit"}',
        'uc_preview_index_read_total{result="error"}',
        'uc_preview_index_update_total{result="ok"}',
        'uc_preview_index_rebuild_total{result="ok"}',
        'uc_preview_list_fallback_total{collection="schemas"}',
    ):
        assert count in metrics


async def test_lists_work_without_the_index_when_it_is_disabled(catalogs: Catalogs) -> None:
    store = MemoryStore()
    before = (await (await filled(catalogs, store)).get("/tables", **WHERE)).json()
    unity = Unity(await catalogs.open(store=store, unity_catalog=UnityCatalogSettings(preview_index_enabled=False)))

    with capture_logs() as logs:
        after = (await unity.get("/tables", **WHERE)).json()

    assert after == before
    assert [log["fallback_used"] for log in logs if log["event"] == "list"] == [True]
    assert await unity.names("/tables", "tables", **WHERE, max_results=2) == ["x", "y", "z"]


async def test_paging_continues_when_the_index_is_lost_between_two_pages(catalogs: Catalogs) -> None:
    store = MemoryStore()
    unity = await filled(catalogs, store)
    first = (await unity.get("/tables", **WHERE, max_results=1)).json()
    index = Layout().root + "index/tables/main/s.v1.json"
    found = await store.get(index)
    assert found is not None
    await store.delete(index, expected=found.version)

    rest = (await unity.get("/tables", **WHERE, max_results=10, page_token=first["next_page_token"])).json()

    assert [table["name"] for table in [*first["tables"], *rest["tables"]]] == ["x", "y", "z"]


async def test_a_change_of_properties_updates_the_index_and_a_data_commit_does_not(catalogs: Catalogs) -> None:
    spy = SpyStore(MemoryStore())
    unity = await filled(catalogs, spy)
    metadata = (await unity.http.get("/v1/namespaces/s/tables/x")).json()["metadata"]
    await settled()
    spy.reset()

    added = await unity.http.post("/v1/namespaces/s/tables/x", json=add_snapshot(metadata))
    await settled()
    by_data = [call.key for call in spy.calls if "/index/" in call.key]
    changed = await unity.http.post("/v1/namespaces/s/tables/x", json=set_properties(k="v"))
    marked = [call.key for call in spy.calls if "/index/marks/" in call.key and call.name == "put"]
    listed = (await unity.get("/tables", **WHERE)).json()["tables"]

    assert added.status_code == changed.status_code == 200
    assert by_data == []
    assert len(marked) == 1  # The index is written a moment later, once for all changes.
    assert listed[0]["properties"]["k"] == "v"


async def test_concurrent_creations_by_several_servers_are_all_listed(catalogs: Catalogs) -> None:
    store = MemoryStore(seed=5)
    servers = [Unity(await catalogs.open(store=store)) for _ in range(3)]
    await servers[0].made("/schemas", {"catalog_name": "main", "name": "s"})
    names = [f"v{number:02d}" for number in range(24)]

    await asyncio.gather(
        *(
            servers[number % 3].made("/volumes", {**WHERE, "name": name, "volume_type": "MANAGED"})
            for number, name in enumerate(names)
        )
    )
    await settled()

    for server in servers:
        assert await server.names("/volumes", "volumes", **WHERE) == names


async def test_wide_tables_are_listed_from_segments(catalogs: Catalogs) -> None:
    store = MemoryStore()
    unity = Unity(await catalogs.open(store=store))
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    fields = [{"id": number, "name": f"column_{number}", "type": "string", "required": False} for number in range(300)]
    for number in range(12):
        body = {"name": f"t{number:02d}", "schema": {"type": "struct", "fields": fields}}
        assert (await unity.http.post("/v1/namespaces/s/tables", json=body)).status_code == 200
    await settled()

    names = await unity.names("/tables", "tables", **WHERE, max_results=5)

    assert names == [f"t{number:02d}" for number in range(12)]
    assert len(await list_all(store, Layout().all_index_segments_folder())) > 1


async def test_bad_parameters_are_refused_before_anything_is_read(catalogs: Catalogs) -> None:
    spy = SpyStore(MemoryStore())
    unity = await filled(catalogs, spy)
    spy.reset()

    for params in ({**WHERE, "max_results": -1}, {**WHERE, "page_token": "x"}, {"catalog_name": "main"}):
        assert code(await unity.get("/tables", **params)) == (400, "INVALID_ARGUMENT")

    assert not spy.calls


def test_the_command_line_rebuilds_indexes(tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(app, [*arguments, "--store", str(tmp_path), "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    run("catalog", "create", "c")
    index = tmp_path / Layout().list_index(CATALOGS)
    index.write_bytes(b"nonsense")

    report = run("index", "rebuild")

    assert report["rebuilt"] >= 3
    assert report["failed"] == []
    assert [entry["name"] for entry in json.loads(index.read_bytes())["entries"]] == ["c", "main"]
    assert run("index", "rebuild", "c")["rebuilt"] == 1


async def test_a_list_of_many_entries_is_complete(catalogs: Catalogs) -> None:
    unity = Unity(await catalogs.open())
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    for start in range(0, 320, 32):
        await asyncio.gather(
            *(
                unity.made("/volumes", {**WHERE, "name": f"v{number:04d}", "volume_type": "MANAGED"})
                for number in range(start, start + 32)
            )
        )

    names = [volume["name"] for volume in (await unity.get("/volumes", **WHERE)).json()["volumes"]]

    assert names == [f"v{number:04d}" for number in range(320)]
