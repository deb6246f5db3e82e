"""The removal of orphans, of tables of any format: condemn files in one run, delete them in a later one (O1–O7).

A run works in this order: *list* the files of the table; *look* at all references; write the list of condemned files. A
later run adds the files to the list of swept files, then *bumps* the record, then looks at all references again, then
deletes each file at the version that was listed. From the bump on, a commit that adds one of the files is refused
(`operations/tables/swept.py`), so no look can be too early.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.orphans import (
    SWEPT_KEPT_MS,
    SWEPT_MAX,
    CondemnedFile,
    CondemnedFiles,
    Found,
    FoundFile,
    NameReason,
    Suspects,
    SweptFiles,
    condemned,
    due_files,
    iceberg_name_reason,
    is_in_log,
    merged_condemned,
    swept_room,
    swept_with,
)
from sandur.catalog.maintenance.policies import Orphans
from sandur.catalog.records import BoundRecord, DeltaTable, Pointer
from sandur.errors import Busy, Invalid, OutcomeUnknown, SandurError, SwapLost, Unavailable
from sandur.operations.backups.restored import LastRestore
from sandur.operations.lake import Lake
from sandur.settings import seconds_of
from sandur.storage.cell import Attempts, Versioned, gather_all
from sandur.storage.contract import ObjectStore, Version, list_pages, portions
from sandur.storage.probe import write_time

DELETES_AT_ONCE: Final = 64
DELETES_MAX: Final = 10_000
"""The number of files that one run deletes from one table."""

_SWEPT_FULL: Final = f"at most {SWEPT_MAX:,} files of a table are deleted in {SWEPT_KEPT_MS // 86_400_000} days"

FILES_MAX: Final = 2_000_000
"""A table with more files is left alone: a run takes about 1.2 KiB of memory for each file that it lists itself."""

Fence = Callable[[], Awaitable[None]]
"""Raises if this run has lost its turn; called before each batch of deletions."""


class StoreTime:
    """The time by which the age of files is judged: that of this process, but never later than that of the store.

    If the clock of this process is behind, files are only younger. How far it is ahead is measured once.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ahead_ms: int | None = None

    async def now_ms(self) -> int:
        if self._ahead_ms is None:
            written = await write_time(self._lake.store, self._lake.clock)
            self._ahead_ms = max(0, written.after_ms - written.store_ms)
        return self._lake.clock.now_ms() - self._ahead_ms


class Outcome(NamedTuple):
    """What a run did with the orphans of one table. `refusal` says why it did nothing; `kept` has counts by reason.

    `left` is the number of files that were too many for this run.
    """

    files: int = 0
    bytes: int = 0
    kept: Mapping[str, int] = {}
    refusal: str = ""
    left: int = 0


class Place(NamedTuple):
    """A table whose orphans may be deleted: its record, its location, and which files of it are suspects.

    `age_min_ms` is the minimum age that the table itself asks for. `takes_commits`: every commit passes the catalog, so
    that it can be compared with what was deleted (O5). `limits_share`: a large share of orphans is suspicious (O7).
    """

    record: Versioned[Pointer] | Versioned[DeltaTable]
    location: str
    names: NameReason = iceberg_name_reason
    age_min_ms: int = 0
    takes_commits: bool = True
    limits_share: bool = True


class TableFiles(Protocol):
    """The tables of one format: which of them may be cleaned, and what refers to their files."""

    async def open(self, uuid: str, name: Identifier) -> Place | str:
        """The table; or why none of its files may be deleted."""

    async def look(self, uuid: str, place: Place, suspects: Suspects, *, is_whole: bool) -> str:
        """O3, O4: clear the suspects that are referred to; returns why nothing may be deleted, or an empty text.

        `is_whole`: all files of the table were listed.
        """


class OrphanRemoval:
    """One run over the tables of one format in a workspace."""

    def __init__(self, lake: Lake, run: str, fence: Fence, tables: TableFiles) -> None:
        self._lake = lake
        self._run = run
        self._fence = fence
        self._tables = tables

    async def condemn(self, uuid: str, name: Identifier, policy: Orphans, found: Found | None = None) -> Outcome:
        """Note the files of a table that nothing refers to; without what an engine found, they are listed here."""
        lake, time = self._lake, self._lake.feature(StoreTime)
        place = await self._tables.open(uuid, name)
        if isinstance(place, str):
            return Outcome(refusal=place)
        try:
            files = found.files if found else await list_files(lake, place.location)
        except Invalid as error:
            return Outcome(refusal=str(error))
        suspects = _suspects(files, place, policy, await time.now_ms())
        if refusal := suspects.refusal or await self._look(uuid, place, suspects, is_whole=found is None):
            return Outcome(refusal=refusal)
        restores = lake.feature(LastRestore)
        lost = [file.location for file in suspects.files if await restores.keeps(file.modified_ms)]
        suspects.clear(lost, "possibly of a commit after the backup that was restored")
        share_max = policy.share_max if place.limits_share else 1.0
        decision = condemned(suspects, share_max, found)
        if decision.refusal:
            return Outcome(kept=decision.kept, refusal=decision.refusal)
        await self._fence()
        now_ms = await time.now_ms()

        def decide(before: CondemnedFiles | None) -> CondemnedFiles | None:
            known = before.files if before else ()
            files = merged_condemned(known, decision.files, run=self._run, now_ms=now_ms)
            if files == known:
                return None
            return replace(before, files=files) if before else CondemnedFiles(uuid=uuid, files=files)

        await lake.condemned_files(uuid).update(decide, is_idempotent=True)
        size = sum(one.size_bytes for one in decision.files)
        return Outcome(len(decision.files), size, decision.kept, left=decision.left)

    async def delete(self, uuid: str, name: Identifier, policy: Orphans) -> Outcome:
        """Delete what earlier runs condemned long enough ago, as far as nothing refers to it now."""
        listed = await self._lake.condemned_files(uuid).read()
        now_ms = await self._lake.feature(StoreTime).now_ms() if listed else 0
        allowed = due_files(listed.value.files, policy, run=self._run, now_ms=now_ms) if listed else ()
        if listed is None or not allowed:
            return Outcome()
        place = await self._tables.open(uuid, name)
        if isinstance(place, str):
            return Outcome(refusal=place)
        await self._fence()
        chosen = allowed[:DELETES_MAX]
        due = await self._kept_from_commits(place, chosen, now_ms) if place.takes_commits else chosen
        if due is None:
            return Outcome(refusal="it was dropped")
        if not due:
            return Outcome(refusal=_SWEPT_FULL, left=len(allowed))
        unfit = len(chosen) - len(due)
        suspects = _suspects(map(_as_found, due), place, policy, now_ms)
        if refusal := await self._look(uuid, place, suspects, is_whole=False):
            return Outcome(refusal=refusal)
        if unfit:
            suspects.kept[f"left for a later run: {_SWEPT_FULL}"] = unfit
        done = await self._delete(place, suspects, listed, due)
        return done._replace(left=len(allowed) - len(due))

    async def _look(self, uuid: str, place: Place, suspects: Suspects, *, is_whole: bool) -> str:
        if not len(suspects):
            return ""
        try:
            return await self._tables.look(uuid, place, suspects, is_whole=is_whole)
        except SandurError as error:
            return f"what refers to its files is unknown: {error}"

    async def _kept_from_commits(
        self, place: Place, due: Sequence[CondemnedFile], now_ms: int
    ) -> tuple[CondemnedFile, ...] | None:
        """O5: those of the files that no commit can add from here on; None if the table was dropped."""
        compared = [one for one in due if not is_in_log(one.location)]  # No commit can name a file of a log.
        list_id = place.record.value.swept or place.record.value.uuid
        fitting = await self._note_swept(list_id, compared, now_ms) if compared else ()
        if fitting and not await self._bump(place.record.value, list_id):
            return None
        return (*fitting, *(one for one in due if is_in_log(one.location)))

    async def _note_swept(self, list_id: str, due: Sequence[CondemnedFile], now_ms: int) -> tuple[CondemnedFile, ...]:
        """O5: put the files on the list that commits are compared with; returns those that fit."""
        fitting: tuple[CondemnedFile, ...] = ()

        def decide(before: SweptFiles | None) -> SweptFiles | None:
            nonlocal fitting
            known = before.files if before else ()
            fitting = tuple(due[: swept_room(known, now_ms=now_ms)])
            files = swept_with(known, fitting, now_ms=now_ms)
            return replace(before, files=files) if before else SweptFiles(files=files)

        await self._lake.swept_files(list_id).update(decide, is_idempotent=True)
        return fitting

    async def _bump(self, record: BoundRecord, list_id: str) -> bool:
        """O5: mark the record after the list was written: every commit that did not read the list now loses.

        False if the table was dropped.
        """
        cell = self._lake.bound_record(record.uuid, record.format)
        async for _ in Attempts(self._lake.clock):
            found = await cell.read()
            if found is None or found.value.state != "live" or found.value.swept not in {"", list_id}:
                return False
            if await cell.try_swap(replace(found.value, swept=list_id), expected=found.version):
                return True
        raise Busy(f"table {record.uuid}: other requests keep changing it")

    async def _delete(
        self, place: Place, suspects: Suspects, listed: Versioned[CondemnedFiles], due: Sequence[CondemnedFile]
    ) -> Outcome:
        """O6: delete in batches, each behind the fence; then take what was handled off the list of condemned files."""
        removed = 0
        size = 0
        kept: Counter[str] = Counter(suspects.kept)
        orphans = {one.location: one for one in suspects.files}
        handled = {(one.location, one.version) for one in due if one.location not in orphans}
        try:
            for batch in portions(list(orphans.values()), DELETES_AT_ONCE):
                await self._confirm(place)
                outcomes = await gather_all(self._delete_one(file) for file in batch)
                for file, outcome in zip(batch, outcomes, strict=True):
                    if outcome != "unknown":
                        handled.add((file.location, file.version))
                    if outcome == "deleted":
                        removed, size = removed + 1, size + file.size_bytes
                    else:
                        kept[outcome] += 1
        finally:
            left = tuple(one for one in listed.value.files if (one.location, one.version) not in handled)
            cell = self._lake.condemned_files(place.record.value.uuid)
            if left:
                await cell.try_swap(replace(listed.value, files=left), expected=listed.version)
            else:
                await _empty(cell.empty(expected=listed.version))
        return Outcome(removed, size, kept)

    async def _confirm(self, place: Place) -> None:
        """The fence of this run, and whether the table still lives: a dropped one loses its place to others."""
        await self._fence()
        record = place.record.value
        found = await self._lake.bound_record(record.uuid, record.format).read()
        if found is None or found.value.state != "live":
            raise SwapLost(f"table {record.uuid}: it was dropped")

    async def _delete_one(self, file: FoundFile) -> str:
        store, key = self._lake.locations.holder(file.location)
        try:
            await store.delete(key, expected=Version(file.version))
        except SwapLost:
            return "gone or written again"
        except (OutcomeUnknown, Unavailable):
            return "unknown"
        return "deleted"


async def _empty(work: Awaitable[object]) -> None:
    """Another run may have changed the list: then it stays, and the next run finds those files gone."""
    try:
        await work
    except SwapLost:
        return


def _suspects(files: Iterable[FoundFile], place: Place, policy: Orphans, now_ms: int) -> Suspects:
    age_ms = max(seconds_of(policy.age) * 1_000, place.age_min_ms)
    return Suspects(files, place.location, age_ms=age_ms, now_ms=now_ms, names=place.names)


def _as_found(file: CondemnedFile) -> FoundFile:
    return FoundFile(file.location, file.version, file.size_bytes, file.modified_ms)


async def list_files(lake: Lake, place: str) -> Sequence[FoundFile]:
    """The files below a place; Invalid if there are more than FILES_MAX.

    The listed prefix ends with a slash: `t1` does not contain `t10`.
    """
    store, folder = folder_of(lake, place)
    found: list[FoundFile] = []
    async for page in list_pages(store, folder):
        found += files_in(place, folder, ((one.key, str(one.version), one.size_bytes, one.modified_ms) for one in page))
        if len(found) > FILES_MAX:
            raise Invalid(f"it has at least {len(found):,} files, and a run keeps at most {FILES_MAX:,} in memory")
    return found


def folder_of(lake: Lake, place: str) -> tuple[ObjectStore, str]:
    """The store of a place, and its folder there, which ends with a slash."""
    store, key = lake.locations.holder(f"{place.rstrip('/')}/_")
    return store, key.removesuffix("_")


def files_in(place: str, folder: str, listed: Iterable[tuple[str, str, int, int]]) -> Sequence[FoundFile]:
    """Listed objects of a folder as files of the place: key, version, size and time of each."""
    return [
        FoundFile(f"{place.rstrip('/')}/{key.removeprefix(folder)}", version, size, modified_ms or None)
        for key, version, size, modified_ms in listed
    ]
