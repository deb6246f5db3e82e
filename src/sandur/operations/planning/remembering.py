"""What a workspace remembers of manifests: packed, bounded by bytes, and each decoded once however many ask."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from sandur.operations.caches import RecentBytes

if TYPE_CHECKING:  # Every workspace has this memory, and few plan: Arrow is loaded when one does.
    from sandur.iceberg.scan.columns import ManifestColumns
    from sandur.iceberg.scan.packing import Packed
    from sandur.iceberg.scan.selected import Selected

DECODED_AT_ONCE: Final = 2
SELECTED_BYTES_MAX: Final = 32 << 20


class ManifestMemory(RecentBytes[tuple[str, str], Any]):
    """Manifests by their location, and what plans that are being fetched selected of them."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.selected: RecentBytes[tuple[str, str], Selected] = RecentBytes(min(bytes_max, SELECTED_BYTES_MAX))
        # Decoding takes room, several times that of the manifest, and more of it at once is not faster.
        self.decoding = asyncio.Semaphore(DECODED_AT_ONCE)
        self.storing = 0
        self._under_way: dict[str, asyncio.Task[ManifestColumns]] = {}

    def entries(self, location: str) -> "Packed | ManifestColumns | None":
        """A manifest as it is remembered: packed, or as it was decoded when it is small."""
        return self.get(("entries", location))

    def remember(self, location: str, found: "Packed | ManifestColumns") -> None:
        self.put(("entries", location), found, found.size_bytes)

    def is_known(self, location: str) -> bool:
        return ("entries", location) in self or location in self._under_way

    @property
    def under_way(self) -> int:
        """How many manifests are being read."""
        return len(self._under_way)

    def reading(
        self, location: str, read: "Callable[[], Coroutine[Any, Any, ManifestColumns]]"
    ) -> "asyncio.Task[ManifestColumns]":
        """The manifest while it is being read, by whoever asked first. It is read to its end, whoever stops waiting."""
        task = self._under_way.get(location)
        if task is None:
            task = self._under_way[location] = asyncio.create_task(read(), name=f"read {location}")
            task.add_done_callback(lambda ended: self._ended(location, ended))
        return task

    def _ended(self, location: str, ended: "asyncio.Task[ManifestColumns]") -> None:
        del self._under_way[location]
        if not ended.cancelled():
            ended.exception()  # Whoever waits is told; asyncio need not be when nobody does.
