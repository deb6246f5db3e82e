"""A call of the Iceberg REST API: catalog, namespace, identifier and page from path and query."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.operations.lakes import Lakes
from sandur.server.context import Asked
from sandur.server.http import decoded_query, decoded_segment
from sandur.server.iceberg_rest.bodies import natural
from sandur.settings import Settings

__all__ = ["SEPARATOR", "decoded_levels", "decoded_query", "decoded_segment", "encoded_segment", "parent_levels"]

SEPARATOR: Final = "%1F"
"""What joins the levels of a namespace in a path, as `config` tells clients."""

_ENCODED_SEPARATOR: Final = re.compile(rb"%1[Ff]|\x1f")


def decoded_levels(raw: bytes) -> tuple[str, ...]:
    """The levels of a namespace in a path."""
    if b"%" not in raw and b"\x1f" not in raw:
        return (decoded_segment(raw),)
    return tuple(decoded_segment(level) for level in _ENCODED_SEPARATOR.split(raw))


def encoded_segment(name: str) -> str:
    """A name as it stands in a path."""
    return quote(name, safe="")


def parent_levels(parent: str, *, is_encoded_twice: bool) -> tuple[str, ...]:
    """The levels of the query parameter `parent`, which has been decoded once.

    Java joins plain levels by 0x1F. PyIceberg joins encoded ones, and has the result encoded again.
    """
    if is_encoded_twice or ("\x1f" not in parent and SEPARATOR in parent.upper()):
        return decoded_levels(parent.encode())
    return tuple(parent.split("\x1f"))


class Service(NamedTuple):
    """What every call can reach."""

    lakes: Lakes
    settings: Settings
    endpoints: Sequence[str]


class PageAsked(NamedTuple):
    """Which page of a list is wanted. No token means everything, an empty one the first page."""

    token: str | None
    size: int | None


class Call(Asked[Service]):
    """A request on its way to an operation of this protocol."""

    @property
    def catalog(self) -> str:
        """The prefix selects the catalog; without one it is the default."""
        return self.settings.default_catalog if "prefix" not in self._values else self.value("prefix")

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.catalog, decoded_levels(self._values["namespace"]))

    def identifier(self, parameter: str) -> Identifier:
        catalog, levels = self.namespace
        return Identifier(catalog, levels, self.value(parameter))

    @property
    def names(self) -> Sequence[str]:
        """The default catalog is the same with its name and without."""
        return [self.catalog, *(self.value(name) for name in self._values if name != "prefix")]

    @property
    def page(self) -> PageAsked:
        size = self.query.get("pageSize")
        return PageAsked(self.query.get("pageToken"), natural(size, "pageSize") if size else None)
