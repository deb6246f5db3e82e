"""One call of an operation: what the path, the query, the headers and the body say, read when it is needed."""

from collections.abc import Sequence
from typing import NamedTuple

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.operations.lakes import Lakes
from sandur.server.asked import Asked
from sandur.server.iceberg_rest.bodies import natural
from sandur.server.iceberg_rest.names import decoded_levels
from sandur.settings import Settings


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
