"""Several servers on one store: compatible requests all succeed, of incompatible ones exactly one."""

import asyncio
from collections.abc import Awaitable
from typing import Final

import pytest

from sandur.errors import SandurError
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import load_table, table_exists
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.memory import MemoryStore
from sandur.storage.retry import RetryingStore
from tests.crash.aftermaths import OK, answer
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.invariants import check_invariants, times_applied
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    ELSEWHERE,
    append,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    set_up_catalog,
    table,
)
from tests.statemachine.stalling_store import StallingStore

SEEDS: Final = range(25)
T, U = identifier_of("t"), identifier_of("u")
UUID: Final = "5b6b2b4e-0000-4000-8000-00000000000a"


class StallingCluster:
    """One store and the servers on it."""

    def __init__(self, seed: int) -> None:
        self.clock = FixedClock(seed=seed)
        self.kept = MemoryStore(clock=self.clock)
        self.store = StallingStore(self.kept, seed=seed)

    def server(self) -> Lake:
        return make_lake(self.store, self.clock, commit_attempts_max=40)

    async def open(self, *names: str) -> Lake:
        quick = make_lake(self.kept, self.clock)
        await set_up_catalog(quick)
        for name in names:
            await create(quick, name)
        return quick


async def _answers(*calls: Awaitable[object]) -> list[str]:
    return list(await asyncio.gather(*(answer(one) for one in calls)))


async def _drain(*servers: Lake) -> None:
    for server in servers:
        await server.background.drain()


@pytest.mark.parametrize("seed", range(8))
async def test_commits_of_eight_writers_to_one_table_are_applied_exactly_once(seed: int) -> None:
    """Two on each of four servers, every second request with a key. The changes are compatible, so none conflicts."""
    cluster = StallingCluster(seed)
    await cluster.open("t")
    servers = [cluster.server() for _ in range(4)]
    sent = [keyed_request(f"commit {n}") if n % 2 else request(f"commit {n}") for n in range(24)]

    async def committer(first: int) -> list[str]:
        server = servers[first % 4]
        changes = [(n, commit(set_property(f"p{n}", "1"))) for n in range(first, 24, 8)]
        return [await answer(commit_table(server, T, change, sent[n])) for n, change in changes]

    said = await asyncio.gather(*(committer(n) for n in range(8)))
    await _drain(*servers)

    assert {one for some in said for one in some} == {OK}
    fresh = make_lake(cluster.kept, cluster.clock)
    properties = content(await load(fresh, T))["properties"]
    assert {f"p{n}" for n in range(24)} <= properties.keys()
    whole = await check_invariants(fresh)
    assert [times_applied(whole, key_hash_of(one) or one.hash) for one in sent] == [1] * 24


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_of_two_appends_to_the_same_snapshot_is_refused(seed: int) -> None:
    cluster = StallingCluster(seed)
    await cluster.open("t")
    one, two = cluster.server(), cluster.server()

    said = await _answers(
        commit_table(one, T, append(1), request("one")), commit_table(two, T, append(2), keyed_request("two"))
    )
    await _drain(one, two)

    assert sorted(said) == ["Conflict", OK]
    current = content(await load(make_lake(cluster.kept, cluster.clock), T))["current-snapshot-id"]
    assert current == (1 if said[0] == OK else 2)


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_of_two_finalizations_of_a_stage_wins_and_its_file_stays(seed: int) -> None:
    """Two requests with the uuid of one stage. A retry of the winner gets its success again."""
    cluster = StallingCluster(seed)
    await cluster.open()
    servers = [cluster.server() for _ in range(3)]
    one, other = (create_commit(UUID, set_property("by", by)) for by in ("one", "other"))

    said = await _answers(
        commit_table(servers[0], T, one, request("one")),
        commit_table(servers[1], T, other, request("other")),
        commit_table(servers[2], T, one, request("one")),
    )
    await _drain(*servers)

    fresh = make_lake(cluster.kept, cluster.clock)
    loaded = await load(fresh, T)
    is_one = content(loaded)["properties"]["by"] == "one"
    assert said == ([OK, "Conflict", OK] if is_one else ["Conflict", OK, "Conflict"])
    assert loaded.table_uuid == UUID
    await check_invariants(fresh)


@pytest.mark.parametrize("seed", SEEDS)
async def test_exactly_one_of_a_child_creation_and_the_drop_of_its_namespace_wins(seed: int) -> None:
    cluster = StallingCluster(seed)
    await cluster.open()
    creator, dropper, reader = cluster.server(), cluster.server(), cluster.server()
    child = identifier_of("t", ELSEWHERE)

    created, dropped, _ = await _answers(
        create_table(creator, ELSEWHERE, table("t"), keyed_request("create") if seed % 2 else request("create")),
        drop_namespace(dropper, ELSEWHERE, request("drop namespace")),
        load_table(reader, child),
    )
    await _drain(creator, dropper, reader)

    is_there = await table_exists(make_lake(cluster.kept, cluster.clock), child)
    assert (created, dropped) in {(OK, "NotEmpty"), ("NotFound", OK)}
    assert is_there == (created == OK)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_transaction_that_creates_a_table_races_with_the_drop_of_its_namespace(seed: int) -> None:
    cluster = StallingCluster(seed)
    await cluster.open("t")
    writer, dropper = cluster.server(), cluster.server()
    child = identifier_of("new", ELSEWHERE)
    changes = [(T, append(1)), (child, create_commit(UUID))]

    said, dropped = await _answers(
        commit_transaction(writer, "main", changes, request("transaction")),
        drop_namespace(dropper, ELSEWHERE, request("drop namespace")),
    )
    await _drain(writer, dropper)

    fresh = make_lake(cluster.kept, cluster.clock)
    has_snapshot = content(await load(fresh, T))["current-snapshot-id"] == 1
    assert await table_exists(fresh, child) == has_snapshot == (said == OK)
    assert (said == OK) != (dropped == OK) or "Busy" in {said, dropped}


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_takeover_and_a_slow_original_apply_once_with_the_same_answer(seed: int) -> None:
    """The original stalls at any call; its claim becomes stale, and another server takes the request over."""
    cluster = StallingCluster(seed)
    await cluster.open("t")
    servers = [make_lake(cluster.store, cluster.clock, claim_timeout_ms=1) for _ in range(3)]

    async def attempt(server: Lake) -> str:
        said = "Busy"
        for _ in range(8):
            cluster.clock.advance(2)
            said = await answer(commit_table(server, T, append(1), keyed_request("commit")))
            if said != "Busy":
                break
        return said

    said = await asyncio.gather(*(attempt(server) for server in servers))
    await _drain(*servers)

    whole = await check_invariants(make_lake(cluster.kept, cluster.clock))
    assert set(said) <= {OK, "Busy"}
    assert times_applied(whole, key_hash_of(keyed_request("commit")) or "") == 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_readers_of_two_tables_never_see_half_a_transaction(seed: int) -> None:
    cluster = StallingCluster(seed)
    await cluster.open("t", "u")
    writer, reader = cluster.server(), cluster.server()
    seen: list[tuple[bool, bool]] = []

    async def look_at_both() -> None:
        for _ in range(6):
            first, second = [content(await load(reader, one))["current-snapshot-id"] for one in (T, U)]
            seen.append((first == 1, second == 1))

    said, *_ = await _answers(
        commit_transaction(writer, "main", [(T, append(1)), (U, append(1))], request("transaction")), look_at_both()
    )
    await _drain(writer, reader)

    assert said == OK
    assert (True, False) not in seen
    assert sorted(seen) == seen, "new, then old"


@pytest.mark.parametrize("seed", range(10))
async def test_transactions_in_opposite_order_all_succeed(seed: int) -> None:
    cluster = StallingCluster(seed)
    await cluster.open("t", "u")
    servers = [cluster.server() for _ in range(3)]

    async def served(number: int) -> str:
        change = commit(set_property(f"x{number}", "1"))
        pair = [(T, change), (U, change)] if number % 2 else [(U, change), (T, change)]
        said = ""
        for _ in range(10):
            said = await answer(commit_transaction(servers[number % 3], "main", pair, keyed_request(f"x{number}")))
            if said != "Busy":
                break
            cluster.clock.advance(1_000)
        return said

    said = await asyncio.gather(*(served(number) for number in range(6)))
    await _drain(*servers)

    fresh = make_lake(cluster.kept, cluster.clock)
    assert set(said) == {OK}
    for one in (T, U):
        assert {f"x{number}" for number in range(6)} <= content(await load(fresh, one))["properties"].keys()
    await check_invariants(fresh)


async def test_a_dead_server_does_not_block_the_others() -> None:
    """One of two committers dies at some call, over a store with retries; the other one is not affected."""
    for dies_at in range(1, 12):
        cluster = StallingCluster(dies_at)
        await cluster.open("t")
        dying = make_lake(DyingStore(cluster.store, dies_at=dies_at, after=bool(dies_at % 2)), cluster.clock)
        living = make_lake(RetryingStore(cluster.store, cluster.clock), cluster.clock)

        async def die(server: Lake) -> None:
            try:
                await commit_table(server, T, commit(set_property("dying", "1")), keyed_request("dying"))
            except (Died, SandurError):
                return

        _, said = await asyncio.gather(
            die(dying), answer(commit_table(living, T, commit(set_property("living", "1")), request("living")))
        )
        await _drain(dying, living)

        assert said == OK
        await check_invariants(make_lake(cluster.kept, cluster.clock))
