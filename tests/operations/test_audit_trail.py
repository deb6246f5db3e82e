"""The audit trail: batches, bounds, what gives way to what, an unreachable store, and the search."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest

from sandur.catalog.audit import AuditedDecision, AuditFilter, AuditKind, AuditRecord
from sandur.errors import BadRequest, OutcomeUnknown, SandurError, Unavailable
from sandur.operations.audit import search, trail
from sandur.operations.audit.search import AuditPage, search_audit
from sandur.operations.audit.trail import AuditTrail
from sandur.operations.counters import AUDIT_LOST, AUDIT_WRITTEN
from sandur.operations.lake import Lake
from sandur.storage.contract import ObjectStore, list_all
from sandur.storage.layout import Layout
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.lakes import make_lake

T = TypeVar("T")
LAYOUT = Layout()
EVER = AuditFilter(0, 1 << 47)


class FailingStore(WrappingStore):
    """Raises `error` before or, with `is_applied`, after each write of an audit object, while one is set."""

    error: SandurError | None = None
    is_applied = False

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.written = asyncio.Event()

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.error is None or not call.is_write:
            answer = await perform()
            if call.is_write:
                self.written.set()
            return answer
        if self.is_applied:
            await perform()
        raise self.error


class World:
    """A trail on a store that can fail."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FixedClock()
        plain = make_lake(clock=self.clock, authentication="on", **settings)
        self.store = FailingStore(plain.store)
        self.lake: Lake = make_lake(self.store, self.clock)
        self.reported: list[tuple[Mapping[str, int], str]] = []
        self.trail = AuditTrail(plain.settings, self.clock, self.store, self._report)

    def _report(self, _layout: Layout, lost: Mapping[str, int], reason: str) -> None:
        self.reported.append((dict(lost), reason))

    def add(self, kind: AuditKind = "read", *, name: str = "", layout: Layout = LAYOUT, **fields: object) -> None:
        """Add a record as a request does."""
        now_ms = self.clock.now_ms()
        if self.trail.wants(layout, kind, now_ms):
            given = {"decision": "allowed", "status": 200, "outcome": "done", "operation": "load", **fields}
            record = AuditRecord(time_ms=now_ms, kind=kind, securable_name=name, **given)  # type: ignore[arg-type] # Given by name.
            self.trail.add(layout, record)

    async def objects(self, layout: Layout = LAYOUT) -> list[str]:
        return [listed.key for listed in await list_all(self.store, layout.audit_folder())]

    async def search(self, wanted: AuditFilter = EVER, **options: object) -> AuditPage:
        return await search_audit(self.lake, wanted, **options)  # type: ignore[arg-type] # Given by name.

    async def names(self) -> list[str]:
        return [record.securable_name for record in (await self.search(page_size=1_000)).records]

    def lost(self, kind: str) -> int:
        return self.trail.counters.times(AUDIT_LOST, kind)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.store.error = None
    await made.trail.close()


async def test_records_of_one_flush_are_one_object_in_the_folder_of_its_day(world: World) -> None:
    world.add(name="a")
    world.clock.advance(400)
    world.add("denial", name="b")
    world.clock.advance(400)
    world.add(name="c")

    assert await world.trail.flush()
    (key,) = await world.objects()
    records = (await world.search()).records
    date, batch_id = LAYOUT.parse_audit(key)

    assert key.startswith("tenant=default/workspace=default/_catalog/audit/2026-01-01/")
    assert date == "2026-01-01"
    assert [record.securable_name for record in records] == ["a", "b", "c"]
    assert [record.id for record in records] == [f"{batch_id}-{place:05d}" for place in range(3)]
    assert world.trail.counters.times(AUDIT_WRITTEN, "read") == 2
    assert world.trail.counters.times(AUDIT_WRITTEN, "denial") == 1


async def test_a_trail_without_records_writes_nothing(world: World) -> None:
    assert await world.trail.flush()
    await world.trail.close()

    assert await world.objects() == []


async def test_workspaces_are_separate(world: World) -> None:
    other = Layout("acme", "prod")
    world.add(name="mine")
    world.add(name="theirs", layout=other)

    await world.trail.flush()

    assert await world.names() == ["mine"]
    assert len(await world.objects(other)) == 1


async def test_the_flush_happens_by_itself_within_about_a_second(world: World) -> None:
    world.add(name="a")

    async with asyncio.timeout(30):
        await world.store.written.wait()

    assert await world.names() == ["a"]


async def test_a_full_batch_is_written_without_waiting_for_its_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "FLUSH_SECONDS", 3_600.0)
    monkeypatch.setattr(trail, "BATCH_RECORDS_MAX", 5)
    for number in range(5):
        world.add(name=str(number))

    async with asyncio.timeout(30):
        await world.store.written.wait()

    assert await world.names() == list("01234")


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("off", []),
        ("changes", ["change", "security", "denial", "unauthenticated", "login"]),
        ("all", ["read", "change", "security", "denial", "unauthenticated", "login"]),
    ],
)
async def test_the_setting_selects_what_is_recorded(level: str, kept: list[str]) -> None:
    world = World(audit=level)
    kinds: list[AuditKind] = ["read", "change", "security", "denial", "unauthenticated", "login"]
    for kind in kinds:
        world.add(kind)
        world.clock.advance(1)

    await world.trail.close()

    assert [record.kind for record in (await world.search()).records] == kept


async def test_by_default_everything_is_recorded_with_authentication_and_nothing_without() -> None:
    def is_on(**settings: Any) -> bool:
        lake = make_lake(**settings)
        return AuditTrail(lake.settings, lake.clock, lake.store, lambda *_: None).is_on

    assert (is_on(authentication="off"), is_on(authentication="on")) == (False, True)


async def test_only_allowed_reads_are_sampled() -> None:
    world = World(audit_reads_sampled=0.25)
    for _ in range(400):
        world.add("read")
        world.add("denial")
        world.add("security")

    await world.trail.close()
    found: list[AuditRecord] = []
    token = None
    for _ in range(100):
        page = await world.search(page_size=1_000, page_token=token)
        found += page.records
        token = page.next_token
        if token is None:
            break
    kinds = Counter(record.kind for record in found)

    assert kinds["denial"] == kinds["security"] == 400
    assert 60 < kinds["read"] < 140  # The chance has a fixed seed.
    assert world.lost("read") == 0


async def test_without_room_allowed_reads_give_way_first_then_changes_and_a_denial_never_to_a_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "WORKSPACE_RECORDS_MAX", 4)
    world.add("read", name="read 1")
    world.add("read", name="read 2")
    world.add("change", name="change 1")
    world.add("denial", name="denial 1")
    world.add("read", name="read 3")
    world.add("security", name="security 1")
    world.add("denial", name="denial 2")
    world.add("denial", name="denial 3")
    world.add("change", name="change 2")

    await world.trail.flush()
    records = (await world.search()).records

    assert sorted(record.securable_name for record in records if record.kind != "loss") == [
        "denial 1",
        "denial 2",
        "denial 3",
        "security 1",
    ]
    assert [record.lost for record in records if record.kind == "loss"] == [{"read": 3, "change": 2}]
    assert (world.lost("read"), world.lost("change"), world.lost("denial")) == (3, 2, 0)
    assert [lost for lost, _ in world.reported] == [{"read": 3, "change": 2}]


async def test_a_busy_workspace_does_not_push_out_the_denials_of_a_quiet_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "PROCESS_RECORDS_MAX", 10)
    quiet = Layout("acme", "quiet")
    for number in range(20):
        world.add("read", name=str(number))

    world.add("denial", name="important", layout=quiet)
    await world.trail.flush()

    assert len(await world.objects(quiet)) == 1
    assert world.lost("denial") == 0
    assert world.lost("read") == 11


async def test_a_record_with_many_decisions_takes_as_much_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "WORKSPACE_RECORDS_MAX", 10)
    one = AuditedDecision(securable_type="table", securable_name="t", securable_id="", privilege="", decision="allowed")
    world.add("change", name="large", further_decisions=(one,) * 9)
    world.add("change", name="next")

    await world.trail.flush()

    assert world.lost("change") == 1
    assert (await world.names())[0] == "large"


async def test_bad_tokens_are_recorded_at_a_bounded_rate_and_counted(world: World) -> None:
    for _ in range(1_000):
        world.add("unauthenticated")
    world.clock.advance(1_000)
    world.add("unauthenticated")
    await world.trail.flush()
    records = (await world.search(page_size=1_000)).records

    recorded = [record for record in records if record.kind == "unauthenticated"]
    assert len(recorded) == trail.UNAUTHENTICATED_PER_SECOND_MAX + 1
    assert [record.lost for record in records if record.kind == "loss"] == [{"unauthenticated": 980}]
    assert world.lost("unauthenticated") == 980
    assert len(await world.objects()) == 1


async def test_nothing_is_lost_while_the_store_fails_and_there_is_room(world: World) -> None:
    world.store.error = Unavailable("down")
    for number in range(5):
        world.add(name=str(number))
        world.clock.advance(1)
        assert not await world.trail.flush()
    world.store.error = None

    assert await world.trail.flush()
    assert await world.trail.flush()

    assert await world.names() == list("01234")
    assert world.reported == []


async def test_a_write_whose_answer_was_lost_is_not_written_twice(world: World) -> None:
    world.store.error, world.store.is_applied = OutcomeUnknown("no answer"), True
    world.add(name="once")
    assert not await world.trail.flush()
    world.store.error = None

    assert await world.trail.flush()

    assert len(await world.objects()) == 1
    assert await world.names() == ["once"]


async def test_during_a_long_outage_batches_stay_short_and_few(world: World) -> None:
    """A search by time relies on the span of a batch."""
    world.store.error = Unavailable("down")
    for number in range(300):
        world.add(name=f"{number:03d}")
        world.clock.advance(1_000)
        await world.trail.flush()
    world.store.error = None
    while not await world.trail.flush():
        pass
    await world.trail.flush()
    start_ms = world.clock.now_ms() - 300_000

    some = await world.search(AuditFilter(start_ms + 100_000, start_ms + 102_000))

    assert await world.names() == [f"{number:03d}" for number in range(300)]
    assert 5 <= len(await world.objects()) <= 8
    assert [record.securable_name for record in some.records] == ["100", "101", "102"]


async def test_what_cannot_be_written_at_the_end_is_counted_and_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "CLOSE_SECONDS_MAX", 0.05)
    world.store.error = Unavailable("down")
    world.add("change")
    world.add("denial")

    await world.trail.close()

    assert world.reported == [
        ({"change": 1, "denial": 1}, "the server stopped before the records could be written"),
    ]
    assert (world.lost("change"), world.lost("denial")) == (1, 1)


async def test_two_processes_write_beside_each_other(world: World) -> None:
    other = AuditTrail(make_lake(authentication="on").settings, FixedClock(seed=7), world.store, lambda *_: None)
    record = AuditRecord(
        time_ms=world.clock.now_ms(),
        kind="read",
        operation="load",
        securable_name="theirs",
        decision="allowed",
        status=200,
        outcome="done",
    )
    for _ in range(3):
        world.add(name="ours")
        other.add(LAYOUT, record)
        await asyncio.gather(world.trail.flush(), other.flush())
    await other.close()

    assert Counter(await world.names()) == {"ours": 3, "theirs": 3}


async def test_a_search_selects_by_every_field(world: World) -> None:
    world.add(name="main.sales.orders", principal="ada", principal_id="p1", operation="loadTable", request_id="r1")
    world.add("denial", name="main.sales", principal="ben", decision="denied", operation="dropTable")
    world.add("change", name="main.hr.people", principal="ben", operation="updateTable", securable_id="u-1")
    await world.trail.flush()

    async def found(**fields: Any) -> list[str]:
        return [record.securable_name for record in (await world.search(EVER._replace(**fields))).records]

    assert await found(principal="ada") == await found(principal="p1") == ["main.sales.orders"]
    assert await found(decision="denied") == ["main.sales"]
    assert await found(operation="updateTable") == ["main.hr.people"]
    assert await found(securable="main.sales") == ["main.sales.orders", "main.sales"]
    assert await found(securable="u-1") == ["main.hr.people"]
    assert await found(kind="denial") == ["main.sales"]
    assert await found(request_id="r1") == ["main.sales.orders"]
    assert await found(principal="ben", decision="allowed") == ["main.hr.people"]


async def test_pages_of_a_search_contain_every_record_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "OBJECTS_PER_PAGE_MAX", 3)
    for number in range(40):
        world.add(name=f"{number:02d}")
        if number % 4 == 3:
            await world.trail.flush()
            world.clock.advance(1_000)

    found: list[str] = []
    token: str | None = None
    for _ in range(100):
        page = await world.search(page_size=7, page_token=token)
        assert len(page.records) <= 7
        found += [record.securable_name for record in page.records]
        token = page.next_token
        if token is None:
            break

    assert found == [f"{number:02d}" for number in range(40)]


async def test_a_damaged_object_is_named_and_the_others_are_found(world: World) -> None:
    for name in "abc":
        world.add(name=name)
        await world.trail.flush()
        world.clock.advance(1_000)
    damaged = (await world.objects())[1]
    stored = await world.store.get(damaged)
    assert stored
    await world.store.put(damaged, stored.data[:-9], expected=stored.version)

    page = await world.search()

    assert [record.securable_name for record in page.records] == ["a", "c"]
    assert page.damaged == [damaged]


@pytest.mark.parametrize("token", ["", "x", "WzEsIngiLCJ5Il0"])
async def test_a_foreign_page_token_is_refused(world: World, token: str) -> None:
    with pytest.raises(BadRequest, match="page token"):
        await world.search(page_token=token)
