"""Reads, decodes and caches manifest lists and manifests.

What a server has decoded, the next one reads. The places bound how much there can be, without anybody sweeping.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from sandur.catalog.locations import checked_location
from sandur.errors import Invalid, NotFound, SandurError
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifest_decoder import decoded_manifest, decoded_manifest_list, records_said
from sandur.iceberg.scan.manifest_list import ManifestFile
from sandur.iceberg.scan.packing import Packed, packed, read_back, stored, unpacked
from sandur.iceberg.scan.selection import Selected
from sandur.iceberg.snapshots import Snapshot
from sandur.operations.caches import BytesLruCache
from sandur.operations.lake import Lake
from sandur.storage.contract import ABSENT, Expected

KEPT_ENTRIES_MIN: Final = 2_000
"""Smaller manifests are decoded as fast as they are read."""

PLACE_BYTES_MAX: Final = 4 << 20
STORING_MAX: Final = 8
"""How many are written at once: those that come while so many wait are not kept."""


class Looked(NamedTuple):
    """What was found in a manifest's place: the manifest, or what a write there has to expect."""

    packed: Packed | None
    expected: Expected


def place_of(lake: Lake, location: str) -> str | None:
    """The key of the manifest's place; None when nothing is kept."""
    places = lake.settings.plan_store_bytes_max // PLACE_BYTES_MAX
    if places < 1:
        return None
    number = int.from_bytes(hashlib.sha256(location.encode("utf-8", "surrogatepass")).digest()[:8]) % places
    return lake.layout.decoded_manifest(number)


async def look_in_place(lake: Lake, key: str, location: str) -> Looked:
    """The packed manifest, if it is the one that lies in its place, in a form that is read today."""
    found = await lake.store.get(key)
    if found is None:
        return Looked(None, ABSENT)
    return Looked(read_back(found.data, location=location), found.version)


async def put_in_place(lake: Lake, key: str, location: str, found: Packed, *, expected: Expected) -> None:
    """Keep a packed manifest. When that does not work, it is decoded again: nothing depends on it."""
    memory = lake.manifests
    if found.size_bytes > PLACE_BYTES_MAX or memory.storing >= STORING_MAX:
        return
    data = stored(found, location=location, event_id=lake.clock.new_id())
    memory.storing += 1
    try:
        await lake.store.put(key, data, expected=expected)
    except SandurError:
        return
    finally:
        memory.storing -= 1


T = TypeVar("T")

PACKED_ENTRIES_MIN: Final = KEPT_ENTRIES_MIN
"""Smaller manifests are remembered as they are: packing them takes as long as what is asked of them."""

READS_AT_ONCE: Final = 8
ENTRIES_AHEAD_MAX: Final = 100_000
"""Large manifests are read ahead one at a time: they are decoded when they are asked for."""

MANIFEST_BYTES_MAX: Final = 1 << 30
_LIST_ENTRY_BYTES: Final = 600
_SMALL_MANIFEST_BYTES: Final = 256 << 10
"""Up to here, decoding takes less than the five milliseconds for which a thread keeps all others waiting anyway."""

_SMALL_MANIFEST_RECORDS: Final = 5_000
"""The same for those that hold much more than they look like, being nothing but zeros."""

_SMALL_LIST_BYTES: Final = 32 << 10
_SMALL_LIST_RECORDS: Final = 500
"""The same for lists, which are read record by record."""


class Manifests:
    """The manifests of one catalog's tables. What lies outside of where its tables may lie is not read."""

    def __init__(self, lake: Lake, roots: Sequence[str]) -> None:
        self._lake = lake
        self._roots = roots

    @property
    def selected(self) -> BytesLruCache[tuple[str, str], Selected]:
        """What plans selected, by plan and manifest."""
        return self._lake.manifests.selected

    async def listed(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot; of an old one, which names them itself, little more than their paths."""
        if snapshot.manifest_list is None:
            return tuple([await self._described(path) for path in snapshot.manifests or ()])
        location = snapshot.manifest_list
        # Asked before what is remembered: that may be another catalog's.
        checked_location(location, self._roots)
        cached: tuple[ManifestFile, ...] | None = self._lake.manifests.get(("list", location))
        if cached is not None:
            return cached
        data = await self._read(location)
        decode = partial(decoded_manifest_list, data, location=location)
        is_long = len(data) > _SMALL_LIST_BYTES or records_said(data) > _SMALL_LIST_RECORDS
        found = await aside(decode, is_long=is_long)
        self._lake.manifests.put(("list", location), found, len(found) * _LIST_ENTRY_BYTES)
        return found

    async def _described(self, location: str) -> ManifestFile:
        columns = await self.columns(location)
        try:
            spec_id = columns.spec_id or 0
        except ValueError as error:
            raise Invalid(f"manifest {location}: cannot be read: its partition-spec-id is no number") from error
        return ManifestFile(manifest_path=location, partition_spec_id=spec_id)

    async def columns(self, location: str, *, entries: int = 0) -> ManifestColumns:
        """The live entries of a manifest; NotFound when it is gone, Invalid when it is none.

        `entries` is how many it should have: one with many is looked for beside the catalog first.
        """
        memory = self._lake.manifests
        checked_location(location, self._roots)
        found = memory.entries(location)
        if found is not None:
            return unpacked(found) if isinstance(found, Packed) else found
        return await asyncio.shield(memory.reading(location, lambda: self._columns(location, entries)))

    def begin(self, manifest: ManifestFile) -> None:
        """Read a manifest that is likely to be asked for next, unless enough is being read."""
        memory, location = self._lake.manifests, manifest.manifest_path
        if memory.under_way >= READS_AT_ONCE or memory.is_known(location):
            return
        try:
            checked_location(location, self._roots)
        except Invalid:
            return  # Told to whoever asks for it.
        memory.reading(location, lambda: self._columns(location, manifest.live_files or 0))

    async def _columns(self, location: str, entries: int) -> ManifestColumns:
        lake = self._lake
        key = place_of(lake, location) if entries >= KEPT_ENTRIES_MIN else None
        looked = Looked(None, ABSENT) if key is None else await look_in_place(lake, key, location)
        if looked.packed is not None:
            lake.manifests.remember(location, looked.packed)
            return unpacked(looked.packed)
        data = await self._read(location)
        async with lake.manifests.decoding:
            decode = partial(_decoded, data, location)
            is_long = len(data) > _SMALL_MANIFEST_BYTES or records_said(data) > _SMALL_MANIFEST_RECORDS
            columns, remembered = await aside(decode, is_long=is_long)
        lake.manifests.remember(location, remembered)
        if key is not None and isinstance(remembered, Packed):
            keeping = put_in_place(lake, key, location, remembered, expected=looked.expected)
            await lake.background.run("keep a decoded manifest", keeping)
        return columns

    async def _read(self, location: str) -> bytes:
        data = await self._lake.locations.read(location)
        if data is None:
            raise NotFound(f"Failed to open input stream for file: {location}", subject="file")
        if len(data) > MANIFEST_BYTES_MAX:
            raise Invalid(f"manifest {location}: has {len(data)} bytes, more than {MANIFEST_BYTES_MAX}")
        return data

    async def each(self, manifests: Sequence[ManifestFile]) -> AsyncGenerator[tuple[ManifestFile, ManifestColumns]]:
        """Every manifest with its entries, in order; a bounded number is read ahead, and only those are in memory.

        Who stops early leaves what is being read to be finished and kept: it is likely to be asked for next.
        """
        ahead: deque[asyncio.Task[ManifestColumns]] = deque()
        following = deque(manifests)
        entries = 0
        try:
            for manifest in manifests:
                while following and (not ahead or _has_room(len(ahead), entries, following[0])):
                    one = following.popleft()
                    entries += one.live_files or 0
                    ahead.append(asyncio.ensure_future(self.columns(one.manifest_path, entries=one.live_files or 0)))
                found = await ahead.popleft()
                entries -= manifest.live_files or 0
                yield manifest, found
        finally:
            for task in ahead:
                _stop_waiting(task)


async def aside(work: Callable[[], T], *, is_long: bool) -> T:
    """What the work comes to. When it is long, others have their turn meanwhile."""
    return await asyncio.to_thread(work) if is_long else work()


def _stop_waiting(task: "asyncio.Task[ManifestColumns]") -> None:
    if task.done() and not task.cancelled():
        task.exception()  # Looked at, so that asyncio does not report it.
    else:
        task.cancel()


def _has_room(ahead: int, entries: int, manifest: ManifestFile) -> bool:
    return ahead < READS_AT_ONCE and entries + (manifest.live_files or 0) <= ENTRIES_AHEAD_MAX


def _decoded(data: bytes, location: str) -> tuple[ManifestColumns, Packed | ManifestColumns]:
    """The columns of a manifest, and what is to be remembered of it."""
    columns = decoded_manifest(data, location=location)
    return columns, packed(columns) if columns.count >= PACKED_ENTRIES_MIN else columns
