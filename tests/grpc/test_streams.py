"""Streams: plans in parts, and events that any server continues from a position."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandur.catalog.event_feed.events import EventFilter
from sandur.operations.event_feed.streams import follow, open_stream
from sandur.server.grpc import service
from sandur.server.grpc.server import GrpcServer
from sandur.settings import GrpcSettings
from sandur.storage.memory import MemoryStore
from sandur.v1 import catalogs_pb2, events_pb2, scans_pb2, tables_pb2
from sandur.v1.common_pb2 import Name, Page
from tests.grpc.direct import Aborted, Direct, FakeContext, opened, run
from tests.grpc.stubs import body, method_of, namespace_name, table_name
from tests.planning.plan_servers import SMALL, Fleet, made_table, paths
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table, set_properties

LARGE = table_name("t", namespace=("a",))
FROM_THE_START = events_pb2.EventFilter(since_ms=1)


@asynccontextmanager
async def on_the_wire(direct: Direct) -> AsyncIterator[tuple[GrpcServer, grpc.aio.Channel]]:
    server = await direct.listen()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield server, channel
    await server.stop()


@pytest.mark.parametrize("plan_wait", ["PT2M", "PT0S"])
async def test_a_plan_of_many_files_arrives_in_parts_that_have_every_file_once(tmp_path: Path, plan_wait: str) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    await fleet.serve_table(made_table(fleet.table_folder, 9, 8, 7))
    direct = await opened(folder=tmp_path, plan_wait=plan_wait, **SMALL)

    parts = await direct.call("Scans.Plan", scans_pb2.PlanScanRequest(table=LARGE))

    assert len(parts) > 2
    assert [bool(part.plan_id) for part in parts] == [True, *[False] * (len(parts) - 1)]
    tasks = [task for part in parts for task in json.loads(part.tasks).get("file-scan-tasks", [])]
    assert sorted(task["data-file"]["file-path"] for task in tasks) == sorted(paths(0, 24))
    await direct.close()


async def test_a_cancelled_plan_ends_its_stream(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    await fleet.serve_table(made_table(fleet.table_folder, 9, 8, 7))
    direct = await opened(folder=tmp_path, **SMALL)
    context = FakeContext((), None)

    async def cancel_after_the_first(message: bytes) -> None:
        if not context.written:
            plan_id = scans_pb2.PlanScanResponse.FromString(message).plan_id
            await direct.call("Scans.Cancel", scans_pb2.CancelScanRequest(table=LARGE, plan_id=plan_id))
        context.written.append(message)

    context.write = cancel_after_the_first  # type: ignore[method-assign] # The client acts between two messages.
    with pytest.raises(Aborted) as aborted:
        await run(direct.services, "/sandur.v1.Scans/Plan", scans_pb2.PlanScanRequest(table=LARGE), context)

    assert aborted.value.problem.code == "NOT_FOUND"
    await direct.close()


async def test_a_client_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch, direct: Direct) -> None:
    monkeypatch.setattr(service, "STREAM_WRITE_SECONDS_MAX", 0.01)
    context = FakeContext((), None)

    async def never(_message: bytes) -> None:
        await asyncio.Event().wait()

    context.write = never  # type: ignore[method-assign, assignment] # A client whose window is full.
    with pytest.raises(Aborted) as aborted:
        await run(direct.services, "/sandur.v1.Events/Subscribe", events_pb2.SubscribeRequest(), context)

    assert aborted.value.problem.code == "RESOURCE_EXHAUSTED"
    assert "did not read" in aborted.value.problem.text


async def make_events(direct: Direct, count: int = 3) -> None:
    """A namespace, a table, and commits to it, whose receipts are written."""
    await direct.call("Namespaces.Create", catalogs_pb2.CreateNamespaceRequest(name=namespace_name("ns")))
    created = tables_pb2.CreateTableRequest(namespace=namespace_name("ns"), body=body(create_table("t")))
    await direct.call("Tables.Create", created)
    for number in range(count):
        change = set_properties(**{f"k{number}": "v"})
        await direct.call("Tables.Commit", tables_pb2.CommitTableRequest(table=table_name("t"), body=body(change)))
    await direct.catalog.lakes.lake("default", "default").background.drain()


async def test_pages_have_the_events_of_the_rest_api(direct: Direct) -> None:
    await make_events(direct)

    by_grpc = await direct.call("Events.Query", events_pb2.QueryEventsRequest())
    by_rest = (await direct.http.get("/api/sandur/v1/events")).json()

    assert len(by_grpc.events) >= 4
    assert by_grpc.position == by_rest["next_page_token"]
    assert by_grpc.has_more == by_rest["has_more"]
    assert [_as_rest(event) for event in by_grpc.events] == [_known(event) for event in by_rest["events"]]


def _as_rest(event: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": event.id,
        "type": event.type,
        "object_id": event.object_id,
        "object_type": event.object_type,
        "catalog": event.name.catalog,
        "namespace": list(event.name.namespace),
        "name": event.name.name,
        "commit_key": event.commit_key,
        "previous": event.previous,
        "operation": event.operation,
        "version": event.version if event.HasField("version") else None,
        "format": event.format,
        "details": list(event.details),
        "principal": event.source.principal,
    }
    return {name: value for name, value in found.items() if value not in ("", None, [])}


def _known(event: dict[str, Any]) -> dict[str, Any]:
    left_out = {"time", "source", "refs", "snapshot_id"}
    found = {name: value for name, value in event.items() if name not in left_out}
    principal = event["source"].get("principal")
    return {**found, "principal": principal} if principal else found


async def test_pages_continue_and_a_filter_selects(direct: Direct) -> None:
    await make_events(direct)
    everything = await direct.call("Events.Query", events_pb2.QueryEventsRequest())
    commits = events_pb2.EventFilter(kinds=["committed"], names=[Name(namespace=["ns"])])

    found, position = [], ""
    for _ in range(20):
        page = Page(size=2, token=position)
        part = await direct.call("Events.Query", events_pb2.QueryEventsRequest(filter=commits, page=page))
        found += [event.id for event in part.events]
        position = part.position
        if not part.has_more:
            break

    assert found == [event.id for event in everything.events if event.type.endswith(".committed")]
    other = events_pb2.QueryEventsRequest(page=Page(token=position))
    assert (await direct.problem("Events.Query", other)).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "wanted",
    [
        events_pb2.EventFilter(kinds=["unknown"]),
        events_pb2.EventFilter(object_types=["unknown"]),
        events_pb2.EventFilter(object_ids=["no uuid"]),
        events_pb2.EventFilter(names=[Name(name="t")]),
        events_pb2.EventFilter(since_ms=-1),
    ],
)
async def test_an_invalid_filter_is_refused(direct: Direct, wanted: events_pb2.EventFilter) -> None:
    by_query = await direct.problem("Events.Query", events_pb2.QueryEventsRequest(filter=wanted))
    by_stream = await direct.problem("Events.Subscribe", events_pb2.SubscribeRequest(filter=wanted))

    assert (by_query.code, by_stream.code) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")


async def _read(stream: Any, wanted: int) -> tuple[list[str], str]:
    """At least this number of ids of events, and the position behind them."""
    found: list[str] = []
    position = ""
    while len(found) < wanted:
        part = await stream.read()
        found += [event.id for event in part.events]
        position = part.position
    return found, position


async def test_a_subscription_resumes_on_another_server_without_a_gap_or_a_repetition() -> None:
    store = MemoryStore()
    first, second = await opened(store), await opened(store)
    subscribe = "Events.Subscribe"
    async with on_the_wire(first) as (_, channel):
        stream = method_of(channel, subscribe)(events_pb2.SubscribeRequest(filter=FROM_THE_START))
        await make_events(first)
        before, position = await _read(stream, 4)
        stream.cancel()

    sent = tables_pb2.DropTableRequest(table=table_name("t"))
    await first.call("Tables.Drop", sent)
    async with on_the_wire(second) as (_, channel):
        asked = events_pb2.SubscribeRequest(filter=FROM_THE_START, position=position)
        stream = method_of(channel, subscribe)(asked)
        after, _ = await _read(stream, 1)
        stream.cancel()
    everything = await second.call("Events.Query", events_pb2.QueryEventsRequest(filter=FROM_THE_START))

    assert [*before, *after] == [event.id for event in everything.events]
    await first.close()
    await second.close()


async def test_a_stopping_server_ends_a_subscription_with_its_position(direct: Direct) -> None:
    await make_events(direct)
    async with on_the_wire(direct) as (_, channel):
        stream = method_of(channel, "Events.Subscribe")(events_pb2.SubscribeRequest(filter=FROM_THE_START))
        _, position = await _read(stream, 4)
        direct.catalog.end_streams()
        last = await stream.read()
        assert await stream.read() is grpc.aio.EOF

    assert last.end
    assert last.position == position
    assert await stream.code() == grpc.StatusCode.OK


async def test_a_stream_that_ends_while_a_part_is_sent_still_says_so(direct: Direct) -> None:
    await make_events(direct)
    lake = direct.catalog.lakes.lake("default", "default")
    position, wanted = await open_stream(lake, EventFilter(), None)
    parts = follow(lake, wanted, position)

    await anext(parts)
    direct.catalog.end_streams()

    assert "the server stops" in (await anext(parts)).end
    with pytest.raises(StopAsyncIteration):
        await anext(parts)


async def test_a_subscription_ends_at_the_age_of_its_connection() -> None:
    direct = await opened(grpc=GrpcSettings(connection_age="PT0S"))
    await make_events(direct)

    parts = await direct.call("Events.Subscribe", events_pb2.SubscribeRequest(filter=FROM_THE_START))

    assert len(parts[-1].events) >= 4
    assert "call again" in parts[-1].end
    await direct.close()


async def test_a_subscription_shows_only_what_its_caller_may_see() -> None:
    direct = await opened(
        authentication="on", admin_secret=SECURED.admin_secret, grpc=GrpcSettings(connection_age="PT0S")
    )
    admin = await bearer(direct.http)
    direct.metadata = (("authorization", admin["Authorization"]),)
    await make_events(direct)
    stranger = await make_principal(direct.http, admin, "stranger")
    asked = events_pb2.SubscribeRequest(filter=events_pb2.EventFilter(since_ms=1, object_types=["table"]))

    own = await direct.call("Events.Subscribe", asked)
    direct.metadata = (("authorization", stranger["Authorization"]),)
    strange = await direct.call("Events.Subscribe", asked)

    assert sum(len(part.events) for part in own) >= 4
    assert sum(len(part.events) for part in strange) == 0
    await direct.close()
