"""The feed as readers see it: order, positions, filters, names, and what a caller may see."""

import asyncio
from collections.abc import Sequence

import pytest

from sandur.catalog.event_feed.events import (
    START,
    EventFilter,
    Position,
    checked_filter,
    decode_position,
    encode_position,
)
from sandur.catalog.identifiers import Identifier
from sandur.errors import BadRequest, Expired, Unauthenticated
from sandur.operations.event_feed.reader import position_at, pull_events
from sandur.operations.event_feed.watch import FeedWatch, ServedFeed
from sandur.operations.feed import Feed, TrimMark, entry_key
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.storage.contract import ABSENT, LIST_LIMIT_MAX, Listed
from sandur.storage.memory import MemoryStore
from tests.events.world import as_principal, change, events_of, make_world, page_of, write_change
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import WrappingStore
from tests.operations.lakes import make_lake
from tests.operations.principals import add_principals, grant, id_of, revoke
from tests.operations.requests import ELSEWHERE, NAMESPACE, create, identifier_of, request

DAY_MS = 86_400_000


async def _drop(lake: Lake, name: str) -> None:
    await drop_name(lake, identifier_of(name), kind="table", request=request(f"drop {name}"))
    await lake.background.drain()


async def _uuid(lake: Lake) -> str:
    """The uuid of the table `t`."""
    found = await lake.name(identifier_of("t")).read()
    assert found
    return found.value.uuid


async def _rename(lake: Lake, name: str, target: Identifier) -> None:
    await rename(lake, identifier_of(name), target, kind="table", request=request(f"rename {name} {target}"))
    await lake.background.drain()


async def test_every_commit_is_one_event_with_the_name_of_its_table() -> None:
    lake = await make_world()
    await create(lake, "t")
    await change(lake, "t", "1")

    first, second = await events_of(lake)

    assert (first.type, first.operation, first.version) == ("table.committed", "create", 0)
    assert second.previous == first.commit_key
    assert second.identifier == identifier_of("t")


async def test_changes_of_the_catalog_are_events_of_the_same_feed() -> None:
    lake = await make_world()
    await create(lake, "t")
    namespace = Identifier(*NAMESPACE, "")
    key = await write_change(lake, "namespace", "id of a", "changed", namespace, details=("owner",))

    found = {event.type: event for event in await events_of(lake, EventFilter())}

    assert found["namespace.changed"].commit_key == key
    assert found["namespace.changed"].details == ("owner",)
    assert {"table.committed", "table.created"} < set(found)


async def test_pages_continue_where_the_last_one_ended_on_any_server() -> None:
    lake = await make_world()
    await create(lake, "t")
    for step in range(7):
        await change(lake, "t", str(step))
    wanted = checked_filter(EventFilter(kinds=("committed",)))
    seen, token = [], None

    for _ in range(20):
        server = make_lake(lake.store, lake.clock)
        page, token = await pull_events(server, wanted, token=token, page_size=3)
        seen += [placed.event.version or 0 for placed in page.events]
        if not page.has_more:
            break

    assert sorted(seen) == list(range(8))
    assert len(seen) == 8


async def test_a_token_after_the_newest_event_finds_only_what_comes_later() -> None:
    lake = await make_world()
    await create(lake, "t")
    page = await page_of(lake)
    assert not (await page_of(lake, position=page.position)).events

    await change(lake, "t", "1")

    assert [one.event.version for one in (await page_of(lake, position=page.position)).events] == [1]


def test_a_token_belongs_to_its_filter() -> None:
    wanted, other = EventFilter(kinds=("committed",), since_ms=5), EventFilter(kinds=("dropped",))
    token = encode_position(Position(3, 4), wanted)

    assert decode_position(token, EventFilter(kinds=("committed",))) == (Position(3, 4), wanted)
    with pytest.raises(BadRequest, match="does not belong"):
        decode_position(token, other)
    with pytest.raises(BadRequest, match="Invalid page token"):
        decode_position("nonsense", wanted)


async def test_a_token_behind_the_oldest_entry_is_expired_and_says_so() -> None:
    lake = await make_world()
    await create(lake, "t")
    await page_of(lake, EventFilter())
    await Feed(lake).mark_cell.create(TrimMark(trimmed=1, next_position=100))
    stored = await lake.store.get(entry_key(lake.layout, 1))
    assert stored
    await lake.store.delete(entry_key(lake.layout, 1), expected=stored.version)
    server = make_lake(lake.store, lake.clock)

    with pytest.raises(Expired, match="no longer kept"):
        await pull_events(server, EventFilter(), token=encode_position(START, EventFilter()), page_size=None)
    await change(lake, "t", "1")
    server.clock.advance(5_000)  # type: ignore[attr-defined] # A fixed clock.
    page, _ = await pull_events(server, EventFilter(), token=None, page_size=None)
    assert page.events[-1].event.version == 1


async def test_a_filter_selects_by_path_uuid_kind_and_time() -> None:
    lake = await make_world()
    await create(lake, "t")
    uuid = await _uuid(lake)
    await create(lake, "other", ELSEWHERE)
    lake.clock.advance(60_000)  # type: ignore[attr-defined] # A fixed clock.
    await change(lake, "t", "1")

    async def versions(**fields: object) -> list[tuple[str, int]]:
        found = await events_of(lake, checked_filter(EventFilter(**{"kinds": ("committed",), **fields})))  # type: ignore[arg-type] # By name.
        return sorted((event.identifier.name, event.version or 0) for event in found if event.identifier)

    assert await versions(names=(("main", "a"),)) == [("t", 0), ("t", 1)]
    assert await versions(names=(("main", "b", "other"),)) == [("other", 0)]
    assert await versions(names=(("main", "a"), ("main", "b"))) == [("other", 0), ("t", 0), ("t", 1)]
    assert await versions(uuids=(uuid.upper(),)) == [("t", 0), ("t", 1)]
    assert await versions(since_ms=lake.clock.now_ms() - 1_000) == [("t", 1)]
    assert await versions(kinds=("dropped",)) == []
    assert await versions(object_types=("view",)) == []


@pytest.mark.parametrize(
    "wanted",
    [
        EventFilter(kinds=("nonsense",)),
        EventFilter(object_types=("nonsense",)),
        EventFilter(names=(("main", ""),)),
        EventFilter(uuids=tuple(map(str, range(101)))),
    ],
)
def test_a_filter_that_cannot_match_is_refused(wanted: EventFilter) -> None:
    with pytest.raises(BadRequest, match="Invalid"):
        checked_filter(wanted)


async def test_events_follow_a_table_through_renames_and_a_drop() -> None:
    lake = await make_world()
    await create(lake, "t")
    await _rename(lake, "t", identifier_of("u"))
    await _rename(lake, "u", identifier_of("v", ELSEWHERE))
    server = make_lake(lake.store, lake.clock)

    assert [event.identifier for event in await events_of(server)] == [identifier_of("v", ELSEWHERE)]

    await drop_name(lake, identifier_of("v", ELSEWHERE), kind="table", request=request("drop"))
    await lake.background.drain()
    assert [event.identifier for event in await events_of(server)] == [identifier_of("v", ELSEWHERE)]


async def test_a_name_is_found_after_its_old_names_were_swept() -> None:
    lake = await make_world()
    await create(lake, "t")
    await _rename(lake, "t", identifier_of("u"))
    assert isinstance(lake.clock, FixedClock)
    lake.clock.advance(3 * DAY_MS)
    await run_janitors(lake, {}, on_error=lambda *_: None)
    assert await lake.name(identifier_of("t")).read() is None

    server = make_lake(lake.store, lake.clock)
    lake.clock.advance(120_000)
    assert [event.identifier for event in await events_of(server)] == [identifier_of("u")]


async def test_a_reader_sees_only_events_of_what_it_may_see_and_at_once_less_after_a_revocation() -> None:
    lake = await make_world()
    await create(lake, "t")
    await create(lake, "hidden")
    await add_principals(lake, "ann")
    ann = as_principal(lake, "ann")
    assert await events_of(ann) == []

    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    assert {event.identifier for event in await events_of(ann)} == {identifier_of("t")}

    await revoke(lake, "ann", "table", "main.a.t", "SELECT")
    assert await events_of(ann) == []
    assert len(await events_of(as_principal(lake, "admin"))) == 2


async def test_a_disabled_principal_reads_nothing_more() -> None:
    lake = await make_world()
    await add_principals(lake, "ann")
    await events_of(as_principal(lake, "ann"))

    def remove(_authority: object) -> SecurityEdit:
        return SecurityEdit(principals={id_of("ann"): None})

    await SecurityChange(lake, request("remove"), "drop-principal", remove).run()
    with pytest.raises(Unauthenticated):
        await events_of(as_principal(lake, "ann"))


async def test_the_former_name_in_a_hidden_namespace_is_left_out() -> None:
    lake = await make_world()
    await create(lake, "t")
    uuid = await _uuid(lake)
    await add_principals(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    secret = identifier_of("secret", ELSEWHERE)
    await write_change(lake, "table", uuid, "renamed", identifier_of("t"), renamed_from=secret, format="iceberg")
    wanted = EventFilter(kinds=("renamed",))

    (seen,) = await events_of(as_principal(lake, "ann"), wanted)
    (full,) = await events_of(as_principal(lake, "admin"), wanted)

    assert seen.renamed_from is None
    assert full.renamed_from == secret
    by_secret = EventFilter(names=(("main", "b", "secret"),))
    assert await events_of(as_principal(lake, "ann"), by_secret) == []


async def test_the_drop_of_a_table_is_seen_by_those_who_see_its_namespace() -> None:
    lake = await make_world()
    await create(lake, "t")
    await add_principals(lake, "ann", "bob")
    await grant(lake, "ann", "schema", "main.a", "SELECT")
    await _drop(lake, "t")
    wanted = EventFilter(kinds=("dropped",))

    assert len(await events_of(as_principal(lake, "ann"), wanted)) == 1
    assert await events_of(as_principal(lake, "bob"), wanted) == []


async def test_events_of_grants_are_for_those_who_manage_the_metastore() -> None:
    lake = await make_world()
    await add_principals(lake, "ann")
    await grant(lake, "ann", "catalog", "main", "USE CATALOG", "BROWSE")
    wanted = EventFilter(object_types=("grants",))

    assert await events_of(as_principal(lake, "ann"), wanted) == []
    assert {event.type for event in await events_of(as_principal(lake, "admin"), wanted)} == {
        "grants.created",
        "grants.changed",
    }


async def test_the_events_of_a_dropped_namespace_are_not_those_of_a_new_one_with_its_name() -> None:
    lake = await make_world()
    await add_principals(lake, "ann")
    await grant(lake, "ann", "schema", "main.a", "BROWSE")
    before = Identifier("main", ("a",), "t")
    lake.clock.advance(-10 * DAY_MS)  # type: ignore[attr-defined] # A fixed clock.
    await write_change(lake, "table", "an old uuid", "dropped", before, format="iceberg")
    lake.clock.advance(10 * DAY_MS)  # type: ignore[attr-defined] # A fixed clock.
    wanted = EventFilter(kinds=("dropped",))
    for _ in range(3):
        lake.clock.advance(10_000)  # type: ignore[attr-defined] # A fixed clock.
        await lake.feature(FeedWatch).refresh()
    assert len(await events_of(as_principal(lake, "ann"), wanted)) == 1
    record = await lake.namespace(NAMESPACE).read()
    assert record
    made = record.value.__class__(state="active", id="id of a", parent_id="catalog", created_ms=lake.clock.now_ms())
    await lake.namespace(NAMESPACE).swap(made, expected=record.version)

    assert await events_of(as_principal(lake, "ann"), wanted) == []


async def test_a_damaged_receipt_and_a_copy_under_another_key_are_left_out() -> None:
    lake = await make_world()
    await create(lake, "t")
    (listed,) = [one for one in await lake.store.list(lake.layout.events_folder()) if "/iceberg/" in one.key]
    stored = await lake.store.get(listed.key)
    assert stored
    folder = lake.layout.events_folder("2025-12-31")
    await lake.store.put(f"{folder}iceberg/committed/{'a' * 64}.json", stored.data, expected=ABSENT)
    await lake.store.put(f"{folder}iceberg/committed/{'b' * 64}.json", b"{", expected=ABSENT)

    assert len(await events_of(lake)) == 1


async def test_a_time_is_found_without_reading_the_feed() -> None:
    clock = FixedClock()
    store = SpyStore(MemoryStore(clock=clock))
    lake = make_lake(store, clock)
    feed = ServedFeed(lake)
    for number in range(64):
        clock.advance(3_600_000)
        await feed.append_new([f"2026-01-01/iceberg/committed/{number:064x}.json"])
    middle_ms = clock.now_ms() - 32 * 3_600_000
    store.reset()

    found = await position_at(lake, middle_ms, oldest=1, newest=64)

    assert found.entry in {31, 32}
    assert len(store.calls) <= 8


async def test_a_poll_lists_a_few_dates_however_long_the_history_is() -> None:
    clock = FixedClock()
    store = SpyStore(MemoryStore(clock=clock))
    lake = make_lake(store, clock)
    await ServedFeed(lake).append_new(
        [f"2024-{month:02d}-01/iceberg/committed/{'c' * 64}.json" for month in range(1, 13)]
    )
    for month in range(1, 13):
        key = f"{lake.layout.events_folder()}2024-{month:02d}-01/iceberg/committed/{'c' * 64}.json"
        await store.put(key, b"{}", expected=ABSENT)
    watch = lake.feature(FeedWatch)
    await watch.refresh()
    clock.advance(10_000)
    store.reset()

    await watch.refresh()

    assert 3 <= len([call for call in store.calls if call.name == "list"]) <= 5


async def test_a_late_receipt_with_an_old_date_is_found_by_some_poll() -> None:
    lake = await make_world()
    await create(lake, "t")
    watch = lake.feature(FeedWatch)
    await watch.refresh()
    assert isinstance(lake.clock, FixedClock)
    lake.clock.advance(-30 * DAY_MS)
    await write_change(lake, "catalog", "catalog", "changed", Identifier("main", (), ""))
    lake.clock.advance(30 * DAY_MS)

    for _ in range(4):
        lake.clock.advance(10_000)
        await watch.refresh()

    assert "catalog.changed" in {event.type for event in await events_of(lake, EventFilter())}


async def test_two_servers_give_every_receipt_one_position() -> None:
    lake = await make_world()
    other = make_lake(lake.store, lake.clock)
    for server in (lake, other):
        await server.feature(FeedWatch).refresh()
    for step in range(6):
        await create((lake, other)[step % 2], f"t{step}")
        await (other, lake)[step % 2].feature(FeedWatch).refresh()

    for server in (lake, other, make_lake(lake.store, lake.clock)):
        found = [event.commit_key for event in await events_of(server)]
        assert len(found) == len(set(found)) == 6


async def test_a_damaged_record_hides_the_events_of_its_object_and_no_others() -> None:
    lake = await make_world()
    await create(lake, "t")
    await create(lake, "u")
    uuid = await _uuid(lake)
    await add_principals(lake, "ann")
    await grant(lake, "ann", "catalog", "main", "SELECT")
    stored = await lake.store.get(lake.layout.pointer(uuid))
    assert stored
    await lake.store.put(lake.layout.pointer(uuid), b"damaged", expected=stored.version)
    server = make_lake(lake.store, lake.clock)

    found = await events_of(as_principal(server, "ann"))
    assert [event.identifier for event in found] == [identifier_of("u")]
    assert len(await events_of(as_principal(server, "admin"))) == 2


class FaultyOnce(WrappingStore):
    """Fails once in a listing, as a mistake in the program would."""

    is_faulty = True

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        if self.is_faulty and "/events/" in prefix:
            self.is_faulty = False
            raise RuntimeError("a mistake")
        return await super().list(prefix, after=after, limit=limit)


async def test_a_mistake_in_one_look_at_the_feed_does_not_end_the_watch() -> None:
    store = FaultyOnce(MemoryStore())
    store.is_faulty = False
    lake = await make_world(store)
    await create(lake, "t")
    await change(lake, "t", "1")
    store.is_faulty = True
    watch = make_lake(store, lake.clock).feature(FeedWatch)

    with watch.listening():
        for _ in range(1_000):
            await asyncio.sleep(0)

    assert not store.is_faulty
    assert watch.newest > 0
