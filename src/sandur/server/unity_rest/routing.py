"""Routes of Unity Catalog's APIs: from a raw path to who answers, segment by segment, before anything is decoded."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.server.messages import ALLOW, Answer, Refused
from sandur.server.unity_rest.call import Call

Handler = Callable[[Call], Awaitable[Answer]]

NO_ROUTE: Final = "(none)"
_SHOWN_BYTES_MAX: Final = 200


class Route(NamedTuple):
    """An operation, spelled as in its specification. An open one is for those without a token, too."""

    method: str
    template: str
    operation: str
    answer: Handler
    is_open: bool = False


class RoutedCall(NamedTuple):
    """Where a request goes: to a route, or to its refusal."""

    route: Route | None
    values: Mapping[str, bytes]
    refused: Refused | None = None

    @property
    def operation(self) -> str:
        return self.route.operation if self.route else NO_ROUTE

    @property
    def template(self) -> str:
        return self.route.template if self.route else NO_ROUTE

    @property
    def is_open(self) -> bool:
        return self.route is not None and self.route.is_open


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
    """Finds routes by what follows the mount. What is not served is refused as unimplemented, never as not found."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.template.strip("/").split("/"):
                node = node.child(segment)
            node.routes[route.method] = route

    def routed(self, method: str, tail: bytes) -> RoutedCall:
        node, values = self._walk(tail.rstrip(b"/").split(b"/"))
        shown = tail[:_SHOWN_BYTES_MAX].decode("latin-1")
        if node is None or not node.routes:
            return RoutedCall(None, {}, Refused(501, f"Not served here: {method} {shown}"))
        route = node.routes.get(method)
        if route is None:
            allowed = ", ".join(node.routes)
            refused = Refused(
                405, f"Method not allowed: {method} {shown}; allowed: {allowed}", (ALLOW, allowed.encode())
            )
            return RoutedCall(None, values, refused)
        return RoutedCall(route, values)

    def _walk(self, segments: Sequence[bytes]) -> tuple[_Node | None, Mapping[str, bytes]]:
        node = self._root
        values: dict[str, bytes] = {}
        for segment in segments:
            following = node.literals.get(segment)
            if following is None:
                if node.parameter is None or not segment:
                    return None, values
                values[node.parameter_name] = segment
                following = node.parameter
            node = following
        return node, values
