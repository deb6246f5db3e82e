"""The paths that people take, in a real browser."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
import uvicorn
from playwright.async_api import Browser

from sandur.errors import OutcomeUnknown
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.browser.chromium import Served, fill_in_login, person
from tests.browser.place import ORDERS, Place
from tests.fakes.failing_store import FailingStore
from tests.server.logins import ADMIN_SECRET


async def test_a_person_logs_in_finds_a_table_and_reads_its_history(browser: Browser, place: Place) -> None:
    """The short part: it runs with every test run."""
    async with person(browser, place, logged_in=False) as someone:
        page = someone.page
        await someone.open(f"{ORDERS}/timeline")
        assert await someone.heading() == "Log in"
        await someone.log_in()
        assert page.url == f"{place.url}{ORDERS}/timeline"
        await page.keyboard.press("/")
        await page.keyboard.type("orders")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="main.sales.orders").first.click()
        assert await someone.heading() == "orders"
        await page.get_by_role("link", name="Timeline", exact=True).click()
        assert await page.locator("main table tbody tr").count() >= 6
        assert await someone.violations() == []


@pytest.mark.browser
async def test_a_person_compares_two_versions_and_restores_one(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await someone.open(f"{ORDERS}/diff?from=2&to=9")
        assert "channel" in await someone.text()
        await someone.open(f"{ORDERS}/snapshots")
        await page.get_by_role("link", name="Restore").first.click()
        await page.get_by_role("button", name="Preview").click()
        assert "snapshot of main" in await someone.text()
        assert await someone.violations() == []
        await page.get_by_role("button", name="Restore the table").click()
        await page.wait_for_url(f"**{ORDERS}?done=restored")
        assert await page.get_by_role("status").inner_text() == (
            "The table was restored. The versions in between are kept until they expire."
        )


@pytest.mark.browser
async def test_a_person_moves_the_slider_and_goes_on_from_a_version(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await someone.open(f"{ORDERS}/timeline")
        newest = int(await page.locator("#at").get_attribute("max") or 0)
        await page.locator("#at").focus()
        for _ in range(newest - 3):
            await page.keyboard.press("ArrowLeft")
        await page.get_by_role("heading", name="Version 3", exact=True).wait_for()
        assert page.url.endswith("?at=3")
        assert await page.locator("tr.current").get_attribute("data-version") == "3"
        assert await someone.violations() == []
        await page.get_by_role("link", name="Compare with the current version").click()
        assert "channel" in await someone.text()
        await page.go_back()
        await page.get_by_role("link", name="Restore…").click()
        await page.get_by_role("button", name="Preview").click()
        assert "snapshot of main" in await someone.text()


@pytest.mark.browser
@pytest.mark.parametrize(("path", "bar"), [(f"{ORDERS}/grants", ".tabs"), ("/ui/server", ".menu")])
async def test_on_a_small_screen_the_open_tab_is_in_sight(browser: Browser, place: Place, path: str, bar: str) -> None:
    async with person(browser, place, "small") as someone:
        await someone.open(path)
        await someone.page.wait_for_load_state("networkidle")
        box = await someone.page.locator(f"{bar} [aria-current]").bounding_box()
        top = await someone.page.evaluate("scrollY")

        assert box
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 360
        assert top == 0


@pytest.mark.browser
async def test_a_person_copies_how_to_read_a_table(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        await someone.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await someone.open(ORDERS)
        await someone.page.get_by_role("button", name="Copy").nth(1).click()
        await someone.page.get_by_role("button", name="Copied").wait_for()
        assert await someone.page.evaluate("navigator.clipboard.readText()") == "SELECT * FROM main.sales.orders"


@pytest.mark.browser
async def test_a_commit_in_between_is_a_conflict(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await someone.open("/ui/actions/restore/main/sales/orders")
        await page.get_by_label("Restore the table to").select_option(index=3)
        await page.get_by_role("button", name="Preview").click()
        place.append()
        await page.get_by_role("button", name="Restore the table").click()
        assert "It has changed in the meantime." in await page.get_by_role("alert").inner_text()
        assert await someone.violations() == []
        await page.get_by_role("button", name="Restore the table").click()
        await page.wait_for_url("**done=restored")


@pytest.mark.browser
async def test_a_grant_lets_a_person_do_what_was_refused(browser: Browser, place: Place) -> None:
    where = "/ui/actions/comment/table/main.sales.orders"
    async with person(browser, place, logged_in=False) as ann, person(browser, place) as admin:
        await ann.open("/ui/login")
        await ann.log_in("ann", place.secret)
        assert await ann.open(where) == 403
        assert "MODIFY on table sales.orders" in await ann.text()
        assert await ann.violations() == []
        await admin.open("/ui/actions/grant/table/main.sales.orders")
        await admin.page.get_by_label("Who", exact=True).fill("ann")
        await admin.page.get_by_label("Privileges to grant").fill("MODIFY")
        await admin.page.get_by_role("button", name="Preview").click()
        await admin.page.get_by_role("button", name="Change the grants").click()
        await admin.page.wait_for_url("**/grants?done=granted")
        assert await ann.open(where) == 200


@pytest.mark.browser
async def test_a_form_is_kept_when_the_session_is_over(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await someone.open("/ui/actions/create-namespace/main")
        await page.get_by_label("Name", exact=True).fill("kept")
        await someone.context.clear_cookies()
        await page.get_by_role("button", name="Preview").click()
        assert await someone.heading() == "Log in to see this page"
        assert await someone.violations() == []
        async with someone.context.expect_page() as opened:
            await page.get_by_role("link", name="Log in in another tab").click()
        await fill_in_login(await opened.value, "admin", ADMIN_SECRET)
        await page.get_by_role("button", name="Continue with the form").click()
        assert await page.get_by_label("Name", exact=True).input_value() == "kept"
        await page.get_by_role("button", name="Preview").click()
        assert "The namespace main.kept is created" in await someone.text()


@pytest.mark.browser
async def test_everything_is_reached_by_keyboard(browser: Browser, place: Place) -> None:
    """Tab goes through every link and field in their order, and each shows that it has the focus."""
    async with person(browser, place) as someone:
        page = someone.page
        await someone.open("/ui/actions/create-namespace/main")
        reached = []
        for _ in range(40):
            await page.keyboard.press("Tab")
            script = (
                "(() => { const e = document.activeElement, s = getComputedStyle(e);"
                " return [e.id || e.textContent.trim(), s.outlineStyle !== 'none' || e === document.body]; })()"
            )
            name, is_shown = await page.evaluate(script)
            assert is_shown, name
            reached.append(name)
            if name == "Cancel":
                break
        assert reached[0] == "Skip to the content"
        assert [one for one in reached if one in {"name", "parent", "comment", "properties", "Preview", "Cancel"}] == [
            "name", "parent", "comment", "properties", "Preview", "Cancel",
        ]  # fmt: skip


@pytest.mark.browser
async def test_the_actions_and_the_graphs_are_used_by_keyboard(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await someone.open(ORDERS)
        await page.get_by_text("Actions", exact=True).focus()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Restore a version"
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/actions/restore/main/sales/orders")
        await someone.open(f"{ORDERS}/lineage?depth=2")
        assert await page.locator("svg .marked").count() == 0
        await page.locator("svg a", has_text="by_country").focus()
        assert await page.locator("svg path.edge.marked").count() == 1
        await page.locator("svg a", has_text="by_country").press("Enter")
        await page.wait_for_url("**/by_country/lineage?depth=2")
        await page.locator("svg a", has_text="web.visits").hover()
        assert await page.locator("svg path.edge.marked").count() == 2  # The way there has two steps.
        await page.locator("h1").hover()
        assert await page.locator("svg .marked").count() == 0
        assert await someone.violations() == []


@pytest.mark.browser
async def test_the_open_page_of_activity_follows(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await page.clock.install()
        await someone.open("/ui/activity")
        rows = await page.locator("tbody tr").count()
        newer = "<tr><td>now</td></tr>" * (rows + 1)
        await page.route("**/ui/activity?only=rows", lambda route: route.fulfill(body=newer, content_type="text/html"))
        async with page.expect_response("**/ui/activity?only=rows"):
            await page.clock.fast_forward(61_000)
        await page.locator("tbody tr").nth(rows).wait_for()
        assert await page.locator("tbody tr").count() == rows + 1


@pytest.mark.browser
async def test_a_drop_needs_the_typed_name(browser: Browser, place: Place) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await someone.open("/ui/actions/drop-table/main/web/visits")
        await page.get_by_role("button", name="Preview").click()
        await page.get_by_role("button", name="Drop the table").click()
        assert await someone.heading() == "Drop main.web.visits"  # The browser itself asks for the field.
        await page.get_by_label("To confirm").fill("visits")
        await page.get_by_role("button", name="Drop the table").click()
        await page.wait_for_url("**done=dropped")
        await someone.open("/ui/dropped/main")
        await page.get_by_role("link", name="Bring back main.web.visits").click()
        await page.get_by_role("button", name="Preview").click()
        await page.get_by_role("button", name="Bring it back").click()
        await page.wait_for_url("**done=undropped")


@contextlib.asynccontextmanager
async def served_on(store: FailingStore) -> AsyncIterator[Served]:
    """A server in this process, without logins, whose store a test can fail."""
    settings = Settings(store="memory:", janitors=False, deliveries=False, log_level="error", claim_timeout_ms=1)
    app, catalog = build(settings, store=store)
    await catalog.start()
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield SimpleNamespace(url=f"http://127.0.0.1:{bound.getsockname()[1]}")
    finally:
        server.should_exit = True
        await task
        await catalog.close()


@pytest.mark.browser
async def test_a_change_of_unknown_outcome_says_so_and_the_same_form_ends_it(browser: Browser) -> None:
    store = FailingStore(MemoryStore())
    async with served_on(store) as server, person(browser, server, logged_in=False) as someone:
        page = someone.page
        await someone.open("/ui/actions/create-namespace/main")
        await page.get_by_label("Name", exact=True).fill("eu")
        await page.get_by_role("button", name="Preview").click()
        store.error = OutcomeUnknown("the answer was lost on purpose")
        await page.get_by_role("button", name="Create the namespace").click()
        await page.get_by_text("Look before you repeat").wait_for()
        assert await someone.violations() == []
        store.error = None
        await page.get_by_role("button", name="Send the same form again").click()
        await page.wait_for_url("**/ui/data/main/eu?done=*")
        assert await someone.heading() == "eu"
