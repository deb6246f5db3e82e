"""The addresses of pages. Levels of a namespace are joined by %1F, as in the Iceberg REST API."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlencode

from sandur.catalog.identifiers import Identifier, Namespace

ROOT: Final = "/ui"
FOLDERS: Final[Mapping[str, str]] = {
    "table": "tables",
    "view": "views",
    "volume": "volumes",
    "function": "functions",
    "model": "models",
}
"""The folder of each kind in an address."""


def page_link(path: str, **query: str | int | None) -> str:
    """The address of a page below the root; parameters that are None or empty are left out."""
    given = {name: value for name, value in query.items() if value not in {None, ""}}
    return f"{ROOT}{path}?{urlencode(given)}" if given else f"{ROOT}{path}"


def add_parameter(link: str, **query: str) -> str:
    """The address of a page with further parameters."""
    return f"{link}{'&' if '?' in link else '?'}{urlencode(query)}"


def named_action_link(action: str, identifier: Identifier, **query: str | int | None) -> str:
    """The address of an action on an object."""
    return page_link(f"/actions/{action}{_levels(identifier.namespace)}/{_segment(identifier.name)}", **query)


def namespace_action_link(action: str, namespace: Namespace, **query: str | int | None) -> str:
    """The address of an action on a namespace."""
    return page_link(f"/actions/{action}{_levels(namespace)}", **query)


def securable_action_link(action: str, type_: str, full_name: str, **query: str | int | None) -> str:
    """The address of an action on a securable of any type."""
    return page_link(f"/actions/{action}/{_segment(type_)}/{_segment(full_name)}", **query)


def catalog_link(catalog: str, **query: str | int | None) -> str:
    return page_link(f"/data/{_segment(catalog)}", **query)


def namespace_link(namespace: Namespace, part: str = "", **query: str | int | None) -> str:
    return page_link(f"{_namespace_path(namespace)}{_tail(part)}", **query)


def object_link(identifier: Identifier, kind: str, part: str = "", **query: str | int | None) -> str:
    """The page of an object, or the part of it with that name."""
    path = f"{_namespace_path(identifier.namespace)}/{FOLDERS[kind]}/{_segment(identifier.name)}"
    return page_link(f"{path}{_tail(part)}", **query)


def _namespace_path(namespace: Namespace) -> str:
    return f"/data{_levels(namespace)}"


@lru_cache(1_024)
def _levels(namespace: Namespace) -> str:
    return f"/{_segment(namespace.catalog)}/{'%1F'.join(map(_segment, namespace.levels))}"


def _tail(part: str) -> str:
    return f"/{part}" if part else ""


def _segment(text: str) -> str:
    return quote(text, safe="")
