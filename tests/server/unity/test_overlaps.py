"""Volumes and tables at one place, over HTTP, on a folder and on a real S3."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from sandur.catalog.records import Securable
from sandur.clock import SystemClock
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake, Lakes
from sandur.settings import Settings
from sandur.storage.contract import list_all
from sandur.storage.layout import Layout
from sandur.storage.locations import open_store
from tests.fakes.fixed_clock import FixedClock
from tests.operations.janitor_runs import HOUR_MS, ReportedErrors
from tests.server.conftest import Catalogs
from tests.server.requests import create_table
from tests.server.unity.client import Json, Unity, code
from tests.server.unity.delta_requests import created

WHERE = {"catalog_name": "main", "schema_name": "s"}


@pytest.fixture(params=["folder", "S3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    if request.param == "folder":
        return Settings(store=str(tmp_path / "store"), fsync="never", log_level="error")
    s3: Settings = request.getfixturevalue("seaweedfs_settings")
    return replace(s3, log_level="error", store=f"s3://sandur/{SystemClock().new_id()}")


@pytest.fixture
async def client(catalogs: Catalogs, settings: Settings) -> httpx.AsyncClient:
    return await catalogs.open_with(settings)


@pytest.fixture
async def later(settings: Settings) -> AsyncIterator[Lake]:
    """The lake of the server as a janitor sees it an hour later."""
    lakes = Lakes(settings, FixedClock(SystemClock().now_ms() + HOUR_MS), open_store(settings.store, settings))
    yield lakes.fresh_lake(Layout())
    await lakes.close()


def volume(location: str, name: str = "v") -> Json:
    return {**WHERE, "name": name, "volume_type": "EXTERNAL", "storage_location": location}


async def refused(answer: httpx.Response) -> str:
    assert code(answer) == (400, "INVALID_ARGUMENT"), answer.text
    message: str = answer.json()["message"]
    return message


async def root_of(unity: Unity) -> str:
    """The root of the catalog, from the location of a volume that the catalog placed."""
    managed = await unity.made("/volumes", {**WHERE, "name": "m", "volume_type": "MANAGED"})
    return str(managed["storage_location"]).partition("/__unitystorage/")[0]


@pytest.mark.usefixtures("schema")
async def test_volumes_and_tables_refuse_the_places_of_each_other(unity: Unity, client: httpx.AsyncClient) -> None:
    root = await root_of(unity)
    managed = (await created(unity))["metadata"]["location"]
    await unity.made("/volumes", volume(f"{root}/lake/files"))
    namespaces = "/v1/main/namespaces/s/tables"
    made = await client.post(namespaces, json=create_table("orders", location=f"{root}/lake/orders"))
    assert made.status_code == 200, made.text

    for place in (managed, f"{managed}/files"):
        assert "reserved for managed tables" in await refused(await unity.post("/volumes", volume(place, "w")))
    for place in (f"{root}/lake/orders", f"{root}/lake/orders/data", f"{root}/lake"):
        message = await refused(await unity.post("/volumes", volume(place, "w")))
        known = [f"table main.s.orders at {root}/lake/orders", f"volume main.s.v at {root}/lake/files"]
        assert message in [f"Invalid location {place}: it overlaps {one}" for one in known]
    for place in (f"{root}/lake/files", f"{root}/lake/files/t", f"{root}/lake"):
        answer = await client.post(namespaces, json=create_table("more", location=place))
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "IllegalArgumentException")
        assert "it overlaps " in answer.text
        external = {**WHERE, "name": "d", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": []}
        message = await refused(await unity.post("/tables", {**external, "storage_location": place}))
        assert message.startswith(f"Invalid location {place}: it overlaps ")

    assert await unity.names("/volumes", "volumes", **WHERE) == ["m", "v"]
    assert await unity.names("/tables", "tables", **WHERE) == ["orders", "t"]


@pytest.mark.usefixtures("schema")
async def test_dropping_a_managed_table_keeps_the_files_of_a_volume_in_it(unity: Unity, later: Lake) -> None:
    """Earlier versions of the server created such volumes."""
    table = (await created(unity))["metadata"]
    location = table["location"]
    older = Securable(uuid="older", table_uuid="older", state="live", kind="volume", location=f"{location}/files")
    await later.securable("older").create(older)
    for listed in await list_all(later.store, "_shared/"):  # Such a store has no location claims.
        await later.store.delete(listed.key, expected=listed.version)
    await later.locations.create(f"{location}/files/report.csv", b"x")
    errors = ReportedErrors()

    assert (await unity.delete("/tables/main.s.t")).status_code == 200
    swept = await run_janitors(later, {}, on_error=errors)

    assert swept.counts["purge_blocked"] == 1
    assert "s.t: Conflict: its files are not purged: volume older may need the files" in errors
    assert await later.locations.read(f"{location}/files/report.csv") == b"x"


@pytest.mark.usefixtures("schema")
async def test_a_volume_at_the_place_of_a_dropped_table_waits_for_its_purge(
    unity: Unity, client: httpx.AsyncClient, later: Lake
) -> None:
    place = f"{await root_of(unity)}/lake/orders"
    tables = "/v1/main/namespaces/s/tables"
    assert (await client.post(tables, json=create_table("orders", location=place))).status_code == 200
    dropped = await client.delete(f"{tables}/orders", params={"purgeRequested": "true"})
    assert dropped.status_code == 204

    waiting = await unity.post("/volumes", volume(place))
    assert waiting.status_code == 503
    assert "the files of the dropped table s.orders are being purged there" in waiting.text
    assert (await run_janitors(later, {}, on_error=ReportedErrors())).counts["purge_removed"] == 1

    await unity.made("/volumes", volume(place))
