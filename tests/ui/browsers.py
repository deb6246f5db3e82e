"""A browser for tests without one: it keeps cookies, reads forms, and sends them as a browser does."""

from collections.abc import Mapping
from typing import Final

import httpx

from tests.ui.html import Element, parse

ORIGIN: Final = "http://localhost"
_FIELDS: Final = ("input", "textarea", "select")


class Page:
    """An answer with its tree."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.status = answer.status_code
        self.tree = (
            parse(answer.text) if answer.headers.get("content-type", "").startswith("text/html") else Element("")
        )

    @property
    def text(self) -> str:
        return self.tree.one("main").text

    def form(self) -> Element:
        """The form that sends something: the last one of the page."""
        return [one for one in self.tree.every("form") if one.attributes.get("method") == "post"][-1]

    def fields(self) -> dict[str, str]:
        return fields_of(self.form())


def fields_of(form: Element) -> dict[str, str]:
    """What a browser would send for a form that no one touches; without the buttons."""
    found: dict[str, str] = {}
    for tag in _FIELDS:
        for one in form.every(tag):
            name, kind = one.attributes.get("name", ""), one.attributes.get("type", "")
            if tag == "select":
                options = list(one.every("option"))
                chosen = next((option for option in options if "selected" in option.attributes), None)
                if chosen := chosen or next(iter(options), None):
                    found[name] = chosen.attributes["value"]
            elif tag == "textarea":
                found[name] = "".join(child for child in one.children if isinstance(child, str)).removeprefix("\n")
            elif kind != "checkbox" or "checked" in one.attributes:
                found[name] = one.attributes.get("value", "")
    return found


class Browser:
    """The pages of one person."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def open(self, path: str, **headers: str) -> Page:
        return Page(await self.client.get(path, headers=headers))

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Page:
        """Send a form from a page of this server; a redirect is not followed."""
        sent = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin", **headers}
        return Page(await self.client.post(path, data=dict(fields), headers=sent))

    async def send(self, page: Page, *, step: str = "", **values: str) -> Page:
        """Fill in the form of a page, and press its button."""
        form = page.form()
        pressed = {"step": step} if step else {}
        fields = {**fields_of(form), **{name.replace("__", "-"): one for name, one in values.items()}, **pressed}
        return await self.post(form.attributes["action"], fields)

    async def act(self, path: str, *, typed: str = "", **values: str) -> Page:
        """Take all steps of an action: its form, its preview, and the change."""
        preview = await self.send(await self.open(path), **values)
        assert preview.status == 200, preview.answer.text
        return await self.send(preview, step="apply", **({"typed": typed} if typed else {}))

    async def follow(self, page: Page) -> Page:
        assert page.status == 303, (page.status, page.answer.text)
        return await self.open(page.answer.headers["location"])

    async def log_in(self, name: str, secret: str) -> Page:
        return await self.send(await self.open("/ui/login"), name=name, secret=secret)
