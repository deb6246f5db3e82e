"""The boot probe: checks on the real store each guarantee that the catalog needs."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from sandur.clock import Clock, SystemClock
from sandur.errors import SandurError, SwapLost, Unavailable, Unfit
from sandur.settings import Settings
from sandur.storage import layout
from sandur.storage.cell import gather_all
from sandur.storage.contract import ABSENT, UNCHANGED, Expected, ObjectStore, Version
from sandur.storage.locations import connect

# Few racers and many races: some stores let concurrent writers of one object wait, for up to a second.
_RACERS: Final = 3
_RACES: Final = 8
_READINESS_KEY: Final = "_readiness"
_READINESS_TRIES_MAX: Final = 3


def check_store(settings: Settings, *, creates: bool) -> None:
    """Open the store, read from it and close it; Unfit if that fails. See `open_store` for `creates`."""

    async def check() -> None:
        store = connect(settings, SystemClock(), creates=creates)
        try:
            await reach_store(store, f"store {settings.store}")
        finally:
            await store.close()

    asyncio.run(check())


async def reach_store(store: ObjectStore, address: str = "the store") -> None:
    """Read one object, which need not exist; raises Unfit with the reason if the store does not answer."""
    try:
        await store.get(_READINESS_KEY)
    except SandurError as error:
        reason = str(error).removeprefix(f"object {_READINESS_KEY}: cannot be read: ")
        raise Unfit(f"{address} cannot be used: {reason}") from error


async def check_access(store: ObjectStore, clock: Clock, address: str = "the store") -> None:
    """Read, write and delete one object, so that nothing stays; raises Unfit with the reason if one of them fails.

    All servers use the same object. The next check removes what a killed server left.
    """
    await reach_store(store, address)
    try:
        for _ in range(_READINESS_TRIES_MAX):
            with contextlib.suppress(SwapLost):  # Another server checks at the same time.
                if found := await store.head(_READINESS_KEY):
                    version = found.version
                else:
                    version = await store.put(_READINESS_KEY, clock.new_id().encode(), expected=ABSENT)
                return await store.delete(_READINESS_KEY, expected=version)
    except SandurError as error:
        reason = str(error).removeprefix(f"object {_READINESS_KEY}: ")
        raise Unfit(f"{address} cannot be written: {reason}") from error


class WriteTime(NamedTuple):
    """When the store says that an object was written, and the time of this process before and after the write."""

    store_ms: int
    before_ms: int
    after_ms: int


async def write_time(store: ObjectStore, clock: Clock) -> WriteTime:
    """Write an object, look at its time, and remove it; Unavailable if it is gone before."""
    key = f"{layout.probe_folder(clock.new_id())}clock"
    before_ms = clock.now_ms()
    version = await store.put(key, clock.new_id().encode(), expected=ABSENT)
    after_ms = clock.now_ms()
    listed = await store.head(key)
    if listed is None:
        raise Unavailable(f"object {key}: it is gone right after it was written, so the store's time is not known")
    await store.delete(key, expected=version)
    return WriteTime(listed.modified_ms, before_ms, after_ms)


async def verify_store(store: ObjectStore, clock: Clock, address: str = "the store") -> Sequence[str]:
    """The guarantees that hold. Raises Unfit, naming the first that does not.

    Makes some dozens of small calls in a folder of its own and removes that folder afterwards. The checks run together,
    each in its own part of the folder: one after the other, they would take fifty rounds at every start.
    """
    await reach_store(store, address)
    folder = layout.probe_folder(clock.new_id())
    trials = [_Trial(store, clock, f"{folder}{number}/") for number in range(len(_GUARANTEES))]
    try:
        calls = [_failure(*one) for one in zip(_GUARANTEES, _GUARANTEES.values(), trials, strict=True)]
        for failure in await gather_all(calls):
            if failure:
                raise Unfit(f"{address} cannot be used: {failure}") from failure.__cause__
        return tuple(_GUARANTEES)
    finally:
        await _sweep(store, folder)


async def _failure(guarantee: str, check: "Callable[[_Trial], Awaitable[bool]]", trial: "_Trial") -> Unfit | None:
    """Why the store does not give the guarantee; None if it does."""
    failure: Unfit | None = None
    try:
        if not await check(trial):
            failure = Unfit(f"it does not guarantee that {guarantee}")
    except SandurError as error:
        failure = Unfit(f"the check that {guarantee} failed: {error}")
        failure.__cause__ = error
    return failure


class _Trial(NamedTuple):
    """The store, a folder and unique bodies, for one check."""

    store: ObjectStore
    clock: Clock
    folder: str

    def key(self, name: str) -> str:
        return f"{self.folder}{name}"

    def body(self) -> bytes:
        return self.clock.new_id().encode()

    async def wins(self, name: str, expected: Expected) -> Version | None:
        """The new version, or None if the swap is lost."""
        try:
            return await self.store.put(self.key(name), self.body(), expected=expected)
        except SwapLost:
            return None


async def _reads_what_was_written(trial: _Trial) -> bool:
    body = trial.body()
    version = await trial.store.put(trial.key("read"), body, expected=ABSENT)
    found = await trial.store.get(trial.key("read"))
    return found is not None and found.data == body and found.version == version


async def _lists_what_was_written(trial: _Trial) -> bool:
    await trial.wins("listed", ABSENT)
    return trial.key("listed") in [listed.key for listed in await trial.store.list(trial.folder)]


async def _lists_in_order(trial: _Trial) -> bool:
    """This check also detects a store that lists folder by folder; from then on its listings are sorted."""
    versions = [await trial.wins("order/b", ABSENT), await trial.wins("order-a", ABSENT)]
    listed = [entry for entry in await trial.store.list(trial.folder) if "/order" in entry.key]
    behind = await trial.store.list(trial.folder, after=trial.key("order-a"), limit=1)
    return [(entry.key, entry.version) for entry in listed] == [
        (trial.key("order-a"), versions[1]),
        (trial.key("order/b"), versions[0]),
    ] and list(behind) == listed[1:]


async def _creates_once(trial: _Trial) -> bool:
    return bool(await trial.wins("create", ABSENT)) and not await trial.wins("create", ABSENT)


async def _swaps_only_the_expected(trial: _Trial) -> bool:
    first = await trial.wins("swap", ABSENT)
    if not first or await trial.wins("swap-missing", first):
        return False
    second = await trial.wins("swap", first)
    return bool(second) and first != second and not await trial.wins("swap", first)


async def _detects_unchanged(trial: _Trial) -> bool:
    version = await trial.wins("unchanged", ABSENT)
    if not version or await trial.store.get_if_changed(trial.key("unchanged"), seen=version) is not UNCHANGED:
        return False
    await trial.wins("unchanged", version)
    return await trial.store.get_if_changed(trial.key("unchanged"), seen=version) is not UNCHANGED


async def _deletes_only_the_expected(trial: _Trial) -> bool:
    stale = await trial.wins("delete", ABSENT)
    current = await trial.wins("delete", stale) if stale else None
    if not stale or not current:
        return False
    try:
        await trial.store.delete(trial.key("delete"), expected=stale)
    except SwapLost:
        await trial.store.delete(trial.key("delete"), expected=current)
        return await trial.store.get(trial.key("delete")) is None
    return False


async def _never_reuses_a_version(trial: _Trial) -> bool:
    before = await trial.wins("again", ABSENT)
    if not before:
        return False
    await trial.store.delete(trial.key("again"), expected=before)
    after = await trial.wins("again", ABSENT)
    return bool(after) and after != before and not await trial.wins("again", before)


async def _distinguishes_case(trial: _Trial) -> bool:
    return bool(await trial.wins("case", ABSENT)) and bool(await trial.wins("CASE", ABSENT))


async def _lets_one_racer_win(trial: _Trial) -> bool:
    expected: Expected = ABSENT
    for _ in range(_RACES):
        outcomes = await asyncio.gather(*(trial.wins("race", expected) for _ in range(_RACERS)))
        winners = [version for version in outcomes if version]
        if len(winners) != 1:
            return False
        expected = winners[0]
    return True


_GUARANTEES: Final = {
    "a read shows what was written before it": _reads_what_was_written,
    "a listing shows what was written before it": _lists_what_was_written,
    "an object is created only if it does not exist": _creates_once,
    "an object is replaced only at the expected version": _swaps_only_the_expected,
    "a conditional read detects whether an object changed": _detects_unchanged,
    "an object is deleted only at the expected version": _deletes_only_the_expected,
    "a version never returns": _never_reuses_a_version,
    "a listing has the versions, in the byte order of the keys": _lists_in_order,
    "keys that differ only in case are different objects": _distinguishes_case,
    f"of {_RACERS} writers with the same expectation exactly one wins": _lets_one_racer_win,
}


async def _sweep(store: ObjectStore, folder: str) -> None:
    """Best effort: a store that fails the probe may fail here too, and the result of the probe matters more."""
    try:
        await gather_all([store.delete(one.key, expected=one.version) for one in await store.list(folder)])
    except SandurError:
        return
