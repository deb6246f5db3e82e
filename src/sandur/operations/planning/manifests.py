"""Reads, decodes and caches manifest lists and manifests, which never change."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from sandur.catalog.locations import checked_location
from sandur.errors import Invalid, NotFound
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifests import ManifestFile, declared_size, decode_manifest, decode_manifest_list
from sandur.iceberg.snapshots import Snapshot
from sandur.operations.lake import Lake
from sandur.operations.planning.cache import PlanningCache
from sandur.operations.tables.manifest_places import ReadableManifests

T = TypeVar("T")

READS_AT_ONCE: Final = 8
ENTRIES_AHEAD_MAX: Final = 100_000
"""Large manifests are read ahead one at a time."""

MANIFEST_BYTES_MAX: Final = 1 << 30
_LIST_ENTRY_BYTES: Final = 600
# Up to here, decoding takes less than the five milliseconds for which one thread may hold the interpreter anyway. The
# number of records and of decompressed bytes is for files that are much larger than they look, such as zeros.
_SMALL_MANIFEST_BYTES: Final = 256 << 10
_SMALL_MANIFEST_RECORDS: Final = 5_000
_SMALL_LIST_BYTES: Final = 32 << 10
_SMALL_LIST_RECORDS: Final = 500
_SMALL_INFLATED_BYTES: Final = 16 << 20


class Manifests:
    """The manifests of one table. A location outside of the catalog's roots or of the table raises Invalid (M3)."""

    def __init__(self, lake: Lake, roots: Sequence[str], readable: ReadableManifests) -> None:
        self.cache = lake.feature(PlanningCache)
        self._locations = lake.locations
        self._roots = roots
        self._readable = readable

    async def listed(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot. An old snapshot names them itself, with little more than their paths."""
        if snapshot.manifest_list is None:
            return tuple([await self._describe(path) for path in snapshot.manifests or ()])
        location = snapshot.manifest_list
        self._check(location)
        cached: tuple[ManifestFile, ...] | None = self.cache.manifests.get(("list", location))
        if cached is not None:
            return cached
        data = await self._read(location)
        is_long = _is_long(data, bytes_max=_SMALL_LIST_BYTES, records_max=_SMALL_LIST_RECORDS)
        found = await run_aside(partial(decode_manifest_list, data, location=location), is_long=is_long)
        self.cache.manifests.put(("list", location), found, len(found) * _LIST_ENTRY_BYTES)
        return found

    def _check(self, location: str) -> None:
        """Raise Invalid before the cache is used: another table may have filled it."""
        checked_location(location, self._roots)
        self._readable.check(location)

    async def _describe(self, location: str) -> ManifestFile:
        columns = await self.columns(location)
        try:
            spec_id = columns.spec_id or 0
        except ValueError as error:
            raise Invalid(f"manifest {location}: cannot be read: its partition-spec-id is not a number") from error
        return ManifestFile(manifest_path=location, partition_spec_id=spec_id)

    async def columns(self, location: str) -> ManifestColumns:
        """The live entries of a manifest; NotFound if the file does not exist, Invalid if it is not a manifest."""
        self._check(location)
        found: ManifestColumns | None = self.cache.manifests.get(("manifest", location))
        if found is not None:
            return found
        return await asyncio.shield(self.cache.manifests.read(location, lambda: self._columns(location)))

    def prefetch(self, location: str) -> None:
        """Start to read a manifest that is likely to be needed next, unless enough reads are in progress."""
        cache = self.cache.manifests
        if len(cache.reads) >= READS_AT_ONCE or location in cache.reads or ("manifest", location) in cache:
            return
        try:
            self._check(location)
        except Invalid:
            return  # The scan that needs it raises this.
        cache.read(location, lambda: self._columns(location))

    async def _columns(self, location: str) -> ManifestColumns:
        data = await self._read(location)
        cache = self.cache.manifests
        async with cache.decoding:
            if not cache.is_warm:
                # The first array that Arrow makes imports pandas, if it is installed. That takes a second.
                await asyncio.to_thread(pa.array, [0])
                cache.is_warm = True
            is_long = _is_long(data, bytes_max=_SMALL_MANIFEST_BYTES, records_max=_SMALL_MANIFEST_RECORDS)
            columns = await run_aside(partial(decode_manifest, data, location=location), is_long=is_long)
        cache.put(("manifest", location), columns, columns.size_bytes)
        return columns

    async def _read(self, location: str) -> bytes:
        data = await self._locations.read(location)
        if data is None:
            raise NotFound(f"Failed to open input stream for file: {location}", subject="file")
        if len(data) > MANIFEST_BYTES_MAX:
            raise Invalid(f"manifest {location}: has {len(data)} bytes, more than {MANIFEST_BYTES_MAX}")
        return data

    async def each(self, manifests: Sequence[ManifestFile]) -> AsyncGenerator[tuple[ManifestFile, ManifestColumns]]:
        """Every manifest with its entries, in order. A bounded number is read ahead and kept in memory.

        If the caller stops early, the reads in progress continue and fill the cache: the next call is likely to need
        them.
        """
        ahead: deque[asyncio.Task[ManifestColumns]] = deque()
        following = deque(manifests)
        entries = 0
        try:
            for manifest in manifests:
                while following and len(ahead) < READS_AT_ONCE:
                    size = following[0].live_files or 0
                    if ahead and entries + size > ENTRIES_AHEAD_MAX:
                        break
                    one = following.popleft()
                    entries += size
                    ahead.append(asyncio.ensure_future(self.columns(one.manifest_path)))
                found = await ahead.popleft()
                entries -= manifest.live_files or 0
                yield manifest, found
        finally:
            for task in ahead:
                if not task.cancel() and not task.cancelled():
                    task.exception()  # Retrieved, so that asyncio does not report it.


def _is_long(data: bytes, *, bytes_max: int, records_max: int) -> bool:
    """Whether decoding a file may take long: because of its size, its records, or what it can inflate to."""
    size = declared_size(data)
    return len(data) > bytes_max or size.records > records_max or size.inflated_bytes_max > _SMALL_INFLATED_BYTES


async def run_aside(work: Callable[[], T], *, is_long: bool) -> T:
    """The result of the work. Long work runs in a thread, so that other requests continue."""
    return await asyncio.to_thread(work) if is_long else work()
