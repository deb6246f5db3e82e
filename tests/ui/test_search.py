"""Search over what is published: what is found, in which order, for whom, and what it costs."""

from collections.abc import Mapping
from typing import Any, Final

import httpx
import pytest

from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal, quiet
from tests.server.requests import create_table
from tests.ui.published import publish

SEARCH: Final = "/api/sandur/v1/search"
NOW_MS: Final = 1_767_225_600_000


def table(namespace: str, name: str, **more: str) -> dict[str, Any]:
    named = {"catalog": "main", "namespace": namespace, "name": name, "uuid": f"{namespace}.{name}"}
    return {**named, "kind": "table", "format": "iceberg", "properties_json": "{}", "tags_json": None, **more}


TABLES: Final = (
    table("sales", "old_orders"),
    table("sales", "orders_2025", properties_json='{"team": "Growth", "Größe": "ÄPFEL"}'),
    table("web", "ORDERS", tags_json='{"tags": {"domain": "shop"}, "columns": {"2": {"pii": "mail"}}}'),
    table("sales", "orders"),
    {**table("web", "visits"), "kind": "view"},
)
COLUMNS: Final = (
    {**table("web", "visits"), "id": "1", "path": "order_id", "type": "long"},
    {**table("sales", "orders"), "id": "2", "path": "lines.order_id", "type": "int"},
)


async def published(catalogs: Catalogs, tables: Any = TABLES, **settings: Any) -> httpx.AsyncClient:
    store = MemoryStore()
    client = await catalogs.open(store, **settings)
    await publish(store, {"tables": tables, "columns": COLUMNS}, published_ms=NOW_MS)
    return client


async def found(client: httpx.AsyncClient, text: str, **more: Any) -> list[tuple[str, str, str]]:
    answer = await client.get(SEARCH, params={"q": text, **more.pop("params", {})}, **more)
    hits = answer.raise_for_status().json()["hits"]
    return [(one["found"], ".".join((*one["identifier"][1], one["identifier"][2])), one["detail"]) for one in hits]


async def test_equal_names_come_first_then_beginnings_then_the_others(catalogs: Catalogs) -> None:
    client = await published(catalogs)

    names = [name for what, name, _ in await found(client, "Orders") if what == "name"]
    of_namespace = [name for what, name, _ in await found(client, "sal.ord") if what == "name"]

    assert names == ["web.ORDERS", "sales.orders", "sales.orders_2025", "sales.old_orders"]
    assert of_namespace == ["sales.orders", "sales.orders_2025", "sales.old_orders"]


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("ORDER_ID", [("column", "web.visits", "order_id long"), ("column", "sales.orders", "lines.order_id int")]),
        ("growth", [("property", "sales.orders_2025", "team = Growth")]),
        ("team=grow", [("property", "sales.orders_2025", "team = Growth")]),
        ("grösse", []),
        ("äpfel", [("property", "sales.orders_2025", "Größe = ÄPFEL")]),
        ("shop", [("tag", "web.ORDERS", "domain = shop")]),
        ("mail", [("tag", "web.ORDERS", "pii = mail (of a column)")]),
        ("(of a", []),
        ('{"', []),
        ("tags", []),
        ("%", []),
        (".*", []),
    ],
)
async def test_texts_are_found_in_any_case_and_never_the_form_of_what_is_published(
    catalogs: Catalogs, text: str, hits: list[tuple[str, str, str]]
) -> None:
    assert await found(await published(catalogs), text) == hits


async def test_a_search_can_be_limited_to_a_catalog_or_a_namespace(catalogs: Catalogs) -> None:
    client = await published(catalogs)

    assert [name for _, name, _ in await found(client, "order", params={"in": "main.web"})] == [
        "web.ORDERS", "web.visits",
    ]  # fmt: skip
    assert len(await found(client, "order", params={"in": "main"})) == len(await found(client, "order"))
    assert await found(client, "order", params={"in": "other"}) == []


async def test_a_rare_tag_is_found_behind_many_tables_whose_tags_look_alike(catalogs: Catalogs) -> None:
    """Every document of tags contains the word `tags`; only one has it as a key."""
    many = [table("sales", f"t{number:04}", tags_json='{"tags": {"a": "b"}}') for number in range(1_500)]
    client = await published(catalogs, [*many, table("sales", "zz", tags_json='{"tags": {"tags": "yes"}}')])

    assert await found(client, "tags") == [("tag", "sales.zz", "tags = yes")]


async def test_a_publication_above_the_bound_of_the_cache_is_searched_all_the_same(catalogs: Catalogs) -> None:
    client = await published(catalogs, published_cache_bytes_max=1)

    assert await found(client, "growth") == [("property", "sales.orders_2025", "team = Growth")]
    assert (await client.get("/ui")).status_code == 200


class Place:
    """A server whose guest may see one of 40 tables of a namespace."""

    def __init__(self, client: httpx.AsyncClient, spy: SpyStore, guest: Mapping[str, str]) -> None:
        self.client = client
        self.spy = spy
        self.guest = dict(guest)

    async def grant(self, type_: str, name: str, *privileges: str) -> None:
        change = {"changes": [{"principal": "guest", "add": privileges}]}
        (await self.client.patch(f"/api/sandur/v1/grants/{type_}/{name}", json=change)).raise_for_status()

    async def names(self, text: str) -> list[str]:
        return [name for _, name, _ in await found(self.client, text, headers=self.guest)]

    async def reads(self, text: str) -> int:
        """How often a search of the guest reads a name or a pointer."""
        self.spy.reset()
        await self.names(text)
        read = [*self.spy.keys("get"), *self.spy.keys("get_if_changed")]
        return len([key for key in read if "/names/" in key or "_pointers/" in key])


@pytest.fixture
async def place(catalogs: Catalogs) -> Place:
    spy = SpyStore(MemoryStore())
    client = await catalogs.open_with(quiet(SECURED), spy)
    admin = await bearer(client)
    client.headers.update(admin)
    (await client.post("/v1/main/namespaces", json={"namespace": ["sales"]})).raise_for_status()
    rows = []
    for number in range(40):
        made = await client.post("/v1/main/namespaces/sales/tables", json=create_table(f"secret{number:02}"))
        rows.append({**table("sales", f"secret{number:02}"), "uuid": made.json()["metadata"]["table-uuid"]})
    await publish(spy, {"tables": rows, "columns": []}, published_ms=NOW_MS)
    place = Place(client, spy, await make_principal(client, admin, "guest"))
    await place.grant("catalog", "main", "USE CATALOG")
    await place.grant("schema", "main.sales", "USE SCHEMA")
    await place.grant("table", "main.sales.secret07", "SELECT")
    await catalogs.settled()  # What follows the answers is not counted below.
    return place


async def test_a_search_finds_what_the_grants_of_this_moment_show(place: Place) -> None:
    before = await place.names("secret")
    await place.grant("table", "main.sales.secret09", "SELECT")

    assert before == ["sales.secret07"]
    assert await place.names("secret") == ["sales.secret07", "sales.secret09"]


async def test_the_work_of_a_search_does_not_tell_whether_a_hidden_table_matches(place: Place) -> None:
    """A request that finds a hidden table reads as many objects as one that finds nothing."""
    taken = {}
    for text in ("secret31", "nothing31"):
        await place.grant("table", "main.sales.secret08", "SELECT" if text == "nothing31" else "MODIFY")
        await place.client.get(SEARCH, params={"q": "secret"})  # The datasets are read, for the administrator.
        taken[text] = await place.reads(text)

    assert taken["secret31"] == taken["nothing31"] > 0
    for _ in range(3):
        await place.names("nothing31")
    assert await place.reads("secret31") == await place.reads("nothing31")


@pytest.fixture
async def hidden(catalogs: Catalogs) -> Place:
    """A server with a table `forecast` in `web` and one `forecast_2` in `own`; both are published."""
    spy = SpyStore(MemoryStore())
    client = await catalogs.open_with(quiet(SECURED), spy)
    client.headers.update(await bearer(client))
    place = Place(client, spy, await make_principal(client, dict(client.headers), "guest"))
    rows = []
    for namespace, name in (("web", "forecast"), ("own", "forecast_2")):
        (await client.post("/v1/main/namespaces", json={"namespace": [namespace]})).raise_for_status()
        made = await client.post(f"/v1/main/namespaces/{namespace}/tables", json=create_table(name))
        rows.append({**table(namespace, name), "uuid": made.json()["metadata"]["table-uuid"]})
    rows[0]["properties_json"] = '{"team": "merger"}'
    await publish(spy, {"tables": rows, "columns": []}, published_ms=NOW_MS)
    await place.grant("catalog", "main", "USE CATALOG", "CREATE SCHEMA")
    return place


async def test_a_namespace_that_is_made_again_shows_nothing_of_the_one_before(hidden: Place) -> None:
    """What was published is older than the namespace: its owner may see all tables in it, but not those."""
    place = hidden
    before = await place.names("forecast")

    (await place.client.delete("/v1/main/namespaces/web/tables/forecast")).raise_for_status()
    (await place.client.delete("/v1/main/namespaces/web")).raise_for_status()
    own = await place.client.post("/v1/main/namespaces", json={"namespace": ["web"]}, headers=place.guest)
    await place.grant("schema", "main.own", "SELECT")

    assert own.is_success, own.text
    assert (before, await place.names("forecast"), await place.names("merger")) == ([], ["own.forecast_2"], [])


@pytest.mark.parametrize("is_moved", [True, False])
async def test_a_table_that_left_a_namespace_is_not_shown_by_a_later_grant_on_it(
    hidden: Place, *, is_moved: bool
) -> None:
    """A2: when the caller got its right, the table was elsewhere, or no longer there. The publication is older."""
    place, web = hidden, "/v1/main/namespaces/web"
    if is_moved:
        (await place.client.post("/v1/main/namespaces", json={"namespace": ["board"]})).raise_for_status()
        names = [{"namespace": [one], "name": "forecast"} for one in ("web", "board")]
        body = {"source": names[0], "destination": names[1]}
        (await place.client.post("/v1/main/tables/rename", json=body)).raise_for_status()
    else:
        (await place.client.delete(f"{web}/tables/forecast")).raise_for_status()

    for schema in ("web", "own"):
        await place.grant("schema", f"main.{schema}", "USE SCHEMA", "SELECT")

    assert (await place.names("forecast"), await place.names("merger")) == (["own.forecast_2"], [])
