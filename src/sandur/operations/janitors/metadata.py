"""Metadata files that nobody needs (GC1): those of attempts that lost or died, and old ones that no log names any more.

Only files under names that the catalog itself gave are taken away: in the folder of living tables, what none of them
needs; the file of a create that was killed; the file of a create that died before its pointer was there. A file that
was committed stays as long as its receipt does, unless the table asks for old files to be deleted.
"""

import contextlib
import gzip
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.garbage import MetadataFile, Owner, deletable_files, needs_bump, written_version
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import AttemptedFile, Claim, Head, Pointer
from sandur.errors import NotFound, SwapLost, Unavailable
from sandur.operations.concurrency import gather_all
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES, VIEWS, load_document, logged_locations, missing_file
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned
from sandur.storage.contract import ObjectStore, get_many, list_all

AT_ONCE: Final = 16
_DELETES_OLD_FILES: Final = "write.metadata.delete-after-commit.enabled"
_FIRST_VERSION: Final = 0


class Garbage(NamedTuple):
    """What a look found: files that can go, the pointers to bump before they do, and one to be killed before.

    `reason` says why files that nobody seems to need are left alone; empty when there is none.
    """

    files: tuple[MetadataFile, ...] = ()
    bumps: tuple[Versioned[Pointer], ...] = ()
    kills: str = ""
    reason: str = ""


class _Needs(NamedTuple):
    """What one pointer needs, and what its table says about old files."""

    owner: Owner
    pointer: Versioned[Pointer]
    keeps_all: bool
    deletes_old: bool


async def garbage_in_folder(lake: Lake, folder: str, uuids: Sequence[str]) -> Garbage:
    """What can go of the files in a folder where the metadata of these living tables and views lies, and of no others.

    The files are listed before the pointers are read: an attempt that writes its file later reads its pointer later.
    """
    files = [file for file in await _own_files(lake, folder) if _is_old(lake, file)]
    if not files:
        return Garbage()
    pointers = [await lake.pointer(uuid).read() for uuid in uuids]
    living = [pointer for pointer in pointers if pointer and pointer.value.state == "live"]
    if len(living) < len(uuids):
        return Garbage(reason="a table in it is not alive any more, or not yet")
    needs = [await _needs(lake, pointer) for pointer in living]
    if any(need.keeps_all for need in needs):
        return Garbage(reason="a table in it says that nothing may be collected")
    orphans = deletable_files(files, [need.owner for need in needs], before_ms=lake.clock.now_ms())
    if not all(need.deletes_old for need in needs):
        orphans = await _never_committed(lake, orphans)
    return Garbage(orphans, tuple(need.pointer for need in needs if needs_bump(need.owner, orphans)))


async def garbage_of_killed(lake: Lake, pointer: Versioned[Pointer]) -> Garbage:
    """The file of a create that was killed: nobody else ever had it, and that pointer never lives again."""
    head = pointer.value.head
    if pointer.value.state != "killed" or head is None or head.registration:
        return Garbage()
    file = await _file_at(lake, head.metadata_location)
    return Garbage((file,)) if file and _is_old(lake, file) else Garbage()


async def garbage_without_owner(lake: Lake, location: str) -> Garbage:
    """The first file of a table without a pointer, a receipt, or anything that was ever committed on top of it.

    Only while receipts are kept: without them nobody can tell what was committed, and dropped, long ago.
    """
    file = await _file_at(lake, location)
    if file is None or file.version != _FIRST_VERSION or not _is_old(lake, file):
        return Garbage()
    if file.modified_ms + _receipts_kept_ms(lake) - DAY_MS <= lake.clock.now_ms():
        return Garbage(reason="it is too old to tell whether it was committed")
    if not await _never_committed(lake, (file,)):
        return Garbage(reason="it was committed")
    said = await _read_header(lake, location)
    uuid = said.table_uuid or said.view_uuid
    if not uuid or await lake.pointer(uuid).read():
        return Garbage(reason="its table is known, or cannot be")
    return Garbage((file,), kills=uuid)


async def remove_garbage(lake: Lake, garbage: Garbage) -> int:
    """Act on what was found: how many files are gone.

    SwapLost when a pointer has changed since it was looked at: nothing was deleted, and the next look finds what is so.
    """
    if garbage.kills:
        killed = Pointer(uuid=garbage.kills, table_uuid=garbage.kills, state="killed")
        await lake.pointer(garbage.kills).create(killed)
    for pointer in garbage.bumps:
        await lake.pointer(pointer.value.uuid).swap(pointer.value, expected=pointer.version)
    gone = 0
    for start in range(0, len(garbage.files), AT_ONCE):
        some = garbage.files[start : start + AT_ONCE]
        gone += sum(await gather_all(_remove(lake, file.location) for file in some))
    return gone


async def _remove(lake: Lake, location: str) -> bool:
    with contextlib.suppress(SwapLost):  # Somebody else took it away this very moment.
        return await lake.locations.remove(location)
    return False


async def _own_files(lake: Lake, folder: str) -> list[MetadataFile]:
    """The metadata files in a folder, and not below it, under names that the catalog gave."""
    store, prefix = _folder_at(lake, folder)
    found: list[MetadataFile] = []
    for listed in await list_all(store, prefix):
        name = listed.key.removeprefix(prefix)
        version = written_version(name)
        if version is not None and "/" not in name:
            found.append(MetadataFile(f"{folder}/{name}", version, listed.modified_ms, listed.size_bytes))
    return found


def _folder_at(lake: Lake, folder: str) -> tuple[ObjectStore, str]:
    store, key = lake.locations.holder(f"{folder}/metadata.json")
    return store, key.removesuffix("metadata.json")


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
    """What the pointer, as it was read, keeps alive; NotFound when its current file is gone: then nothing is sure."""
    head, pending = pointer.value.head, pointer.value.pending
    if head is None:
        raise Unavailable(f"pointer {pointer.value.uuid}: it lives and says nothing")
    locations, properties = await _document(lake, pointer.value, head)
    needed = {*locations, head.previous_metadata_location or ""}
    if pending:
        needed.add(pending.head.metadata_location)
        with contextlib.suppress(NotFound):  # Its transaction may not have come so far.
            needed.update((await _document(lake, pointer.value, pending.head))[0])
    for claim in await _open_claims(lake, pointer.value.uuid):
        needed.update(tried.metadata_location for tried in claim.locations)
    return _Needs(
        owner=Owner(pointer.value.uuid, head.metadata_version, frozenset(map(normalize_location, needed))),
        pointer=pointer,
        keeps_all=properties.get("gc.enabled", "true").lower() != "true",  # As Java reads it.
        deletes_old=properties.get(_DELETES_OLD_FILES, "").lower() == "true",
    )


async def _document(lake: Lake, pointer: Pointer, head: Head) -> tuple[Sequence[str], Mapping[str, str]]:
    """The files that a metadata file names, itself included, and the properties it sets."""
    if pointer.kind == "view":
        view = await load_document(lake, VIEWS, head.metadata_location)
        return logged_locations(VIEWS, view), view.metadata.properties
    table = await load_document(lake, TABLES, head.metadata_location)
    return logged_locations(TABLES, table), table.metadata.properties


async def _open_claims(lake: Lake, uuid: str) -> list[Claim]:
    folder = lake.layout.commit_claims_of(uuid)
    keys = [listed.key for listed in await list_all(lake.store, folder)]
    found = [stored for stored in await get_many(lake.store, keys) if stored]
    try:
        claims = [msgspec.json.decode(stored.data, type=Claim) for stored in found]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"a claim of {uuid}: cannot be read: {error}") from error
    return [claim for claim in claims if claim.state == "open"]


async def _never_committed(lake: Lake, files: Iterable[MetadataFile]) -> tuple[MetadataFile, ...]:
    """Those of the files that have no receipt (C5)."""
    waiting = list(files)
    orphans: list[MetadataFile] = []
    for start in range(0, len(waiting), AT_ONCE):
        some = waiting[start : start + AT_ONCE]
        committed = await gather_all(_is_committed(lake, file) for file in some)
        orphans += [file for file, is_so in zip(some, committed, strict=True) if not is_so]
    return tuple(orphans)


async def _is_committed(lake: Lake, file: MetadataFile) -> bool:
    """Whether there is a receipt, first on the day the file was written: that is nearly always its own day."""
    if file.modified_ms + _receipts_kept_ms(lake) <= lake.clock.now_ms():
        return False  # Its receipt may be gone, and it goes with it.
    if await lake.receipts.exists(AttemptedFile(file.location, file.modified_ms)):
        return True
    said_ms = (await _read_header(lake, file.location)).last_updated_ms
    days = [said_ms] if said_ms is not None else [file.modified_ms - DAY_MS, file.modified_ms + DAY_MS]
    return any([await lake.receipts.exists(AttemptedFile(file.location, day)) for day in days])


class _MetadataHeader(msgspec.Struct, frozen=True, rename="kebab"):
    """The little that has to be known of a metadata file of any kind; a view's does not say when it was written."""

    table_uuid: str = ""
    view_uuid: str = ""
    last_updated_ms: int | None = None


async def _read_header(lake: Lake, location: str) -> _MetadataHeader:
    data = await lake.locations.read(location)
    if data is None:
        raise missing_file(location)
    try:
        return msgspec.json.decode(
            gzip.decompress(data) if location.endswith(".gz.metadata.json") else data, type=_MetadataHeader
        )
    except (msgspec.DecodeError, UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise Unavailable(f"file {location}: is not a metadata file: {error}") from error
