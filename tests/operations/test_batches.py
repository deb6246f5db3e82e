"""Batched commits (B1–B9): commits that wait in one server are made by one swap, each as if it were made alone."""

import asyncio
from typing import Any, Final

import pytest

from sandur.catalog.index import names_scope
from sandur.catalog.record_versions import WITH_RENAMES
from sandur.catalog.records import PASSED_MAX
from sandur.clock import SystemClock
from sandur.errors import Conflict, Forbidden, Hidden
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.index.lists import read_page
from sandur.operations.index.truth import read_entries
from sandur.operations.lake import Lake
from sandur.operations.receipts import receipt_key, tried_of
from sandur.operations.tables.batch import BYTES_MAX
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX, TableChange
from sandur.operations.tables.commit import Commit, commit_table
from sandur.operations.tables.documents import TABLES, Document, LoadedTable
from sandur.storage.memory import MemoryStore
from tests.compatibility.tour import KeptStore
from tests.crash.gated_store import GatedStore, writes_to
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.authorized_lakes import by, enter, lake_of_principals
from tests.operations.batches import pointer_of, queued, remove_receipts, together, warm
from tests.operations.collection import collect
from tests.operations.hooked_store import HookedStore
from tests.operations.invariants import all_receipts, check_invariants
from tests.operations.janitor_runs import LONG_MS
from tests.operations.lakes import make_lake, visit_marks
from tests.operations.principals import grant, request_of, revoke
from tests.operations.requests import (
    NAMESPACE,
    append,
    at_snapshot,
    commit,
    content,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    set_up_catalog,
    snapshot,
)
from tests.operations.test_verification import findings_of

T: Final = identifier_of("t")


class Server:
    """A server on a store of its own, with a spy on its calls, and one table that it has seen."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FixedClock()
        self.kept = MemoryStore(clock=self.clock)
        self.spy = SpyStore(self.kept)
        self.lake = make_lake(self.spy, self.clock, **settings)
        self.uuid = ""

    async def open(self, **properties: str) -> "Server":
        await set_up_catalog(self.lake)
        self.uuid = (await create(self.lake, "t", properties=properties)).table_uuid
        await warm(self.lake, T)
        self.spy.reset()
        return self

    def elsewhere(self) -> Lake:
        """Another server, which has just started."""
        return make_lake(self.kept, self.clock)

    def swaps(self) -> int:
        """How often the pointer was swapped."""
        return self.spy.keys("put").count(self.lake.layout.pointer(self.uuid))


@pytest.fixture
async def server() -> Server:
    return await Server().open()


def branch(number: int, name: str) -> Any:
    """An append to a branch that must not exist yet."""
    return commit(
        {"action": "add-snapshot", "snapshot": snapshot(number, number=number)},
        {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": number},
        require=(at_snapshot(None, name),),
    )


async def test_commits_that_wait_are_made_by_one_swap_each_with_its_own_file(server: Server) -> None:
    changes = [commit(set_property(f"p{n}", "1")) for n in range(5)]
    sent = [keyed_request(f"{n}") if n % 2 else request(f"{n}") for n in range(5)]

    said = await together(
        server.lake, T, [commit_table(server.lake, T, *one) for one in zip(changes, sent, strict=True)]
    )

    assert server.swaps() == 1
    assert server.spy.rounds == 3, "the files, the swap, and after the answers the receipts"
    answers = [one for one in said if isinstance(one, LoadedTable)]
    seen = [{key for key in content(one)["properties"] if key.startswith("p")} for one in answers]
    assert seen == [{f"p{k}" for k in range(n + 1)} for n in range(5)], "each answers with its own file"
    assert len({one.metadata_location for one in answers}) == 5
    pointer = await pointer_of(server.lake, server.uuid)
    assert [head.metadata_location for head in pointer.passed] == [one.metadata_location for one in answers[:-1]]
    await server.lake.background.drain()
    [chain] = (await check_invariants(server.elsewhere())).values()
    assert len(chain.locations) == 6
    assert len(await all_receipts(server.lake)) == 6


async def test_a_commit_alone_leaves_no_trace_of_batches(server: Server) -> None:
    await commit_table(server.lake, T, commit(set_property("a", "1")), request("a"))
    rounds = server.spy.rounds

    found = await server.kept.get(server.lake.layout.pointer(server.uuid))
    assert found is not None
    assert b"passed" not in found.data
    assert rounds == 2


async def test_the_next_commit_forgets_what_was_passed(server: Server) -> None:
    changes = [commit(set_property(f"p{n}", "1")) for n in range(3)]
    await together(server.lake, T, [commit_table(server.lake, T, c, request(f"{n}")) for n, c in enumerate(changes)])

    await commit_table(server.lake, T, commit(set_property("a", "1")), request("a"))

    assert not (await pointer_of(server.lake, server.uuid)).passed


async def test_a_batch_is_bounded_and_the_others_form_the_next(server: Server) -> None:
    calls = [commit_table(server.lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(40)]

    said = await together(server.lake, T, calls)

    assert all(isinstance(one, LoadedTable) for one in said)
    assert server.swaps() == 3
    assert len((await pointer_of(server.lake, server.uuid)).passed) < PASSED_MAX
    assert len(content(await load(server.elsewhere(), T))["properties"]) == 40 + 1


async def test_of_appends_to_one_branch_one_is_made_and_the_others_are_refused_afterwards(server: Server) -> None:
    """B5, B6: only the swap decides which."""
    calls = [commit_table(server.lake, T, append(n), request(f"{n}")) for n in range(1, 4)]
    calls.append(commit_table(server.lake, T, branch(9, "b"), request("b")))

    said = await together(server.lake, T, calls)

    assert [type(one) for one in said] == [LoadedTable, Conflict, Conflict, LoadedTable]
    refs = content(await load(server.elsewhere(), T))["refs"]
    assert {name: ref["snapshot-id"] for name, ref in refs.items()} == {"main": 1, "b": 9}


async def test_a_change_that_the_base_alone_would_not_take_is_no_member(server: Server) -> None:
    """B5: it depends on a member, or would change nothing alone."""
    await commit_table(server.lake, T, commit(set_property("a", "1")), request("before"))
    server.spy.reset()
    dependent = commit(
        {"action": "add-snapshot", "snapshot": snapshot(2, 1, number=2)},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2},
        require=(at_snapshot(1),),
    )
    back = commit(set_property("a", "1"))
    changes = [append(1), commit(set_property("a", "2")), dependent, back]

    said = await together(
        server.lake, T, [commit_table(server.lake, T, one, keyed_request(f"{n}")) for n, one in enumerate(changes)]
    )

    assert all(isinstance(one, LoadedTable) for one in said)
    assert server.swaps() == 2, "that of the batch, and that of those which waited for it"
    after = content(await load(server.elsewhere(), T))
    assert (after["current-snapshot-id"], after["properties"]["a"]) == (2, "1")


class Faulty(TableChange):
    """A change whose code has a mistake."""

    def apply(self, base: TableMetadata, *, now_ms: int) -> TableMetadata:
        raise ZeroDivisionError(f"{now_ms}: {base.table_uuid}")


@pytest.mark.parametrize("faulty", [0, 2])
async def test_a_mistake_in_the_code_of_one_change_fails_that_request_alone(server: Server, faulty: int) -> None:
    kinds = [Faulty if n == faulty else TableChange for n in range(4)]
    changes = [kind(commit(set_property(f"p{n}", "1"))) for n, kind in enumerate(kinds)]
    calls = [Commit(server.lake, TABLES, T, one, request(f"{n}")).run() for n, one in enumerate(changes)]

    said = await together(server.lake, T, calls)

    assert isinstance(said.pop(faulty), ZeroDivisionError)
    assert all(isinstance(one, Document) for one in said)


async def test_two_sends_of_one_request_are_one_commit(server: Server) -> None:
    change = commit(set_property("a", "1"))
    calls = [commit_table(server.lake, T, change, keyed_request("one")) for _ in range(2)]
    calls.append(commit_table(server.lake, T, commit(set_property("b", "1")), request("other")))

    said = await together(server.lake, T, calls)

    assert all(isinstance(one, LoadedTable) for one in said)
    first, again = (one.metadata_location for one in said[:2] if isinstance(one, LoadedTable))
    assert first == again
    [chain] = (await check_invariants(server.elsewhere())).values()
    assert len(chain.locations) == 3


async def test_a_client_that_leaves_does_not_end_the_commits_of_the_others(server: Server) -> None:
    calls = [commit_table(server.lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(4)]
    tasks = await queued(server.lake, T, calls)
    for _ in range(5):
        await asyncio.sleep(0)
    assert any("metadata.json" in key for key in server.spy.keys("put")), "the batch has begun"

    tasks[0].cancel()
    tasks[2].cancel()
    said = await asyncio.gather(*tasks, return_exceptions=True)

    assert [isinstance(one, LoadedTable) for one in said] == [False, True, False, True]
    await commit_table(server.lake, T, commit(set_property("after", "1")), request("after"))
    await server.lake.background.drain()
    properties = content(await load(server.elsewhere(), T))["properties"]
    assert {"p0", "p1", "p2", "p3", "after"} <= properties.keys()
    await check_invariants(server.elsewhere())


async def test_the_mark_of_a_list_stays_until_the_batch_has_ended_also_if_its_clients_leave() -> None:
    """I1: the swap is made a second after the clients left. An index that was updated before it would stay wrong."""
    server = await Server().open()
    gated = GatedStore(server.kept, holds=writes_to("iceberg_pointers"))
    lake, scope = make_lake(gated, server.clock), names_scope(NAMESPACE)
    await warm(lake, T)
    tasks = await queued(
        lake, T, [commit_table(lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(2)]
    )
    await gated.is_held.wait()
    [batch] = [task for task in asyncio.all_tasks() if task.get_name() == "batch of commits"]

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await lake.background.drain()
    gated.release()
    await batch
    await lake.background.drain()

    after = server.elsewhere()
    await visit_marks(after)
    [entry] = (await read_page(after, scope, last=None, wanted=None)).entries
    assert entry == (await read_entries(after, scope, ["t"]))["t"]
    assert b'"p1"' in bytes(entry.info)


@pytest.mark.parametrize(("bytes_large", "swaps", "passed"), [(BYTES_MAX // 4, 2, 2), (BYTES_MAX, 6, 0)])
async def test_a_batch_is_bounded_by_the_bytes_of_its_files(
    server: Server, bytes_large: int, swaps: int, passed: int
) -> None:
    """A table whose metadata is large gets smaller batches: the event loop waits while they are drafted."""
    large = commit(set_property("large", "x" * bytes_large))
    await commit_table(server.lake, T, large, request("large"))
    server.spy.reset()
    calls = [commit_table(server.lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(6)]

    said = await together(server.lake, T, calls)

    assert all(isinstance(one, LoadedTable) for one in said)
    assert server.swaps() == swaps
    assert len((await pointer_of(server.lake, server.uuid)).passed) == passed


async def test_a_batch_is_bounded_by_the_bytes_that_its_requests_add(server: Server) -> None:
    """Each file has what the requests before it added, so a few large requests make many bytes."""
    half = "x" * (BYTES_MAX // 2)
    calls = [commit_table(server.lake, T, commit(set_property(f"p{n}", half)), request(f"{n}")) for n in range(2)]

    said = await together(server.lake, T, calls)

    assert all(isinstance(one, LoadedTable) for one in said)
    assert server.swaps() == 2


async def test_a_client_that_leaves_before_the_batch_is_closed_is_no_member(server: Server) -> None:
    calls = [commit_table(server.lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(4)]
    tasks = await queued(server.lake, T, calls)

    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    properties = content(await load(server.elsewhere(), T))["properties"]
    assert {"p0", "p1", "p2", "p3"} & properties.keys() == {"p1", "p3"}
    assert server.swaps() == 1


async def test_a_store_of_an_older_version_gets_no_batches() -> None:
    """V3: a server of that version would move the head without the receipts of what was passed."""
    server = Server()
    server.lake.form.major = WITH_RENAMES.major
    await server.open()

    said = await together(
        server.lake,
        T,
        [commit_table(server.lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(3)],
    )

    assert all(isinstance(one, LoadedTable) for one in said)
    assert server.swaps() == 3
    found = await server.kept.get(server.lake.layout.pointer(server.uuid))
    assert found is not None
    assert b"passed" not in found.data
    assert b'"v":3' in found.data


async def test_a_server_of_the_version_before_refuses_a_pointer_with_a_batch(server: Server) -> None:
    """V1: the record has the later major, so the field is never dropped."""
    calls = [commit_table(server.lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(3)]
    await together(server.lake, T, calls)

    found = await server.kept.get(server.lake.layout.pointer(server.uuid))

    assert found is not None
    assert b"passed" in found.data
    assert b'"v":4' in found.data


async def test_every_member_is_authorized_and_has_its_own_source() -> None:
    """A6: the grants are read once, beside the files. Who may not ends the prefix, and is refused afterwards (B7)."""
    lake = await lake_of_principals()
    for name in ("ann", "bob"):
        await enter(lake, name)
    await grant(lake, "ann", "table", "main.a.t", "SELECT", "MODIFY")
    await warm(lake, T)
    senders = ["ann", "ann", "bob", "ann"]

    said = await together(
        lake,
        T,
        [
            commit_table(
                by(lake, name, "updateTable"), T, commit(set_property(f"p{n}", name)), request_of(name, f"{n}", f"k{n}")
            )
            for n, name in enumerate(senders)
        ],
    )

    refused = said.pop(2)
    assert isinstance(refused, Forbidden | Hidden)
    assert all(isinstance(one, LoadedTable) for one in said)
    await lake.background.drain()
    properties = content(await load(lake, T))["properties"]
    assert {key for key in properties if key.startswith("p")} == {"p0", "p1", "p3"}
    written = [one for one in (await all_receipts(lake)).values() if one.operation != "create"]
    assert [one.source.principal for one in written] == ["ann"] * 3


async def test_a_right_that_is_taken_while_the_files_are_written_ends_the_batch() -> None:
    """A6: the read of the grants begins after the version that is swapped was known."""
    lake = await lake_of_principals()
    for name in ("ann", "bob"):
        await enter(lake, name)
        await grant(lake, name, "table", "main.a.t", "SELECT", "MODIFY")
    await warm(lake, T)
    await revoke(lake, "bob", "table", "main.a.t", "MODIFY")

    said = await together(
        lake,
        T,
        [
            commit_table(by(lake, name, "updateTable"), T, commit(set_property(name, "1")), request_of(name, name))
            for name in ("ann", "bob")
        ],
    )

    assert isinstance(said[0], LoadedTable)
    assert isinstance(said[1], Forbidden | Hidden)


@pytest.mark.parametrize("stalls_at", ["files", "containers"])
async def test_a_batch_that_would_follow_the_grants_too_late_reads_them_again(stalls_at: str) -> None:
    """What revocation promises: the swap is sent within some seconds of the read of the grants, or they are read again.

    After a change of grants, the containers of the table are read to decide, after the grants themselves.
    """
    lake = await lake_of_principals()
    for name in ("ann", "bob"):
        await enter(lake, name)
        await grant(lake, name, "table", "main.a.t", "SELECT", "MODIFY")
    await warm(lake, T)
    store, clock = lake.store, lake.clock
    assert isinstance(store, HookedStore)
    assert isinstance(clock, FixedClock)
    other = make_lake(store, clock)

    async def stall() -> None:
        clock.advance(SWAP_DELAY_MS_MAX + 1)
        await revoke(other, "bob", "table", "main.a.t", "MODIFY")

    key = {"files": lake.layout.name(T), "containers": lake.layout.namespace(T.namespace)}[stalls_at]
    store.before({"files": "are_current", "containers": "get"}[stalls_at], key, stall)
    said = await together(
        lake,
        T,
        [
            commit_table(by(lake, name, "updateTable"), T, commit(set_property(name, "1")), request_of(name, name))
            for name in ("ann", "bob")
        ],
    )

    assert not store.hooks
    assert isinstance(said[0], LoadedTable)
    assert isinstance(said[1], Forbidden | Hidden)


async def test_the_collector_keeps_the_files_that_a_batch_passed() -> None:
    """B9: the log has one entry, and the receipts were not written: only the pointer names the files."""
    server = await Server().open(**{"write.metadata.previous-versions-max": "1"})
    calls = [commit_table(server.lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(5)]
    assert all(isinstance(one, LoadedTable) for one in await together(server.lake, T, calls))
    await server.lake.background.drain()
    await remove_receipts(server.lake, await pointer_of(server.lake, server.uuid))
    server.clock.advance(LONG_MS)

    await collect(server.elsewhere())

    await check_invariants(server.elsewhere())


async def test_verify_finds_the_missing_receipt_of_a_commit_that_a_batch_passed() -> None:
    store = KeptStore()
    lake = make_lake(store, SystemClock())
    await set_up_catalog(lake)
    await create(lake, "t")
    await warm(lake, T)
    calls = [commit_table(lake, T, commit(set_property(f"p{n}", "1")), request(f"{n}")) for n in range(3)]
    assert all(isinstance(one, LoadedTable) for one in await together(lake, T, calls))
    await lake.background.drain()
    key = receipt_key(lake.layout, tried_of((await pointer_of(lake, (await load(lake, T)).table_uuid)).passed[0]))
    found = await store.head(key)
    assert found is not None
    await store.delete(key, expected=found.version)

    kinds = {one.kind for one in await findings_of(store)}

    assert "receipt-missing" in kinds
