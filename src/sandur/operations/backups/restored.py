"""The last restore of a store, which protects the files of commits after its cut.

The catalog does not know these commits, and has no receipts of them. Their metadata files are the only way back to
them, and look like those of attempts that lost.
"""

from typing import Final

import msgspec

from sandur.operations.lake import Lake
from sandur.settings import seconds_of
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import RESTORED
from sandur.storage.record_form import decode_record

MARGIN_MS: Final = 600_000
"""A file may be written that long before its commit (`claim_timeout_ms`)."""


class Restored(msgspec.Struct, frozen=True):
    """The backup, the begin of its cut, and the end of the restore."""

    backup: str
    cut_ms: int
    ended_ms: int


async def note_restore(store: ObjectStore, restored: Restored) -> None:
    """Note the restore, in place of an earlier one."""
    held = await store.get(RESTORED)
    await store.put(RESTORED, msgspec.json.encode(restored), expected=held.version if held else ABSENT)


class LastRestore:
    """The last restore of a store; no server runs while it changes."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._is_read = False
        self._restored: Restored | None = None

    async def keeps(self, modified_ms: int | None) -> bool:
        """Whether a file may be of a commit that was lost; it stays as long as a receipt of the restore would."""
        if not self._is_read:
            held = await self._lake.store.get(RESTORED)
            self._restored = decode_record(RESTORED, held.data, Restored) if held else None
            self._is_read = True
        if self._restored is None or modified_ms is None:
            return False
        kept_until_ms = self._restored.ended_ms + seconds_of(self._lake.settings.receipt_retention) * 1_000
        is_between = self._restored.cut_ms - MARGIN_MS <= modified_ms <= self._restored.ended_ms
        return is_between and self._lake.clock.now_ms() < kept_until_ms
