"""A workspace with one object of every kind, whose names and texts try to break out of the pages."""

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.server.ui.actions.routes import ACTION_ROUTES
from sandur.storage.contract import ObjectStore
from tests.crash.unity_mutations import FUNCTION
from tests.server.requests import create_view
from tests.ui.html import parse
from tests.ui.published import publish

EVIL: Final = "<script>alert('x')</script>\"><img src=x onerror=alert(1)> & {{7*7}} javascript:alert(2)"
UNITY: Final = "/api/2.1/unity-catalog"
OWN: Final = "/api/sandur/v1"
NOW_MS: Final = 1_767_225_600_000
LEVEL: Final = f"sales {EVIL}"
TABLE: Final = f"orders {EVIL}"
OTHER: Final = f"daily {EVIL}"
VIEW: Final = f"view {EVIL}"


def segment(text: str) -> str:
    return quote(text, safe="")


DATA: Final = f"/ui/data/main/{segment(LEVEL)}"
TABLE_PAGE: Final = f"{DATA}/tables/{segment(TABLE)}"
VIEW_PAGE: Final = f"{DATA}/views/{segment(VIEW)}"
DELTA_PAGE: Final = "/ui/data/main/plain/tables/d"
REST: Final = f"/v1/main/namespaces/{segment(LEVEL)}"


@dataclass
class Scene:
    """The ids of what was made."""

    table: str
    other: str
    subscription: str = ""

    def pages(self) -> list[str]:
        """Every page, with the parameters that it has."""
        tabs = ("snapshots", "timeline", "timeline?at=1", "timeline?before=2", "versions/0", "diff", "diff?from=0&to=2")
        return [
            "/ui",
            "/ui/",
            "/ui/data/main",
            "/ui/data/main?begins=s",
            DATA,
            f"{DATA}?kind=table",
            f"{DATA}?begins=o",
            "/ui/data/main/plain",
            TABLE_PAGE,
            *(f"{TABLE_PAGE}/{tab}" for tab in tabs),
            *(f"{TABLE_PAGE}/{tab}" for tab in ("health", "lineage", "lineage?depth=3", "grants", "preview")),
            f"{TABLE_PAGE}/grants?principal={segment(EVIL)}",
            f"{DATA}/tables/{segment(OTHER)}",
            f"{DATA}/tables/{segment(OTHER)}/files",
            VIEW_PAGE,
            *(f"{VIEW_PAGE}/{tab}" for tab in ("timeline", "lineage", "grants")),
            DELTA_PAGE,
            *(f"{DELTA_PAGE}/{tab}" for tab in ("snapshots", "timeline", "versions/0", "diff", "files", "health")),
            *(f"{DELTA_PAGE}/{tab}" for tab in ("lineage", "grants", "preview")),
            "/ui/data/main/plain/volumes/v",
            "/ui/data/main/plain/volumes/v/grants",
            "/ui/data/main/plain/functions/f",
            "/ui/data/main/plain/functions/f/grants",
            "/ui/data/main/plain/models/m",
            "/ui/data/main/plain/models/m/grants",
            f"/ui/search?q={segment('orders <script>')}",
            f"/ui/search?q={segment(EVIL)[:190]}",
            "/ui/search?q=o&in=main",
            "/ui/search",
            "/ui/activity",
            f"/ui/activity?principal={segment(EVIL)}",
            "/ui/activity?only=rows",
            "/ui/jobs",
            "/ui/maintenance",
            f"/ui/audit?principal={segment(EVIL)}",
            "/ui/subscriptions",
            *([f"/ui/subscriptions/{self.subscription}"] if self.subscription else []),
            "/ui/policies",
            "/ui/policies?type=catalog&name=main",
            "/ui/server",
            "/ui/me",
            "/ui/dropped/main",
        ]


async def forms(client: httpx.AsyncClient, scene: Scene) -> dict[str, str]:
    """An address of every form and list of actions to which a page leads, by the path of its route."""
    patterns = {route.path: re.sub(r"\{\w+\}", "[^/]+", route.path) for route in ACTION_ROUTES}
    found: dict[str, str] = {}
    for page in scene.pages():
        if page.startswith(("/ui/data/", "/ui/dropped/")) and "?" not in page:
            for link in parse((await client.get(page)).text).links():
                path = link.partition("?")[0].removeprefix("/ui")
                found |= {route: link for route, pattern in patterns.items() if re.fullmatch(pattern, path)}
    return found


async def make_scene(client: httpx.AsyncClient, store: ObjectStore, *, subscribes: bool = False) -> Scene:
    """Make everything through the APIs, then publish rows about it."""
    for levels in ([LEVEL], [LEVEL, f"eu {EVIL}"], ["plain"]):
        body = {"namespace": levels, "properties": {f"k {EVIL}": EVIL}}
        (await client.post("/v1/main/namespaces", json=body)).raise_for_status()
    whole = {"name": TABLE, "schema": _schema(), "properties": {EVIL: EVIL}, **_order()}
    made = await _made(client, f"{REST}/tables", whole)
    other = await _made(client, f"{REST}/tables", {"name": OTHER, "schema": _schema()})
    await _commits(client, made["metadata"])
    await _made(client, f"{REST}/views", {**create_view(VIEW, EVIL), "properties": {"comment": EVIL}})
    await _unity_objects(client)
    await _what_waits(client)
    table, daily = made["metadata"]["table-uuid"], other["metadata"]["table-uuid"]
    subscription = ""
    if subscribes:
        wanted = {"url": "https://hooks.example.org/a", "description": EVIL}
        subscription = (await _made(client, f"{OWN}/subscriptions", wanted))["id"]
    await publish(store, datasets(table, daily), published_ms=NOW_MS)
    return Scene(table, daily, subscription)


async def _made(client: httpx.AsyncClient, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    answer = await client.post(path, json=body, headers={"User-Agent": EVIL})
    assert answer.status_code < 300, answer.text
    return answer.json()  # type: ignore[no-any-return] # An object of JSON.


def _schema() -> dict[str, Any]:
    fields = [
        {"id": 1, "name": "id", "type": "long", "required": True, "doc": EVIL},
        {"id": 2, "name": f"c {EVIL}", "type": "string", "required": False},
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def _order() -> dict[str, Any]:
    """A partitioning and a sort order by the column with markup."""
    field = {"source-id": 2, "transform": "identity"}
    return {
        "partition-spec": {"spec-id": 0, "fields": [{**field, "field-id": 1_000, "name": f"p {EVIL}"}]},
        "write-order": {"order-id": 1, "fields": [{**field, "direction": "asc", "null-order": "nulls-first"}]},
    }


async def _what_waits(client: httpx.AsyncClient) -> None:
    """A dropped table, one that waits for its first commit, a request of maintenance, and texts of a catalog."""
    gone = f"gone {EVIL}"
    await _made(client, f"{REST}/tables", {"name": gone, "schema": _schema()})
    (await client.delete(f"{REST}/tables/{segment(gone)}")).raise_for_status()
    await _made(client, f"{REST}/tables", {"name": f"staged {EVIL}", "schema": _schema(), "stage-create": True})
    texts = {"comment": EVIL, "properties": {EVIL: EVIL}}
    (await client.patch(f"{UNITY}/catalogs/main", json=texts)).raise_for_status()
    name = full_name_of(Identifier("main", (LEVEL,), TABLE))
    other = full_name_of(Identifier("main", (LEVEL,), OTHER))
    await _made(client, f"{OWN}/maintenance/requests/{segment(other)}", {})
    tags = {"set": {"pii": EVIL}, "column": f"c {EVIL}"}
    (await client.patch(f"{OWN}/tags/table/{segment(name)}", json=tags)).raise_for_status()


async def _commits(client: httpx.AsyncClient, metadata: Mapping[str, Any]) -> None:
    """Two snapshots, a tag, and a change of properties."""
    parent: int | None = None
    for number in (1, 2):
        summary = {
            "operation": "append",
            "added-records": "10",
            "total-records": str(10 * number),
            "total-files-size": str(1_000 * number),
            "total-data-files": str(number),
            "engine-name": EVIL,
        }
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": metadata["last-updated-ms"] + number,
            "manifest-list": f"{metadata['location']}/metadata/snap-{number}.avro",
            "summary": summary,
            "schema-id": 0,
        }
        if parent:
            snapshot["parent-snapshot-id"] = parent
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
            {"action": "set-snapshot-ref", "ref-name": f"tag {number} {EVIL}", "type": "tag", "snapshot-id": number},
        ]
        await _made(client, f"{REST}/tables/{segment(TABLE)}", {"requirements": [], "updates": updates})
        parent = number
    updates = [{"action": "set-properties", "updates": {f"later {EVIL}": EVIL}}]
    await _made(client, f"{REST}/tables/{segment(TABLE)}", {"requirements": [], "updates": updates})


async def _unity_objects(client: httpx.AsyncClient) -> None:
    where = {"catalog_name": "main", "schema_name": "plain"}
    delta = {"name": "d", "format": "delta", "columns": "id BIGINT", "comment": EVIL}
    await _made(client, "/api/sandur/v1/tables/main/plain", delta)
    await _made(client, f"{UNITY}/volumes", {**where, "name": "v", "volume_type": "MANAGED", "comment": EVIL})
    parameter = {"name": f"x {EVIL}", "type_text": "int", "type_name": "INT", "type_json": "{}", "position": 0}
    function = {name: getattr(FUNCTION, name) for name in FUNCTION.__struct_fields__}
    known = {name: value for name, value in function.items() if value is not None}
    info = {**known, "input_params": {"parameters": [parameter]}, **where, "name": "f", "comment": EVIL}
    await _made(client, f"{UNITY}/functions", {"function_info": {**info, "routine_definition": EVIL}})
    await _made(client, f"{UNITY}/models", {**where, "name": "m", "comment": EVIL})
    await _made(client, f"{UNITY}/models/versions", {**where, "model_name": "m", "source": EVIL, "comment": EVIL})
    tags = await client.patch(f"{OWN}/tags/volume/main.plain.v", json={"set": {"tag": EVIL}})
    assert tags.status_code == 200, tags.text


def datasets(table: str, daily: str) -> dict[str, list[dict[str, Any]]]:
    """Rows about the two tables."""
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    orders = {"catalog": "main", "namespace": LEVEL, "name": TABLE, "uuid": table, "table_uuid": table}
    other = {"catalog": "main", "namespace": LEVEL, "name": OTHER, "uuid": daily, "table_uuid": daily}
    commit = {
        **orders,
        "kind": "table",
        "format": "iceberg",
        "operation": EVIL,
        "metadata_version": 2,
        "committed_at": at,
        "committed_at_ms": NOW_MS,
        "source": "rest",
        "principal": EVIL,
        "client": EVIL,
        "run_id": EVIL,
        "lineage": "verified",
        "quality": "checked",
    }
    edge = {
        "edge_id": "e",
        "source_uuid": table,
        "source_name": full_name_of(Identifier("main", (LEVEL,), TABLE)),
        "target_uuid": daily,
        "target_name": full_name_of(Identifier("main", (LEVEL,), OTHER)),
        "job_namespace": EVIL,
        "job_name": EVIL,
        "confidence": "matched",
        "first_seen": at,
        "last_seen": at,
        "runs": 3,
    }
    outside = {**edge, "edge_id": "o", "source_uuid": None, "source_name": EVIL, "target_uuid": table}
    health = {
        **orders,
        "format": "iceberg",
        "mode": "report",
        "needs_json": f'[{{"operation": "compaction", "reason": "{EVIL.replace(chr(34), chr(39))}"}}]',
        "benefit": 1.0,
        "measured_at": at,
        "last_commit_at": at,
        "last_commit_ms": NOW_MS,
        "excess_files": 100,
        "small_files": 120,
        "small_bytes": 1_000_000,
        "expirable_snapshots": 3,
        "policy_json": "[]",
    }
    size = {"record_count": 20, "size_bytes": 2_000, "kind": "table", "format": "iceberg", "properties_json": "{}"}
    work = {
        **orders,
        "run": "1",
        "format": "iceberg",
        "operation": "compaction",
        "state": "done",
        "reason": EVIL,
        "started_at": at,
        "ended_at": at,
        "files_before": 120,
        "files_after": 2,
        "bytes_before": 3_000_000,
        "bytes_after": 1_000_000,
    }
    tags = {"tags": {"domain": "orders <script>"}, "columns": {"2": {"pii": "orders <script> 2"}}}
    described = {"properties_json": '{"owner team": "orders <script>"}', "tags_json": json.dumps(tags)}
    return {
        "tables": [{**orders, **size, **described}, {**other, **size}],
        "columns": [{**orders, "id": "1", "path": "orders <script> column", "column_name": "c", "type": "string"}],
        "commits": [commit, {**commit, **other, "name": None, "metadata_version": 1}],
        "timeline": [{**orders, "version": 2, "committed_at": at, "lineage": "verified", "quality": "checked"}],
        "maintenance": [work, {**work, "number": 1, "state": "failed"}],
        "activity": [{"table_uuid": table, "day": "2026-01-01", "commits": 3}],
        "table_health": [health],
        "lineage": [edge, {**outside, "target_name": edge["source_name"]}],
        "column_lineage": [],
    }
