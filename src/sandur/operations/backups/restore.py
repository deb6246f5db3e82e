"""A restore: write a backup into an empty store. It may be interrupted at any point and run again."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.security.manifest import SecurityManifest
from sandur.errors import Conflict, Invalid, NotEmpty, SandurError, SwapLost
from sandur.operations.backups.repository import BackupManifest, BackupReader, Entry, read_entries
from sandur.operations.lake import Lake
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import RESTORING, Layout, layout_of
from sandur.storage.record_form import decode_record, encode_record

WRITES_AT_ONCE: Final = 32

NUMBERS_AHEAD: Final = 1_000_000
"""How far the number of the grants is raised: servers that ran on the store before refuse a smaller one."""

Progress = Callable[[int, int], None]
"""Receives how many objects were written, and how many there are."""


class Restoring(msgspec.Struct, frozen=True):
    """The mark of a restore that is not finished. No server starts on such a store."""

    backup: str


async def restore(
    lake: Lake, source: ObjectStore, manifest: BackupManifest, *, on_progress: Progress
) -> Mapping[str, int]:
    """Write the objects of a backup; returns how many were written, were there, and were left out.

    Raises NotEmpty if the store has a catalog, and Damaged if the backup is not whole.
    """
    store, mark = lake.store, msgspec.json.encode(Restoring(manifest.id))
    await _check_target(store, manifest)
    await _put(store, RESTORING, mark)
    counts: Counter[str] = Counter()
    reader = BackupReader(source)
    async for entries in read_entries(source, manifest):
        for entry in entries:  # Whole packs are read one after the other; the writes run together.
            await reader.read(entry)

        async def write(entry: Entry) -> None:
            counts[await _write(lake, entry, await reader.read(entry))] += 1

        await gather_in_batches(entries, write, at_once=WRITES_AT_ONCE)
        on_progress(counts.total(), manifest.objects)
    held = await store.get(RESTORING)
    if held:
        await store.delete(RESTORING, expected=held.version)
    return counts


async def _check_target(store: ObjectStore, manifest: BackupManifest) -> None:
    """The target is empty, or an earlier run of this restore began there."""
    if held := await store.get(RESTORING):
        begun = decode_record(RESTORING, held.data, Restoring).backup
        if begun != manifest.id:
            raise Conflict(f"a restore of the backup {begun} is not finished here; finish it, or empty the store")
        return
    for folder in ("_shared/", ""):
        page = await store.list(folder, limit=1)
        is_catalog = page and (folder or layout_of(page[0].key) is not None)
        if is_catalog or (page and not folder and await _has_catalog(store)):
            raise NotEmpty("the store has a catalog already; restore into an empty bucket, prefix or folder")


async def _has_catalog(store: ObjectStore) -> bool:
    page = await store.list("", after="tenant", limit=1)
    return bool(page) and layout_of(page[0].key) is not None


async def _write(lake: Lake, entry: Entry, data: bytes) -> str:
    if entry.is_location:
        return await _write_file(lake, entry.key, data)
    layout = layout_of(entry.key)
    if layout and entry.key == Layout(layout.tenant, layout.workspace).security_manifest():
        data = raised(entry.key, data)
    return await _put(lake.store, entry.key, data)


def raised(key: str, data: bytes) -> bytes:
    """The grants under a number that no server of the former store has seen.

    The backup may bring revoked grants back; nothing can tell which. What it must not do is look older than what a
    running server has seen, because that server would refuse it.
    """
    manifest = decode_record(key, data, SecurityManifest)
    return encode_record(replace(manifest, number=manifest.number + NUMBERS_AHEAD))


async def _write_file(lake: Lake, location: str, data: bytes) -> str:
    """A metadata file that is missing at its place; one that is there is the same, because no file is replaced."""
    try:
        await lake.locations.create(location, data)
    except SwapLost:
        return "files_there"
    except Invalid:  # Elsewhere: the settings of the restore do not allow the place.
        return "files_elsewhere"
    except SandurError:
        return "files_failed"
    return "files_written"


async def _put(store: ObjectStore, key: str, data: bytes) -> str:
    try:
        await store.put(key, data, expected=ABSENT)
    except SwapLost:
        found = await store.get(key)
        if found is None or found.data != data:
            raise Conflict(
                f"object {key} has changed since the restore began; empty the store and restore again"
            ) from None
        return "objects_there"
    return "objects_written"
