"""`sandur doctor` finds each thing that is wrong with a store, says how serious it is, and what to do about it."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import pytest

from sandur.catalog.record_versions import NEWEST, StoreFormat
from sandur.errors import Unavailable
from sandur.operations.backlog import JANITORS_RUN, note_success
from sandur.operations.examination import PURGES_WARN, Line, examine_store
from sandur.operations.janitors.leftovers import MARK_OVERDUE_MS
from sandur.operations.lake import Lake
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import LOCATIONS_COMPLETE, RESTORING, STORE_FORMAT
from sandur.storage.memory import MemoryStore
from tests.fakes.failing_store import FailingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.lakes import make_lake

DAY_MS: Final = 86_400_000
T = TypeVar("T")


def stored_format(**changed: int | str) -> bytes:
    found = StoreFormat(major=NEWEST.major, minor=NEWEST.minor, state="steady")
    return msgspec.json.encode({**msgspec.to_builtins(found), **changed})


async def sound_lake(store_clock: FixedClock | None = None, *, form: bytes | None = None, **settings: str) -> Lake:
    """A lake with the newest records, on which janitors and a job have just run."""
    clock = FixedClock()
    lake = make_lake(FailingStore(MemoryStore(clock=store_clock or clock)), clock, **settings)
    await lake.store.put(STORE_FORMAT, form or stored_format(), expected=ABSENT)
    await lake.store.put(LOCATIONS_COMPLETE, b"{}", expected=ABSENT)
    for work in (JANITORS_RUN, "sync"):
        await note_success(lake, work)
    return lake


async def lines_that_are_not_ok(lake: Lake) -> list[Line]:
    return [line for line in await examine_store(lake) if line.state != "ok"]


async def test_nothing_is_wrong_with_a_sound_store() -> None:
    assert await lines_that_are_not_ok(await sound_lake()) == []


@pytest.mark.parametrize(
    ("skew_ms", "state", "text"),
    [
        (-5_000, "warn", "5.0 s ahead of the store"),
        (5_000, "warn", "5.0 s behind the store"),
        (40_000, "fail", "40.0 s behind the store"),
    ],
)
async def test_the_clock_is_compared_with_that_of_the_store(skew_ms: int, state: str, text: str) -> None:
    lake = await sound_lake(FixedClock(FixedClock().now_ms() + skew_ms))

    (line,) = await lines_that_are_not_ok(lake)

    assert line == Line("clock", state, text, "synchronize the clock (NTP)")  # type: ignore[arg-type] # One of three.


@pytest.mark.parametrize(
    ("form", "state", "remedy"),
    [
        ({"major": NEWEST.major - 1}, "warn", "sandur upgrade --no-dry-run"),
        ({"state": "raising"}, "warn", "sandur upgrade --no-dry-run"),
        ({"major": NEWEST.major + 1}, "fail", "upgrade Sandur"),
    ],
)
async def test_records_of_other_versions_are_named(form: dict[str, int | str], state: str, remedy: str) -> None:
    (line,) = await lines_that_are_not_ok(await sound_lake(form=stored_format(**form)))

    assert (line.subject, line.state) == ("records", state)
    assert remedy in line.remedy


async def test_a_store_that_cannot_be_written_fails_and_nothing_else_is_examined() -> None:
    lake = await sound_lake()
    assert isinstance(lake.store, FailingStore)
    lake.store.error, lake.store.is_applied = Unavailable("no space left on device"), False

    (line,) = await lines_that_are_not_ok(lake)

    assert (line.subject, line.state) == ("store", "fail")
    assert "no space left on device" in line.text
    assert "sandur probe" in line.remedy


class RefusingStore(WrappingStore):
    """A store whose policy refuses some calls."""

    def __init__(self, inner: ObjectStore, refuses: Callable[[Call], bool]) -> None:
        super().__init__(inner)
        self._refuses = refuses

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self._refuses(call):
            raise Unavailable(f"object {call.key}: access denied")
        return await perform()


@pytest.mark.parametrize(
    ("refuses", "subject", "text"),
    [
        (lambda call: call.name == "list", "store", "a listing shows what was written before it"),
        (lambda call: call.name == "delete", "store", "an object is deleted only at the expected version"),
        # The rights of a policy may cover the folder of the probe, and not the rest.
        (lambda call: call.is_write and not call.key.startswith("_probe/"), "rights", "the store cannot be written"),
    ],
)
async def test_rights_that_are_missing_fail_with_the_reason(
    refuses: Callable[[Call], bool], subject: str, text: str
) -> None:
    lake = await sound_lake()
    lake.store = RefusingStore(lake.store, refuses)

    (line,) = await lines_that_are_not_ok(lake)

    assert (line.subject, line.state) == (subject, "fail")
    assert text in line.text
    assert "access denied" in line.text
    assert "rights of the server" in line.remedy


async def _leave_a_restore(lake: Lake) -> None:
    await lake.store.put(RESTORING, b"{}", expected=ABSENT)


async def _forget_locations(lake: Lake) -> None:
    found = await lake.store.head(LOCATIONS_COMPLETE)
    assert found
    await lake.store.delete(LOCATIONS_COMPLETE, expected=found.version)


async def _let_time_pass(lake: Lake) -> None:
    assert isinstance(lake.clock, FixedClock)
    lake.clock.advance(3 * DAY_MS)
    await note_success(lake, JANITORS_RUN)


async def _stop_janitors(lake: Lake) -> None:
    assert isinstance(lake.clock, FixedClock)
    lake.clock.advance(2 * 3_600_000)


async def _leave_a_mark(lake: Lake) -> None:
    assert isinstance(lake.clock, FixedClock)
    await lake.store.put(lake.layout.mark("scope", "1"), b"{}", expected=ABSENT)
    lake.clock.advance(MARK_OVERDUE_MS)


async def _order_purges(lake: Lake) -> None:
    for number in range(PURGES_WARN):
        await lake.store.put(lake.layout.purge_order("u", str(number)), b"{}", expected=ABSENT)


@pytest.mark.parametrize(
    ("harm", "subject", "state", "remedy"),
    [
        (_leave_a_restore, "restore", "fail", "run the same sandur restore again"),
        (_forget_locations, "locations", "warn", "start a server with janitors"),
        (_stop_janitors, "janitors", "warn", "look at the log"),
        (_let_time_pass, "pipeline: sync", "warn", "look at the log"),
        (_leave_a_mark, "backlog", "warn", "start a server with janitors"),
        (_order_purges, "backlog", "warn", "start a server with janitors"),
    ],
)
async def test_what_is_left_or_late_is_named(
    harm: Callable[[Lake], Awaitable[None]], subject: str, state: str, remedy: str
) -> None:
    lake = await sound_lake()
    await harm(lake)

    (line,) = await lines_that_are_not_ok(lake)

    assert (line.subject, line.state) == (subject, state)
    assert remedy in line.remedy
