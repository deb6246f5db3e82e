"""Janitors write the receipts of changes of the catalog whose servers died behind the answer, without a next writer."""

from collections.abc import Awaitable, Callable

import pytest

from sandur.catalog.identifiers import Namespace
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.delta.tables import drop_table as drop_delta
from sandur.operations.delta.tables import rename_table as rename_delta
from sandur.operations.janitors.events import HEAD_AGE_MS
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.rename import rename
from tests.events.world import ALL, events_of
from tests.operations.delta_requests import D, create_managed
from tests.operations.event_chains import check_events
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import create, identifier_of, keyed_request

T, U, E = identifier_of("t"), identifier_of("u"), identifier_of("e")
OTHER = Namespace("main", ("other",))
Work = Callable[[Lake], Awaitable[object]]
Condition = Callable[[Lake], Awaitable[bool]]


async def _is_gone(server: Lake) -> bool:
    return await resolve_name(server, T) is None


async def _is_renamed(server: Lake) -> bool:
    return await resolve_name(server, U) is not None


async def _is_delta_gone(server: Lake) -> bool:
    return await resolve_name(server, D) is None


async def _is_delta_renamed(server: Lake) -> bool:
    return await resolve_name(server, E) is not None


async def _has_namespace(server: Lake) -> bool:
    return await server.namespace(OTHER).read() is not None


CHANGES: dict[str, tuple[Work, Condition, str]] = {
    "drop": (
        lambda server: drop_name(server, T, kind="table", request=keyed_request("drop")),
        _is_gone,
        "table.dropped",
    ),
    "rename": (
        lambda server: rename(server, T, U, kind="table", request=keyed_request("rename")),
        _is_renamed,
        "table.renamed",
    ),
    "drop of a Delta table": (
        lambda server: drop_delta(server, D, request=keyed_request("drop")),
        _is_delta_gone,
        "table.dropped",
    ),
    "rename of a Delta table": (
        lambda server: rename_delta(server, D, "e", request=keyed_request("rename")),
        _is_delta_renamed,
        "table.renamed",
    ),
    "namespace": (
        lambda server: create_namespace(server, OTHER, {}, keyed_request("namespace")),
        _has_namespace,
        "namespace.created",
    ),
}


async def _killed(what: str) -> Cluster:
    """A catalog in which a change happened, by a server that died before it wrote the receipt."""
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    await create_managed(cluster.server())
    work, condition, kind = CHANGES[what]
    await cluster.kill_when(work, condition)
    assert kind not in await _kinds(cluster)
    return cluster


async def _kinds(cluster: Cluster) -> list[str]:
    return [event.type for event in await events_of(cluster.server(), ALL)]


@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_of_a_killed_server_becomes_an_event_without_a_next_writer(what: str) -> None:
    cluster = await _killed(what)

    cluster.clock.advance(HEAD_AGE_MS)
    swept = await cluster.sweep()

    assert sum(times for outcome, times in swept.items() if outcome.endswith("_settled")) >= 1, swept
    assert (await _kinds(cluster)).count(CHANGES[what][2]) == 1
    await check_events(cluster.server())
    assert not any(outcome.endswith("events_settled") for outcome in await cluster.sweep())
    assert (await _kinds(cluster)).count(CHANGES[what][2]) == 1


@pytest.mark.parametrize("age_ms", [HEAD_AGE_MS - 1, 2 * DAY_MS])
async def test_a_change_of_this_minute_or_of_long_ago_is_left_alone(age_ms: int) -> None:
    cluster = await _killed("namespace")

    cluster.clock.advance(age_ms)
    await cluster.sweep()

    assert "namespace.created" not in await _kinds(cluster)
