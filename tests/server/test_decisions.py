"""Every route decides about its caller before it answers; an answer without a decision is withheld."""

from http import HTTPStatus
from typing import Any, Final

import httpx
import structlog

from sandur.catalog.security.privileges import AUTHENTICATED, OPEN
from sandur.server.app import App, Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.control.routes import CONTROL
from sandur.server.control.routes import ROUTES as CONTROL_API
from sandur.server.delta_rest.routes import ROUTES as DELTA_API
from sandur.server.http import Answer, json_answer
from sandur.server.iceberg_rest.routes import ROUTES as ICEBERG_API
from sandur.server.openlineage.routes import ROUTES as LINEAGE_API
from sandur.server.serve import build
from sandur.server.unity_rest.routes import CLASSIC_ROUTES, CONTROL_ROUTES
from tests.crash.unity_mutations import FUNCTION
from tests.events.deliveries import SEALING_KEY
from tests.fakes.openlineage import run_event
from tests.server.conftest import Catalogs, with_plain_names
from tests.server.logins import SECURED, bearer
from tests.server.requests import create_table, create_view, rename, set_properties
from tests.server.unity.delta_requests import add_commit, creation, update

UNITY: Final = "/api/2.1/unity-catalog"
USERS: Final = "/api/1.0/unity-control/scim2"
DELTA: Final = f"{UNITY}/delta/v1"
OWN: Final = "/api/sandur/v1"
LINEAGE: Final = "/api/v1"
NS: Final = "/v1/main/namespaces/ns"
WHERE: Final = {"catalog_name": "main", "schema_name": "ns"}
EVERYTHING: Final = ["SELECT", "MODIFY", "EXECUTE", "READ VOLUME", "READ FILES", "WRITE FILES", "CREATE EXTERNAL TABLE"]

APIS: Final[dict[str, tuple[Route, ...]]] = {
    "/v1": ICEBERG_API,
    UNITY: CLASSIC_ROUTES,
    "/api/1.0/unity-control": CONTROL_ROUTES,
    DELTA: DELTA_API,
    OWN: CONTROL_API,
    LINEAGE: LINEAGE_API,
}
# Nothing that these name exists in this tour; the decision comes before the 404.
MISSING: Final = {"loadFunction", "fetchScanTasks", "signS3Request"}
# The tables of this tour are in memory.
UNSUPPORTED: Final = {"signRequest", "preview"}

# The table of this tour has no earlier version; the decision comes before the 400.
REFUSED: Final = {"previewRestore", "restoreTable"}

# Answers without an end; tests/events reads them.
STREAMS: Final = {(OWN, "streamEvents")}


class Tour:
    """Requests of the administrator, and the operations that they reached."""

    def __init__(self, client: httpx.AsyncClient, headers: dict[str, str]) -> None:
        self._client = client
        self._headers = headers
        self.reached: set[tuple[str, str]] = set()

    async def send(self, method: str, path: str, body: object = None, **params: str) -> Any:
        base, routes = next((base, APIS[base]) for base in sorted(APIS, key=len, reverse=True) if path.startswith(base))
        router = Router(routes, unknown_status=404, base="/v1" if base == "/v1" else "", default_prefix="main")
        route, _ = router.match(method, path.removeprefix(base).encode(), mount=b"/")
        self.reached.add((base, route.operation))
        answer = await self._client.request(method, path, json=body, headers=self._headers, params=params)
        done = {501} if route.operation in UNSUPPORTED else {200, 201, 204}
        done = {400} if base == OWN and route.operation in REFUSED else done
        expected = {404} if route.operation in MISSING else done
        assert answer.status_code in expected, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else {}


async def iceberg_requests(tour: Tour) -> None:
    table, view = f"{NS}/tables/t", f"{NS}/views/w"
    await tour.send("GET", "/v1/config", warehouse="main")
    await tour.send("POST", "/v1/main/namespaces", {"namespace": ["ns"]})
    await tour.send("POST", "/v1/main/namespaces", {"namespace": ["gone"]})
    await tour.send("DELETE", "/v1/main/namespaces/gone")
    await tour.send("GET", "/v1/main/namespaces")
    await tour.send("GET", NS)
    await tour.send("HEAD", NS)
    await tour.send("POST", f"{NS}/properties", {"removals": [], "updates": {"a": "b"}})
    made = await tour.send("POST", f"{NS}/tables", create_table("t"))
    await tour.send("GET", f"{NS}/tables")
    await tour.send("GET", table)
    await tour.send("HEAD", table)
    await tour.send("POST", table, set_properties(a="b"))
    for part in ("schemas", "partition-specs", "snapshots", "governance", "credentials"):
        await tour.send("GET", f"{table}/{part}")
    plan = await tour.send("POST", f"{table}/plan", {})
    await tour.send("GET", f"{table}/plan/{plan['plan-id']}")
    await tour.send("DELETE", f"{table}/plan/{plan['plan-id']}")
    await tour.send("POST", f"{table}/tasks", {"plan-task": "none"})
    report = {"report-type": "commit-report", "table-name": "t", "snapshot-id": 1, "sequence-number": 1}
    await tour.send("POST", f"{table}/metrics", {**report, "operation": "append", "metrics": {}})
    file = {"method": "GET", "uri": "http://127.0.0.1/bucket/a", "region": "us-east-1", "headers": {}}
    await tour.send("POST", f"{table}/sign", file)
    await tour.send("POST", "/v1/aws/s3/sign", file)
    change = {"identifier": {"namespace": ["ns"], "name": "t"}, **set_properties(c="d")}
    await tour.send("POST", "/v1/main/transactions/commit", {"table-changes": [change]})
    policy = {"required-column-projections": [{"field-id": 1, "action": "replace-with-null"}]}
    await tour.send("PUT", f"{OWN}/restrictions/main.ns.t", policy)
    await tour.send("GET", f"{OWN}/restrictions/main.ns.t")
    await tour.send("DELETE", f"{OWN}/restrictions/main.ns.t")
    await tour.send("PATCH", f"{OWN}/policies/table/main.ns.t", {"set": {"priority": 7}})
    await tour.send("PUT", f"{OWN}/policies/table/main.ns.t", {"values": {"mode": "run"}})
    await tour.send("GET", f"{OWN}/policies/table/main.ns.t")
    await maintenance_requests(tour)
    await tour.send("DELETE", f"{OWN}/policies/table/main.ns.t")
    await tour.send("POST", "/v1/main/tables/rename", rename("t", "u"))
    await tour.send("POST", f"{NS}/tables/u/unregister", {})
    file = made["metadata-location"]
    await tour.send("POST", f"{NS}/register", {"name": "t", "metadata-location": file})
    await tour.send("DELETE", table)
    view_made = await tour.send("POST", f"{NS}/views", create_view("w"))
    await tour.send("GET", f"{NS}/views")
    await tour.send("GET", view)
    await tour.send("HEAD", view)
    await tour.send("POST", view, set_properties(a="b"))
    await tour.send("POST", "/v1/main/views/rename", rename("w", "x"))
    await tour.send("DELETE", f"{NS}/views/x")
    await tour.send("POST", f"{NS}/register-view", {"name": "w", "metadata-location": view_made["metadata-location"]})
    await tour.send("GET", f"{NS}/functions")
    await tour.send("GET", f"{NS}/functions/none")


async def maintenance_requests(tour: Tour) -> None:
    for path in ("table-health", "maintenance/plan", "maintenance/operations", "maintenance/requests", "search"):
        await tour.send("GET", f"{OWN}/{path}")
    await tour.send("POST", f"{OWN}/maintenance/requests/main.ns.t")


async def container_requests(tour: Tour) -> None:
    await tour.send("GET", f"{UNITY}/metastore_summary")
    await tour.send("POST", f"{UNITY}/catalogs", {"name": "other"})
    await tour.send("GET", f"{UNITY}/catalogs")
    await tour.send("GET", f"{UNITY}/catalogs/other")
    await tour.send("PATCH", f"{UNITY}/catalogs/other", {"comment": "c"})
    await tour.send("POST", f"{UNITY}/schemas", {"catalog_name": "other", "name": "s"})
    await tour.send("GET", f"{UNITY}/schemas", catalog_name="other")
    await tour.send("GET", f"{UNITY}/schemas/other.s")
    await tour.send("PATCH", f"{UNITY}/schemas/other.s", {"comment": "c"})
    await tour.send("DELETE", f"{UNITY}/schemas/other.s")
    await tour.send("DELETE", f"{UNITY}/catalogs/other")


async def securable_requests(tour: Tour) -> None:
    volume = await tour.send("POST", f"{UNITY}/volumes", {**WHERE, "name": "v", "volume_type": "MANAGED"})
    await tour.send("GET", f"{UNITY}/volumes", **WHERE)
    await tour.send("GET", f"{UNITY}/volumes/main.ns.v")
    await tour.send("PATCH", f"{UNITY}/volumes/main.ns.v", {"comment": "c"})
    body = {"volume_id": volume["volume_id"], "operation": "READ_VOLUME"}
    await tour.send("POST", f"{UNITY}/temporary-volume-credentials", body)
    await tour.send("DELETE", f"{UNITY}/volumes/main.ns.v")
    function = {name: getattr(FUNCTION, name) for name in FUNCTION.__struct_fields__}
    function = {name: value for name, value in function.items() if value is not None}
    info = {**function, "input_params": {"parameters": []}, **WHERE, "name": "f"}
    await tour.send("POST", f"{UNITY}/functions", {"function_info": info})
    await tour.send("GET", f"{UNITY}/functions", **WHERE)
    await tour.send("GET", f"{UNITY}/functions/main.ns.f")
    await tour.send("DELETE", f"{UNITY}/functions/main.ns.f")
    await tour.send("POST", f"{UNITY}/models", {**WHERE, "name": "m"})
    await tour.send("GET", f"{UNITY}/models")
    await tour.send("GET", f"{UNITY}/models/main.ns.m")
    await tour.send("PATCH", f"{UNITY}/models/main.ns.m", {"comment": "c"})
    await tour.send("POST", f"{UNITY}/models/versions", {**WHERE, "model_name": "m", "source": "s"})
    version = f"{UNITY}/models/main.ns.m/versions"
    await tour.send("GET", version)
    await tour.send("GET", f"{version}/1")
    await tour.send("PATCH", f"{version}/1", {"comment": "c"})
    await tour.send("PATCH", f"{version}/1/finalize", {"full_name": "main.ns.m", "version": 1})
    body = {**WHERE, "model_name": "m", "version": 1, "operation": "READ_MODEL_VERSION"}
    await tour.send("POST", f"{UNITY}/temporary-model-version-credentials", body)
    await tour.send("DELETE", f"{version}/1")
    await tour.send("DELETE", f"{UNITY}/models/main.ns.m")


async def storage_requests(tour: Tour) -> None:
    await tour.send("POST", f"{UNITY}/credentials", {"name": "k"})
    await tour.send("GET", f"{UNITY}/credentials")
    await tour.send("GET", f"{UNITY}/credentials/k")
    await tour.send("PATCH", f"{UNITY}/credentials/k", {"comment": "c"})
    location = {"name": "l", "url": "file:///lake/ext", "credential_name": "k"}
    await tour.send("POST", f"{UNITY}/external-locations", location)
    await tour.send("GET", f"{UNITY}/external-locations")
    await tour.send("GET", f"{UNITY}/external-locations/l")
    await tour.send("PATCH", f"{UNITY}/external-locations/l", {"comment": "c"})
    body = {"url": "file:///lake/ext/a", "operation": "PATH_READ"}
    await tour.send("POST", f"{UNITY}/temporary-path-credentials", body)
    await tour.send(
        "GET", f"{DELTA}/temporary-path-credentials", location="file:///lake/ext/a", operation="PATH_READ_WRITE"
    )
    await tour.send("DELETE", f"{UNITY}/external-locations/l")
    await tour.send("DELETE", f"{UNITY}/credentials/k")


async def table_requests(tour: Tour) -> None:
    here = f"{DELTA}/catalogs/main/schemas/ns"
    await tour.send("GET", f"{DELTA}/config", catalog="main", **{"protocol-versions": "1.0"})
    stage = await tour.send("POST", f"{here}/staging-tables", {"name": "d"})
    await tour.send("GET", f"{DELTA}/staging-tables/{stage['table-id']}/credentials")
    made = await tour.send("POST", f"{here}/tables", creation(stage, "d"))
    uuid, location = made["metadata"]["table-uuid"], made["metadata"]["location"]
    await tour.send("GET", f"{here}/tables/d")
    await tour.send("HEAD", f"{here}/tables/d")
    await tour.send("POST", f"{here}/tables/d", update(uuid, add_commit(1)))
    await tour.send("POST", f"{here}/tables/d/metrics", {"table-id": uuid})
    await tour.send("GET", f"{here}/tables/d/credentials", operation="READ")
    commit = {"version": 2, "timestamp": 1, "file_name": "2.a.json", "file_size": 1, "file_modification_timestamp": 1}
    body = {"table_id": uuid, "table_uri": location, "commit_info": commit}
    await tour.send("POST", f"{UNITY}/delta/preview/commits", body)
    await tour.send("GET", f"{UNITY}/delta/preview/commits", {"table_id": uuid, "start_version": 0})
    await tour.send("POST", f"{UNITY}/temporary-table-credentials", {"table_id": uuid, "operation": "READ"})
    await tour.send("POST", f"{here}/tables/d/rename", {"new-name": "e"})
    await tour.send("DELETE", f"{here}/tables/e")
    await tour.send("POST", f"{UNITY}/staging-tables", {**WHERE, "name": "s"})
    table = {**WHERE, "name": "c", "table_type": "EXTERNAL", "data_source_format": "CSV", "columns": []}
    await tour.send("POST", f"{UNITY}/tables", {**table, "storage_location": "file:///lake/csv"})
    await tour.send("GET", f"{UNITY}/tables", **WHERE)
    await tour.send("GET", f"{UNITY}/tables/main.ns.c")
    await tour.send("DELETE", f"{UNITY}/tables/main.ns.c")


async def lineage_requests(tour: Tour) -> None:
    """Lineage that is not published: a graph of the one table that this makes."""
    event = run_event(1, "START", 1)
    await tour.send("POST", f"{LINEAGE}/lineage", event)
    await tour.send("POST", f"{LINEAGE}/openlineage/lineage", [event])
    await tour.send("POST", "/v1/main/namespaces", {"namespace": ["lineage"]})
    await tour.send("POST", "/v1/main/namespaces/lineage/tables", create_table("t"))
    await tour.send("GET", f"{OWN}/lineage", node="table:main.lineage.t")
    await tour.send("GET", f"{LINEAGE}/lineage", nodeId="dataset:main:lineage.t")
    await tour.send("GET", f"{LINEAGE}/column-lineage", nodeId="dataset:main:lineage.t")


async def principal_requests(tour: Tour) -> None:
    user = await tour.send("POST", f"{USERS}/Users", {"emails": [{"value": "a@x.org"}]})
    await tour.send("GET", f"{USERS}/Users")
    await tour.send("GET", f"{USERS}/Users/{user['id']}")
    await tour.send("PUT", f"{USERS}/Users/{user['id']}", {"displayName": "a"})
    await tour.send("PATCH", f"{USERS}/Users/{user['id']}", {"Operations": []})
    await tour.send("GET", f"{USERS}/Me")
    await group_requests(tour, user["id"])
    await tour.send("DELETE", f"{USERS}/Users/{user['id']}")
    await tour.send("GET", f"{OWN}/me")
    await tour.send("POST", f"{OWN}/principals", {"name": "p"})
    await tour.send("GET", f"{OWN}/principals")
    await tour.send("GET", f"{OWN}/principals/p")
    await tour.send("PATCH", f"{OWN}/principals/p", {"disabled": False})
    await tour.send("PUT", f"{OWN}/principals/p/groups", {"groups": ["g"]})
    await tour.send("GET", f"{OWN}/principals/p/secrets")
    secret = await tour.send("POST", f"{OWN}/principals/p/secrets", {})
    await tour.send("DELETE", f"{OWN}/principals/p/secrets/{secret['id']}")
    key = await tour.send("POST", f"{OWN}/principals/p/api-keys", {})
    await tour.send("GET", f"{OWN}/principals/p/api-keys")
    await tour.send("DELETE", f"{OWN}/principals/p/api-keys/{key['id']}")
    await tour.send("POST", f"{OWN}/principals/p/revoke-tokens", {})
    for path in (f"{UNITY}/permissions/catalog/main", f"{OWN}/grants/catalog/main"):
        await tour.send("PATCH", path, {"changes": [{"principal": "p", "add": ["USE CATALOG"]}]})
        await tour.send("GET", path)
    await tour.send("GET", f"{OWN}/effective-privileges/catalog/main", principal="p")
    await tour.send("PUT", f"{OWN}/owners/catalog/main", {"owner": "p"})
    await tour.send("PATCH", f"{OWN}/tags/catalog/main", {"set": {"a": "b"}})
    await tour.send("GET", f"{OWN}/tags/catalog/main")
    await tour.send("DELETE", f"{OWN}/principals/p")
    await tour.send("GET", f"{OWN}/audit")
    await lineage_requests(tour)
    await tour.send("GET", f"{OWN}/stages")


async def event_requests(tour: Tour) -> None:
    await tour.send("POST", f"{NS}/tables", create_table("dropped"))
    await tour.send("DELETE", f"{NS}/tables/dropped")
    await tour.send("GET", f"{OWN}/dropped", catalog="main", namespace="ns")
    await tour.send("POST", f"{OWN}/undrop/table/main.ns.dropped", {})
    await tour.send("GET", f"{OWN}/events")
    made = await tour.send("POST", f"{OWN}/subscriptions", {"url": "https://hooks.example.org/events"})
    one = f"{OWN}/subscriptions/{made['id']}"
    await tour.send("GET", f"{OWN}/subscriptions")
    await tour.send("GET", one)
    await tour.send("PATCH", one, {"state": "paused"})
    await tour.send("POST", f"{one}/rotate-secret", {})
    await tour.send("POST", f"{one}/replay", {"begin": "oldest"})
    await tour.send("GET", f"{one}/dead-letters")
    await tour.send("DELETE", one)


async def browse_requests(tour: Tour) -> None:
    for path in ("", "/main", "/main/ns"):
        await tour.send("GET", f"{OWN}/contents{path}")
    await tour.send("POST", f"{OWN}/tables/main/ns", {"name": "defined", "columns": "id INT"})
    for path in ("main", "main/ns", "main/ns/defined", "main/ns/defined/history", "main/ns/defined/changes"):
        await tour.send("GET", f"{OWN}/objects/{path}")
    await tour.send("POST", f"{OWN}/tables/main/ns", {"name": "delta", "columns": "id INT", "format": "delta"})
    await tour.send("GET", f"{OWN}/objects/main/ns/delta/restore", version="0")
    await tour.send("POST", f"{OWN}/objects/main/ns/delta/restore", {"version": 0, "expected_version": 0})
    await tour.send("POST", f"{OWN}/preview", {"tables": [["main", "ns", "defined"]]})
    await tour.send("GET", f"{OWN}/jobs")


async def group_requests(tour: Tour, user_id: str) -> None:
    group = await tour.send("POST", f"{USERS}/Groups", {"displayName": "scim"})
    await tour.send("GET", f"{USERS}/Groups")
    await tour.send("GET", f"{USERS}/Groups/{group['id']}")
    await tour.send("PUT", f"{USERS}/Groups/{group['id']}", {"displayName": "scim", "members": [{"value": user_id}]})
    await tour.send("PATCH", f"{USERS}/Groups/{group['id']}", {"Operations": []})
    await tour.send("DELETE", f"{USERS}/Groups/{group['id']}")
    await tour.send("POST", f"{OWN}/groups", {"name": "team"})
    await tour.send("GET", f"{OWN}/groups")
    await tour.send("GET", f"{OWN}/groups/team")
    await tour.send("PUT", f"{OWN}/groups/team/members", {"members": ["admin"]})
    await tour.send("PATCH", f"{OWN}/groups/team/members", {"remove": ["admin"]})
    await tour.send("DELETE", f"{OWN}/groups/team")


async def test_every_route_decides_about_its_caller(catalogs: Catalogs) -> None:
    """A route that decides nothing would be answered with 500: its answer is withheld."""
    client = await catalogs.open(
        authentication="on",
        admin_secret=SECURED.admin_secret,
        allowed_locations=("file:///lake",),
        sealing_keys=(SEALING_KEY,),
        deliveries=False,
    )
    headers = await bearer(client)
    grants = {"changes": [{"principal": "admin", "add": EVERYTHING}]}
    given = await client.patch(f"{UNITY}/permissions/metastore/metastore", json=grants, headers=headers)
    assert given.status_code == 200, given.text
    tour = Tour(client, headers)

    for requests in (
        iceberg_requests,
        container_requests,
        securable_requests,
        storage_requests,
        table_requests,
        principal_requests,
        browse_requests,
        event_requests,
    ):
        await requests(tour)

    declared = {(base, route.operation) for base, routes in APIS.items() for route in routes if route.needs is not OPEN}
    assert declared - tour.reached == STREAMS


async def _forgetful(_call: Call) -> Answer:
    return json_answer(b'"a secret"')


async def test_an_answer_without_a_decision_is_withheld_and_logged() -> None:
    route = Route("GET", "/forgetful", "forgetful", _forgetful, AUTHENTICATED)
    dialect = Dialect("test", (b"/forgetful/",), Router((route,), unknown_status=404), CONTROL.errors)
    logs = structlog.testing.LogCapture()
    structlog.configure(processors=[logs])
    app, catalog = build(SECURED)
    made = App(
        dialects=[dialect, *{one.name: one for _, one in app._mounts}.values()],
        catalog=catalog,
        settings=SECURED,
        metrics=app._metrics,
        requests=app.requests,
    )
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(made))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/forgetful/forgetful", headers=await bearer(client))
    await catalog.close()

    assert answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
    assert "secret" not in answer.text
    assert any(entry["event"] == "unexpected error" for entry in logs.entries)
