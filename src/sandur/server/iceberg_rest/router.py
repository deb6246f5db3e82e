"""From a raw path to its route: segment by segment, before anything is decoded."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sandur.server.iceberg_rest.routes import ROUTES, Route

PREFIX: Final = "{prefix}"


class Found(NamedTuple):
    """A path that is served: the routes by method, and the encoded values of its parameters in their order."""

    routes: Mapping[str, Route]
    values: Mapping[str, bytes]


class _Node:
    __slots__ = ("literals", "parameter", "parameter_name", "routes")

    def __init__(self) -> None:
        self.literals: dict[bytes, _Node] = {}
        self.parameter: _Node | None = None
        self.parameter_name = ""
        self.routes: dict[str, Route] = {}

    def child(self, segment: str) -> "_Node":
        if not segment.startswith("{"):
            return self.literals.setdefault(segment.encode(), _Node())
        if self.parameter is None:
            self.parameter = _Node()
            self.parameter_name = segment.strip("{}")
        return self.parameter


class Router:
    """Finds routes, with and without a prefix. A word of the protocol is never taken for a prefix when it fits."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._plain = _Node()
        self._prefixed = _Node()
        for route in routes:
            segments = route.template.split("/")[2:]
            if segments[0] == PREFIX:
                _plant(self._prefixed, segments[1:], route)
                _plant(self._plain, segments[1:], route)
            else:
                _plant(self._plain, segments, route)

    def find(self, segments: Sequence[bytes]) -> Found | None:
        """The routes of a path, given as what follows the version; None when nothing is served there."""
        found = _walk(self._plain, segments, {})
        if found is None and segments[0]:
            found = _walk(self._prefixed, segments[1:], {"prefix": segments[0]})
        return found


def _plant(root: _Node, segments: Sequence[str], route: Route) -> None:
    node = root
    for segment in segments:
        node = node.child(segment)
    node.routes[route.method] = route


def _walk(root: _Node, segments: Sequence[bytes], values: dict[str, bytes]) -> Found | None:
    node = root
    for segment in segments:
        following = node.literals.get(segment)
        if following is None:
            if node.parameter is None or not segment:
                return None
            values[node.parameter_name] = segment
            following = node.parameter
        node = following
    return Found(node.routes, values) if node.routes else None


ROUTER: Final = Router(ROUTES)
