"""A stand-in for a person with a browser: it opens a page of the identity provider, logs in, and agrees to everything.

`python -m tests.servers.browser LOGIN ADDRESS` is a browser for the variable `BROWSER`: it also opens the page of the
client to which the provider sends it.
"""

import contextlib
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Final

import httpx

_PAGES_MAX: Final = 20


class _Form(HTMLParser):
    """The first form of a page; `action` is empty if there is none."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self._is_done = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if self._is_done:
            return
        if tag == "form":
            self.action = attributes["action"]
        elif tag == "input" and self.action and "name" in attributes:
            self.fields[attributes["name"]] = attributes.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._is_done = self._is_done or tag == "form"


def sign_in(address: str, login: str) -> str:
    """The address to which the provider sends the person after the login: a client's, or its own last page."""
    with _browser() as browser:
        answer = _follow(browser, browser.get(address))
        for _ in range(_PAGES_MAX):
            if isinstance(answer, str):
                return answer
            form = _Form(answer.text)
            if not form.action:
                return str(answer.url)
            filled = form.fields | {name: login for name in ("login", "password") if name in form.fields}
            answer = _follow(browser, browser.post(form.action, data=filled))
    raise RuntimeError(f"login at {address}: more than {_PAGES_MAX} pages")


def refuse(address: str) -> str:
    """The address to which the provider sends a person who cancels the login."""
    with _browser() as browser:
        answer = _follow(browser, browser.get(address))
        assert isinstance(answer, httpx.Response), f"{address} leads to {answer}, without a login"
        answer = _follow(browser, browser.get(f"{answer.url}/abort"))
        return answer if isinstance(answer, str) else str(answer.url)


@contextlib.contextmanager
def _browser() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as browser:
        yield browser


def _follow(browser: httpx.Client, answer: httpx.Response) -> httpx.Response | str:
    """The page after all redirects, or the address outside the provider to which they lead."""
    provider = answer.url.netloc
    for _ in range(_PAGES_MAX):
        if answer.next_request is None:
            return answer.raise_for_status()
        if answer.next_request.url.netloc != provider:
            return str(answer.next_request.url)
        answer = browser.send(answer.next_request)
    raise RuntimeError(f"{answer.url}: more than {_PAGES_MAX} redirects")


if __name__ == "__main__":
    httpx.get(sign_in(sys.argv[2], sys.argv[1])).raise_for_status()
