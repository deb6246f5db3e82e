"""From a raw path to its route: segment by segment, before anything is decoded."""

from collections.abc import Sequence
from typing import Final

from sandur.server.iceberg_rest.routes import ROUTES, Route
from sandur.server.route_tree import Found, RouteTree

PREFIX: Final = "{prefix}"


class Router:
    """Finds routes, with and without a prefix. A word of the protocol is never taken for a prefix when it fits."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._plain: RouteTree[Route] = RouteTree()
        self._prefixed: RouteTree[Route] = RouteTree()
        for route in routes:
            segments = route.template.split("/")[2:]
            if segments[0] == PREFIX:
                self._prefixed.plant(segments[1:], route)
                self._plain.plant(segments[1:], route)
            else:
                self._plain.plant(segments, route)

    def find(self, segments: Sequence[bytes]) -> Found[Route] | None:
        """The routes of a path, given as what follows the version; None when nothing is served there."""
        found = self._plain.walk(segments, {})
        if found is None and segments[0]:
            found = self._prefixed.walk(segments[1:], {"prefix": segments[0]})
        return found


ROUTER: Final = Router(ROUTES)
