"""A person with a real browser: every page is watched for messages, reports and requests that should not be."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any, Final, Literal, Protocol

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright

from tests.server.logins import ADMIN_SECRET

Look = Literal["light", "dark", "small"]
LOOKS: Final[tuple[Look, ...]] = ("light", "dark", "small")
_TIMEOUT_MS: Final = 120_000
"""A busy machine may need long for the rows of a table."""
_SIZES: Final = {"light": (1280, 800), "dark": (1280, 800), "small": (360, 740)}
_MESSAGE_OF_STATUS: Final = "Failed to load resource"
"""What Chromium says about a page with a status from 400 on; such pages are part of the tests."""


def chromium_path() -> str:
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


def why_chromium_is_missing() -> str:
    """The reason why no browser can run here; empty when it can."""
    return "" if chromium_path() else "Chromium is not installed: as root, apt-get install chromium fonts-dejavu-core"


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Root has no sandbox. Nothing but pages of this server is opened.
        browser = await playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox"], timeout=_TIMEOUT_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


class Served(Protocol):
    """A running server."""

    url: str


class Person:
    """A browser window, and what was wrong in it."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.problems: list[str] = []
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        context.on("request", self._note_request)

    def _note_message(self, message: ConsoleMessage) -> None:
        if not message.text.startswith(_MESSAGE_OF_STATUS):
            self.problems.append(f"{message.type}: {message.text} at {self.page.url}")

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith(self.url):
            self.problems.append(f"foreign request: {request.url}")

    async def open(self, path: str) -> int:
        answer = await self.page.goto(f"{self.url}{path}")
        return answer.status if answer else 0

    async def log_in(self, name: str = "admin", secret: str = ADMIN_SECRET) -> None:
        await fill_in_login(self.page, name, secret)

    async def heading(self) -> str:
        return await self.page.locator("h1").inner_text()

    async def text(self) -> str:
        return await self.page.locator("main").inner_text()

    async def violations(self) -> list[str]:
        """What axe finds on the page."""
        await self.page.evaluate(_axe())
        found: dict[str, Any] = await self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{self.page.url} {one['id']}: {node['html'][:200]} {node['failureSummary'][:200]}"
            for one in found["violations"]
            for node in one["nodes"]
        ]

    async def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(await self.page.evaluate(script))


async def fill_in_login(page: Page, name: str, secret: str) -> None:
    """Log in at the page of the login, and wait for the page that follows."""
    await page.get_by_label("Principal").fill(name)
    await page.get_by_label("Secret").fill(secret)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url(lambda url: "/ui/login" not in url)


@contextlib.asynccontextmanager
async def person(
    browser: Browser, place: Served, look: Look = "light", *, logged_in: bool = True
) -> AsyncIterator[Person]:
    """A new window; at its end, nothing may have been wrong in it."""
    width, height = _SIZES[look]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if look == "dark" else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(_TIMEOUT_MS)
    someone = Person(context, await context.new_page(), place.url)
    if logged_in:
        await someone.open("/ui/login")
        await someone.log_in()
    yield someone
    await context.close()
    assert someone.problems == []


def _axe() -> str:
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
