"""The Iceberg REST protocol as a dialect of the server."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from sandur.operations.lakes import Lakes
from sandur.server.iceberg_rest import problems
from sandur.server.iceberg_rest.call import Call, Service
from sandur.server.iceberg_rest.router import ROUTER
from sandur.server.iceberg_rest.routes import ROUTES, Route
from sandur.server.identity import Identity
from sandur.server.messages import ALLOW, Answer, HttpRequest, Refused
from sandur.settings import Settings

_NO_ROUTE: Final = "(none)"
_SHOWN_BYTES_MAX: Final = 200


class RoutedCall(NamedTuple):
    """Where a request goes: to a route, or to its refusal."""

    route: Route | None
    values: Mapping[str, bytes]
    refused: Refused | None = None

    @property
    def operation(self) -> str:
        return self.route.operation if self.route else _NO_ROUTE

    @property
    def template(self) -> str:
        return self.route.template if self.route else _NO_ROUTE

    @property
    def is_open(self) -> bool:
        return self.route is not None and self.route.is_open


class IcebergRest:
    """Iceberg REST over a catalog, at `/v1` and `/iceberg/v1`, and where Unity Catalog's servers have it."""

    name: Final = "iceberg"
    mounts: Final = (b"/v1/", b"/iceberg/v1/", b"/api/2.1/unity-catalog/iceberg/v1/")

    def __init__(self, lakes: Lakes, settings: Settings) -> None:
        endpoints = [route.endpoint for route in ROUTES if route.is_advertised]
        self._service = Service(lakes, settings, endpoints)

    def routed(self, method: str, path: bytes) -> RoutedCall:
        tail = path.partition(b"/v1/")[2]
        found = ROUTER.find(tail.split(b"/"))
        if found is None:
            shown = path[:_SHOWN_BYTES_MAX].decode("latin-1")
            return RoutedCall(None, {}, Refused(400, f"No route for request: {method} {shown}"))
        route = found.routes.get(method)
        if route is None:
            allowed = ", ".join(found.routes)
            refused = Refused(405, f"Method not allowed: {method}; allowed: {allowed}", (ALLOW, allowed.encode()))
            return RoutedCall(None, found.values, refused)
        return RoutedCall(route, found.values)

    async def answer(self, routed: RoutedCall, request: HttpRequest, identity: Identity) -> Answer:
        if routed.route is None:
            raise routed.refused or Refused(400, "No route for request")
        call = Call(self._service, routed.operation, routed.values, request, identity)
        return await routed.route.answer(call)

    def refusal(self, error: Exception, operation: str, request_id: str) -> Answer:
        return problems.refusal(error, operation, request_id)
