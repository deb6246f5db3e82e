"""How many storage rounds each page takes: warm, on a store with latency, with and without authentication."""

import httpx
import msgspec
import pytest

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import Entry, names_scope
from sandur.operations.index.rebuild import expected_of, read_manifest, write_index
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer
from tests.ui.html import parse
from tests.ui.scene import DATA, TABLE_PAGE, VIEW_PAGE, make_scene

# The most rounds of a page that was seen before.
ROUNDS = {
    "/ui": 1,
    "/ui/search?q=orders": 1,
    "/ui/activity": 1,
    "/ui/activity?source=rest": 1,
    "/ui/data/main": 2,
    DATA: 2,
    f"{DATA}?kind=table": 2,
    TABLE_PAGE: 1,
    f"{TABLE_PAGE}/snapshots": 1,
    f"{TABLE_PAGE}/timeline": 2,
    f"{TABLE_PAGE}/timeline?at=1": 2,
    f"{TABLE_PAGE}/versions/1": 2,
    f"{TABLE_PAGE}/diff?from=0&to=3": 2,
    f"{TABLE_PAGE}/health": 2,
    f"{TABLE_PAGE}/lineage": 2,
    f"{TABLE_PAGE}/grants": 2,
    VIEW_PAGE: 1,
    f"{VIEW_PAGE}/timeline": 1,
    "/ui/policies": 2,
    "/ui/maintenance": 2,
    "/ui/jobs": 2,
    "/ui/server": 1,
    "/ui/me": 1,
}

# Without a manifest of grants, those of older releases are looked for.
_REQUESTS = 6
LISTED = {f"{TABLE_PAGE}/grants", "/ui/policies"}
# What runs and waits has no index: its folders are listed, up to a bound.
WITH_LISTS = {"/ui/maintenance", "/ui/jobs"}


@pytest.mark.parametrize("is_secured", [False, True], ids=["open", "secured"])
async def test_no_page_takes_more_rounds_than_it_may(catalogs: Catalogs, *, is_secured: bool) -> None:
    spy = SpyStore(MemoryStore())
    settings = SECURED if is_secured else Settings(store="memory:", log_level="error")
    client = await catalogs.open_with(settings, spy)
    if is_secured:
        client.headers.update(await bearer(client))
    await make_scene(client, spy)
    may_list = WITH_LISTS if is_secured else WITH_LISTS | LISTED
    taken = {path: await rounds_of(client, spy, path, lists=path in may_list) for path in ROUNDS}

    allowed = {path: most + (not is_secured and path in LISTED) for path, most in ROUNDS.items()}
    assert {path: taken[path] for path, most in allowed.items() if taken[path] > most} == {}


async def rounds_of(client: httpx.AsyncClient, spy: SpyStore, path: str, *, lists: bool) -> int:
    """The rounds of a page that was seen before. Nothing is listed, unless it may be.

    The server counts the rounds of each request until its answer, so nothing that works beside it is counted. Janitors
    may list in the meantime: of several requests, the least counts.
    """
    taken = []
    for _ in range(_REQUESTS):
        spy.reset()
        before = await _counted_rounds(client)
        answer = await client.get(path)
        assert answer.status_code == 200, (path, answer.text)
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
    settings = Settings(store="memory:", log_level="error")
    client = await catalogs.open_with(settings, spy)
    lake = make_lake(spy)
    read, shown = {}, {}
    for name, count in (("few", 1_000), ("many", 10_000)):
        (await client.post("/v1/namespaces", json={"namespace": [name]})).raise_for_status()
        scope = names_scope(Namespace("main", (name,)))
        entries = tuple(entry(f"t{number:06}") for number in range(count))
        assert await write_index(lake, scope, entries, expected=expected_of(await read_manifest(lake, scope)))
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
