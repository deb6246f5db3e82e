"""Events over HTTP: pages, the stream of server-sent events, and the form proposed for Iceberg's REST API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from sandur.operations.event_feed import streams
from sandur.server import http as kit
from sandur.server.app import App
from sandur.server.process import RunningCatalog
from sandur.server.serve import build
from sandur.settings import Settings
from tests.events.streaming import streamed
from tests.server.conftest import with_plain_names
from tests.server.requests import create_table, rename, set_properties
from tests.server.secured_server import ADMIN_SECRET

EVENTS = "/api/sandur/v1/events"
STREAM = f"{EVENTS}/stream"
NAMESPACES = "/v1/main/namespaces"
TABLES = f"{NAMESPACES}/ns/tables"


class Server:
    def __init__(self, app: App, catalog: RunningCatalog, client: httpx.AsyncClient) -> None:
        self.app = app
        self.catalog = catalog
        self.client = client

    async def send(self, method: str, path: str, body: object = None) -> Any:
        """Receipts are written behind the answers: only if each request waits for them, events have its order."""
        answer = await self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        await self.settle()
        return answer.json() if answer.content else None

    async def set_up(self, *tables: str) -> None:
        await self.send("POST", NAMESPACES, {"namespace": ["ns"]})
        for name in tables:
            await self.send("POST", TABLES, create_table(name))

    async def commit(self, name: str, value: str) -> None:
        await self.send("POST", f"{TABLES}/{name}", set_properties(step=value))

    async def settle(self) -> None:
        for lake in self.catalog.lakes.lakes:
            await lake.background.drain()


@asynccontextmanager
async def served(**settings: object) -> AsyncIterator[Server]:
    given = Settings(**{"store": "memory:", "log_level": "error", **settings})  # type: ignore[arg-type] # By name.
    app, catalog = build(given)
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as client:
        try:
            yield Server(app, catalog, client)
        finally:
            await catalog.close()


async def test_a_page_has_events_and_the_token_of_the_next_page() -> None:
    async with served() as server:
        await server.set_up("t", "u")

        first = await server.send("GET", f"{EVENTS}?page_size=1&kind=committed")
        second = await server.send("GET", f"{EVENTS}?page_size=5&kind=committed&page_token={first['next_page_token']}")

        assert first["has_more"]
        (event,) = first["events"]
        assert event["type"] == "table.committed"
        assert (event["catalog"], event["namespace"], event["name"]) == ("main", ["ns"], "t")
        assert [one["name"] for one in second["events"]] == ["u"]
        assert not second["has_more"]


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("kind=nonsense", 400, "Invalid kind"),
        ("since=yesterday", 400, "Invalid time"),
        ("page_size=0", 400, "page_size"),
        ("page_size=x", 400, "page_size"),
        ("page_token=nonsense", 400, "Invalid page token"),
        ("unknown=1", 400, "Unknown query parameter"),
        ("table=main..t", 400, "Invalid name"),
    ],
)
async def test_a_bad_query_gets_a_clear_error(query: str, status: int, text: str) -> None:
    async with served() as server:
        for path in (EVENTS, STREAM):
            answer = await server.client.get(f"{path}?{query}")
            if path == STREAM and query.startswith("page_size"):
                text = "Unknown query parameter"
            assert (answer.status_code, text in answer.json()["error"]["message"]) == (status, True), answer.text


async def test_a_stream_sends_what_happens_and_resumes_behind_the_last_event() -> None:
    async with served() as server:
        await server.set_up("t")

        async with streamed(server.app, STREAM) as stream:
            assert stream.headers[b"content-type"].startswith(b"text/event-stream")
            assert (await stream.read(with_heartbeats=True)).type == "heartbeat"
            await server.commit("t", "1")
            seen = await stream.read()

        await server.commit("t", "2")
        async with streamed(server.app, STREAM, last_event_id=seen.id) as stream:
            later = await stream.read()

        assert (seen.type, seen.data["name"], seen.data["version"]) == ("table.committed", "t", 1)
        assert later.data["version"] == 2


async def test_a_stream_from_a_time_on_begins_with_the_past() -> None:
    async with served() as server:
        await server.set_up("t")

        async with streamed(server.app, f"{STREAM}?since=1h&kind=committed") as stream:
            assert (await stream.read()).data["operation"] == "create"


async def test_heartbeats_carry_a_position_to_resume_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.01)
    async with served() as server:
        await server.set_up("t")
        async with streamed(server.app, STREAM) as stream:
            beats = [await stream.read(with_heartbeats=True) for _ in range(3)]
        await server.commit("t", "1")

        assert {beat.type for beat in beats} == {"heartbeat"}
        async with streamed(server.app, STREAM, last_event_id=beats[-1].id) as stream:
            assert (await stream.read()).data["version"] == 1


async def test_streams_are_bounded_and_a_closed_one_makes_room() -> None:
    async with served(event_streams_max=4) as server:
        async with streamed(server.app, STREAM) as first:
            assert first.status == 200
            refused = await server.client.get(STREAM)
            assert refused.status_code == 503
            assert "event_streams_max" in refused.json()["error"]["message"]
        async with streamed(server.app, STREAM) as again:
            assert again.status == 200


async def test_a_stopping_server_ends_its_streams_with_their_position() -> None:
    async with served() as server, streamed(server.app, STREAM) as stream:
        await stream.read(with_heartbeats=True)

        server.catalog.end_streams()

        end = await stream.read()
        assert end.type == "end"
        assert "connect again" in end.data["reason"]
        assert end.id
        await stream.is_ended.wait()


async def test_a_reader_that_stops_reading_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "PART_SECONDS_MAX", 0.01)
    async with served() as server:
        await server.set_up("t")
        async with streamed(server.app, STREAM) as stream:
            await stream.read(with_heartbeats=True)
            stream.stalled.set()
            await server.commit("t", "1")
            lake = server.catalog.lakes.lake("default", "default")
            for _ in range(2_000):
                if not lake.feature(streams.EventStreams)._open.total():
                    break
                await lake.clock.sleep(0.005)
            assert not lake.feature(streams.EventStreams)._open.total()


async def _login(server: Server, name: str, secret: str) -> dict[str, str]:
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret, "scope": "catalog"}
    token = (await server.client.post("/v1/oauth/tokens", data=form)).raise_for_status().json()["access_token"]
    return {"authorization": f"Bearer {token}"}


async def test_with_authentication_a_stream_shows_what_its_reader_may_see_and_ends_when_it_is_removed() -> None:
    async with served(authentication="on", admin_secret=ADMIN_SECRET) as server:
        server.client.headers.update(await _login(server, "admin", ADMIN_SECRET))
        await server.set_up("t", "hidden")
        made = await server.send("POST", "/api/sandur/v1/principals", {"name": "ann"})
        ann = await _login(server, "ann", made["client_secret"])
        grant = {"changes": [{"principal": "ann", "add": ["SELECT"]}]}
        await server.send("PATCH", "/api/sandur/v1/grants/table/main.ns.t", grant)
        assert (await server.client.get(STREAM, headers={"authorization": "Bearer no"})).status_code == 401

        async with streamed(server.app, f"{STREAM}?since=1h&kind=committed", **ann) as stream:
            assert (await stream.read()).data["name"] == "t"
            await server.commit("hidden", "1")
            await server.commit("t", "1")
            assert (await stream.read()).data["name"] == "t"

            await server.send("DELETE", "/api/sandur/v1/principals/ann")
            await server.commit("t", "2")
            end = await stream.read()
        assert end.type == "end"
        assert "log in again" in end.data["reason"]


async def test_the_proposed_endpoint_is_absent_unless_a_setting_enables_it() -> None:
    async with served() as server:
        assert (await server.client.post("/v1/main/events", json={})).status_code == 400
    async with served(iceberg_events=True) as server:
        config = (await server.client.get("/v1/config")).json()
        assert not [one for one in config["endpoints"] if one.endswith("/events")]
        for path in ("/v1/main/events", "/iceberg/v1/main/events"):
            assert (await server.client.post(path, json={})).status_code == 200


async def test_the_proposed_endpoint_tells_operations_with_tokens_and_filters() -> None:
    async with served(iceberg_events=True) as server:
        await server.set_up("t", "u")
        await server.commit("t", "1")
        await server.send("POST", "/v1/main/tables/rename", rename("u", "v"))

        async def query(**body: object) -> Any:
            sent = {name.replace("_", "-"): value for name, value in body.items()}
            return await server.send("POST", "/v1/main/events", sent)

        found = await query(page_size=4)
        rest = await query(continuation_token=found["continuation-token"])
        all_events = [*found["events"], *rest["events"]]
        kinds = [event["operation"]["operation-type"] for event in all_events]
        assert {"create-namespace", "create-table", "update-table", "rename-table"} <= set(kinds)
        created = next(one["operation"] for one in all_events if one["operation"]["operation-type"] == "create-table")
        assert created["identifier"] == {"namespace": ["ns"], "name": "t"}
        assert found["highest-processed-timestamp-ms"] > 0

        updates = await query(operation_types=["update-table"])
        assert [one["operation"]["operation-type"] for one in updates["events"]] == ["update-table"]
        named = await query(catalog_objects_by_name=[["ns", "v"]], object_types=["table"])
        assert {one["operation"]["operation-type"] for one in named["events"]} == {"create-table", "rename-table"}
        uuid = created["table-uuid"]
        by_uuid = await query(catalog_objects_by_uuid=[uuid], operation_types=["create-table"])
        assert len(by_uuid["events"]) == 1
        for bad in ({"page-size": 0}, {"custom-filters": {"x": 1}}, {"operation-types": 1}, {"object-types": ["x"]}):
            assert (await server.client.post("/v1/main/events", json=bad)).status_code == 400
