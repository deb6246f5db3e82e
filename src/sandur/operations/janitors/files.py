"""Delete the files of one dropped table or view, in an order that survives a crash at any point.

What names others is deleted after what it names: a manifest after its data files, a manifest list after its manifests,
the current metadata file last of all. So a file that is not there any more has nothing left to name.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from sandur.avro.container import open_container, read_records
from sandur.catalog.locations import PATH_PROPERTIES, checked_location, is_within, normalize_location
from sandur.errors import Invalid, SwapLost
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.caches import LruCache
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import Lake

BATCH: Final = 500

_DELETED: Final = 2


async def manifest_paths(data: bytes, *, location: str) -> AsyncIterator[list[str]]:
    """The manifests that a manifest list names; Invalid when it is none."""
    async for batch in _batches(data, _manifest_path, location=location):
        yield batch


async def content_paths(data: bytes, *, location: str) -> AsyncIterator[list[str]]:
    """The data and delete files that a manifest adds or keeps; Invalid when it is none.

    Those it says are deleted are left out: they were another snapshot's, and are gone, or in that one's manifests.
    """
    async for batch in _batches(data, _content_path, location=location):
        yield batch


async def _batches(
    data: bytes, read: Callable[[dict[str, Any]], str | None], *, location: str
) -> AsyncIterator[list[str]]:
    paths = _paths(data, read, location)
    while batch := await asyncio.to_thread(lambda: list(islice(paths, BATCH))):
        yield batch


def _paths(data: bytes, read: Callable[[dict[str, Any]], str | None], location: str) -> Iterator[str]:
    try:
        for record in read_records(open_container(data)):
            if path := read(record):
                yield path
    except Exception as error:  # Anything at all is raised over bytes that are not Avro.
        raise Invalid(f"file {location}: cannot be read as a manifest: {type(error).__name__}: {error}") from error


def _manifest_path(record: dict[str, Any]) -> str | None:
    return _text(record, "manifest_path")


def _content_path(record: dict[str, Any]) -> str | None:
    return None if record["status"] == _DELETED else _text(record["data_file"], "file_path")


def _text(record: object, field: str) -> str:
    path = record[field] if isinstance(record, dict) else None
    if not isinstance(path, str):
        raise TypeError(f"{field} is no text")
    return path


DELETES_AT_ONCE: Final = 32
MANIFESTS_REMEMBERED_MAX: Final = 100_000


class BudgetSpent(Exception):
    """As many files were deleted as a run may; the next one goes on."""


def table_folders(metadata: TableMetadata | ViewMetadata) -> tuple[str, ...]:
    """Where a table says that its files lie: its location, and the paths it is to write to; normalized."""
    paths = (metadata.properties.get(key) for key in PATH_PROPERTIES)
    return tuple(dict.fromkeys(normalize_location(path) for path in (metadata.location, *paths) if path))


@dataclass
class Budget:
    """How many files may still be deleted. Those that are gone already cost nothing, so every run gets further."""

    files: int

    def spend(self) -> None:
        self.files -= 1

    def next_files(self) -> int:
        """How many may be deleted at once now; Enough when none may."""
        if self.files <= 0:
            raise BudgetSpent
        return min(self.files, DELETES_AT_ONCE)


@dataclass
class Purge:
    """The deletion of one table's files.

    Only what lies in one of the table's `homes`, and below one of the `roots` where its catalog may have files at all,
    is deleted; whatever else the metadata names is `left`: a client may have written any path into a manifest.
    """

    lake: Lake
    homes: Sequence[str]
    roots: Sequence[str]
    budget: Budget
    removed: int = 0
    left: int = 0
    _seen: LruCache[str, bool] = field(default_factory=lambda: LruCache(MANIFESTS_REMEMBERED_MAX))

    async def table(self, metadata: TableMetadata) -> None:
        """Everything but the current metadata file; Invalid when a manifest cannot be read, Enough when it is much."""
        # As Java reads it: anything but "true" means no.
        keeps_content = metadata.properties.get("gc.enabled", "true").lower() != "true"
        for snapshot in metadata.snapshots:
            await self._snapshot(snapshot, keeps_content=keeps_content)
        await self.remove(
            [
                *(file.statistics_path for file in metadata.statistics),
                *(file.statistics_path for file in metadata.partition_statistics),
            ]
        )
        await self.remove(
            entry.metadata_file for entry in metadata.metadata_log if entry.metadata_file != metadata.metadata_location
        )
        # The folder that was made for data stays when it was never used; all others go with their last file.
        if self._is_ours(unused := f"{metadata.location}/data"):
            self.lake.locations.remove_empty_folder(unused)

    async def _snapshot(self, snapshot: Snapshot, *, keeps_content: bool) -> None:
        for manifest in snapshot.manifests or ():
            await self._manifest(manifest, keeps_content=keeps_content)
        if snapshot.manifest_list is None:
            return
        data = await self._read(snapshot.manifest_list)
        if data is None:
            return
        async for manifests in manifest_paths(data, location=snapshot.manifest_list):
            for manifest in manifests:
                await self._manifest(manifest, keeps_content=keeps_content)
        await self.remove([snapshot.manifest_list])

    async def _manifest(self, location: str, *, keeps_content: bool) -> None:
        if location in self._seen:  # Most manifests are named by many snapshots.
            return
        self._seen[location] = True
        if not keeps_content and (data := await self._read(location)) is not None:
            async for paths in content_paths(data, location=location):
                await self.remove(paths)
        await self.remove([location])

    async def _read(self, location: str) -> bytes | None:
        """A file that belongs to the table; None when it does not, or is gone."""
        return await self.lake.locations.read(location) if self._is_ours(location) else None

    async def remove(self, locations: Iterable[str]) -> None:
        waiting = list(locations)
        while waiting:
            some = self.budget.next_files()
            await gather_all(self._remove(location) for location in waiting[:some])
            del waiting[:some]

    async def _remove(self, location: str) -> None:
        if not self._is_ours(location):
            self.left += 1
            return
        try:
            was_there = await self.lake.locations.remove(location)
        except SwapLost:  # Written anew this very moment, so it is not the file that was meant.
            self.left += 1
            return
        if was_there:
            self.removed += 1
            self.budget.spend()

    def _is_ours(self, location: str) -> bool:
        plain = normalize_location(location)
        try:
            checked_location(location, self.roots)
        except Invalid:
            return False
        return any(is_within(plain, home) and plain != home for home in self.homes)
