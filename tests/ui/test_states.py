"""Every state that a page can be in, besides the usual one: empty, stale, gone, refused, unavailable, unknown."""

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sandur.catalog.security.privileges import OPEN
from sandur.errors import Busy, Conflict, Expired, OutcomeUnknown, SandurError, Unavailable, Unsupported
from sandur.server.app import App, Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.http import Answer, Refused
from sandur.server.serve import build
from sandur.server.ui.routes import UI
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call as StoreCall
from tests.fakes.wrapping_store import WrappingStore
from tests.server.conftest import Catalogs, with_plain_names
from tests.server.requests import add_snapshot, create_table, set_properties
from tests.ui.html import Element, parse
from tests.ui.published import publish

TABLE = "/ui/data/main/ns/tables/t"


async def get(client: httpx.AsyncClient, path: str, status: int = 200) -> Element:
    answer = await client.get(path)
    assert answer.status_code == status, (path, answer.text)
    return parse(answer.text).one("main")


async def make_table(client: httpx.AsyncClient, name: str = "t", **fields: object) -> dict[str, Any]:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    answer = await client.post("/v1/namespaces/ns/tables", json=create_table(name, **fields))
    metadata: dict[str, Any] = answer.raise_for_status().json()["metadata"]
    return metadata


async def test_an_empty_catalog_says_how_to_fill_it(client: httpx.AsyncClient) -> None:
    catalog = await get(client, "/ui/data/main")
    (await client.post("/v1/namespaces", json={"namespace": ["ns"]})).raise_for_status()
    namespace = await get(client, "/ui/data/main/ns")

    assert "This catalog is empty" in catalog.text
    assert "sandur create namespace main.NAME" in catalog.text
    assert "sandur create table main.ns.NAME" in namespace.text


@pytest.mark.parametrize("path", ["/ui", "/ui/search?q=t", "/ui/activity", f"{TABLE}/health", f"{TABLE}/lineage"])
async def test_before_anything_is_published_pages_say_so(client: httpx.AsyncClient, path: str) -> None:
    await make_table(client)

    page = await get(client, path)

    assert "Nothing is published yet" in page.text
    assert "sandur run all" in page.text


async def test_without_published_names_search_finds_the_beginnings_of_names(client: httpx.AsyncClient) -> None:
    for name in ("order", "orders", "other"):
        await make_table(client, name)

    page = await get(client, "/ui/search?q=ord&in=main.ns")
    for opened in ("/ui/data/main/ns", "/ui/data/main/ns/tables/other"):
        form = parse((await client.get(opened)).text).one("form", role="search")
        found = await get(client, f"/ui/search?q=ord&from={form.one('input', name='from').attributes['value']}")
        assert found.rows() == page.rows()

    assert [row[0] for row in page.rows()] == ["main.ns.order", "main.ns.orders"]


async def test_an_empty_table_has_pages_that_say_so(client: httpx.AsyncClient) -> None:
    await make_table(client)

    assert "The table has no data yet" in (await get(client, f"{TABLE}/snapshots")).text
    assert "The table has no files yet" in (await get(client, f"{TABLE}/files")).text
    assert "Versions 0 and 0 do not differ" in (await get(client, f"{TABLE}/diff")).text


async def test_old_measurements_are_marked_as_old(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open(store)
    uuid = (await make_table(client))["table-uuid"]
    at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    known = {"catalog": "main", "namespace": "ns", "name": "t", "format": "iceberg", "measured_at": at}
    row = {**known, "uuid": uuid, "last_commit_at": at, "needs_json": "[]", "policy_json": "[]"}
    await publish(store, {"table_health": [row]}, published_ms=1_577_836_800_000)

    page = await get(client, f"{TABLE}/health")

    assert "This is old" in page.one(class_="stale").text
    assert "not measured" in page.text


@pytest.mark.parametrize(("age_ms", "is_stale"), [(3_600_000, False), (90_000_000, True)], ids=["fresh", "stale"])
async def test_published_data_says_from_when_it_is_and_when_that_is_long_ago(
    catalogs: Catalogs, age_ms: int, *, is_stale: bool
) -> None:
    store, clock = MemoryStore(), FixedClock()
    # Whatever sleeps in the background would advance the clock.
    settings = Settings(store="memory:", log_level="error", janitors=False, deliveries=False)
    client = await catalogs.open_with(settings, store, clock=clock)
    await publish(store, {"commits": [], "tables": [], "columns": []}, published_ms=clock.now_ms() - age_ms)

    for path in ("/ui", "/ui/activity", "/ui/search?q=a"):
        page = await get(client, path)
        assert "as of" in page.text
        assert ("more than a day ago" in page.text) == is_stale, path


async def test_a_table_that_is_newer_than_the_last_measurement_says_so(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open(store)
    await make_table(client)
    await publish(store, {"table_health": [], "lineage": []}, published_ms=1)

    assert "was not measured yet" in (await get(client, f"{TABLE}/health")).text
    assert "No lineage is known" in (await get(client, f"{TABLE}/lineage")).text


async def test_versions_that_are_gone_are_told_apart_from_versions_that_never_were(client: httpx.AsyncClient) -> None:
    """The log keeps one version, so the file of the first one is not named any more."""
    await make_table(client, properties={"write.metadata.previous-versions-max": "1"})
    for value in ("1", "2", "3"):
        (await client.post("/v1/namespaces/ns/tables/t", json=set_properties(a=value))).raise_for_status()

    diff = await get(client, f"{TABLE}/diff?from=0&to=3", 404)
    version = await get(client, f"{TABLE}/timeline?at=0")
    alone = await client.get(f"{TABLE}/versions/0")

    assert "These versions cannot be compared" in diff.text
    assert "its log names versions 2 to 3" in diff.text
    assert [row[0] for row in diff.rows()] == ["3"]
    assert "This version cannot be shown" in version.text
    assert (alone.status_code, "This version cannot be shown" in alone.text) == (200, True)


async def test_a_dropped_table_is_found_by_its_id(client: httpx.AsyncClient) -> None:
    uuid = (await make_table(client))["table-uuid"]
    renamed = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "u"}}
    (await client.post("/v1/tables/rename", json=renamed)).raise_for_status()
    moved = await client.get(f"/ui/id/{uuid}")
    (await client.delete("/v1/namespaces/ns/tables/u")).raise_for_status()

    gone = await get(client, f"/ui/id/{uuid}", 410)

    assert moved.headers["location"] == "/ui/data/main/ns/tables/u"
    assert "was dropped" in gone.text
    assert "sandur undrop main.ns.u --kind table" in gone.text


async def test_an_object_of_another_kind_has_its_own_address(client: httpx.AsyncClient) -> None:
    await make_table(client)

    answer = await client.get("/ui/data/main/ns/views/t")

    assert (answer.status_code, answer.headers["location"]) == (303, TABLE)


class BrokenStore(WrappingStore):
    """A store that does not answer any more from a moment on."""

    is_broken = False

    async def _around(self, call: StoreCall, perform: Callable[[], Any]) -> Any:  # noqa: ARG002 - whatever is called
        if self.is_broken:
            raise Unavailable("the disk is gone")
        return await perform()


class HangingStore(WrappingStore):
    """A store that never answers reads of manifest lists."""

    async def _around(self, call: StoreCall, perform: Callable[[], Any]) -> Any:
        if call.key.endswith(".avro"):
            await asyncio.Event().wait()
        return await perform()


@pytest.mark.slow
async def test_a_page_that_takes_too_long_is_cut(catalogs: Catalogs) -> None:
    """It takes the ten seconds after which the page is cut."""
    client = await catalogs.open(HangingStore(MemoryStore()))
    metadata = await make_table(client)
    (await client.post("/v1/namespaces/ns/tables/t", json=add_snapshot(metadata))).raise_for_status()

    page = await get(client, f"{TABLE}/files", 503)

    assert "took more than 10 seconds" in page.text


async def test_when_the_store_is_down_the_page_has_the_request_id_and_a_way_back(catalogs: Catalogs) -> None:
    store = BrokenStore(MemoryStore())
    client = await catalogs.open(store, retry={"attempts_max": 1})
    await make_table(client)
    store.is_broken = True

    for path in ("/ui", TABLE, f"{TABLE}/timeline", "/ui/search?q=a", "/ui/jobs", "/ui/server", "/ui/policies"):
        answer = await client.get(path, headers={"X-Request-Id": "request-7"})
        main = parse(answer.text).one("main")

        assert answer.status_code == 503, path
        assert "Retry-After" in answer.headers
        assert "The storage does not answer" in main.text
        assert "request-7" in main.text
        assert path in main.links()
    store.is_broken = False


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (Conflict("the table is at version 9"), 409, ("It has changed in the meantime", "the table is at version 9")),
        (OutcomeUnknown("no answer to a write"), 500, ("The outcome is not known", "Look before you repeat")),
        (Busy("another request changes it"), 503, ("The server is busy", "Nothing was changed")),
        (Unsupported("previews are off"), 501, ("This server does not do this", "previews are off")),
        (Expired("the plan is gone"), 410, ("Begin again",)),
        (ValueError("a mistake"), 500, ("Something went wrong in the server",)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_every_kind_of_failure_has_a_page(error: Exception, status: int, words: tuple[str, ...]) -> None:
    answer = await failing(error)

    main = parse(answer.text).one("main")
    assert answer.status_code == status
    for one in words:
        assert one in main.text
    if not isinstance(error, SandurError):
        assert "a mistake" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("size", "status", "title", "words"),
    [(300, 413, "This is too large", "send less"), (3, 403, "You may not do this", "open the page again")],
    ids=["large", "small"],
)
async def test_a_form_that_is_too_large_has_a_page(
    catalogs: Catalogs, size: int, status: int, title: str, words: str
) -> None:
    client = await catalogs.open(MemoryStore(), request_bytes_max=1_000)
    form = {"name": "eu", "comment": "x" * size * 10}
    answer = await client.post("/ui/actions/create-namespace/main", data=form, headers={"Origin": "http://localhost"})

    page = parse(answer.text)
    assert (answer.status_code, page.one("h1").text) == (status, title)
    assert words in page.one("main").text


@pytest.mark.parametrize(("status", "title"), [(408, "The server is busy"), (429, "The server is busy")])
async def test_a_request_that_is_refused_for_now_says_to_try_again(status: int, title: str) -> None:
    answer = await failing(Refused(status, "Too much at once"))

    page = parse(answer.text)
    assert (answer.status_code, page.one("h1").text) == (status, title)
    assert "Try again in a moment" in page.one("main").text


async def test_an_address_without_a_page_says_so_in_plain_words(client: httpx.AsyncClient) -> None:
    page = await get(client, "/ui/none", 404)

    assert page.text.startswith("Not found This server has no page at /ui/none")
    assert "route" not in page.text


async def test_versions_that_nobody_knows_are_marked_in_the_timeline(catalogs: Catalogs) -> None:
    """The log names versions 3 and 4, and version 0 was published: 1 and 2 are missing."""
    store = MemoryStore()
    client = await catalogs.open(store)
    uuid = (await make_table(client, properties={"write.metadata.previous-versions-max": "1"}))["table-uuid"]
    for value in ("1", "2", "3", "4"):
        (await client.post("/v1/namespaces/ns/tables/t", json=set_properties(a=value))).raise_for_status()
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    known = {"table_uuid": uuid, "committed_at": at, "lineage": "declared", "quality": "checked"}
    rows = [{**known, "version": 0, "source": "pipeline", "principal": "etl", "client": "Spark"}]
    await publish(store, {"timeline": rows}, published_ms=1)

    page = await get(client, f"{TABLE}/timeline")

    rows_shown = page.one("table", class_="dense").rows()
    assert [row[0][:40] for row in rows_shown] == ["4", "3", "2 versions in between are not known: the", "0"]
    oldest = rows_shown[-1]
    assert oldest[2:4] == ["▶ pipeline", "etl Spark"]
    assert oldest[9] == "declared checked"


async def test_a_table_with_one_version_has_no_slider(client: httpx.AsyncClient) -> None:
    await make_table(client)
    one = await get(client, f"{TABLE}/timeline")
    (await client.post("/v1/namespaces/ns/tables/t", json=set_properties(a="1"))).raise_for_status()
    two = await get(client, f"{TABLE}/timeline")

    assert [len(list(page.every("input", id="at"))) for page in (one, two)] == [0, 1]
    assert one.one("section", id="version").one("h2").text == "Version 0"


async def failing(error: Exception) -> httpx.Response:
    """The answer of a page whose handler raises."""

    async def fail(_call: Call) -> Answer:
        raise error

    route = Route("GET", "/fail", "fail", fail, OPEN)
    dialect = Dialect("ui", (b"/ui/",), Router((route,), unknown_status=404), UI.errors, UI.browsers)
    settings = Settings(store="memory:", log_level="error")
    store: ObjectStore = MemoryStore()
    app, catalog = build(settings, store=store)
    made = App(dialects=[dialect], catalog=catalog, settings=settings, metrics=app._metrics, requests=app.requests)
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(made))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/ui/fail")
    await catalog.close()
    return answer


async def test_a_link_on_another_site_may_lead_to_a_page_but_nothing_else(client: httpx.AsyncClient) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    followed = await client.get("/ui", headers=link)
    others = [
        await client.get("/ui", headers={**link, "Sec-Fetch-Dest": "iframe"}),
        await client.get("/ui", headers={**link, "Sec-Fetch-Mode": "no-cors"}),
        await client.get("/ui", headers={**link, "Origin": "https://evil.example"}),
        await client.get("/v1/config", headers=link),
    ]

    assert followed.status_code == 200
    assert [one.status_code for one in others] == [403, 403, 403, 403]
