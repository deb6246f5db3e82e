"""Batches beside other servers and other changes of the table: the rules B1–B9 at the moments that need them."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import pytest

from sandur.errors import Busy, OutcomeUnknown
from sandur.operations.idempotency import key_hash_of
from sandur.operations.janitors.events import visit_head
from sandur.operations.lake import Lake
from sandur.operations.receipts import commit_key_of
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.tables.undrop import undrop
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import list_all
from sandur.storage.retry import RetryingStore
from tests.crash.aftermaths import OK, UNDECIDED, answer, dropped, recreated, renamed, time_passed, truncated_log
from tests.crash.gated_store import GatedStore, writes_to
from tests.crash.mutations import NEIGHBOUR, TABLE, World, make_world
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.batches import pointer_of, queued, remove_receipts, together, warm
from tests.operations.collection import collect
from tests.operations.hooked_store import HookedStore
from tests.operations.invariants import all_receipts, check_invariants, times_applied
from tests.operations.janitor_runs import LONG_MS
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    content,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
)

T = TypeVar("T")
RETRIES_MAX: Final = 5
SENT: Final = [keyed_request("zero"), request("one"), keyed_request("two"), request("three")]


async def send(server: Lake, number: int) -> object:
    """One of four commits of compatible properties; every second one has a key."""
    return await commit_table(server, TABLE, commit(set_property(f"p{number}", "1")), SENT[number])


def sends(server: Lake) -> list[Coroutine[Any, Any, object]]:
    return [send(server, number) for number in range(len(SENT))]


async def send_batch(server: Lake) -> list[str]:
    """The answers of a batch of four."""
    await warm(server, TABLE)
    said = await together(server, TABLE, sends(server))
    return [OK if isinstance(one, LoadedTable) else type(one).__name__ for one in said]


async def check_once(world: World) -> None:
    """Every commit of the batch was made once."""
    whole = await check_invariants(world.server())
    assert [times_applied(whole, key_hash_of(one) or one.hash) for one in SENT] == [1] * len(SENT)


@pytest.fixture
async def world() -> World:
    return await make_world()


async def foreign(world: World, times: int = 1) -> None:
    server = world.server()
    for number in range(times):
        await commit_table(server, TABLE, commit(set_property(f"foreign{number}", "1")), request(f"foreign {number}"))
    await server.background.drain()


@pytest.mark.parametrize("times", [1, 3])
async def test_a_batch_that_loses_its_swap_is_decided_again_one_by_one(world: World, times: int) -> None:
    """B8: a definite loss."""
    hooked = HookedStore(world.store)
    server = world.server(hooked)
    hooked.before("put", server.layout.pointer(world.uuids["t"]), lambda: foreign(world, times))

    assert await send_batch(server) == [OK] * 4

    await server.background.drain()
    await check_once(world)


class Unanswered(WrappingStore):
    """The first swap of a pointer is applied, others move the pointer on, and its answer is lost."""

    happens: Callable[[], Awaitable[object]] | None = None

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        result = await perform()
        if self.happens and writes_to("iceberg_pointers")(call):
            happens, self.happens = self.happens, None
            await happens()
            raise OutcomeUnknown("lost on purpose")
        return result


async def test_the_members_of_a_swap_that_was_made_and_then_replaced_find_their_proof(world: World) -> None:
    """B8: evidence first. The log has one entry, so that only receipts prove them (B4)."""
    store = Unanswered(world.store)
    server = world.server(RetryingStore(store, world.clock))
    await warm(server, TABLE)
    store.happens = lambda: foreign(world, 3)

    assert await send_batch(server) == [OK] * 4

    await server.background.drain()
    await check_once(world)


@pytest.mark.parametrize("sends_at_once", [sends, lambda server: [send(server, 1)]], ids=["batch", "alone"])
async def test_c10_a_commit_finds_its_proof_after_a_rename_also_without_a_key_and_a_uuid(
    world: World, sends_at_once: Callable[[Lake], list[Coroutine[Any, Any, object]]]
) -> None:
    """The swap was made, then replaced, its answer is lost, and then the name is gone."""
    store = Unanswered(world.store)
    server = world.server(RetryingStore(store, world.clock))
    await warm(server, TABLE)

    async def rename_away() -> None:
        await foreign(world, 3)
        await rename(world.server(), TABLE, identifier_of("away"), kind="table", request=request("rename"))

    store.happens = rename_away
    said = await together(server, TABLE, sends_at_once(server))

    assert {type(one) for one in said} == {LoadedTable}
    await server.background.drain()
    await check_invariants(world.server())


async def test_a_member_whose_key_is_held_elsewhere_ends_the_prefix_that_is_swapped(world: World) -> None:
    """B7: the other attempt would make it a second time."""
    gated = GatedStore(world.store, holds=writes_to("iceberg_pointers"))
    elsewhere, server = world.server(gated), world.server()
    [other] = await queued(elsewhere, TABLE, [send(elsewhere, 2)])
    await gated.is_held.wait()

    said = await send_batch(server)
    gated.release()
    await other
    await elsewhere.background.drain()
    await server.background.drain()

    assert said == [OK, OK, Busy.__name__, OK], "the other attempt is active"
    await check_once(world)


async def test_a_takeover_of_a_member_does_not_refuse_what_the_batch_still_makes(world: World) -> None:
    """The batch stalls before its swap; another server takes the key of a member over, and makes it."""
    gated = GatedStore(world.store, holds=writes_to("iceberg_pointers"))
    stalled, server = world.server(gated), world.server()
    await warm(stalled, TABLE)
    tasks = await queued(stalled, TABLE, sends(stalled))
    await gated.is_held.wait()
    world.clock.advance(server.settings.claim_timeout_ms + 1)

    assert await answer(send(server, 2)) == OK

    gated.release()
    said = [await answer(task) for task in tasks]
    await stalled.background.drain()
    await server.background.drain()
    assert said == [OK] * 4
    await check_once(world)


async def test_a_batch_that_the_table_was_renamed_away_from_is_refused(world: World) -> None:
    """B1, C2: the name is read in the round of the files, after the batch was closed."""
    server, away = world.server(), identifier_of("away")
    await warm(server, TABLE)
    await rename(world.server(), TABLE, away, kind="table", request=request("rename"))

    said = await together(server, TABLE, sends(server))

    assert {type(one).__name__ for one in said} == {"NotFound"}
    assert "p0" not in content(await load(world.server(), away))["properties"]


async def _commit_on_top(server: Lake, world: World) -> None:
    del world
    await commit_table(server, TABLE, commit(set_property("on top", "1")), request("on top"))


async def _transact_on_top(server: Lake, world: World) -> None:
    both = [(one, append(2, 1, uuid=world.uuids[one.name])) for one in (TABLE, NEIGHBOUR)]
    await commit_transaction(server, "main", both, request("transaction"))


async def _register_on_top(server: Lake, world: World) -> None:
    await register_table(server, NAMESPACE, "t", world.registrable, overwrite=True, request=request("register"))


async def _visit_on_top(server: Lake, world: World) -> None:
    world.clock.advance(3_600_000)
    key = server.layout.pointer(world.uuids["t"])
    listed = await list_all(server.store, server.layout.pointers_folder())
    await visit_head(server, next(one for one in listed if one.key == key))


@pytest.mark.parametrize(
    "mover",
    [_commit_on_top, _transact_on_top, _register_on_top, _visit_on_top],
    ids=lambda one: one.__name__.strip("_"),
)
async def test_who_moves_the_head_of_a_batch_writes_the_receipts_of_all_its_members(
    world: World, mover: Callable[[Lake, World], Awaitable[None]]
) -> None:
    """B4: after a crash right after the swap. A janitor does the same if no one moves it."""
    receipts = len(await all_receipts(world.server()))
    server = world.server()
    assert await send_batch(server) == [OK] * 4
    await server.background.drain()
    heads = await pointer_of(world.server(), world.uuids["t"])
    await remove_receipts(server, heads)
    assert len(await all_receipts(world.server())) == receipts
    assert len(heads.passed) == 3

    after = world.server()
    await mover(after, world)

    written = await all_receipts(world.server())
    assert heads.head is not None
    assert {commit_key_of(one) for one in (*heads.passed, heads.head)} <= written.keys()
    await after.background.drain()
    await check_once(world)


async def test_a_swap_that_keeps_the_head_keeps_what_it_passed(world: World) -> None:
    server = world.server()
    assert await send_batch(server) == [OK] * 4
    before = (await pointer_of(server, world.uuids["t"])).passed

    await drop_name(world.server(), TABLE, kind="table", request=request("drop"))

    dropped = await pointer_of(world.server(), world.uuids["t"])
    assert (dropped.state, dropped.passed) == ("dropped", before)
    assert len(before) == 3


async def _transacted(world: World) -> None:
    await _transact_on_top(world.server(), world)


async def _registered(world: World) -> None:
    await _register_on_top(world.server(), world)


async def _renamed_and_back(world: World) -> None:
    server, away = world.server(), identifier_of("away")
    await rename(server, TABLE, away, kind="table", request=request("rename"))
    await rename(server, away, TABLE, kind="table", request=request("rename back"))


async def _dropped_and_back(world: World) -> None:
    server = world.server()
    await drop_name(server, TABLE, kind="table", request=request("drop"))
    await undrop(server, TABLE, kind="table", uuid=world.uuids["t"], request=request("undrop"))


async def _collected(world: World) -> None:
    """GC1: the files of the batch are a day old, and no pointer names them. Its swap must lose."""
    world.clock.advance(LONG_MS)
    await collect(world.server())


async def _taken_over_one_by_one(world: World) -> None:
    await time_passed(world)
    for number in range(len(SENT)):
        if SENT[number].key:
            await answer(send(world.server(), number))


async def _taken_over_together(world: World) -> None:
    await time_passed(world)
    server = world.server()
    await warm(server, TABLE)
    await together(server, TABLE, [send(server, number) for number in (2, 0)])
    await server.background.drain()


async def _sent_again_at_once(world: World) -> None:
    """The claims of the batch are young: no one may make its members."""
    for number in range(len(SENT)):
        if SENT[number].key:
            await answer(send(world.server(), number))


_HELD: Final[Mapping[str, Callable[[Call], bool]]] = {
    "a claim": writes_to("iceberg_idempotency"),
    "a file": lambda call: call.name == "put" and call.key.endswith(".metadata.json"),
    "the swap": writes_to("iceberg_pointers"),
}


@pytest.mark.parametrize("held", _HELD)
@pytest.mark.parametrize(
    "happens",
    [
        truncated_log, dropped, renamed, recreated, _transacted, _registered, _renamed_and_back, _dropped_and_back,
        _collected, _taken_over_one_by_one, _taken_over_together, _sent_again_at_once,
    ],
    ids=lambda one: one.__name__.strip("_"),
)  # fmt: skip
async def test_a_batch_that_stalls_while_others_act_makes_every_member_once_or_never(
    world: World, happens: Callable[[World], Awaitable[None]], held: str
) -> None:
    gated = GatedStore(world.store, holds=_HELD[held])
    stalled = world.server(gated)
    await warm(stalled, TABLE)
    tasks = await queued(stalled, TABLE, sends(stalled))
    await gated.is_held.wait()

    await happens(world)

    gated.release()
    said = [await answer(task) for task in tasks]
    await stalled.background.drain()
    for number, sent in enumerate(SENT):
        for _ in range(RETRIES_MAX):
            if sent.key is None or said[number] not in UNDECIDED:
                break
            await time_passed(world)
            said[number] = await answer(send(world.server(), number))
    whole = await check_invariants(world.server(), files_may_be_gone=True)
    times = [times_applied(whole, key_hash_of(one) or one.hash) for one in SENT]
    assert set(said) <= {OK, "NotFound"}
    assert times == [int(one == OK) for one in said]
