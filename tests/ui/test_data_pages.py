"""The pages of the metastore, catalogs, namespaces and tables."""

import ast

import httpx
import pytest

from sandur.catalog.identifiers import Identifier
from sandur.server.ui.views.objects import engine_lines
from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.server.requests import create_table, create_view
from tests.ui.html import Element, parse
from tests.ui.scene import make_scene, segment


async def get(client: httpx.AsyncClient, path: str, status: int = 200) -> Element:
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    return parse(answer.text)


async def fill(client: httpx.AsyncClient, *names: str) -> None:
    (await client.post("/v1/namespaces", json={"namespace": ["sales"]})).raise_for_status()
    (await client.post("/v1/namespaces", json={"namespace": ["sales", "eu"]})).raise_for_status()
    for name in names:
        (await client.post("/v1/namespaces/sales/tables", json=create_table(name))).raise_for_status()


@pytest.mark.parametrize("path", ["/ui", "/ui/"])
async def test_the_first_page_lists_the_catalogs(client: httpx.AsyncClient, path: str) -> None:
    page = await get(client, path)

    assert page.one("title").text == "Data · Sandur"
    assert "/ui/data/main" in page.links()


async def test_a_catalog_lists_its_namespaces(client: httpx.AsyncClient) -> None:
    await fill(client)

    page = await get(client, "/ui/data/main")

    assert page.one("h1").text == "main"
    assert "/ui/data/main/sales" in page.links()


async def test_a_namespace_lists_what_is_in_it_by_kind(client: httpx.AsyncClient) -> None:
    await fill(client, "a", "b")
    (await client.post("/v1/namespaces/sales/views", json=create_view("v"))).raise_for_status()

    everything = await get(client, "/ui/data/main/sales")
    views = await get(client, "/ui/data/main/sales?kind=view")
    later = await get(client, "/ui/data/main/sales?begins=b")

    assert [link for link in everything.links() if "/tables/" in link or "/views/" in link] == [
        "/ui/data/main/sales/tables/a",
        "/ui/data/main/sales/tables/b",
        "/ui/data/main/sales/views/v",
    ]
    assert "/ui/data/main/sales%1Feu" in everything.links()
    assert [row[0] for row in views.rows() if row[1].startswith("view")] == ["v"]
    assert "/ui/data/main/sales/tables/a" not in views.links()
    assert [row[0] for row in later.rows() if row[1].startswith(("table", "view"))] == ["b", "v"]


async def test_a_table_shows_its_columns_and_how_to_read_it(client: httpx.AsyncClient) -> None:
    await fill(client, "t")

    page = await get(client, "/ui/data/main/sales/tables/t")

    assert ["1", "id", "long", "required", ""] in page.rows()
    assert "SELECT * FROM main.sales.t" in page.text
    assert "CREATE TABLE main.sales.t" in page.text


async def test_the_namespaces_inside_a_namespace_have_pages(client: httpx.AsyncClient) -> None:
    names = [f"level{number:02}" for number in range(60)]
    for levels in (["sales"], *(["sales", name] for name in names)):
        (await client.post("/v1/namespaces", json={"namespace": levels})).raise_for_status()

    first = await get(client, "/ui/data/main/sales")
    following = [one.attributes["href"] for one in first.every("a", rel="next")]
    second = await get(client, following[0])

    assert len(following) == 1
    assert [row[0] for page in (first, second) for row in page.rows() if row[0].startswith("level")] == names
    assert "/ui/data/main/sales" in second.links()


@pytest.mark.parametrize("needs_login", [False, True])
def test_how_to_read_a_table_says_how_to_log_in_if_that_is_needed(*, needs_login: bool) -> None:
    identifier, origin = Identifier("main", ("sales",), "t"), "http://localhost:8181"
    lines = {
        format_: {one.engine: one.text for one in engine_lines(identifier, format_, origin, needs_login=needs_login)}
        for format_ in ("iceberg", "delta")
    }

    assert ("credential=" in lines["iceberg"]["PyIceberg"]) == needs_login
    assert ("AUTHORIZATION_TYPE none" in lines["iceberg"]["DuckDB"]) != needs_login
    for format_ in lines:
        assert ("YOUR TOKEN" in lines[format_]["DuckDB"]) == needs_login


def test_how_to_read_a_table_is_valid_python_for_any_name() -> None:
    identifier = Identifier("it's", ("a\\", 'b"c'), "d\ne'); evil(")

    lines = {one.engine: one.text for one in engine_lines(identifier, "iceberg", "http://localhost:8181")}

    calls = [one for one in ast.walk(ast.parse(lines["PyIceberg"])) if isinstance(one, ast.Call)]
    named = {one.func.attr: one for one in calls if isinstance(one.func, ast.Attribute)}
    assert ast.literal_eval(named["load_table"].args[0]) == (*identifier.levels, identifier.name)
    assert set(named) == {"load_table", "scan", "to_arrow"}


@pytest.mark.parametrize(
    "path", ["/ui/none", "/ui/data/none", "/ui/data/main/none", "/ui/data/main/none/tables/t", "/uix"]
)
async def test_what_does_not_exist_is_a_page_that_says_so(client: httpx.AsyncClient, path: str) -> None:
    page = await get(client, path, 404)

    assert page.one("h1").text == "Not found"


async def test_search_finds_names_columns_properties_and_tags(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open(store)
    await make_scene(client, store)

    page = parse((await client.get(f"/ui/search?q={segment('orders <script>')}")).text)
    opened = parse((await client.get(f"/ui/search?q={segment('orders <script>')}&from=main.plain")).text)
    of_column = (await client.get("/api/sandur/v1/search?q=pii")).json()["hits"]
    form_only = (await client.get("/api/sandur/v1/search?q=columns")).json()["hits"]

    assert [one.text for one in page.every("h2")] == ["Names 1", "Columns 1", "Properties 1", "Tags 1"]
    assert "domain = orders <script>" in page.text
    # The search is not limited to the open namespace; a link limits it.
    assert [row[0] for row in opened.rows()] == [row[0] for row in page.rows()]
    assert any(link.endswith("in=main.plain") for link in opened.links())
    assert [(one["found"], one["detail"]) for one in of_column] == [("tag", "pii = orders <script> 2 (of a column)")]
    assert form_only == []
