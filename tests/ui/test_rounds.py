"""How many storage rounds each page takes: warm, on a store with latency, with and without authentication."""

import re
from typing import Final

import httpx
import msgspec
import pytest

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import Entry, names_scope
from sandur.catalog.maintenance.records import RunEnd
from sandur.operations.index.rebuild import expected_of, read_manifest, write_index
from sandur.operations.maintenance.runs import RunRecords
from sandur.server.ui.routes import ROUTES
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.events.deliveries import SEALING_KEY
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer
from tests.ui.html import parse
from tests.ui.scene import DELTA_PAGE, TABLE_PAGE, VIEW_PAGE, forms, make_scene

# Pages that take one round; every other page takes two at most.
ONE_ROUND = (
    "/ui",
    "/ui/search?q=orders",
    "/ui/activity",
    "/ui/activity?source=rest",
    "/ui/server",
    "/ui/me",
    TABLE_PAGE,
    f"{TABLE_PAGE}/snapshots",
    VIEW_PAGE,
    f"{VIEW_PAGE}/timeline",
    DELTA_PAGE,
    "/ui/data/main/plain/volumes/v",
    "/ui/data/main/plain/functions/f",
)
_ROUNDS_MAX = 2
# The record, then the checkpoint of the log and the versions after it.
_MORE = {f"{DELTA_PAGE}/files": 3}
_REQUESTS = 3
# What runs, waits or was recorded has no index: its folders are listed, up to a bound.
WITH_LISTS = ("/ui/maintenance", "/ui/jobs", "/ui/audit", "/ui/subscriptions", "/ui/actions/maintain/")
# What was dropped is looked for among the records of all objects, up to 1,000 a page.
SEARCHES = {"/dropped/{catalog}", "/actions/undrop/{kind}/{catalog}/{namespace}/{name}"}
# These are no pages that read a catalog.
OTHERS = {"/static/{hash}/{file}", "/login", "/callback"}
# Janitors and deliveries would list folders in the meantime.
QUIET: Final = Settings(store="memory:", log_level="error", janitors=False, deliveries=False)
READ_ROUTES = {route.path for route in ROUTES if route.method == "GET"} - SEARCHES - OTHERS


@pytest.mark.parametrize("is_secured", [False, True], ids=["open", "secured"])
async def test_no_page_takes_more_rounds_than_it_may(catalogs: Catalogs, *, is_secured: bool) -> None:
    spy = SpyStore(MemoryStore())
    quiet = {"janitors": False, "deliveries": False, "sealing_keys": (SEALING_KEY,)}
    settings = msgspec.structs.replace(SECURED if is_secured else QUIET, **quiet)
    client = await catalogs.open_with(settings, spy)
    if is_secured:
        client.headers.update(await bearer(client))
    scene = await make_scene(client, spy, subscribes=True)
    await RunRecords(make_lake(spy), "1").write_end(RunEnd(run="1", ended_ms=1))
    links = await forms(client, scene)
    pages = [path for path in scene.pages() if not path.startswith("/ui/dropped/")]
    paths = {*ONE_ROUND, *pages, f"/ui/id/{scene.table}", *(links[one] for one in links.keys() - SEARCHES)}
    known = [re.compile("/ui" + re.sub(r"\{\w+\}", "[^/]+", path.rstrip("/")) + "/?\\Z") for path in READ_ROUTES]

    taken = {}
    for path in paths:
        # Without a manifest of grants, those of older releases are looked for.
        may_list = path.startswith(WITH_LISTS) or not is_secured
        taken[path] = await rounds_of(client, spy, path, lists=may_list)

    most = dict.fromkeys(paths, _ROUNDS_MAX) | dict.fromkeys(ONE_ROUND, 1) | _MORE
    assert {path: rounds for path, rounds in taken.items() if rounds > most[path]} == {}
    opened = [path.partition("?")[0] for path in paths]
    assert [one.pattern for one in known if not any(map(one.match, opened))] == []


async def rounds_of(client: httpx.AsyncClient, spy: SpyStore, path: str, *, lists: bool) -> int:
    """The rounds of a page that was seen before. Nothing is listed, unless it may be.

    The server counts the rounds of each request until its answer, so nothing that works beside it is counted. Of
    several requests, the least counts.
    """
    taken = []
    for _ in range(_REQUESTS):
        spy.reset()
        before = await _counted_rounds(client)
        answer = await client.get(path)
        assert answer.status_code == (303 if "/ui/id/" in path else 200), (path, answer.text)
        taken.append((bool(spy.keys("list")), await _counted_rounds(client) - before))
    is_listed, rounds = min(taken)
    assert lists or not is_listed, path
    return rounds


async def _counted_rounds(client: httpx.AsyncClient) -> int:
    """The storage rounds of all requests so far, as the metrics have them."""
    lines = (await client.get("/metrics")).raise_for_status().text.splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("sandur_storage_rounds_sum")))


def entry(name: str) -> Entry:
    return Entry(name=name, kind="table", format="iceberg", uuid=name, info=msgspec.Raw(b"{}"))


async def test_the_first_page_of_many_tables_reads_as_much_as_that_of_few(catalogs: Catalogs) -> None:
    spy = SpyStore(MemoryStore())
    client = await catalogs.open_with(QUIET, spy)
    lake = make_lake(spy)
    read, shown = {}, {}
    for name, count in (("few", 1_000), ("many", 10_000)):
        (await client.post("/v1/namespaces", json={"namespace": [name]})).raise_for_status()
        scope = names_scope(Namespace("main", (name,)))
        entries = tuple(entry(f"t{number:06}") for number in range(count))
        assert await write_index(lake, scope, entries, expected=expected_of(await read_manifest(lake, scope)))
        await client.get(f"/ui/data/main/{name}")  # The first look makes the list of the namespaces inside.
        await catalogs.settled()
        read[name] = await rounds_of(client, spy, f"/ui/data/main/{name}", lists=False)
        page = parse((await client.get(f"/ui/data/main/{name}")).text)
        shown[name] = [row[0] for row in page.rows() if row[0].startswith("t0")]

    assert read["many"] == read["few"]
    assert shown["many"] == shown["few"] == [f"t{number:06}" for number in range(200)]


async def test_the_pages_of_a_long_list_neither_skip_nor_repeat_a_name(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open_with(Settings(store="memory:", log_level="error"), store)
    (await client.post("/v1/namespaces", json={"namespace": ["ns"]})).raise_for_status()
    names = [f"t{number:04}" for number in range(450)]
    scope, lake = names_scope(Namespace("main", ("ns",))), make_lake(store)
    entries = tuple(map(entry, names))
    assert await write_index(lake, scope, entries, expected=expected_of(await read_manifest(lake, scope)))

    seen, path = [], "/ui/data/main/ns"
    for _ in range(3):
        page = parse((await client.get(path)).text)
        seen += [row[0] for row in page.rows() if row[0].startswith("t")]
        path = next((link.attributes["href"] for link in page.every("a", rel="next")), "")

    assert seen == names
    assert path == ""
