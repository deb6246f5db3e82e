"""Manifest lists and manifests, read when they are needed and kept as they were decoded: they never change."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from sandur.catalog.locations import checked_location
from sandur.errors import Invalid, NotFound
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifests import ManifestFile
from sandur.iceberg.snapshots import Snapshot
from sandur.operations.planning.avro import decoded_manifest, decoded_manifest_list
from sandur.operations.planning.kept import ENTRIES_MIN, Looked, look_in_place, place_of, put_in_place
from sandur.operations.workspace import Workspace
from sandur.storage.object_store import ABSENT

READS_AT_ONCE: Final = 8
DECODED_AT_ONCE: Final = 2
MANIFEST_BYTES_MAX: Final = 1 << 30
_LIST_ENTRY_BYTES: Final = 600


class Manifests:
    """The manifests of one catalog's tables. What lies outside of where its tables may lie is not read."""

    def __init__(self, workspace: Workspace, roots: Sequence[str]) -> None:
        self._workspace = workspace
        self._roots = roots
        self._decoding = asyncio.Semaphore(DECODED_AT_ONCE)

    async def listed(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot; of an old one, which names them itself, little more than their paths."""
        if snapshot.manifest_list is None:
            return tuple([await self._described(path) for path in snapshot.manifests or ()])
        location = snapshot.manifest_list
        # Asked before what is remembered: that may be another catalog's.
        checked_location(location, self._roots)
        cached: tuple[ManifestFile, ...] | None = self._workspace.manifests.get(("list", location))
        if cached is not None:
            return cached
        data = await self._read(location)
        found = await asyncio.to_thread(decoded_manifest_list, data, location=location)
        self._workspace.manifests.put(("list", location), found, len(found) * _LIST_ENTRY_BYTES)
        return found

    async def _described(self, location: str) -> ManifestFile:
        columns = await self.columns(location)
        return ManifestFile(manifest_path=location, partition_spec_id=columns.spec_id or 0)

    async def columns(self, location: str, *, entries: int = 0) -> ManifestColumns:
        """The live entries of a manifest; NotFound when it is gone, Invalid when it is none.

        `entries` is how many it should have: one with many is looked for beside the catalog first.
        """
        workspace = self._workspace
        checked_location(location, self._roots)
        cached: ManifestColumns | None = workspace.manifests.get(("entries", location))
        if cached is not None:
            return cached
        key = place_of(workspace, location) if entries >= ENTRIES_MIN else None
        looked = Looked(None, ABSENT) if key is None else await look_in_place(workspace, key, location)
        found = looked.columns
        if found is None:
            found = await self._decoded(location)
            if key is not None:
                keeping = put_in_place(workspace, key, location, found, expected=looked.expected)
                await workspace.background.run("keep a decoded manifest", keeping)
        workspace.manifests.put(("entries", location), found, found.size_bytes)
        return found

    async def _decoded(self, location: str) -> ManifestColumns:
        data = await self._read(location)
        # Decoding takes room, several times that of the manifest, and more of it at once is not faster.
        async with self._decoding:
            return await asyncio.to_thread(decoded_manifest, data, location=location)

    async def _read(self, location: str) -> bytes:
        data = await self._workspace.locations.read(location)
        if data is None:
            raise NotFound(f"Failed to open input stream for file: {location}", subject="file")
        if len(data) > MANIFEST_BYTES_MAX:
            raise Invalid(f"manifest {location}: has {len(data)} bytes, more than {MANIFEST_BYTES_MAX}")
        return data

    async def each(self, manifests: Sequence[ManifestFile]) -> AsyncGenerator[tuple[ManifestFile, ManifestColumns]]:
        """Every manifest with its entries, in order; a bounded number is read ahead, and only those are in memory.

        Who stops early leaves what is being read to be finished and kept: it is likely to be asked for next.
        """
        ahead: list[asyncio.Task[ManifestColumns]] = []
        following = iter(manifests)
        try:
            for manifest in manifests:
                while len(ahead) < READS_AT_ONCE and (one := next(following, None)) is not None:
                    ahead.append(asyncio.ensure_future(self.columns(one.manifest_path, entries=one.live_files or 0)))
                yield manifest, await ahead.pop(0)
        except asyncio.CancelledError:
            for task in ahead:
                task.cancel()
            raise
        finally:
            waiting = [task for task in ahead if not task.cancelling()]
            if waiting:
                await self._workspace.background.run("read ahead", _ended(waiting))


async def _ended(tasks: Sequence["asyncio.Task[ManifestColumns]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
