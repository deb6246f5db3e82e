"""The time of the store, which gives files their ages: that of an object that is written now."""

from typing import Final, NamedTuple

from sandur.errors import Unavailable
from sandur.operations.lake import Lake
from sandur.storage.contract import ABSENT
from sandur.storage.layout import probe_folder

_NAME: Final = "clock"


class WriteTime(NamedTuple):
    """When the store says that an object was written, and the time of this process before and after the write."""

    store_ms: int
    before_ms: int
    after_ms: int


async def write_time(lake: Lake) -> WriteTime:
    """Write an object, look at its time, and remove it."""
    key = f"{probe_folder(lake.clock.new_id())}{_NAME}"
    before_ms = lake.clock.now_ms()
    version = await lake.store.put(key, lake.clock.new_id().encode(), expected=ABSENT)
    after_ms = lake.clock.now_ms()
    listed = await lake.store.head(key)
    if listed is None:
        raise Unavailable(f"object {key}: it is gone right after it was written, so the store's time is not known")
    await lake.store.delete(key, expected=version)
    return WriteTime(listed.modified_ms, before_ms, after_ms)


class StoreTime:
    """The time by which the age of files is judged: that of this process, but never later than that of the store.

    If the clock of this process is behind, files are only younger. How far it is ahead is measured once.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ahead_ms: int | None = None

    async def now_ms(self) -> int:
        if self._ahead_ms is None:
            written = await write_time(self._lake)
            self._ahead_ms = max(0, written.after_ms - written.store_ms)
        return self._lake.clock.now_ms() - self._ahead_ms
