"""Routes of Unity Catalog's APIs: from a raw path to who answers, segment by segment, before anything is decoded."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.server.http import ALLOW, Answer, Refused
from sandur.server.routing import RouteTree
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


class Router:
    """Finds routes by what follows the mount. What is not served is refused as unimplemented, never as not found."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._tree: RouteTree[Route] = RouteTree()
        for route in routes:
            self._tree.plant(route.template.strip("/").split("/"), route)

    def routed(self, method: str, tail: bytes) -> RoutedCall:
        found = self._tree.walk(tail.rstrip(b"/").split(b"/"), {})
        shown = tail[:_SHOWN_BYTES_MAX].decode("latin-1")
        if found is None:
            return RoutedCall(None, {}, Refused(501, f"Not served here: {method} {shown}"))
        route = found.routes.get(method)
        if route is None:
            allowed = ", ".join(found.routes)
            refused = Refused(
                405, f"Method not allowed: {method} {shown}; allowed: {allowed}", (ALLOW, allowed.encode())
            )
            return RoutedCall(None, found.values, refused)
        return RoutedCall(route, found.values)
