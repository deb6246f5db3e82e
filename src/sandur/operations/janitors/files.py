"""Delete the files of one dropped table or view, in an order that survives a crash at any point.

A file is deleted after the files that it names: a manifest after its data files, a manifest list after its manifests,
the current metadata file last. So a missing file leaves no files behind that only it named.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from sandur.catalog.locations import canonical_address, checked_location, is_within, normalize_location
from sandur.catalog.maintenance.policies import forbids_deletion
from sandur.errors import Invalid, SwapLost
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.caches import LruCache
from sandur.operations.delta.publishing import STAGED_FOLDER
from sandur.operations.lake import Lake
from sandur.operations.tables.manifest_files import content_path, read_paths
from sandur.storage.cell import gather_all
from sandur.storage.contract import Listed, ObjectStore

DELETES_AT_ONCE: Final = 32
MANIFESTS_REMEMBERED_MAX: Final = 100_000


class BudgetSpent(Exception):
    """The run has deleted as many files as it may; the next run continues."""


@dataclass
class Budget:
    """How many files a run may still delete. Missing files cost nothing, so every run makes progress."""

    files: int

    def next_files(self) -> int:
        """How many files may be deleted at once; BudgetSpent if none."""
        if self.files <= 0:
            raise BudgetSpent
        return min(self.files, DELETES_AT_ONCE)


@dataclass
class Purge:
    """The deletion of one table's files.

    A client may have written any path into a manifest. Only files in one of the table's `folders`, and below one of the
    `roots` of its catalog, are deleted; the others are counted as `left`.

    P11: the versions of some files are read, then `confirm` reads the record of the table again, then the files are
    deleted at those versions. So no file is deleted that another table wrote after it got the place.
    """

    lake: Lake
    folders: Sequence[str]
    roots: Sequence[str]
    budget: Budget
    confirm: Callable[[], Awaitable[None]]
    removed: int = 0
    left: int = 0
    _seen: LruCache[str, bool] = field(default_factory=lambda: LruCache(MANIFESTS_REMEMBERED_MAX))

    async def purge_table(self, metadata: TableMetadata) -> None:
        """Delete all but the current metadata file; Invalid for an unreadable manifest, BudgetSpent if files remain."""
        keeps_content = forbids_deletion(metadata.properties)
        for snapshot in metadata.snapshots:
            await self._purge_snapshot(snapshot, keeps_content=keeps_content)
        await self.remove(file.statistics_path for file in metadata.statistics)
        await self.remove(file.statistics_path for file in metadata.partition_statistics)
        current = normalize_location(metadata.metadata_location or "")
        logged = (entry.metadata_file for entry in metadata.metadata_log)
        await self.remove(file for file in logged if normalize_location(file) != current)
        # An unused data folder has no last file with which it would be removed.
        if self._is_own(unused := f"{metadata.location}/data"):
            self.lake.locations.remove_empty_folder(unused)

    async def _purge_snapshot(self, snapshot: Snapshot, *, keeps_content: bool) -> None:
        for manifest in snapshot.manifests or ():
            await self._purge_manifest(manifest, keeps_content=keeps_content)
        if snapshot.manifest_list is None:
            return
        if (data := await self._read(snapshot.manifest_list)) is None:
            return
        async for manifests in read_paths(data, itemgetter("manifest_path"), location=snapshot.manifest_list):
            for manifest in manifests:
                await self._purge_manifest(manifest, keeps_content=keeps_content)
        await self.remove([snapshot.manifest_list])

    async def _purge_manifest(self, location: str, *, keeps_content: bool) -> None:
        if location in self._seen:  # Most manifests belong to many snapshots.
            return
        self._seen[location] = True
        if not keeps_content and (data := await self._read(location)) is not None:
            async for paths in read_paths(data, content_path, location=location):
                await self.remove(paths)
        await self.remove([location])

    async def _read(self, location: str) -> bytes | None:
        """The bytes of a file; None if it does not belong to the table, or is missing."""
        return await self.lake.locations.read(location) if self._is_own(location) else None

    async def remove(self, locations: Iterable[str]) -> None:
        waiting = list(locations)
        while waiting:
            some = waiting[: self.budget.next_files()]
            own = [location for location in some if self._is_own(location)]
            self.left += len(some) - len(own)
            del waiting[: len(some)]
            holders = [self.lake.locations.holder(location) for location in own]
            heads = await gather_all(store.head(key) for store, key in holders)
            found = [(store, listed) for (store, _), listed in zip(holders, heads, strict=True) if listed]
            if found:
                await self.confirm()
                await gather_all(self._remove(store, listed) for store, listed in found)

    async def _remove(self, store: ObjectStore, listed: Listed) -> None:
        try:
            await store.delete(listed.key, expected=listed.version)
        except SwapLost:  # Replaced at this moment: this is another file.
            self.left += 1
            return
        self.removed += 1
        self.budget.files -= 1

    def _is_own(self, location: str) -> bool:
        plain = normalize_location(location)
        try:
            checked_location(location, self.roots)
        except Invalid:
            return False
        return any(is_within(plain, folder) and plain != folder for folder in self.folders)


async def delete_folder(
    lake: Lake, location: str, uuid: str, budget: Budget, *, confirm: Callable[[], Awaitable[None]]
) -> int:
    """Delete all files in the folder of a managed Delta table and return their number; BudgetSpent if there are more.

    Such a folder is named by the uuid of its table and holds nothing else. Invalid for any other folder. `confirm` runs
    between the list of files and their deletion (P11). SwapLost if no listed file can be deleted at its version.
    """
    plain = normalize_location(location)
    if canonical_address(location).generated_for != uuid:
        raise Invalid(f"{location} is not the folder of a managed table")
    store, folder = lake.locations.holder(f"{plain}/_")
    folder = folder.removesuffix("_")
    removed = 0
    while page := await store.list(folder, limit=DELETES_AT_ONCE):
        some = page[: budget.next_files()]
        await confirm()
        deleted = sum(await gather_all(_delete(store, listed, budget) for listed in some))
        if not deleted:
            raise SwapLost(f"{location}: its files change as fast as they are deleted")
        removed += deleted
    # An unused folder has no last file with which it would be removed.
    lake.locations.remove_empty_folder(f"{plain}/{STAGED_FOLDER}")
    return removed


async def _delete(store: ObjectStore, listed: Listed, budget: Budget) -> bool:
    try:
        await store.delete(listed.key, expected=listed.version)
    except SwapLost:  # Replaced or deleted: the next page shows it.
        return False
    budget.files -= 1
    return True
