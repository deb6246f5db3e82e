"""A server stalls right before a swap, others continue, and then it swaps: tests of the rules that fence it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.memory import MemoryStore
from tests.crash.aftermaths import OK, answer
from tests.crash.gated_store import GatedStore, writes_to
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call
from tests.operations.invariants import check_invariants, times_applied
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    content,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    same_uuid,
    set_property,
    set_up_catalog,
    table,
)

T, U = identifier_of("t"), identifier_of("u")
SHORT_LOG = {"write.metadata.previous-versions-max": "1"}
FIRST_COMMIT = b"/metadata/00001-"
"""In a pointer: the name of the file that the first commit after the creation writes."""


class StalledServer:
    """A request at a server that is held at one call, and other servers."""

    def __init__(self, *, holds: Callable[[Call], bool]) -> None:
        self.clock = FixedClock()
        self.store = MemoryStore(clock=self.clock)
        self.gated = GatedStore(self.store, holds=holds)
        self.slow = make_lake(self.gated, self.clock)
        self._task: asyncio.Task[str] | None = None

    async def open(self, *names: str) -> None:
        await set_up_catalog(self.server())
        for name in names:
            await create(self.server(), name, properties=SHORT_LOG)

    def server(self) -> Lake:
        return make_lake(self.store, self.clock)

    async def begin(self, call: Awaitable[object]) -> None:
        self._task = asyncio.create_task(answer(call))
        await asyncio.wait_for(self.gated.is_held.wait(), timeout=60)

    async def end(self) -> str:
        """Release the slow server, and return its answer."""
        self.gated.release()
        assert self._task
        said = await self._task
        await self.slow.background.drain()
        return said

    async def foreign(self, count: int) -> None:
        server = self.server()
        for number in range(count):
            sent = request(f"foreign {number} {self.clock.now_ms()}")
            await commit_table(server, T, commit(set_property("foreign", str(number))), sent)
            await server.background.drain()
        self.clock.advance(1)


async def test_r6_a_request_that_frees_the_new_name_of_a_slow_rename_fences_it() -> None:
    stalled = StalledServer(holds=writes_to("names/", b'"moved"'))
    await stalled.open("t")
    await stalled.begin(rename(stalled.slow, T, U, kind="table", request=request("rename")))

    newer = await create_table(stalled.server(), NAMESPACE, table("u"), request("create u"))
    said = await stalled.end()

    assert said == "AlreadyExists"
    assert (await load(stalled.server(), U)).table_uuid == newer.table_uuid
    assert await table_exists(stalled.server(), T)
    await check_invariants(stalled.server())


async def test_c7_an_attempt_that_was_taken_over_does_not_apply_its_commit_again() -> None:
    """Nothing is required and the log is short: only the claim stops the slow attempt."""
    stalled = StalledServer(holds=writes_to("iceberg_pointers/", FIRST_COMMIT))
    await stalled.open("t")
    change = commit(set_property("ours", "1"))
    await stalled.begin(commit_table(stalled.slow, T, change, keyed_request("commit")))

    stalled.clock.advance(stalled.slow.settings.claim_timeout_ms + 1)
    other = stalled.server()
    taken_over = await answer(commit_table(other, T, change, keyed_request("commit")))
    await other.background.drain()
    await stalled.foreign(3)
    said = await stalled.end()

    assert (taken_over, said) == (OK, OK)
    whole = await check_invariants(stalled.server())
    assert times_applied(whole, key_hash_of(keyed_request("commit")) or "") == 1
    assert content(await load(stalled.server(), T))["properties"]["foreign"] == "2"


async def _renamed(server: Lake) -> None:
    await rename(server, T, U, kind="table", request=request("rename"))


async def _renamed_and_reused(server: Lake) -> None:
    await _renamed(server)
    await create(server, "t")


@pytest.mark.parametrize("happens", [_renamed, _renamed_and_reused])
@pytest.mark.parametrize("asserts_uuid", [True, False])
async def test_c10_a_commit_that_was_refused_after_a_rename_cannot_succeed_later(
    happens: Callable[[Lake], Awaitable[None]], *, asserts_uuid: bool
) -> None:
    """The swap of the first attempt is in flight: it would commit to the renamed table after the refusal."""
    if happens is _renamed_and_reused and not asserts_uuid:
        return  # The retry commits to the table that has the name now (docs/protocol.md, "Not guaranteed").
    stalled = StalledServer(holds=writes_to("iceberg_pointers/", FIRST_COMMIT))
    await stalled.open("t")
    uuid = (await load(stalled.server(), T)).table_uuid
    change = commit(set_property("ours", "1"), require=(same_uuid(uuid),) if asserts_uuid else ())
    await stalled.begin(commit_table(stalled.slow, T, change, keyed_request("commit")))

    other = stalled.server()
    await happens(other)
    await other.background.drain()
    stalled.clock.advance(stalled.slow.settings.claim_timeout_ms + 1)
    refused = await answer(commit_table(stalled.server(), T, change, keyed_request("commit")))
    said = await stalled.end()

    assert said == refused == ("NotFound" if happens is _renamed else "Conflict")
    assert "ours" not in content(await load(stalled.server(), U))["properties"]
    await check_invariants(stalled.server())


async def test_c10_a_registration_that_was_refused_after_a_rename_cannot_succeed_later() -> None:
    stalled = StalledServer(holds=writes_to("iceberg_pointers/", b'"registration":"'))
    await stalled.open("t", "r")
    registered = (await load(stalled.server(), identifier_of("r"))).metadata_location or ""
    await drop_name(stalled.server(), identifier_of("r"), kind="table", request=request("drop r"))

    def register(server: Lake) -> Awaitable[object]:
        return register_table(server, NAMESPACE, "t", registered, overwrite=True, request=keyed_request("register"))

    await stalled.begin(register(stalled.slow))

    other = stalled.server()
    await _renamed(other)
    await other.background.drain()
    stalled.clock.advance(stalled.slow.settings.claim_timeout_ms + 1)
    refused = await answer(register(stalled.server()))
    said = await stalled.end()

    assert said == refused == "NotFound"
    assert (await load(stalled.server(), U)).metadata_location != registered
    await check_invariants(stalled.server())


async def test_n8_a_create_that_was_refused_under_its_key_cannot_succeed_later() -> None:
    stalled = StalledServer(holds=writes_to("names/", b'"new"'))
    await stalled.open()
    await stalled.begin(create_table(stalled.slow, NAMESPACE, table("t"), keyed_request("create")))

    other = stalled.server()
    await create(other, "t", properties={"other": "1"})
    stalled.clock.advance(stalled.slow.settings.claim_timeout_ms + 1)
    refused = await answer(create_table(stalled.server(), NAMESPACE, table("t"), keyed_request("create")))
    await drop_name(other, T, kind="table", request=request("drop"))
    said = await stalled.end()
    finally_said = await answer(create_table(stalled.server(), NAMESPACE, table("t"), keyed_request("create")))

    assert refused == finally_said == "AlreadyExists"
    assert said in {"AlreadyExists", "Busy"}
    assert not await table_exists(stalled.server(), T)
    await check_invariants(stalled.server())


async def test_d4_a_commit_that_stalls_during_a_drop_is_lost() -> None:
    stalled = StalledServer(holds=writes_to("iceberg_pointers/", FIRST_COMMIT))
    await stalled.open("t")
    await stalled.begin(commit_table(stalled.slow, T, append(1), request("commit")))

    await drop_name(stalled.server(), T, kind="table", request=request("drop"))
    newer = await create(stalled.server(), "t")
    said = await stalled.end()

    # Its table is gone; a request without a uuid refers to the table that has the name now.
    assert said == OK
    loaded = await load(stalled.server(), T)
    assert loaded.table_uuid == newer.table_uuid
    assert times_applied(await check_invariants(stalled.server()), request("commit").hash) == 1


async def test_t4_a_transaction_that_was_aborted_decides_again() -> None:
    stalled = StalledServer(holds=writes_to("iceberg_transactions/", b'"committed"'))
    await stalled.open("t", "u")
    change = commit(set_property("together", "1"))
    await stalled.begin(commit_transaction(stalled.slow, "main", [(T, change), (U, change)], keyed_request("both")))

    stalled.clock.advance(stalled.slow.settings.transaction_timeout_ms + 1)
    await stalled.foreign(2)
    assert "together" not in content(await load(stalled.server(), U))["properties"]
    said = await stalled.end()

    assert said == OK
    for one in (T, U):
        assert content(await load(stalled.server(), one))["properties"]["together"] == "1"
    assert times_applied(await check_invariants(stalled.server()), key_hash_of(keyed_request("both")) or "") == 2


async def test_t4_a_transaction_with_a_dropped_table_is_not_applied() -> None:
    stalled = StalledServer(holds=writes_to("iceberg_transactions/", b'"committed"'))
    await stalled.open("t", "u")
    changes = [(T, append(1)), (U, append(1))]
    await stalled.begin(commit_transaction(stalled.slow, "main", changes, request("both")))

    await drop_name(stalled.server(), T, kind="table", request=request("drop"))
    said = await stalled.end()

    assert said == "NotFound"
    assert content(await load(stalled.server(), U))["current-snapshot-id"] == -1
    await check_invariants(stalled.server())


async def test_d2_a_stalled_keyed_drop_does_not_drop_a_later_table() -> None:
    stalled = StalledServer(holds=writes_to("names/", b'"dropped"'))
    await stalled.open("t")
    await stalled.begin(drop_name(stalled.slow, T, kind="table", request=keyed_request("drop")))

    await drop_name(stalled.server(), T, kind="table", request=request("another drop"))
    newer = await create(stalled.server(), "t")
    said = await stalled.end()

    assert said == "NotFound"
    assert (await load(stalled.server(), T)).table_uuid == newer.table_uuid
    assert await answer(drop_name(stalled.server(), T, kind="table", request=keyed_request("drop"))) == "NotFound"


async def test_s3_a_pointer_without_its_file_is_taken_over_with_a_written_file() -> None:
    """The file of the first attempt is in flight when the key is taken over; both get the same table."""
    stalled = StalledServer(holds=lambda call: call.name == "put" and call.key.startswith("tables/"))
    await stalled.open()
    await stalled.begin(create_table(stalled.slow, NAMESPACE, table("t"), keyed_request("create")))
    for _ in range(50):
        await asyncio.sleep(0)
    stalled.clock.advance(stalled.slow.settings.claim_timeout_ms + 1)

    server = stalled.server()
    made = await create_table(server, NAMESPACE, table("t"), keyed_request("create"))
    await server.background.drain()
    said = await stalled.end()

    assert said == OK
    assert await load(stalled.server(), T) == made
    await check_invariants(stalled.server())
