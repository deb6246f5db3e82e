"""A process that increments the counter in a cell of a local store, a given number of times."""

import asyncio
import sys

from sandur.catalog.record_versions import Record
from sandur.clock import SystemClock
from sandur.errors import SwapLost
from sandur.storage.cell import Cell
from sandur.storage.local import Fsync, LocalStore

LOSSES_MAX = 1_000_000


class Counter(Record, frozen=True, kw_only=True):
    """The number of increments."""

    count: int = 0


def counter_in(store: LocalStore) -> Cell[Counter]:
    return Cell(store, "counters/one.json", Counter, SystemClock())


async def increment(cell: Cell[Counter]) -> None:
    for _ in range(LOSSES_MAX):
        held = await cell.read()
        if held is None:
            raise AssertionError(f"cell {cell.key}: empty, though it was filled before")
        try:
            await cell.swap(Counter(count=held.value.count + 1), expected=held.version)
        except SwapLost:
            continue
        return
    raise AssertionError(f"cell {cell.key}: {LOSSES_MAX} swaps lost in a row")


async def increment_often(root: str, fsync: Fsync, times: int) -> None:
    cell = counter_in(LocalStore(root, fsync=fsync))
    for _ in range(times):
        await increment(cell)


if __name__ == "__main__":
    folder, mode, how_often = sys.argv[1:]
    asyncio.run(increment_often(folder, "always" if mode == "always" else "never", int(how_often)))
