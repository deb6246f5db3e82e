"""The routes of the Iceberg REST API."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.operations.lakes import Lakes
from sandur.server.http import ALLOW, Answer, HttpRequest, Refused
from sandur.server.iceberg_rest import config, errors, namespaces, planning, tables, views
from sandur.server.iceberg_rest import config as oauth
from sandur.server.iceberg_rest import tables as history
from sandur.server.iceberg_rest import tables as transactions
from sandur.server.iceberg_rest import views as functions
from sandur.server.iceberg_rest.call import Call, Service
from sandur.server.identity import Identity
from sandur.server.routing import Found, RouteTree
from sandur.settings import Settings

Handler = Callable[[Call], Awaitable[Answer]]


class Route(NamedTuple):
    """An operation of the protocol, spelled as in its specification. An open one is for those without a token, too."""

    method: str
    template: str
    operation: str
    answer: Handler
    is_advertised: bool = True
    is_open: bool = False

    @property
    def endpoint(self) -> str:
        return f"{self.method} {self.template}"


_NAMESPACES: Final = "/v1/{prefix}/namespaces"
_NAMESPACE: Final = _NAMESPACES + "/{namespace}"
_TABLE: Final = _NAMESPACE + "/tables/{table}"
_VIEW: Final = _NAMESPACE + "/views/{view}"

ROUTES: Final = (
    Route("GET", "/v1/config", "getConfig", config.get_config),
    Route("POST", "/v1/oauth/tokens", "getToken", oauth.get_token, is_open=True),
    Route("GET", _NAMESPACES, "listNamespaces", namespaces.list_namespaces),
    Route("POST", _NAMESPACES, "createNamespace", namespaces.create_namespace),
    Route("GET", _NAMESPACE, "loadNamespaceMetadata", namespaces.load_namespace),
    Route("HEAD", _NAMESPACE, "namespaceExists", namespaces.namespace_exists),
    Route("DELETE", _NAMESPACE, "dropNamespace", namespaces.drop_namespace),
    Route("POST", _NAMESPACE + "/properties", "updateProperties", namespaces.update_properties),
    Route("GET", _NAMESPACE + "/tables", "listTables", tables.list_tables),
    Route("POST", _NAMESPACE + "/tables", "createTable", tables.create),
    Route("POST", _NAMESPACE + "/register", "registerTable", tables.register_table),
    Route("GET", _TABLE, "loadTable", tables.load),
    Route("POST", _TABLE, "updateTable", tables.commit),
    Route("DELETE", _TABLE, "dropTable", tables.drop),
    Route("HEAD", _TABLE, "tableExists", tables.exists),
    Route("POST", _TABLE + "/unregister", "unregisterTable", tables.unregister),
    Route("POST", _TABLE + "/plan", "planTableScan", planning.plan),
    Route("GET", _TABLE + "/plan/{plan-id}", "fetchPlanningResult", planning.fetch_result),
    Route("DELETE", _TABLE + "/plan/{plan-id}", "cancelPlanning", planning.cancel),
    Route("POST", _TABLE + "/tasks", "fetchScanTasks", planning.fetch_tasks),
    Route("POST", _TABLE + "/metrics", "reportMetrics", tables.metrics),
    Route("POST", "/v1/{prefix}/tables/rename", "renameTable", tables.rename_table),
    Route("POST", "/v1/{prefix}/transactions/commit", "commitTransaction", transactions.commit_tables),
    Route("GET", _NAMESPACE + "/views", "listViews", views.list_views),
    Route("POST", _NAMESPACE + "/views", "createView", views.create),
    Route("GET", _VIEW, "loadView", views.load),
    Route("POST", _VIEW, "replaceView", views.replace),
    Route("DELETE", _VIEW, "dropView", views.drop),
    Route("HEAD", _VIEW, "viewExists", views.exists),
    Route("POST", "/v1/{prefix}/views/rename", "renameView", views.rename_view),
    Route("POST", _NAMESPACE + "/register-view", "registerView", views.register_view),
    Route("GET", _NAMESPACE + "/functions", "listFunctions", functions.list_functions),
    Route("GET", _NAMESPACE + "/functions/{function}", "loadFunction", functions.load_function),
    Route("GET", _TABLE + "/schemas", "tableSchemas", history.schemas, is_advertised=False),
    Route("GET", _TABLE + "/partition-specs", "tablePartitionSpecs", history.partition_specs, is_advertised=False),
    Route("GET", _TABLE + "/snapshots", "tableSnapshots", history.snapshots, is_advertised=False),
)


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
        return errors.refusal(error, operation, request_id)
