"""Janitors write the receipts of commits whose servers died behind the answer, although no successor comes."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from sandur.catalog.event_feed.events import Event
from sandur.operations.janitors.events import HEAD_AGE_MS
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.transactions.coordinator import commit_transaction
from tests.events.world import events_of
from tests.operations.delta_requests import add, create_managed
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    table,
)

T, U = identifier_of("t"), identifier_of("u")
UUID = "5b6b2b4e-0000-4000-8000-000000000007"


def _version(event: Event) -> tuple[str, int | None]:
    return event.identifier.name if event.identifier else "", event.version


async def _versions(cluster: Cluster) -> list[tuple[str, int | None]]:
    return sorted(_version(event) for event in await events_of(cluster.server()))


def _has_property(value: str) -> Callable[[Lake], Awaitable[bool]]:
    async def is_visible(server: Lake) -> bool:
        return bool(content(await load(server, T)).get("properties", {}).get("step") == value)

    return is_visible


async def _quiet_commit() -> Cluster:
    """A table whose last commit happened, by a server that died before it wrote the receipt."""
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    await cluster.kill_when(
        lambda server: commit_table(server, T, commit(set_property("step", "1")), request("1")), _has_property("1")
    )
    assert await _versions(cluster) == [("t", 0)]
    return cluster


async def test_the_last_commit_of_a_killed_server_becomes_an_event_without_a_successor() -> None:
    cluster = await _quiet_commit()

    cluster.clock.advance(HEAD_AGE_MS)
    assert (await cluster.sweep())["heads_settled"] == 1

    assert await _versions(cluster) == [("t", 0), ("t", 1)]
    assert "heads_settled" not in await cluster.sweep()


async def test_a_commit_of_this_minute_is_left_to_its_server() -> None:
    cluster = await _quiet_commit()

    cluster.clock.advance(HEAD_AGE_MS - 1)

    assert "heads_settled" not in await cluster.sweep()


async def test_an_old_commit_is_left_to_the_pipeline_because_its_receipt_may_have_been_collected() -> None:
    cluster = await _quiet_commit()

    cluster.clock.advance(2 * DAY_MS)

    assert "heads_settled" not in await cluster.sweep()


async def test_a_creation_that_happened_becomes_an_event() -> None:
    cluster = await Cluster.with_catalog()

    async def exists(server: Lake) -> bool:
        found = await server.name(T).read()
        return found is not None and found.value.state in {"new", "active"}

    await cluster.kill_when(lambda server: create_table(server, NAMESPACE, table("t"), keyed_request("c")), exists)
    assert await _versions(cluster) == []

    cluster.clock.advance(HEAD_AGE_MS)
    await cluster.sweep()

    assert await _versions(cluster) == [("t", 0)]


async def test_a_creation_that_did_not_happen_never_becomes_an_event() -> None:
    cluster = await Cluster.with_catalog()
    folder = cluster.server().layout.pointers_folder()

    async def has_pointer(server: Lake) -> bool:
        return bool(await server.store.list(folder)) and await server.name(T).read() is None

    await cluster.kill_when(lambda server: create_table(server, NAMESPACE, table("t"), keyed_request("c")), has_pointer)

    cluster.clock.advance(HEAD_AGE_MS)
    await cluster.sweep()

    assert await _versions(cluster) == []


async def test_every_table_of_a_committed_transaction_becomes_an_event() -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    changes = [(T, commit(set_property("step", "1"))), (U, create_commit(UUID))]
    await cluster.kill_when(
        lambda server: commit_transaction(server, "main", changes, keyed_request("both")), _has_property("1")
    )
    assert await _versions(cluster) == [("t", 0)]

    cluster.clock.advance(HEAD_AGE_MS)
    await cluster.sweep()

    assert await _versions(cluster) == [("t", 0), ("t", 1), ("u", 0)]


@pytest.mark.parametrize("commits", [1, 3])
async def test_commits_of_delta_tables_become_events(commits: int) -> None:
    cluster = await Cluster.with_catalog()
    made = await create_managed(cluster.server())
    for version in range(1, commits + 1):

        async def is_accepted(server: Lake, version: int = version) -> bool:
            found = await server.delta_table(made.uuid).read()
            return found is not None and any(one.version == version for one in found.value.commits)

        await cluster.kill_when(partial(add, table=made, version=version), is_accepted)
    before = await _versions(cluster)

    cluster.clock.advance(HEAD_AGE_MS)
    await cluster.sweep()

    assert ("d", commits) not in before
    assert await _versions(cluster) == [("d", version) for version in range(commits + 1)]
