"""The lineage graph over HTTP: directions and bounds, columns, Marquez' form, and nodes that stay without a name."""

import datetime as dt
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandur.operations.lineage import graph as graphs
from sandur.operations.published import CoreManifest, CorePointer, Dataset, PublishedFile
from sandur.pipeline.tables import COLUMN_LINEAGE, LINEAGE, Shape
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.memory import MemoryStore
from tests.server.audited import AuditedServer, audited_server
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET
from tests.server.requests import create_table

LINEAGE_API = "/api/sandur/v1/lineage"
OUTSIDE = "kafka://broker:orders"
FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LAST = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def edge(source: str, target: str, uuids: Mapping[str, str], **fields: Any) -> dict[str, Any]:
    sides: dict[str, str | None] = {}
    for side, name in (("source", source), ("target", target)):
        sides |= {f"{side}_name": f"main.ns.{name}" if name in uuids else name, f"{side}_uuid": uuids.get(name)}
    known = {
        "edge_id": f"{source} {target} {fields.get('job_name', '')}",
        **sides,
        "job_namespace": "etl",
        "job_name": "nightly",
        "last_run_id": "r1",
        "confidence": "matched",
        "first_seen": FIRST,
        "last_seen": LAST,
        "runs": 3,
        "type": "DIRECT",
        "subtype": "IDENTITY",
        "masking": False,
    }
    return known | fields


async def publish(store: ObjectStore, edges: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[str, Any]]) -> None:
    """Publish edges, as the pipeline does."""
    layout, datasets = Layout(), {}
    shapes: tuple[tuple[Shape, Sequence[Mapping[str, Any]]], ...] = ((LINEAGE, edges), (COLUMN_LINEAGE, columns))
    for shape, rows in shapes:
        sink = io.BytesIO()
        fitting = [{name: row.get(name) for name in shape.column_names} for row in rows]
        pq.write_table(pa.Table.from_pylist(fitting, schema=shape.arrow_schema), sink)
        data, key = sink.getvalue(), layout.core_snapshot("a1", f"{shape.name}.parquet")
        await store.put(key, data, expected=ABSENT)
        file = PublishedFile(key=key, rows=len(rows), size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        datasets[shape.name] = Dataset(sequence=1, files=(file,))
    manifest = layout.core_snapshot("a1", "manifest.json")
    encoded = msgspec.json.encode(CoreManifest(sequence=1, published_ms=7, datasets=datasets))
    await store.put(manifest, encoded, expected=ABSENT)
    pointer = CorePointer(sequence=1, manifest=manifest, published_ms=7)
    await store.put(layout.core_manifest(), msgspec.json.encode(pointer), expected=ABSENT)


async def make_tables(client: httpx.AsyncClient, *names: str, **headers: str) -> dict[str, str]:
    """The uuids of new tables in the namespace `ns`."""
    await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=headers)
    made = [await client.post("/v1/namespaces/ns/tables", json=create_table(name), headers=headers) for name in names]
    return {name: one.json()["metadata"]["table-uuid"] for name, one in zip(names, made, strict=True)}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def client(catalogs: Catalogs, store: MemoryStore) -> httpx.AsyncClient:
    """Raw -> daily -> report, side -> report, and a topic -> raw."""
    client = await catalogs.open(store)
    uuids = await make_tables(client, "raw", "daily", "report", "side", "alone")
    edges = [
        edge(OUTSIDE, "raw", uuids, confidence="declared"),
        edge("raw", "daily", uuids, commit_key="ab", target_version="7"),
        edge("daily", "report", uuids, first_seen=LAST),
        edge("side", "report", uuids, first_seen=LAST),
    ]
    columns = [
        edge("raw", "daily", uuids, source_column="id", target_column="key", source_field_id=1, target_field_id=2),
        edge("raw", "daily", uuids, source_column="text", target_column=None, type="INDIRECT", subtype="FILTER"),
        edge("daily", "report", uuids, source_column="key", target_column="key"),
        edge("daily", "report", uuids, source_column="other", target_column="other"),
    ]
    await publish(store, edges, columns)
    return client


async def ask(client: httpx.AsyncClient, node: str, **query: Any) -> Any:
    answer = await client.get(LINEAGE_API, params={"node": node, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def arrows(graph: Any) -> list[tuple[str, str]]:
    shorter = [(edge["source"], edge["target"]) for edge in graph["edges"]]
    return [tuple(one.removeprefix("table:main.ns.") for one in pair) for pair in shorter]


@pytest.mark.parametrize(
    ("node", "query", "expected"),
    [
        ("daily", {}, [("raw", "daily"), (f"external:{OUTSIDE}", "raw"), ("daily", "report")]),
        ("daily", {"direction": "up", "depth": 1}, [("raw", "daily")]),
        ("daily", {"direction": "down"}, [("daily", "report")]),
        ("report", {"direction": "up", "as_of": "2026-03-01"}, []),
        ("daily", {"as_of": "2026-03-01"}, [("raw", "daily"), (f"external:{OUTSIDE}", "raw")]),
        ("alone", {}, []),
    ],
)
async def test_a_graph_has_the_asked_direction_depth_and_time(
    client: httpx.AsyncClient, node: str, query: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    graph = await ask(client, f"table:main.ns.{node}", **query)

    assert sorted(arrows(graph)) == sorted(expected)
    assert (graph["start"], graph["truncated"], graph["published_ms"]) == (f"table:main.ns.{node}", False, 7)


async def test_an_edge_says_what_is_known_about_it(client: httpx.AsyncClient) -> None:
    graph = await ask(client, "table:main.ns.daily", direction="up", depth=1)

    assert graph["edges"] == [
        {
            "source": "table:main.ns.raw",
            "target": "table:main.ns.daily",
            "confidence": "matched",
            "job": "etl:nightly",
            "last_run_id": "r1",
            "target_version": "7",
            "commit_key": "ab",
            "runs": 3,
            "first_seen_ms": round(FIRST.timestamp() * 1_000),
            "last_seen_ms": round(LAST.timestamp() * 1_000),
        }
    ]


async def test_columns_are_all_between_the_nodes_or_those_that_lead_to_some(client: httpx.AsyncClient) -> None:
    every = await ask(client, "table:main.ns.report", columns="true")
    some = await ask(client, "table:main.ns.report", columns="key", direction="up")
    none = await ask(client, "table:main.ns.report")

    assert len(every["columns"]) == 4
    assert [(one["source_column"], one["target_column"]) for one in some["columns"]] == [("id", "key"), ("key", "key")]
    assert none["columns"] == []


async def test_a_dataset_outside_and_a_job_are_nodes_too(client: httpx.AsyncClient) -> None:
    outside = await ask(client, f"external:{OUTSIDE}", depth=1)
    job = await ask(client, "job:etl:nightly", depth=1)

    assert arrows(outside) == [(f"external:{OUTSIDE}", "raw")]
    assert len(job["edges"]) == 4


async def test_too_many_nodes_are_cut_and_the_answer_says_so(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "NODES_MAX", 2)

    graph = await ask(client, "table:main.ns.report")

    assert (len(graph["nodes"]), graph["truncated"]) == (2, True)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"node": "main.ns.daily"}, 400),
        ({"node": "table:daily"}, 400),
        ({"node": "table:main.ns.nothing"}, 404),
        ({"node": "external:nothing"}, 404),
        ({"node": "job:etl:nothing"}, 404),
        ({"node": "table:main.ns.daily", "depth": "11"}, 400),
        ({"node": "table:main.ns.daily", "depth": "0"}, 400),
        ({"node": "table:main.ns.daily", "direction": "left"}, 400),
        ({"node": "table:main.ns.daily", "as_of": "soon"}, 400),
        ({"node": "table:main.ns.daily", "deep": "1"}, 400),
    ],
)
async def test_a_malformed_question_is_refused(client: httpx.AsyncClient, query: dict[str, str], status: int) -> None:
    answer = await client.get(LINEAGE_API, params=query)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_without_anything_published_a_table_is_alone(catalogs: Catalogs) -> None:
    client = await catalogs.open()
    await make_tables(client, "raw")

    graph = await ask(client, "table:main.ns.raw", columns="true")

    assert ([node["name"] for node in graph["nodes"]], graph["edges"]) == (["main.ns.raw"], [])


async def test_columns_of_a_table_without_lineage_are_none(catalogs: Catalogs) -> None:
    client = await catalogs.open()
    await make_tables(client, "alone")

    own = await client.get("/api/sandur/v1/lineage", params={"node": "table:main.ns.alone", "columns": "id"})
    marquez = await client.get("/api/v1/column-lineage", params={"nodeId": "datasetField:main:ns.alone:id"})

    assert (own.status_code, own.json()["columns"]) == (200, []), own.text
    assert (marquez.status_code, marquez.json()) == (200, {"graph": []}), marquez.text


async def test_marquez_clients_get_datasets_with_jobs_between_them(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/lineage", params={"nodeId": "dataset:main:ns.daily", "depth": "20"})

    nodes = {node["id"]: node for node in answer.json()["graph"]}
    assert nodes.keys() == {
        "dataset:main:ns.raw",
        "dataset:main:ns.daily",
        "dataset:main:ns.report",
        f"dataset:external:{OUTSIDE}",
        "job:etl:nightly",
    }
    assert nodes["dataset:main:ns.daily"]["type"] == "DATASET"
    assert nodes["job:etl:nightly"]["type"] == "JOB"
    assert {"origin": "job:etl:nightly", "destination": "dataset:main:ns.daily"} in nodes["dataset:main:ns.daily"][
        "inEdges"
    ]


async def test_marquez_clients_get_columns(client: httpx.AsyncClient) -> None:
    one = "datasetField:main:ns.daily:key"
    up = (await client.get("/api/v1/column-lineage", params={"nodeId": one})).json()["graph"]
    both = (await client.get("/api/v1/column-lineage", params={"nodeId": one, "withDownstream": "true"})).json()[
        "graph"
    ]
    bad = await client.get("/api/v1/column-lineage", params={"nodeId": "x"})

    (found,) = [node for node in up if node["id"] == one]
    assert [field["field"] for field in found["data"]["inputFields"]] == ["id"]
    assert (len(up), len(both), bad.status_code) == (2, 3, 400)


async def logged_in(server: AuditedServer, name: str, admin: dict[str, str]) -> dict[str, str]:
    made = (await server.client.post("/api/sandur/v1/principals", json={"name": name}, headers=admin)).json()
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": made["client_secret"]}
    token = (await server.client.post("/v1/oauth/tokens", data=form)).json()["access_token"]
    return {"authorization": f"Bearer {token}"}


async def test_what_the_asker_may_not_see_has_no_name() -> None:
    """Ann may read report: daily, raw and the topic stay hidden, also in every form of the answer."""
    async with audited_server(authentication="on", admin_secret=ADMIN_SECRET) as server:
        admin = await server.admin()
        uuids = await make_tables(server.client, "raw", "daily", "report", **admin)
        edges = [edge(OUTSIDE, "raw", uuids), edge("raw", "daily", uuids), edge("daily", "report", uuids)]
        columns = [edge("daily", "report", uuids, source_column="secret", target_column="key")]
        await publish(server.store, edges, columns)
        ann = await logged_in(server, "ann", admin)
        for kind, name, privilege in (
            ("catalog", "main", "USE CATALOG"),
            ("schema", "main.ns", "USE SCHEMA"),
            ("table", "main.ns.report", "SELECT"),
        ):
            change = {"changes": [{"principal": "ann", "add": [privilege], "remove": []}]}
            granted = await server.client.patch(f"/api/sandur/v1/grants/{kind}/{name}", json=change, headers=admin)
            assert granted.status_code == 200, granted.text
        question = {"node": "table:main.ns.report", "columns": "true"}

        seen = await server.client.get(LINEAGE_API, params=question, headers=ann)
        marquez = await server.client.get("/api/v1/lineage", params={"nodeId": "dataset:main:ns.report"}, headers=ann)
        hidden = await server.client.get(LINEAGE_API, params={"node": "table:main.ns.raw"}, headers=ann)
        outside = await server.client.get(LINEAGE_API, params={"node": f"external:{OUTSIDE}"}, headers=ann)
        everything = await server.client.get(LINEAGE_API, params=question, headers=admin)

        graph = seen.json()
        assert [node["kind"] for node in graph["nodes"]] == ["table", "hidden", "hidden", "hidden"]
        assert graph["columns"] == []
        assert [set(one) for one in graph["edges"]] == [{"source", "target", "confidence"}] * 3
        for answer in (seen, marquez):
            for secret in ("daily", "raw", "orders", "nightly", "secret", uuids["raw"], uuids["daily"]):
                assert secret not in answer.text
        assert (hidden.status_code, outside.status_code) == (404, 404)
        assert len(everything.json()["columns"]) == 1
        assert {node["kind"] for node in everything.json()["nodes"]} == {"table", "external"}
        assert (await server.client.get(LINEAGE_API, params=question)).status_code == 401
