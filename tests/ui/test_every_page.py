"""Every page: it is well formed, safe whatever names contain, and its headers and links are right."""

import re
from pathlib import Path

import httpx
import pytest

from sandur.server.ui.actions.routes import ACTION_ROUTES
from sandur.server.ui.routes import ROUTES
from sandur.storage.memory import MemoryStore
from tests.events.deliveries import SEALING_KEY
from tests.server.conftest import Catalogs
from tests.ui.html import Element, parse
from tests.ui.scene import DATA, EVIL, Scene, make_scene

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
LINKS_FOLLOWED_MAX = 400
# The tables of the scene are in memory, and their manifests were never written.
UNREADABLE = ("/files", "files=true", "run=true")


class Place:
    """A server with the scene. All tests of this module only read."""

    def __init__(self, client: httpx.AsyncClient, scene: Scene) -> None:
        self.client = client
        self.scene = scene


@pytest.fixture
async def place(catalogs: Catalogs) -> Place:
    store = MemoryStore()
    client = await catalogs.open(store, sealing_keys=(SEALING_KEY,), deliveries=False)
    return Place(client, await make_scene(client, store, subscribes=True))


def check_headers(answer: httpx.Response) -> None:
    headers = answer.headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    is_static = answer.url.path.startswith("/ui/static/") and answer.status_code == 200
    assert headers["cache-control"] == ("public, max-age=31536000, immutable" if is_static else "no-store")


def check_safe(page: Element) -> None:
    """Nothing that a browser would run or load, besides the files of the UI."""
    for element in page.every():
        assert not [name for name in element.attributes if name.startswith("on") or name == "style"], element
        for name in ("href", "src", "action", "data-part", "data-poll", "data-fragment"):
            target = element.attributes.get(name, "/ui")
            assert target.startswith(("/ui", "#")), (element.tag, name, target)
        assert element.tag not in {"style", "iframe", "object", "embed", "base"}, element
        if element.tag == "script":
            assert element.attributes["src"].startswith("/ui/static/")
            assert not element.text
        if element.tag == "img":
            assert element.attributes["src"].startswith("/ui/static/")


async def test_every_page_is_well_formed_and_safe(place: Place) -> None:
    for path in place.scene.pages():
        answer = await place.client.get(path)

        assert answer.status_code == 200, (path, answer.text)
        check_headers(answer)
        page = parse(answer.text)
        check_safe(page)
        ids = [element.attributes["id"] for element in page.every() if "id" in element.attributes]
        assert len(ids) == len(set(ids)), path
        if "only=" not in path and "/versions/" not in path:
            check_frame(page, path)


def check_frame(page: Element, path: str) -> None:
    assert page.one("head").one("title").text.endswith("Sandur"), path
    assert len(list(page.every("h1"))) == 1, path
    assert page.one("html").attributes["lang"] == "en"
    labelled = {label.attributes["for"] for label in page.every("label")}
    for element in page.every():
        if element.tag in {"input", "select", "textarea"} and element.attributes.get("type") != "hidden":
            assert element.attributes["id"] in labelled, (path, element)
        if element.tag == "svg":
            assert element.attributes["aria-label"], path
        if element.tag == "th":
            assert element.attributes["scope"], path


async def test_names_and_texts_are_shown_as_they_are(place: Place) -> None:
    table = parse((await place.client.get(f"{place.scene.pages()[8]}")).text)
    listed = parse((await place.client.get(DATA)).text)

    # The client of the commit that added no snapshot says who it is only in its header.
    timeline = parse((await place.client.get(f"{place.scene.pages()[8]}/timeline")).text)
    assert EVIL[:60] in next(row for row in timeline.rows() if len(row) == 11)[3]
    # The page shows the text with its brackets, and the parser found no element in it.
    assert EVIL in table.text
    assert EVIL in listed.text


async def test_every_link_of_every_page_leads_somewhere(place: Place) -> None:
    seen: set[str] = set()
    for path in place.scene.pages():
        page = parse((await place.client.get(path)).text)
        seen |= {link.partition("#")[0] for link in page.links() if not link.startswith("#")}
    assert len(seen) < LINKS_FOLLOWED_MAX

    for link in sorted(seen):
        answer = await place.client.get(link)
        assert answer.status_code in {200, 303} or any(one in link for one in UNREADABLE), (link, answer.text)
        check_headers(answer)


async def test_the_tests_know_every_page(place: Place) -> None:
    patterns = [
        (route.path, re.compile("/ui" + re.sub(r"\{\w+\}", "[^/]+", route.path.rstrip("/")) + "/?\\Z"))
        for route in ROUTES
        if route.method == "GET" and route not in ACTION_ROUTES
    ]
    paths = [path.partition("?")[0] for path in place.scene.pages()]
    known = {path for path, pattern in patterns if any(pattern.match(one) for one in paths)}

    assert {path for path, _ in patterns} - known == {"/static/{hash}/{file}", "/id/{uuid}", "/login", "/callback"}


async def test_static_files_never_change_and_others_are_not_found(client: httpx.AsyncClient) -> None:
    page = parse((await client.get("/ui")).text)
    sheet = next(one for one in page.every("link", rel="stylesheet")).attributes["href"]

    answer = await client.get(sheet)
    missing = [
        await client.get(path) for path in (sheet + "x", "/ui/static/0/sandur.css", sheet[:-10] + "..%2Frouting")
    ]

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/css; charset=utf-8")
    check_headers(answer)
    assert [one.status_code for one in missing] == [404, 404, 404]
    for one in missing:
        check_headers(one)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/none", 404),
        ("/uix", 404),
        ("/ui/data/main/none/tables/t", 404),
        ("/ui/data/%FF", 400),
        ("/ui/data/main/plain?kind=thing", 400),
        ("/ui/data/main/plain?after=x", 400),
        ("/ui/id/1", 400),
        ("/ui/id/00000000-0000-0000-0000-000000000000", 404),
        ("/ui/activity?a=%", 200),
        ("/ui/audit?decision=perhaps", 400),
        ("/ui/audit?since=yesterday", 400),
        ("/ui/policies?type=thing", 400),
        ("/ui/policies?type=table&name=x", 400),
        ("/ui/policies?type=catalog&name=none", 404),
        ("/ui/subscriptions/none", 404),
        (f"/ui/search?q={'x' * 300}", 200),
        ("/ui/search?q=a&in=a.", 400),
    ],
)
async def test_a_wrong_address_is_a_page_with_the_right_status(
    client: httpx.AsyncClient, path: str, status: int
) -> None:
    (await client.post("/v1/namespaces", json={"namespace": ["plain"]})).raise_for_status()

    answer = await client.get(path)

    assert answer.status_code == status, answer.text
    check_headers(answer)
    check_safe(parse(answer.text))


def test_every_command_that_a_page_names_exists() -> None:
    root = Path(__file__).parents[2]
    reference = (root / "docs" / "cli.md").read_text()
    templates = (root / "src" / "sandur" / "server" / "ui" / "templates").glob("*.html")
    named = {found for one in templates for found in re.findall(r"<code>sandur ([a-z-]+)", one.read_text())}

    assert named
    assert {one for one in named if f"\nsandur {one} " not in reference} == set()
