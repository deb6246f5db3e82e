"""HTML as the tests read it: a small tree, made by the parser of the standard library."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_VOID: Final = frozenset({"area", "br", "col", "hr", "img", "input", "link", "meta"})


@dataclass
class Element:
    """An element with its attributes and its children, elements and texts."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: "list[Element | str]" = field(default_factory=list)

    def every(self, tag: str = "", **attributes: str) -> "Iterator[Element]":
        """All elements below this one with that tag and these attributes; `class_` is one of the classes."""
        for child in self.children:
            if isinstance(child, Element):
                if (not tag or child.tag == tag) and all(child.has(name, value) for name, value in attributes.items()):
                    yield child
                yield from child.every(tag, **attributes)

    def has(self, name: str, value: str) -> bool:
        if name == "class_":
            return value in self.attributes.get("class", "").split()
        return self.attributes.get(name.replace("_", "-")) == value

    def one(self, tag: str = "", **attributes: str) -> "Element":
        found = list(self.every(tag, **attributes))
        assert len(found) == 1, f"{len(found)} elements {tag} {attributes}"
        return found[0]

    @property
    def text(self) -> str:
        """The text below this element, with single spaces."""
        return " ".join(" ".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._texts()

    def rows(self) -> list[list[str]]:
        """The texts of the cells of all rows of the bodies of tables."""
        bodies = self.every("tbody")
        return [[cell.text for cell in row.every("td")] for body in bodies for row in body.every("tr")]

    def links(self) -> list[str]:
        return [one.attributes["href"] for one in self.every("a") if "href" in one.attributes]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("#document")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(text: str) -> Element:
    """The tree of a page; fails if an element is not closed where it should be."""
    builder = _Builder()
    builder.feed(text)
    builder.close()
    assert builder.open == [builder.root], [one.tag for one in builder.open]
    return builder.root
