"""The boot probe: proves on the configured store the guarantees that everything rests on, or says which one fails."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sandur.clock import Clock
from sandur.errors import SandurError, SwapLost, Unfit
from sandur.storage import layout
from sandur.storage.contract import ABSENT, UNCHANGED, Expected, ObjectStore, Version

# Few racers and many races: a store may make writers who meet wait for each other, some for a second at a time.
_RACERS: Final = 3
_RACES: Final = 8


async def verify_store(store: ObjectStore, clock: Clock) -> Sequence[str]:
    """The guarantees proven, if the store keeps them all; otherwise Unfit, naming the first that failed.

    Costs some dozens of small calls below a folder of its own, which it removes again.
    """
    folder = layout.probe_folder(clock.new_id())
    try:
        for guarantee, check in _GUARANTEES.items():
            await _prove_one(guarantee, check, _Trial(store, clock, folder))
        return tuple(_GUARANTEES)
    finally:
        await _sweep(store, folder)


class _Trial:
    """What a check works with: the store, a folder, and bodies that are never equal."""

    def __init__(self, store: ObjectStore, clock: Clock, folder: str) -> None:
        self.store = store
        self.folder = folder
        self._clock = clock

    def key(self, name: str) -> str:
        return f"{self.folder}{name}"

    def body(self) -> bytes:
        return self._clock.new_id().encode()

    async def wins(self, name: str, expected: Expected) -> Version | None:
        """The new version when the swap is won, None when it is lost."""
        try:
            return await self.store.put(self.key(name), self.body(), expected=expected)
        except SwapLost:
            return None


async def _prove_one(guarantee: str, check: Callable[[_Trial], Awaitable[bool]], trial: _Trial) -> None:
    try:
        holds = await check(trial)
    except SandurError as error:
        raise Unfit(f"the store cannot be used for writes: while proving that {guarantee}: {error}") from error
    if not holds:
        raise Unfit(f"the store cannot be used for writes: it does not hold that {guarantee}")


async def _reads_what_was_written(trial: _Trial) -> bool:
    body = trial.body()
    version = await trial.store.put(trial.key("read"), body, expected=ABSENT)
    found = await trial.store.get(trial.key("read"))
    return found is not None and found.data == body and found.version == version


async def _lists_what_was_written(trial: _Trial) -> bool:
    return trial.key("read") in [listed.key for listed in await trial.store.list(trial.folder)]


async def _lists_in_order(trial: _Trial) -> bool:
    """Also the moment at which a store that lists folder by folder is found out, and put in order from then on."""
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


async def _knows_what_is_unchanged(trial: _Trial) -> bool:
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


async def _never_gives_a_version_again(trial: _Trial) -> bool:
    before = await trial.wins("again", ABSENT)
    if not before:
        return False
    await trial.store.delete(trial.key("again"), expected=before)
    after = await trial.wins("again", ABSENT)
    return bool(after) and after != before and not await trial.wins("again", before)


async def _tells_upper_from_lower_case(trial: _Trial) -> bool:
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
    "an object is created only where there is none": _creates_once,
    "an object is replaced only at the expected version": _swaps_only_the_expected,
    "a conditional read tells changed from unchanged": _knows_what_is_unchanged,
    "an object is deleted only at the expected version": _deletes_only_the_expected,
    "a version never comes back": _never_gives_a_version_again,
    "a listing tells the versions, in the byte order of the keys": _lists_in_order,
    "keys that differ only in case are different objects": _tells_upper_from_lower_case,
    f"of {_RACERS} writers with the same expectation exactly one wins": _lets_one_racer_win,
}


async def _sweep(store: ObjectStore, folder: str) -> None:
    """Best effort: a store that fails the probe may well fail here too, and the probe's verdict is what counts."""
    try:
        for listed in await store.list(folder):
            await store.delete(listed.key, expected=listed.version)
    except SandurError:
        return
