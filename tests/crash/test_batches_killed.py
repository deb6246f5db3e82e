"""A server dies, or gets no answer, at any storage call of a batch: every member is made once or not, and learns it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, get_args

import pytest

from sandur.catalog.records import Request
from sandur.iceberg.requests import TableCommit
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import LoadedTable
from sandur.storage.contract import ObjectStore
from sandur.storage.retry import RetryingStore
from tests.crash.aftermaths import OK, UNDECIDED, answer, at_once, dropped, foreign_commit, time_passed, truncated_log
from tests.crash.mutations import SENDER, TABLE, World, make_world
from tests.crash.straggling_store import StragglingStore
from tests.crash.test_operations_killed import Death
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.lossy_store import Fate, LossyStore
from tests.fakes.spy_store import SpyStore
from tests.operations.batches import pointer_of, remove_receipts, together, warm
from tests.operations.invariants import all_receipts, check_invariants, times_applied
from tests.operations.requests import at_snapshot, commit, keyed_request, request, set_property, snapshot

RETRIES_MAX: Final = 5
_CALLS_MAX: Final = 60


class Sent(NamedTuple):
    """One member. A retry recognizes it by its key, or by the snapshot that it adds."""

    change: TableCommit
    request: Request

    async def send(self, server: Lake) -> object:
        return await commit_table(server, TABLE, self.change, self.request._replace(source=SENDER))

    def times(self, whole: Any) -> int:
        return times_applied(whole, key_hash_of(self.request) or self.request.hash)


def branch(number: int, name: str) -> TableCommit:
    return commit(
        {"action": "add-snapshot", "snapshot": snapshot(number, number=number)},
        {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": number},
        require=(at_snapshot(None, name),),
    )


def tag(name: str) -> TableCommit:
    return commit(
        {"action": "set-snapshot-ref", "ref-name": name, "type": "tag", "snapshot-id": 1},
        require=(at_snapshot(None, name),),
    )


MEMBERS: Final = (
    Sent(tag("c"), keyed_request("a tag with a key")),
    Sent(commit(set_property("ours", "1")), keyed_request("a property with a key")),
    Sent(branch(11, "b"), request("a branch")),
    Sent(commit(set_property("ours", "2"), require=(at_snapshot(1),)), keyed_request("a guarded property with a key")),
)
"""The log of the table has one entry, so that `passed` and receipts are the only proof of the first two. The tag made
again is refused, and the property made again would replace the later one."""


@pytest.fixture(scope="module")
def origin() -> World:
    return asyncio.run(make_world())


async def _count_calls(origin: World) -> tuple[int, int]:
    """The storage calls before the batch, and all with its background work."""
    world = origin.copy()
    spy = SpyStore(world.store)
    server = world.server(spy)
    await warm(server, TABLE)
    before = len(spy.calls)
    said = await together(server, TABLE, [one.send(server) for one in MEMBERS])
    await server.background.drain()
    assert all(isinstance(one, LoadedTable) for one in said)
    assert spy.keys("put").count(server.layout.pointer(world.uuids["t"])) == 1, "they are one batch"
    assert before + 10 < len(spy.calls) < _CALLS_MAX
    return before, len(spy.calls)


async def _sent_to(world: World, store: ObjectStore) -> Sequence[str]:
    """What each member was answered; "died" if it was not."""
    server = world.server(store)
    said = ["died"] * len(MEMBERS)
    with contextlib.suppress(Died):
        await warm(server, TABLE)
        results = await together(server, TABLE, [one.send(server) for one in MEMBERS])
        for number, result in enumerate(results):
            if isinstance(result, Exception):
                said[number] = type(result).__name__
            elif not isinstance(result, BaseException):
                said[number] = OK
    with contextlib.suppress(Died):
        await server.background.drain()
    for _ in range(20):  # Calls that ran concurrently with the dead one end as well.
        await asyncio.sleep(0)
    return said


async def foreign_batch(world: World) -> None:
    """A batch of another server on top: it moves the head past all members at once."""
    world.clock.advance(60_000)
    server = world.server()
    await warm(server, TABLE)
    sent = [
        commit_table(server, TABLE, commit(set_property(f"foreign{n}", "1")), request(f"foreign {n}")) for n in range(3)
    ]
    assert all(isinstance(one, LoadedTable) for one in await together(server, TABLE, sent))
    await server.background.drain()


async def _retry_alone(world: World) -> Sequence[str]:
    """Each member is sent again, each time to another server, until its answer is definite."""
    return [await _definite(world, one.send) for one in MEMBERS]


async def _retry_together(world: World) -> Sequence[str]:
    """All members are sent again to one server, as a batch, until every answer is definite."""
    said: list[str] = []
    for _ in range(RETRIES_MAX):
        server = world.server()
        await warm(server, TABLE)
        said = list(await asyncio.gather(*(_answer(one) for one in await _together_again(server))))
        await server.background.drain()
        if not set(said) & set(UNDECIDED):
            return said
        await time_passed(world)
    raise AssertionError(f"stuck at {said}")


async def _together_again(server: Lake) -> Sequence[object]:
    return await together(server, TABLE, [one.send(server) for one in MEMBERS])


async def _answer(result: object) -> str:
    async def known() -> object:
        if isinstance(result, BaseException):
            raise result
        return result

    return await answer(known())


async def _definite(world: World, send: Callable[[Lake], Awaitable[object]]) -> str:
    for _ in range(RETRIES_MAX):
        server = world.server()
        said = await answer(send(server))
        await server.background.drain()
        if said not in UNDECIDED:
            return said
        await time_passed(world)
    raise AssertionError("stuck")


async def _times(world: World) -> Sequence[int]:
    whole = await check_invariants(world.server())
    return [one.times(whole) for one in MEMBERS]


async def _check(
    world: World,
    said: Sequence[str],
    aftermath: Callable[[World], Awaitable[None]],
    retry: Callable[[World], Awaitable[Sequence[str]]],
) -> None:
    before = await _times(world)
    assert max(before) <= 1
    assert all(times for times, one in zip(before, said, strict=True) if one == OK), "acknowledged and not made"
    assert not any(times for times, one in zip(before, said, strict=True) if one not in {OK, "died", *UNDECIDED})
    await aftermath(world)
    assert all(now >= then for now, then in zip(await _times(world), before, strict=True)), "lost by others"

    assert set(await retry(world)) == {OK}, "no member is in the way of another"

    assert await _times(world) == [1] * len(MEMBERS)
    assert set(await _retry_alone(world)) == {OK}, "a replay answers otherwise"
    assert await _times(world) == [1] * len(MEMBERS)


@pytest.mark.parametrize("retry", [_retry_alone, _retry_together], ids=lambda one: one.__name__.strip("_"))
@pytest.mark.parametrize(
    "aftermath",
    [
        at_once,
        time_passed,
        pytest.param(foreign_commit, marks=pytest.mark.crash),
        truncated_log,
        foreign_batch,
    ],
    ids=lambda one: one.__name__,
)
async def test_every_member_of_a_killed_batch_is_made_once(
    aftermath: Callable[[World], Awaitable[None]],
    retry: Callable[[World], Awaitable[Sequence[str]]],
    origin: World,
) -> None:
    before, calls = await _count_calls(origin)
    for dies_at in range(before + 1, calls + 1):
        for death in get_args(Death):
            world = origin.copy()
            store: ObjectStore = (
                StragglingStore(world.store, loses_at=dies_at)
                if death == "alone"
                else DyingStore(world.store, dies_at=dies_at, after=death == "after")
            )
            await _check(world, await _sent_to(world, store), aftermath, retry)


@pytest.mark.parametrize("fate", get_args(Fate))
@pytest.mark.parametrize("retries", [False, True], ids=["no retries of the store", "with retries of the store"])
@pytest.mark.parametrize("aftermath", [at_once, truncated_log, foreign_batch], ids=lambda one: one.__name__)
async def test_every_member_of_a_batch_without_an_answer_is_made_once(
    aftermath: Callable[[World], Awaitable[None]], fate: Fate, origin: World, *, retries: bool
) -> None:
    """The answer to any write of the batch is lost: the write happened, never happens, or happens later (B7, B8)."""
    for loses_at in range(1, _CALLS_MAX):
        world = origin.copy()
        lossy = LossyStore(world.store, loses_at=loses_at, fate=fate)
        store = RetryingStore(lossy, world.clock, world.server().settings.retry) if retries else lossy
        said = await _sent_to(world, store)
        if lossy._writes < loses_at:
            assert loses_at > 10
            return
        before = await _times(world)
        assert all(times for times, one in zip(before, said, strict=True) if one == OK), "acknowledged and not made"

        async def then(world: World, lossy: LossyStore = lossy) -> None:
            await aftermath(world)
            await lossy.deliver()

        await _check(world, said, then, _retry_alone)


async def test_what_a_batch_passed_is_proof_without_receipts_and_without_a_log(origin: World) -> None:
    """B3: the server died right after the swap, and the table was dropped: no one has moved the head since."""
    world = origin.copy()
    receipts = len(await all_receipts(world.server()))
    assert await _sent_to(world, world.store) == [OK] * len(MEMBERS)
    await remove_receipts(world.server(), await pointer_of(world.server(), world.uuids["t"]))
    await dropped(world)

    said = [await _definite(world, one.send) for one in MEMBERS if one.request.key]

    assert said == [OK] * 3
    assert len(await all_receipts(world.server())) == receipts, "nothing else is the proof"
