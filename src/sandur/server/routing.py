"""Routes: from a method and a raw path to the handler of an operation."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from sandur.server.context import Call
from sandur.server.errors import ErrorMap
from sandur.server.http import ALLOW, Answer, Refused

Handler = Callable[[Call], Awaitable[Answer]]

PREFIX: Final = "{prefix}"
_QUOTED_BYTES_MAX: Final = 200


class Route(msgspec.Struct, frozen=True):
    """One operation of a dialect, named as in its specification.

    An open route needs no token. An advertised one is listed by the `config` operation of its dialect.
    """

    method: str
    path: str
    operation: str
    handler: Handler
    is_open: bool = False
    is_advertised: bool = True


def _refusal(status: int, message: str, *headers: tuple[bytes, bytes]) -> Route:
    """The route of a request that has none: its handler refuses."""

    async def refuse(_call: Call) -> Answer:
        raise Refused(status, message, *headers)

    return Route("", "(none)", "(none)", refuse)


class Match(NamedTuple):
    """The route of a request, with the encoded values of its path parameters in their order."""

    route: Route
    values: Mapping[str, bytes]


class _Node:
    __slots__ = ("literals", "parameter", "parameter_name", "routes")

    def __init__(self) -> None:
        self.literals: dict[bytes, _Node] = {}
        self.parameter: _Node | None = None
        self.parameter_name = ""
        self.routes: dict[str, Route] = {}

    def add(self, segments: Sequence[str], route: Route) -> None:
        node = self
        for segment in segments:
            if not segment.startswith("{"):
                node = node.literals.setdefault(segment.encode(), _Node())
                continue
            if node.parameter is None:
                node.parameter = _Node()
                node.parameter_name = segment.strip("{}")
            node = node.parameter
        node.routes[route.method] = route

    def find(self, segments: Sequence[bytes], values: dict[str, bytes]) -> "_Node | None":
        """The node of a path, its parameters added to `values`; a literal goes before a parameter. None if absent."""
        node = self
        for segment in segments:
            following = node.literals.get(segment)
            if following is None:
                if node.parameter is None or not segment:
                    return None
                values[node.parameter_name] = segment
                following = node.parameter
            node = following
        return node if node.routes else None


class Router:
    """Finds routes below a mount. Segments are compared before they are decoded.

    A route whose path begins with `{prefix}` is also served without a prefix; `default_prefix` then stands in.
    `base` is the part of the routes' paths that belongs to the mount. Unknown paths get `unknown_status`.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        unknown_status: int,
        base: str = "",
        default_prefix: str | None = None,
        ignores_trailing_slash: bool = False,
    ) -> None:
        self._unknown_status = unknown_status
        self._ignores_trailing_slash = ignores_trailing_slash
        self._defaults = {} if default_prefix is None else {"prefix": quote(default_prefix, safe="").encode()}
        self._plain = _Node()
        self._prefixed = _Node()
        for route in routes:
            segments = route.path.removeprefix(base).strip("/").split("/")
            if segments[0] == PREFIX:
                segments = segments[1:]
                self._prefixed.add(segments, route)
            self._plain.add(segments, route)

    def match(self, method: str, path: bytes, *, mount: bytes) -> Match:
        """The route of a path below the mount. A literal segment is never taken for a prefix when it fits."""
        tail = path[len(mount) :] if mount.endswith(b"/") else b""
        segments = (tail.rstrip(b"/") if self._ignores_trailing_slash else tail).split(b"/")
        values = self._defaults.copy()
        node = self._plain.find(segments, values)
        if node is None and segments[0]:
            values = {"prefix": segments[0]}
            node = self._prefixed.find(segments[1:], values)
        if node is None:
            return Match(_refusal(self._unknown_status, f"No route for request: {method} {_quote(path)}"), {})
        route = node.routes.get(method)
        if route is None:
            allowed = ", ".join(node.routes)
            message = f"Method not allowed: {method} {_quote(path)}; allowed: {allowed}"
            return Match(_refusal(405, message, (ALLOW, allowed.encode())), values)
        return Match(route, values)


class Dialect(NamedTuple):
    """One API: the beginnings of its paths, its routes, and its errors.

    A mount without a slash at its end has no routes: it only makes this dialect answer such paths with its own error.
    """

    name: str
    mounts: Sequence[bytes]
    router: Router
    errors: ErrorMap


def _quote(path: bytes) -> str:
    return path[:_QUOTED_BYTES_MAX].decode("latin-1")
