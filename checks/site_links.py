"""A hook of MkDocs: pages from outside `docs/`, links to source files, and the pages that the navigation does not name.

In the repository, links lead to files. On the site, a link to a page outside `docs/` leads to its copy, and a link to
anything else becomes the path as text, because the site does not contain the sources.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent
_PAGES: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "proof/README.md": "proof.md",
}
"""Pages outside `docs/`, and their names on the site. The README is the home page."""

_LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]+)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that the navigation does not name: decisions, and new pages."""
    docs = Path(config.docs_dir)
    nav: list[Any] = list(config.nav or ())
    named = set(_leaves(nav))
    others = sorted(page.name for page in docs.glob("*.md") if page.name not in named)
    decisions = sorted(page.relative_to(docs).as_posix() for page in (docs / "decisions").glob("*.md"))
    own = [name for source, name in _PAGES.items() if (ROOT / source).exists()]
    nav.append({"Project": [*own, *others]})
    nav.append({"Decisions": decisions})
    config.nav = nav
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for source, name in _PAGES.items():
        path = ROOT / source
        if path.exists():
            files.append(File.generated(config, name, content=_moved(path.read_text(encoding="utf-8"), source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Replace links that leave `docs/`."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        target = (folder / match["target"]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        source = target.relative_to(ROOT).as_posix()
        if name := {**_PAGES, "README.md": "index.md"}.get(source):
            anchor = (match["anchor"] or "") if source in _PAGES else ""
            return f"[{match['text']}]({'../' * page.file.src_uri.count('/')}{name}{anchor})"
        return f"{match['text']} (`{source}`)" if match["text"].strip("`") != source else f"`{source}`"

    return _LINK.sub(replaced, markdown)


def _moved(text: str, source: str) -> str:
    """A page from outside `docs/`, with links as if it were in `docs/`."""
    folder = (ROOT / source).parent

    def replaced(match: re.Match[str]) -> str:
        target = (folder / match["target"]).resolve()
        try:
            inside = target.relative_to(ROOT / "docs").as_posix()
        except ValueError:
            inside = f"../{target.relative_to(ROOT).as_posix()}"
        if target.is_dir():
            inside = "../README.md"
        return f"]({inside}{match['anchor'] or ''})"

    return re.sub(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]+)?\)", replaced, text)


def _leaves(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case dict():
            for inner in nav.values():
                yield from _leaves(inner)
        case list():
            for inner in nav:
                yield from _leaves(inner)
