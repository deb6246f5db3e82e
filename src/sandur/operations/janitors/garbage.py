"""Garbage collection in a server: metadata files and receipts that nothing needs, in a store of moderate size.

A pass takes one or more runs of the janitors and starts twice a day. Its parts, in this order: files of killed
creations, metadata files of tables and views, first files of creations without a pointer, receipts, entries of the
feed. Each run deletes at most `janitor_objects_max` files and stores how far the pass came.

The rules are those of the pipeline's job `collect-garbage` (GC1), and so is the code that decides: `metadata.py`. The
owners of all folders must be known, so a workspace with more than `janitor_objects_max` tables and views is left to
that job. So are receipts and the feed, once a pipeline has published: only the job knows what is in its history.
"""

from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from posixpath import basename
from typing import Final, NamedTuple, TypeVar

import msgspec

from sandur.catalog.garbage import Folder, folders_in_use, written_version
from sandur.catalog.locations import canonical_address, normalize_location
from sandur.catalog.records import Pointer
from sandur.errors import SandurError, SwapLost, Unavailable
from sandur.operations.containers.catalogs import list_catalogs
from sandur.operations.feed_readers import PassedReceipts, find_slowest_reader, trim_feed
from sandur.operations.janitors import metadata
from sandur.operations.janitors.leftovers import COMMITTED_RECEIPTS, visit_receipt
from sandur.operations.janitors.sweep import (
    DAY_MS,
    LISTED_AT_ONCE,
    PAGES_MAX,
    VISITS_AT_ONCE,
    OnError,
    Outcome,
    Swept,
    is_older,
    sweep,
)
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import Completeness, is_anothers
from sandur.operations.receipts import receipt_of_key
from sandur.settings import seconds_of
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import Listed, list_pages

T = TypeVar("T")

PASS_INTERVAL_MS: Final = DAY_MS // 2
"""Time between the end of a pass and the next one. A killed pointer is kept for longer, so a pass sees it."""

POINTERS_AT_ONCE: Final = 64
_COMMIT_FAMILIES: Final = ("iceberg", "delta")


class Owners(NamedTuple):
    """The folders with metadata files of tables and views, by normalized location, and the uuids of killed pointers."""

    folders: Mapping[str, Folder]
    killed: Sequence[str]


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a pass came: the index of its part, and the last thing done there; or when the next pass is due."""

    part: int = 0
    after: str = ""
    due_ms: int = 0


async def read_owners(lake: Lake, *, pointers_max: int) -> Owners:
    """The owners of all folders; Unavailable if one cannot be read or there are too many: nothing is certain then."""
    uuids: list[str] = []
    async for page in list_pages(lake.store, lake.layout.pointers_folder()):
        uuids += [lake.layout.parse_pointer(listed.key) for listed in page]
        if len(uuids) > pointers_max:
            raise Unavailable(
                f"metadata files are left to the job collect-garbage: there are more than {pointers_max} tables and "
                "views, the limit of janitor_objects_max"
            )
    found = await gather_in_batches(uuids, lambda uuid: lake.pointer(uuid).read(), at_once=POINTERS_AT_ONCE)
    pointers: list[Pointer] = [one.value for one in found if one]
    roots = [normalize_location(one.root) for one in await list_catalogs(lake)]
    killed = sorted(pointer.uuid for pointer in pointers if pointer.state == "killed")
    return Owners(folders_in_use(pointers, roots=roots), killed)


async def collect_garbage(lake: Lake, *, position: str, on_error: OnError) -> Swept:
    """Continue the pass, if one is due. The counts are by kind and outcome, as in the job."""
    progress = _progress(position)
    is_due = lake.settings.janitor_garbage and progress.due_ms <= lake.clock.now_ms()
    if not is_due or not await lake.feature(Completeness).is_complete():  # P13: missing claims protect no files.
        return Swept({}, position)
    run = _Run(lake, on_error)
    reached = await run.continue_from(progress)
    return Swept(run.counts, msgspec.json.encode(reached).decode())


def _progress(position: str) -> Progress:
    try:
        return msgspec.json.decode(position, type=Progress) if position else Progress()
    except msgspec.DecodeError:
        return Progress()  # It only saves work.


class _Run:
    """The part of a pass in one run of the janitors. `_room` is the number of files that it may still delete."""

    def __init__(self, lake: Lake, on_error: OnError) -> None:
        self._lake = lake
        self._on_error = on_error
        self._owners: Owners | None = None
        self._objects_max = lake.settings.janitor_objects_max
        self._room = self._objects_max
        self.counts: Counter[str] = Counter()

    async def continue_from(self, progress: Progress) -> Progress:
        """Each part returns the position from which the next run continues it; None if the part is done."""
        parts = (self._killed, self._folders, self._ownerless, self._receipts, self._entries)
        is_certain = True
        for number, part in enumerate(parts):
            if number < progress.part or not (is_certain or part in {self._receipts, self._entries}):
                continue
            try:
                after = await part(progress.after if number == progress.part else "")
            except SandurError as error:
                is_certain = False
                self.counts["skipped"] += 1
                self._on_error("garbage collection", error)
            else:
                if after is not None:
                    return Progress(part=number, after=after)
        return Progress(due_ms=self._lake.clock.now_ms() + PASS_INTERVAL_MS)

    async def _killed(self, after: str) -> str | None:
        """The files of killed creations."""
        for uuid in (await self._known_owners()).killed:
            if uuid <= after:
                continue
            if self._room <= 0:
                return after
            pointer = await self._lake.pointer(uuid).read()
            if pointer:
                await self._remove("killed_creates", uuid, metadata.garbage_of_killed(self._lake, pointer))
            after = uuid
        return None

    async def _folders(self, after: str) -> str | None:
        """Find garbage folder by folder, read all owners again, and delete what is still garbage."""
        if self._room <= 0:
            return after
        owners = await self._known_owners()
        found, cut = await self._find(owners, after)
        removed = await self._remove_again(owners, found)
        if not cut:
            return None
        # A cut folder is visited again, unless nothing of it could be deleted.
        return max((plain for plain in owners.folders if plain < cut), default="") if removed.get(cut) else cut

    async def _find(self, owners: Owners, after: str) -> tuple[Mapping[str, Sequence[str]], str]:
        """The garbage of the folders behind a position, within the bound; and the folder that reached the bound."""
        found: dict[str, Sequence[str]] = {}
        room = self._room
        waiting = sorted(plain for plain in owners.folders if plain > after)
        for start in range(0, len(waiting), VISITS_AT_ONCE):
            some = waiting[start : start + VISITS_AT_ONCE]
            folders = [owners.folders[plain] for plain in some]
            garbage = await gather_in_batches(folders, self._garbage_names, at_once=VISITS_AT_ONCE)
            for plain, names in zip(some, garbage, strict=True):
                if names:
                    found[plain] = names[:room]
                    room -= len(names)
                if room <= 0:
                    return found, plain
        return found, ""

    async def _garbage_names(self, folder: Folder) -> Sequence[str]:
        found = await self._guard("metadata_files", folder.location, metadata.garbage_in_folder(self._lake, *folder))
        if found and not found.files:
            self.counts["metadata_files_kept"] += 1
        return [basename(file.location) for file in found.files] if found else ()

    async def _remove_again(self, owners: Owners, found: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
        """Delete what is garbage in the folders that have the same owners as before; returns the number of files.

        A table that moved into a folder since then wrote nothing that was listed, but may refer to listed files.
        """
        removed: dict[str, int] = {}
        again = await read_owners(self._lake, pointers_max=self._objects_max) if found else owners
        for plain, names in found.items():
            folder = owners.folders[plain]
            if again.folders.get(plain) == folder:
                removed[plain] = await self._remove(
                    "metadata_files", folder.location, self._still_garbage(folder, names)
                )
            else:
                self.counts["metadata_files_changed"] += 1
        return removed

    async def _still_garbage(self, folder: Folder, names: Sequence[str]) -> metadata.Garbage:
        """The named garbage of a folder; none if something of another workspace lives there."""
        if await is_anothers(self._lake, canonical_address(folder.location)):
            return metadata.Garbage(reason="another workspace has a place there")
        return (await metadata.garbage_in_folder(self._lake, *folder)).among(names)

    async def _ownerless(self, after: str) -> str | None:
        """First metadata files in folders without an owner: creations that died before they wrote a pointer."""
        lake, pages = self._lake, 0
        folder = lake.layout.tables_folder()
        async for page in list_pages(lake.store, folder, after=after or None, limit=LISTED_AT_ONCE):
            for listed in filter(self._is_old_first_file, page):
                if self._room <= 0:
                    return after
                location = f"{lake.locations.own.rstrip('/')}/{listed.key}"
                plain = normalize_location(location.rpartition("/")[0])
                if plain not in (await self._known_owners()).folders:
                    await self._remove("died_creates", location, metadata.garbage_without_owner(lake, location))
                after = listed.key
            pages += 1
            if pages == PAGES_MAX and len(page) == LISTED_AT_ONCE:
                return page[-1].key
            after = page[-1].key if page else after
        return None

    def _is_old_first_file(self, listed: Listed) -> bool:
        age_ms = seconds_of(self._lake.settings.orphan_retention) * 1_000
        return written_version(listed.key) == 0 and is_older(self._lake, listed, age_ms)

    async def _receipts(self, after: str) -> str | None:
        """Receipts of commits after their retention that every registered reader of the feed has read."""
        lake = self._lake
        if await lake.store.head(lake.layout.core_manifest()):
            return None
        passed = PassedReceipts(lake, (await find_slowest_reader(lake)).position)
        janitor = COMMITTED_RECEIPTS._replace(visit=partial(_visit_receipt, passed=passed))
        swept = await sweep(lake, janitor, position=after, on_error=self._on_error)
        self.counts.update({f"{janitor.name}_{outcome}": times for outcome, times in swept.counts.items()})
        return swept.position or None

    async def _entries(self, _after: str) -> str | None:
        """Entries of the feed after the retention of their receipts that every registered reader has read."""
        lake = self._lake
        if await lake.store.head(lake.layout.core_manifest()):
            return None
        trimmed = await trim_feed(lake, entries_max=self._objects_max)
        counted = Counter(
            feed_entries_removed=trimmed.entries_removed, feed_readers_forgotten=len(trimmed.readers_forgotten)
        )
        self.counts.update(+counted)
        return None

    async def _known_owners(self) -> Owners:
        if self._owners is None:
            self._owners = await read_owners(self._lake, pointers_max=self._objects_max)
        return self._owners

    async def _remove(self, kind: str, what: str, garbage: Awaitable[metadata.Garbage]) -> int:
        async def remove() -> int:
            found = await garbage
            return await metadata.remove_garbage(self._lake, found) if found.files else 0

        removed = await self._guard(kind, what, remove()) or 0
        self._room -= removed
        self.counts[f"{kind}_removed"] += removed
        return removed

    async def _guard(self, kind: str, what: str, work: Awaitable[T]) -> T | None:
        """Report the error of one folder or file; the others go on."""
        try:
            return await work
        except SwapLost:
            self.counts[f"{kind}_changed"] += 1
        except SandurError as error:
            self.counts[f"{kind}_failed"] += 1
            self._on_error(what, error)
        return None


async def _visit_receipt(lake: Lake, listed: Listed, *, passed: PassedReceipts) -> Outcome:
    """Only receipts of commits: the events of the catalog have no other place."""
    if lake.layout.parse_receipt(listed.key).family not in _COMMIT_FAMILIES:
        return "kept"
    is_passed = await passed.has(receipt_of_key(lake.layout, listed.key))
    return await visit_receipt(lake, listed) if is_passed else "kept"
