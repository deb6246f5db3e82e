"""GC1: find and delete metadata files that no table needs.

These are the files of attempts that lost or died, and old files that no metadata log names any more. Only files with
names that the catalog gave are considered: in the folder of living tables, the file of a killed creation, and the file
of a creation that died before its pointer was written. A committed file stays as long as its receipt, unless the table
asks for the deletion of old files. What may be of a commit that a restore has lost stays as long, in any case.

The steps: list the files; then read the pointers (an attempt that writes its file later reads its pointer later); bump
every pointer whose head is older than one of the files, so that attempts in progress lose; then delete.
"""

import contextlib
from collections.abc import Collection, Sequence
from posixpath import basename
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.garbage import MetadataFile, Owner, deletable_files, needs_bump, written_version
from sandur.catalog.locations import normalize_location, spellings
from sandur.catalog.maintenance.policies import forbids_deletion
from sandur.catalog.records import AttemptedFile, Claim, Pointer
from sandur.errors import BadRequest, NotFound, SwapLost, Unavailable
from sandur.iceberg.table_commit import deletes_old_files
from sandur.operations.backups.restored import LastRestore
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts
from sandur.operations.tables.documents import load_head, missing_file
from sandur.settings import seconds_of
from sandur.splicing import NOT_JSON, decompress
from sandur.storage.cell import Versioned, gather_in_batches
from sandur.storage.contract import get_many, list_all
from sandur.storage.record_form import decode_record

FILES_AT_ONCE: Final = 16
_FIRST_VERSION: Final = 0


class Garbage(NamedTuple):
    """Files to delete, the pointers to bump and the uuid to kill before that.

    `reason` says why unneeded files are kept; empty if there is no reason.
    """

    files: tuple[MetadataFile, ...] = ()
    bumps: tuple[Versioned[Pointer], ...] = ()
    kills: str = ""
    reason: str = ""

    def among(self, names: Collection[str]) -> "Garbage":
        """The garbage with these file names: what an earlier visit found, or a budget allows."""
        return self._replace(files=tuple(file for file in self.files if basename(file.location) in names))


class _Needs(NamedTuple):
    """The files that one pointer needs, and the settings of its table for old files."""

    owner: Owner
    pointer: Versioned[Pointer]
    keeps_all: bool
    deletes_old: bool


async def garbage_in_folder(lake: Lake, folder: str, uuids: Sequence[str]) -> Garbage:
    """The garbage in a folder that holds the metadata of these living tables and views, and of no others."""
    files = await _old_files(lake, folder)
    if not files:
        return Garbage()
    found = [await lake.pointer(uuid).read() for uuid in uuids]
    needs = [await _needs(lake, pointer) for pointer in found if pointer and pointer.value.state == "live"]
    if len(needs) < len(uuids):
        return Garbage(reason="a table in this folder was dropped, or is not created yet")
    if any(need.keeps_all for need in needs):
        return Garbage(reason="a table in this folder has gc.enabled=false")
    orphans = deletable_files(files, [need.owner for need in needs], before_ms=lake.clock.now_ms())
    if not all(need.deletes_old for need in needs):
        orphans = await _never_committed(lake, orphans)
    return Garbage(orphans, tuple(need.pointer for need in needs if needs_bump(need.owner, orphans)))


async def garbage_of_killed(lake: Lake, pointer: Versioned[Pointer]) -> Garbage:
    """The file of a killed creation: no other table has it, and the pointer never becomes live."""
    head = pointer.value.head
    if pointer.value.state != "killed" or head is None or head.registration:
        return Garbage()
    file = await _file_at(lake, head.metadata_location)
    return Garbage((file,)) if file and _is_old(lake, file) else Garbage()


async def garbage_without_owner(lake: Lake, location: str) -> Garbage:
    """The first file of a creation without a pointer and without a receipt.

    Only while receipts are kept: without a receipt, an old file may belong to a table that was dropped long ago.
    """
    file = await _file_at(lake, location)
    if file is None or file.version != _FIRST_VERSION or not _is_old(lake, file):
        return Garbage()
    if file.modified_ms + _receipts_kept_ms(lake) - DAY_MS <= lake.clock.now_ms():
        return Garbage(reason="the file is too old: its receipt may be deleted")
    if await lake.feature(LastRestore).keeps(file.modified_ms):
        return Garbage(reason="the file may be of a commit after the backup that was restored")
    if not await _never_committed(lake, (file,)):
        return Garbage(reason="the file was committed")
    header = await _read_header(lake, location)
    uuid = header.table_uuid or header.view_uuid
    if not uuid or await lake.pointer(uuid).read():
        return Garbage(reason="the file has no uuid, or its table has a pointer")
    return Garbage((file,), kills=uuid)


async def remove_garbage(lake: Lake, garbage: Garbage) -> int:
    """Delete the garbage and return the number of deleted files.

    SwapLost if a pointer has changed since it was read: then nothing is deleted.
    """
    if garbage.kills:
        killed = Pointer(uuid=garbage.kills, table_uuid=garbage.kills, state="killed")
        await lake.pointer(garbage.kills).create(killed)
    for pointer in garbage.bumps:
        await lake.pointer(pointer.value.uuid).swap(pointer.value, expected=pointer.version)
    return sum(await gather_in_batches(garbage.files, lambda file: _remove(lake, file.location), at_once=FILES_AT_ONCE))


async def _remove(lake: Lake, location: str) -> bool:
    with contextlib.suppress(SwapLost):  # Another process has deleted it at this moment.
        return await lake.locations.remove(location)
    return False


async def _old_files(lake: Lake, folder: str) -> list[MetadataFile]:
    """The old metadata files directly in a folder, with names that the catalog gave."""
    store, key = lake.locations.holder(f"{folder}/metadata.json")
    prefix = key.removesuffix("metadata.json")
    found: list[MetadataFile] = []
    for listed in await list_all(store, prefix):
        name = listed.key.removeprefix(prefix)
        version = written_version(name)
        if version is not None and "/" not in name:
            found.append(MetadataFile(f"{folder}/{name}", version, listed.modified_ms, listed.size_bytes))
    restores = lake.feature(LastRestore)
    return [file for file in found if _is_old(lake, file) and not await restores.keeps(file.modified_ms)]


async def _file_at(lake: Lake, location: str) -> MetadataFile | None:
    version = written_version(location)
    if version is None:
        return None
    store, key = lake.locations.holder(location)
    listed = await store.head(key)
    return MetadataFile(location, version, listed.modified_ms, listed.size_bytes) if listed else None


def _is_old(lake: Lake, file: MetadataFile) -> bool:
    return file.modified_ms + seconds_of(lake.settings.orphan_retention) * 1_000 <= lake.clock.now_ms()


def _receipts_kept_ms(lake: Lake) -> int:
    return seconds_of(lake.settings.receipt_retention) * 1_000


async def _needs(lake: Lake, pointer: Versioned[Pointer]) -> _Needs:
    """The files that a pointer needs; NotFound if its current file is missing: then nothing is certain."""
    head, pending = pointer.value.head, pointer.value.pending
    if head is None:
        raise Unavailable(f"pointer {pointer.value.uuid}: it is live and has no head")
    current = await load_head(lake, pointer.value.kind, head)
    properties = current.metadata.properties
    needed = {*current.logged, head.previous_metadata_location or ""}
    needed.update(passed.metadata_location for passed in pointer.value.passed)  # B9
    if pending:
        needed.add(pending.head.metadata_location)
        with contextlib.suppress(NotFound):  # Its transaction may not have written the file yet.
            needed.update((await load_head(lake, pointer.value.kind, pending.head)).logged)
    for claim in await _open_claims(lake, pointer.value.uuid):
        needed.update(tried.metadata_location for tried in claim.locations)
    return _Needs(
        owner=Owner(pointer.value.uuid, head.metadata_version, frozenset(map(normalize_location, needed))),
        pointer=pointer,
        keeps_all=forbids_deletion(properties),
        deletes_old=deletes_old_files(properties),
    )


async def _open_claims(lake: Lake, uuid: str) -> list[Claim]:
    folder = lake.layout.commit_claims_of(uuid)
    keys = [listed.key for listed in await list_all(lake.store, folder)]
    found = zip(keys, await get_many(lake.store, keys), strict=True)
    claims = [decode_record(key, stored.data, Claim) for key, stored in found if stored]
    return [claim for claim in claims if claim.state == "open"]


async def _never_committed(lake: Lake, files: Sequence[MetadataFile]) -> tuple[MetadataFile, ...]:
    """The files without a receipt (C5)."""
    committed = await gather_in_batches(files, lambda file: _is_committed(lake, file), at_once=FILES_AT_ONCE)
    return tuple(file for file, is_so in zip(files, committed, strict=True) if not is_so)


async def _is_committed(lake: Lake, file: MetadataFile) -> bool:
    """Whether there is a receipt; first on the day when the file was written, which is nearly always its date.

    A receipt is found by the text of the location in the pointer. The listing may spell the location differently.
    """
    if file.modified_ms + _receipts_kept_ms(lake) <= lake.clock.now_ms():
        return False  # Its receipt may be deleted: the file is deleted with it.
    if await lake.feature(Receipts).exists(AttemptedFile(file.location, file.modified_ms)):
        return True
    updated_ms = (await _read_header(lake, file.location)).last_updated_ms
    days = [updated_ms] if updated_ms is not None else [file.modified_ms - DAY_MS, file.modified_ms + DAY_MS]
    tried = [AttemptedFile(text, day) for text in spellings(file.location) for day in (file.modified_ms, *days)]
    return any([await lake.feature(Receipts).exists(one) for one in tried])


class _MetadataHeader(msgspec.Struct, frozen=True, rename="kebab"):
    """The fields that tables and views share; the metadata of a view has no `last_updated_ms`."""

    table_uuid: str = ""
    view_uuid: str = ""
    last_updated_ms: int | None = None


async def _read_header(lake: Lake, location: str) -> _MetadataHeader:
    data = await lake.locations.read(location)
    if data is None:
        raise missing_file(location)
    try:
        return msgspec.json.decode(decompress(data, "it"), type=_MetadataHeader)
    except (BadRequest, *NOT_JSON) as error:
        raise Unavailable(f"file {location}: is not a metadata file: {error}") from error
