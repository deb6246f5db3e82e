"""What pages of other sites, and names with markup, can do in a real browser: nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import httpx
import pytest
from playwright.async_api import Browser, Route

from sandur.storage.memory import MemoryStore
from tests.browser.chromium import person
from tests.browser.place import ORDERS, Place
from tests.browser.test_paths import served_on
from tests.fakes.failing_store import FailingStore
from tests.ui.scene import make_scene

_PAGE: Final = """<!doctype html><title>Win a prize</title>
<iframe src="{url}/ui/actions/drop-table/main/web/visits"></iframe>
<form method="post" action="{url}/ui/actions/create-namespace/main">
<input name="name" value="stolen"><input name="step" value="apply"><input name="key" value="{key}">
<input name="form_token" value="guessed"><button>Win</button></form>"""
_READ: Final = """async (address) => {
  try { return await (await fetch(address, { credentials: "include" })).text(); } catch (error) { return error.name; }
}"""


@contextlib.asynccontextmanager
async def other_site(page: str) -> AsyncIterator[str]:
    """The address of a server that answers every request with the page.

    The same host with another port is the same site, so the browser sends the cookie of the session along.
    """
    body = page.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/prize"


@pytest.mark.browser
async def test_no_name_or_text_with_markup_runs_in_a_browser(browser: Browser) -> None:
    store = FailingStore(MemoryStore())
    async with served_on(store) as server, person(browser, server, logged_in=False) as someone:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            scene = await make_scene(client, store)
        someone.page.on("dialog", lambda dialog: someone.problems.append(f"dialog: {dialog.message}"))
        for path in scene.pages():
            assert await someone.open(path) == 200, path
            await someone.page.wait_for_load_state("networkidle")
            assert await someone.page.locator("img[src=x]").count() == 0, path


@pytest.mark.browser
async def test_a_page_of_another_site_can_neither_frame_nor_send_nor_read(browser: Browser, place: Place) -> None:
    key = "0199c0de-0000-7000-8000-000000000001"

    attack = _PAGE.format(url=place.url, key=key)
    async with person(browser, place) as someone, other_site(attack) as address:
        page = someone.page
        await page.goto(address)
        await page.wait_for_load_state("networkidle")
        framed = page.frames[1].url
        read = await page.evaluate(_READ, f"{place.url}/ui/me")
        await page.get_by_role("button", name="Win").click()
        heading = await someone.heading()
        followed = await someone.open("/ui/me")

        assert framed.startswith("chrome-error:")  # The browser refused to show the page in a frame.
        assert read == "TypeError"
        assert heading == "You may not do this"
        assert place.http.get("/v1/main/namespaces/stolen").status_code == 404
        assert followed == 200  # The session is still there: it was sent along, and refused.
        # The browser says that it refused the frame and the request; nothing else may be wrong.
        said = ("foreign request: ", "Refused to", "Framing ", "Access to fetch", "has been blocked by CORS")
        someone.problems = [one for one in someone.problems if not any(words in one for words in said)]


@pytest.mark.browser
async def test_a_part_that_takes_too_long_is_given_up(browser: Browser, place: Place) -> None:
    async def hang(_route: Route) -> None:
        """Never answer."""

    async with person(browser, place) as someone:
        page = someone.page
        await page.route("**/preview?*only=rows*", hang)
        await someone.open(f"{ORDERS}/preview")
        assert await page.locator("section.part").get_attribute("aria-busy") == "true"
        await page.get_by_text("This part took too long").wait_for()
        assert await page.locator("section.part").get_attribute("aria-busy") is None
        assert await someone.violations() == []
