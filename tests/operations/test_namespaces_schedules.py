"""Namespaces under rare schedules: one test per rule."""

import pytest

from sandur.catalog.identifiers import Identifier
from sandur.errors import NotEmpty, NotFound, OutcomeUnknown
from sandur.operations.containers.namespaces import load_namespace, namespace_exists
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake, make_request, put_name, remove_name
from tests.operations.test_namespaces import A, B, create, drop, update

TABLE = Identifier("main", ("a",), "t")


class SlowProcess:
    """A process whose calls can be paused, and others that act meanwhile."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.inner = MemoryStore(clock=self.clock)
        self.store = HookedStore(self.inner)
        self.slow = make_lake(self.store, self.clock)
        self.key = self.slow.layout.namespace(A)

    def other(self) -> Lake:
        return make_lake(self.inner, self.clock)

    async def takes_over(self) -> Lake:
        """A process for which every claim is stale."""
        self.clock.advance(self.slow.settings.claim_timeout_ms + 1)
        return self.other()


async def test_an_attempt_that_lost_its_claim_stops() -> None:
    """C7 (fence): a slow attempt loses its swap; before it tries again, its retry and a drop are done."""
    process = SlowProcess()

    async def foreign_namespace_comes_and_goes() -> None:
        await create(process.other(), A)
        await drop(process.other(), A)

    async def retry_succeeds_and_is_dropped() -> None:
        lake = await process.takes_over()
        await create(lake, A, {"x": "1"}, key="k")
        await lake.background.drain()
        await drop(process.other(), A)

    process.store.before("put", process.key, foreign_namespace_comes_and_goes)
    process.store.before("get", process.key, retry_succeeds_and_is_dropped)
    answer = await create(process.slow, A, {"x": "1"}, key="k")

    assert answer["x"] == "1"
    assert process.store.hooks == []
    assert not await namespace_exists(process.other(), A)


async def test_an_update_whose_claim_was_taken_over_is_not_repeated() -> None:
    process = SlowProcess()
    await create(process.other(), A)

    async def foreign_change() -> None:
        await update(process.other(), A, updates={"y": "0"})

    async def retry_succeeds_and_is_overwritten() -> None:
        lake = await process.takes_over()
        await update(lake, A, updates={"x": "1"}, key="k")
        await lake.background.drain()
        await update(process.other(), A, updates={"x": "2"})

    process.store.before("put", process.key, foreign_change)
    process.store.before("get", process.key, retry_succeeds_and_is_overwritten)
    await update(process.slow, A, updates={"x": "1"}, key="k")

    assert process.store.hooks == []
    assert (await load_namespace(process.other(), A)).properties["x"] == "2"


async def test_a_stalled_creation_cannot_restore_a_dropped_namespace() -> None:
    """N9: a swap that expects the namespace to be absent finds the dropped record."""
    process = SlowProcess()

    async def retry_succeeds_and_is_dropped() -> None:
        lake = await process.takes_over()
        await create(lake, A, key="k")
        await lake.background.drain()
        await drop(process.other(), A)

    process.store.before("put", process.key, retry_succeeds_and_is_dropped)
    await create(process.slow, A, key="k")

    assert not await namespace_exists(process.other(), A)


async def test_a_drop_that_saw_a_child_looks_again_when_the_namespace_changed() -> None:
    """N6: the child is dropped and the namespace changed meanwhile, so the drop is not refused."""
    process = SlowProcess()
    await create(process.other(), A)
    await put_name(process.other(), TABLE)

    async def drop_child_and_change_namespace() -> None:
        await remove_name(process.other(), TABLE)
        await update(process.other(), A, updates={"x": "1"})

    process.store.before("put", process.key, _nothing)  # The drop writes its mark here.
    process.store.before("put", process.key, drop_child_and_change_namespace)
    await drop(process.slow, A)

    assert not await namespace_exists(process.other(), A)


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_creation_succeeds_if_another_client_has_dropped_its_namespace_since(key: str | None) -> None:
    """N4: before the creator reads its parent again, another client drops the child and the parent."""
    process = SlowProcess()
    await create(process.other(), A)

    async def child_and_parent_are_dropped() -> None:
        await drop(process.other(), B)
        await drop(process.other(), A)

    process.store.before("put", process.slow.layout.namespace(B), _nothing)
    process.store.before("get", process.key, child_and_parent_are_dropped)
    if key:
        await create(process.slow, B, key=key)
    else:
        with pytest.raises(OutcomeUnknown):
            await create(process.slow, B)

    assert process.store.hooks == []
    assert not await namespace_exists(process.other(), A)


async def test_a_retried_drop_keeps_a_namespace_created_since() -> None:
    """D2: the claim pins the dropped namespace before anything happens."""
    process = SlowProcess()
    await create(process.other(), A)
    claim = process.slow.claim("drop-namespace", key_hash_of(make_request("", "k")) or "")
    for dies_at in range(1, 10):
        dying = make_lake(DyingStore(process.inner, dies_at=dies_at, after=True), process.clock)
        with pytest.raises(Died):
            await drop(dying, A, key="k")
        if await claim.read():
            break
    assert await namespace_exists(process.other(), A)
    await drop(process.other(), A)
    await create(process.other(), A, {"made": "since"})

    with pytest.raises(NotFound):
        await drop(await process.takes_over(), A, key="k")

    assert (await load_namespace(process.other(), A)).properties["made"] == "since"


async def test_a_name_written_behind_the_cursor_cancels_the_drop() -> None:
    """G5: the drop has listed no child; a creator that writes now reads the namespace afterwards, and wins."""
    process = SlowProcess()
    await create(process.other(), A)
    child = process.slow.layout.namespace(A)

    async def child_is_created() -> None:
        await create(process.other(), A._replace(levels=("a", "late")))

    process.store.before("put", child, _nothing)  # The drop writes its mark here.
    process.store.before("put", child, child_is_created)
    with pytest.raises(NotEmpty, match=r"not empty.*a\.late"):
        await drop(process.slow, A)

    assert await namespace_exists(process.other(), A._replace(levels=("a", "late")))
