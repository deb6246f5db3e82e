"""The documentation site builds strictly, loads nothing from other servers, and has every page in its navigation."""

import html.parser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from checks import rest_reference, system_tables
from tests.docs.pages import ROOT

_LOADING: Final = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}
_IN_STYLES: Final = re.compile(r"""(?:url\(|@import\s+)['"]?((?:https?:)?//[^'")\s]+)""")
_KEPT_LINKS: Final = frozenset({"canonical", "next", "prev", "alternate"})


class _Loaded(html.parser.HTMLParser):
    """The addresses that a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in _KEPT_LINKS:
            return
        if address := values.get(_LOADING.get(tag, "")):
            self.addresses.append(address)


def foreign_addresses(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".css":
        return _IN_STYLES.findall(text)
    loaded = _Loaded()
    loaded.feed(text)
    found = [address for address in loaded.addresses if re.match(r"(?:https?:)?//", address)]
    return found + _IN_STYLES.findall(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # What asks for the network fails.
    no_network = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", **no_network}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_has_every_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    start = (site / "index.html").read_text(encoding="utf-8")

    assert pages <= built
    assert [page for page in pages if f'href="{page.as_posix()}"' not in start and page.name != "index.html"] == []


def test_the_navigation_has_each_page_once() -> None:
    listed = re.findall(r"(?m)^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    assert len(listed) > 40
    assert sorted({*listed}) == sorted(listed)


def test_the_site_loads_nothing_from_other_servers(site: Path) -> None:
    found = {
        f"{path.relative_to(site)}: {address}"
        for path in (*site.rglob("*.html"), *site.rglob("*.css"))
        for address in foreign_addresses(path)
    }

    assert found == set()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.html", '<script src="https://cdn.example.org/x.js"></script>'),
        ("page.html", '<link rel="stylesheet" href="//fonts.example.org/css">'),
        ("page.html", "<style>@import 'https://example.org/x.css'</style>"),
        ("page.css", "a { background: url(https://example.org/x.png) }"),
    ],
)
def test_a_foreign_address_is_found(tmp_path: Path, name: str, text: str) -> None:
    page = tmp_path / name
    page.write_text(text, encoding="utf-8")

    assert len(foreign_addresses(page)) == 1


def test_the_pages_of_routes_and_system_tables_are_current() -> None:
    assert rest_reference.PAGE.read_text() == rest_reference.render_page(), "run: python -m checks.rest_reference"
    assert system_tables.PAGE.read_text() == system_tables.render_page(), "run: python -m checks.system_tables"
