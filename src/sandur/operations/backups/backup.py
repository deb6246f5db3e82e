"""A backup: copy a store's catalog into a repository, reading only what changed since the backup before."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from sandur import __version__
from sandur.catalog.security.manifest import SecurityManifest
from sandur.errors import Busy, SandurError
from sandur.operations.backups.cut import READS_AT_ONCE, Cut
from sandur.operations.backups.repository import (
    BackupManifest,
    BackupWriter,
    Entry,
    list_backups,
    read_entries,
    remove_unfinished,
)
from sandur.operations.janitors.sweep import DAY_MS, list_layouts
from sandur.operations.lake import Lake, Lakes
from sandur.operations.planning.cache import PLANS_FOLDER
from sandur.settings import Settings
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import Listed, ObjectStore, list_pages
from sandur.storage.layout import LOCATION_CLAIMS, LOCATIONS_COMPLETE, STORE_FORMAT, Layout
from sandur.storage.record_form import encode_record

Progress = Callable[[str, int], None]
"""Receives what is copied, and the number of objects so far."""

MANIFEST_TRIES_MAX: Final = 8

_BEFORE: Final = (
    # What refers to positions before the feed, the feed before the receipts that it names, receipts before records.
    Layout.deliveries_folder,
    Layout.subscriptions_folder,
    Layout.core_snapshots_folder,
    lambda layout: f"{layout.root}operational/",
    Layout.lineage_folder,
    Layout.events_folder,
)
_AFTER: Final = (Layout.all_model_versions_folder, Layout.users_folder, Layout.policies_folder, Layout.audit_folder)
_SINGLE: Final = (Layout.metastore, Layout.storage_registry, Layout.core_manifest)


async def back_up(
    lakes: Lakes, settings: Settings, target: ObjectStore, *, on_progress: Progress, is_full: bool = False
) -> BackupManifest:
    """Copy all workspaces that the settings allow. With `is_full`, the backup refers to no earlier one.

    The store of the lakes should ignore writes (`DryRunStore`). Raises Busy if others keep changing what is copied.
    """
    clock = lakes.clock
    began_ms = clock.now_ms()
    await remove_unfinished(target, before_ms=began_ms - DAY_MS)
    earlier = [] if is_full else [one for one in await list_backups(target) if one.source == settings.store]
    previous: dict[str, Entry] = {}
    if earlier:
        async for entries in read_entries(target, earlier[-1]):
            previous.update((entry.key, entry) for entry in entries)
    writer = BackupWriter(target, clock.new_id())
    copier = _Copier(lakes.store, writer, previous, on_progress)
    for key in (STORE_FORMAT, LOCATIONS_COMPLETE):
        await copier.copy_key(key)
    await copier.copy_folder(LOCATION_CLAIMS)
    async for layout in list_layouts(lakes.store, settings):
        await _copy_workspace(copier, lakes.fresh_lake(layout), began_ms)
    await copier.copy_claims_again()
    manifest = BackupManifest(
        id=writer.id,
        source=settings.store,
        began_ms=began_ms,
        ended_ms=clock.now_ms(),
        previous=earlier[-1].id if earlier else "",
        sandur=__version__,
    )
    return await writer.finish(manifest)


async def _copy_workspace(copier: "_Copier", lake: Lake, began_ms: int) -> None:
    plans = lake.layout.operational_folder(PLANS_FOLDER)
    for folder in _BEFORE:
        await copier.copy_folder(folder(lake.layout), without=plans)
    cut = Cut(lake, copier.writer, copier.previous, began_ms)
    await cut.copy()
    for folder in _AFTER:
        await copier.copy_folder(folder(lake.layout))
    for key in _SINGLE:
        await copier.copy_key(key(lake.layout))
    await copier.copy_folder(lake.layout.core_snapshots_folder())  # Files that were published meanwhile.
    await copier.copy_grants(lake)
    await gather_in_batches(cut.files, partial(copier.copy_file, lake), at_once=READS_AT_ONCE)


class _Copier:
    """Copies objects that have not changed since the backup before by reference, and all others by their bytes."""

    def __init__(
        self, store: ObjectStore, writer: BackupWriter, previous: Mapping[str, Entry], on_progress: Progress
    ) -> None:
        self._store = store
        self.writer = writer
        self.previous = previous
        self._on_progress = on_progress

    async def copy_folder(self, folder: str, *, without: str = "") -> None:
        async for page in list_pages(self._store, folder):
            wanted = [listed for listed in page if not without or not listed.key.startswith(without)]
            await gather_in_batches(wanted, self._copy, at_once=READS_AT_ONCE)
            self._on_progress(folder, len(self.writer.entries))

    async def copy_key(self, key: str) -> None:
        if listed := await self._store.head(key):
            await self._copy(listed)

    async def _copy(self, listed: Listed) -> None:
        entry = self.previous.get(listed.key)
        if entry and entry.version and entry.version == listed.version:
            self.writer.keep(entry)
        elif stored := await self._store.get(listed.key):
            await self.writer.add(listed.key, stored.data, version=stored.version)

    async def copy_grants(self, lake: Lake) -> None:
        """The manifest, then the segments that it names: one that is gone was replaced with the manifest (A14)."""
        key = lake.layout.security_manifest()
        for _ in range(MANIFEST_TRIES_MAX):
            found = await lake.uncached(key, SecurityManifest).read()
            if found is None:
                return
            segments = [lake.layout.security_segment(one) for one in found.value.segments.values()]
            for segment in segments:
                await self.copy_key(segment)
            if all(segment in self.writer.entries for segment in segments):
                await self.writer.add(key, encode_record(found.value), version=found.version)
                return
        raise Busy("the grants keep changing; start the backup again")

    async def copy_claims_again(self) -> None:
        """Location claims of what was created meanwhile; the holders of earlier ones stay until a janitor looks."""
        async for page in list_pages(self._store, LOCATION_CLAIMS):
            for listed in page:
                before = self.writer.entries.get(listed.key)
                if before and before.version == listed.version:
                    continue
                stored = await self._store.get(listed.key)
                if stored:
                    await self.writer.add(listed.key, stored.data, version=stored.version)

    async def copy_file(self, lake: Lake, location: str) -> None:
        """A file of a table, as far as this program may read it; it never changes."""
        if entry := self.previous.get(location):
            self.writer.keep(entry)
            return
        try:
            data = await lake.locations.read(location)
        except SandurError:
            self.writer.files_unread += 1
            return
        if data is not None:
            await self.writer.add(location, data, is_location=True)
