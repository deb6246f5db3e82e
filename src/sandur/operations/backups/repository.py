"""The place of backups: packs of bytes, lists of entries, and one manifest per backup, which is written last.

A backup without a manifest never happened. Packs never change, so a later backup refers to what it did not read again.
"""

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from sandur.errors import Damaged, NotFound
from sandur.storage.contract import ABSENT, ObjectStore, list_pages
from sandur.storage.layout import backup_manifest, backup_part, backups_folder, parse_backup
from sandur.storage.record_form import decode_record

PACK_BYTES_MAX: Final = 8 << 20
ENTRIES_PER_PART: Final = 20_000
VERSION: Final = 1


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """A copied object: its key or its location, and where its bytes are.

    `version` is the version in the source that was copied; empty if the bytes depend on other objects, too. `about`
    is what a later backup needs to know about an object that it does not read again.
    """

    key: str
    pack: str
    offset: int
    size: int
    sha256: str
    version: str = ""
    about: tuple[str, ...] = ()
    is_location: bool = False


class Part(msgspec.Struct, frozen=True):
    """A list of entries."""

    key: str
    sha256: str
    entries: int


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup. Everything that was answered before `began_ms` is in it, and nothing that began after `ended_ms`."""

    version: int = VERSION
    id: str
    source: str
    began_ms: int
    ended_ms: int
    previous: str = ""
    parts: tuple[Part, ...] = ()
    objects: int = 0
    bytes: int = 0
    copied_bytes: int = 0
    files_unread: int = 0
    sandur: str = ""


class BackupWriter:
    """Writes the packs and lists of one backup. Entries of one key may be added again: the last one counts."""

    def __init__(self, store: ObjectStore, backup_id: str) -> None:
        self._store = store
        self.id = backup_id
        self._buffer = bytearray()
        self._packs = 0
        self.copied_bytes = 0
        self.files_unread = 0
        self.entries: dict[str, Entry] = {}

    async def add(
        self, key: str, data: bytes, *, version: str = "", about: Sequence[str] = (), is_location: bool = False
    ) -> None:
        """Copy the bytes of an object."""
        while self._buffer and len(self._buffer) + len(data) > PACK_BYTES_MAX:
            await self._flush()
        # Nothing waits from here on: other objects are added at the same time.
        digest = hashlib.sha256(data).hexdigest()
        pack = backup_part(self.id, f"pack-{self._packs:06d}")
        entry = Entry(key, pack, len(self._buffer), len(data), digest, version, tuple(about), is_location)
        self._buffer += data
        self.copied_bytes += len(data)
        self.entries[key] = entry

    def keep(self, entry: Entry) -> None:
        """Refer to an object that an earlier backup copied."""
        self.entries[entry.key] = entry

    def drop(self, key: str) -> None:
        self.entries.pop(key, None)

    async def _flush(self) -> None:
        if self._buffer:
            key, data = backup_part(self.id, f"pack-{self._packs:06d}"), bytes(self._buffer)
            self._packs += 1
            self._buffer = bytearray()
            await self._store.put(key, data, expected=ABSENT)

    async def finish(self, manifest: BackupManifest) -> BackupManifest:
        """Write what is left, the lists, and the manifest, with which the backup is complete."""
        await self._flush()
        ordered = [self.entries[key] for key in sorted(self.entries)]
        parts = []
        for start in range(0, len(ordered), ENTRIES_PER_PART):
            some = ordered[start : start + ENTRIES_PER_PART]
            data = msgspec.json.encode(some)
            key = backup_part(self.id, f"entries-{start // ENTRIES_PER_PART:06d}.json")
            await self._store.put(key, data, expected=ABSENT)
            parts.append(Part(key, hashlib.sha256(data).hexdigest(), len(some)))
        whole = msgspec.structs.replace(
            manifest,
            parts=tuple(parts),
            objects=len(ordered),
            bytes=sum(entry.size for entry in ordered),
            copied_bytes=self.copied_bytes,
            files_unread=self.files_unread,
        )
        await self._store.put(backup_manifest(self.id), msgspec.json.encode(whole), expected=ABSENT)
        return whole


async def list_backups(store: ObjectStore) -> Sequence[BackupManifest]:
    """The backups that are complete, oldest first: their ids sort by time."""
    keys = [listed.key async for page in list_pages(store, backups_folder()) for listed in page]
    return [await read_manifest(store, parse_backup(key)) for key in keys if key == backup_manifest(parse_backup(key))]


async def read_manifest(store: ObjectStore, backup_id: str) -> BackupManifest:
    key = backup_manifest(backup_id)
    stored = await store.get(key)
    if stored is None:
        raise NotFound(f"backup {backup_id} does not exist or is not complete", subject="file")
    manifest = decode_record(key, stored.data, BackupManifest)
    if manifest.version > VERSION:
        raise Damaged(key, f"has version {manifest.version}, and this Sandur knows {VERSION}: upgrade it")
    return manifest


async def read_entries(store: ObjectStore, manifest: BackupManifest) -> AsyncIterator[Sequence[Entry]]:
    """The entries of a backup in the order of their keys, some at a time. Raises Damaged if a list is not whole."""
    for part in manifest.parts:
        data = await _whole(store, part.key, part.sha256)
        yield msgspec.json.decode(data, type=list[Entry])  # Its hash says that it is whole.


class BackupReader:
    """Reads copied objects; the packs that were read last stay in memory."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._packs: dict[str, bytes] = {}

    async def read(self, entry: Entry) -> bytes:
        """The bytes of an object. Raises Damaged if they are not those that were copied."""
        if entry.pack not in self._packs:
            stored = await self._store.get(entry.pack)
            if stored is None:
                raise Damaged(entry.pack, "does not exist")
            self._packs = {entry.pack: stored.data, **dict(list(self._packs.items())[:3])}
        data = self._packs[entry.pack][entry.offset : entry.offset + entry.size]
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise Damaged(entry.pack, f"does not have the bytes of {entry.key} that were copied")
        return data


async def _whole(store: ObjectStore, key: str, sha256: str) -> bytes:
    stored = await store.get(key)
    if stored is None or hashlib.sha256(stored.data).hexdigest() != sha256:
        raise Damaged(key, "does not exist" if stored is None else "does not have the bytes that were written")
    return stored.data


async def remove_unfinished(store: ObjectStore, *, before_ms: int) -> int:
    """Delete what backups without a manifest left before that time; returns the number of objects."""
    complete = {manifest.id for manifest in await list_backups(store)}
    removed = 0
    async for page in list_pages(store, backups_folder()):
        for listed in page:
            if parse_backup(listed.key) not in complete and listed.modified_ms < before_ms:
                await store.delete(listed.key, expected=listed.version)
                removed += 1
    return removed
