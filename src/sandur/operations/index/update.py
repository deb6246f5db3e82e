"""Keep list indexes in step with the records that they list (rules I1-I3, I5), and remember the changes in progress.

An operation marks an entry before it changes the record (`mark`). After its answer it updates the entry from the
current record and removes the mark (`finish`). If it dies in between, the janitor of marks does the same.

Two shortcuts save work; a lost one leaves the entry to `finish`:

- A creation reads the index in the round of its other reads (`prepare_insert`) and swaps the entry in with its last
  writes (`insert_entry`), so that every server lists the new name when the answer goes out.
- Commits to one table share a mark (`begin_deferred_update`): within a pause of a second the entry is updated once.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import (
    Entry,
    Manifest,
    Mark,
    Place,
    Scope,
    Segment,
    group_by_segment,
    is_full,
    merge_entries,
    needs_segments,
    place_of,
    segment_at,
)
from sandur.catalog.records import BoundRecord, NameRecord
from sandur.errors import BadRequest, Busy, Damaged, NewerRecord, OutcomeUnknown, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.counters import INDEX_UPDATES, Counters
from sandur.operations.index.memory import DeferredUpdate, Found, IndexMemory, batch_of
from sandur.operations.index.rebuild import (
    Broken,
    Parts,
    expected_of,
    find_names,
    finish_split,
    manifest_of,
    read_manifest,
    read_segments,
    rebuild,
    replace_all,
    swap_segment,
    write_index,
)
from sandur.operations.index.truth import index_entry, read_entries
from sandur.operations.lake import Lake
from sandur.operations.tables.names import follow_renames
from sandur.storage.cell import Attempts, Versioned, gather_all
from sandur.storage.contract import ABSENT

Truth = dict[str, Entry | None]
"""Names whose entries are up to date, with the entries; None for a name that does not exist, or is not known."""


PAUSE_SECONDS: Final = 1.0
"""The pauses of all tables end at the same moments, so that one swap of the index serves a whole namespace."""

LATE_SECONDS: Final = 5.0
"""How long after the pause a commit may still end; after that the entry is updated, and the mark is left to the
janitor."""


async def mark(lake: Lake, entry: Place | Identifier | Namespace, operation_id: str, *, uuid: str = "") -> None:
    """I1: write a mark that says that an entry may be stale, before the name, or the record of the `uuid`, changes."""
    lake, place = _by_keys(lake, entry)
    memory = lake.feature(IndexMemory)
    memory.begin(place, operation_id, lake.clock.now_ms())
    key = lake.layout.mark(place.scope.hash, operation_id)
    body = Mark(place.scope.collection, place.scope.catalog, place.scope.levels, place.name, uuid)
    # An existing mark was written by an earlier attempt of the same operation.
    with contextlib.suppress(SwapLost):
        memory.mark_versions[key] = await lake.store.put(key, msgspec.json.encode(body), expected=ABSENT)


async def finish(
    lake: Lake, entry: Place | Identifier | Namespace, operation_id: str, *, uuid: str = "", is_right: bool = False
) -> None:
    """Update the entry unless `is_right`, then remove the mark. If this fails, the janitor repeats it."""
    lake, place = _by_keys(lake, entry)
    memory = lake.feature(IndexMemory)
    if not is_right:
        await update_entry(lake, place, uuid)
    memory.end(place, operation_id)
    key = lake.layout.mark(place.scope.hash, operation_id)
    version = memory.mark_versions.pop(key, None)
    if version is None:
        listed = await lake.store.head(key)
        version = listed.version if listed else None
    if version is not None:
        with contextlib.suppress(SwapLost):
            await lake.store.delete(key, expected=version)


@contextlib.asynccontextmanager
async def finishing(
    lake: Lake, what: str, finish_index: Callable[[], Coroutine[None, None, None]]
) -> AsyncIterator[None]:
    """The operation that marked entries; they are updated when it has ended.

    Unless it may still happen: a write without an answer can arrive later. Then the marks stay, for a janitor (I1).
    """
    try:
        yield
    except (OutcomeUnknown, asyncio.CancelledError):
        raise
    except Exception:
        await lake.background.run(what, finish_index())
        raise
    await lake.background.run(what, finish_index())


async def finish_together(lake: Lake, marks: Mapping[Identifier, str]) -> None:
    """As `finish` for several entries with their operation ids; the entries of one index are updated by one swap."""
    names: dict[Scope, list[str]] = {}
    for identifier in marks:
        _, place = _by_keys(lake, identifier)
        names.setdefault(place.scope, []).append(place.name)
    for scope, some in names.items():
        await _update_names(lake.by_keys, scope, some)
    await gather_all(finish(lake, identifier, mark_id, is_right=True) for identifier, mark_id in marks.items())


def _by_keys(lake: Lake, entry: Place | Identifier | Namespace) -> tuple[Lake, Place]:
    """The lake and the position by the keys of containers: a rename changes nothing in an index."""
    place = entry if isinstance(entry, Place) else place_of(entry)
    aliases = lake.layout.aliases
    return (lake.by_keys, aliases.place_by_keys(place)) if aliases else (lake, place)


async def update_entry(lake: Lake, place: Place, uuid: str = "") -> None:
    """I2: update an entry; afterwards the index has the current state of the record, or a later one.

    I5: `uuid` is that of a table whose record has changed. A rename may have come first, and have written the entry of
    the new name before the change: then that entry is updated, too.
    """
    (listed,) = await _update_names(lake, place.scope, [place.name])
    for now in await _new_places(lake, place, uuid) if uuid and listed != uuid else ():
        await _update_names(lake, now.scope, [now.name])


async def _new_places(lake: Lake, place: Place, uuid: str) -> Sequence[Place]:
    """Where a table is listed that had this place; nothing if it still has it, or does not exist any more."""
    before = Identifier(*place.scope.namespace, place.name)
    if now := await follow_renames(lake, before, uuid):
        return () if now == before else (place_of(now),)
    # Only the list still has its id: the old name was reused, or removed by a janitor.
    return [Place(place.scope, name) for name in await find_names(lake, place.scope, uuid)]


async def _update_names(lake: Lake, scope: Scope, names: Sequence[str]) -> Sequence[str | None]:
    """I2 for names of one scope. Concurrent calls share a swap: the first one updates the entries of all that wait.

    Returns the uuid that each name had; None for one that did not exist, or is not known.
    """
    async with batch_of(lake.feature(IndexMemory).updates, scope) as batch:
        found = await batch.share(names, partial(_updated, lake, scope))
    return [entry.uuid if (entry := found.get(name)) else None for name in names]


async def _updated(lake: Lake, scope: Scope, names: Collection[str]) -> Found:
    """I2: the names are taken before the index is read, and their records are read after it."""
    try:
        return await _update_entries(lake, scope, names)
    except (BadRequest, Damaged, NewerRecord):  # One name that cannot be read must not fail the others.
        return {name: await _update_alone(lake, scope, name) for name in list(names)}


async def _update_alone(lake: Lake, scope: Scope, name: str) -> Entry | SandurError | None:
    try:
        return (await _update_entries(lake, scope, [name])).get(name)
    except SandurError as error:
        return error


async def _update_entries(lake: Lake, scope: Scope, names: Collection[str]) -> Truth:
    truth: Truth = {}
    async for _ in Attempts(lake.clock):
        truth |= await _try_update(lake, scope, [name for name in names if name not in truth])
        if len(truth) == len(names):
            lake.feature(Counters).add(INDEX_UPDATES, "ok")
            return truth
        lake.feature(Counters).add(INDEX_UPDATES, "conflict")
    lake.feature(Counters).add(INDEX_UPDATES, "error")
    raise Busy(f"index {scope.text!r} keeps changing")


async def _try_update(lake: Lake, scope: Scope, names: Collection[str]) -> Truth:
    """The names whose entries are up to date now; for the others another writer was faster."""
    manifest, parts = await _read(lake, scope, names)
    if not isinstance(manifest, Versioned):
        return dict.fromkeys(names) if await replace_all(lake, scope, expected=expected_of(manifest)) else {}
    if manifest.value.segments:
        return await _update_segments(lake, scope, manifest.value, parts, names)
    truth = await read_entries(lake, scope, names)
    entries = merge_entries(manifest.value.entries, truth)
    if needs_segments(entries):
        return truth if await write_index(lake, scope, entries, expected=manifest.version) else {}
    try:
        # I3: also without a change, so that a writer that read the index earlier loses its swap.
        await lake.index(scope).swap(manifest_of(entries, (), lake.clock.now_ms()), expected=manifest.version)
    except SwapLost:
        return {}
    return truth


async def _read(lake: Lake, scope: Scope, names: Collection[str]) -> tuple[Versioned[Manifest] | Broken | None, Parts]:
    """The manifest and the segments of these names; one round if the manifest has not changed since its last read."""
    before = lake.index(scope).last_seen
    guessed = _segments_of(before.value, names) if before else set()
    manifest, guesses = await asyncio.gather(read_manifest(lake, scope), read_segments(lake, scope, guessed))
    if not isinstance(manifest, Versioned):
        return manifest, {}
    missing = _segments_of(manifest.value, names) - guessed
    return manifest, {**guesses, **await read_segments(lake, scope, missing)}


def _segments_of(manifest: Manifest, names: Iterable[str]) -> set[str]:
    segments = manifest.segments
    return {segments[segment_at(segments, name)].id for name in names} if segments else set()


async def _update_segments(lake: Lake, scope: Scope, manifest: Manifest, parts: Parts, names: Collection[str]) -> Truth:
    """As `_try_update`. What is up to date is not written again: that would take other writers their swaps."""
    refs = manifest.segments
    names_by_id = {refs[position].id: some for position, some in group_by_segment(names, refs).items()}
    found = {segment_id: part for segment_id in names_by_id if isinstance(part := parts[segment_id], Versioned)}
    if len(found) < len(names_by_id):
        # The missing segment was split since the manifest was read, or it is lost and the index is rebuilt.
        again = await read_manifest(lake, scope)
        is_lost = isinstance(again, Versioned) and again.value == manifest
        if is_lost:
            await rebuild(lake, scope)
        return dict.fromkeys(names) if is_lost else {}
    updated = await gather_all(
        _update_segment(lake, scope, segment_id, found[segment_id], some) for segment_id, some in names_by_id.items()
    )
    # A rebuild of a lost index has other segments: then this update is lost, and repeated.
    again = await read_manifest(lake, scope)
    named = {ref.id for ref in again.value.segments} if isinstance(again, Versioned) else set()
    current = [truth for segment_id, truth in zip(names_by_id, updated, strict=True) if segment_id in named]
    return {name: entry for truth in current for name, entry in truth.items()}


async def _update_segment(
    lake: Lake, scope: Scope, segment_id: str, found: Versioned[Segment], names: Collection[str]
) -> Truth:
    """I2 for the names of one segment. A sealed segment is split first; a full one is sealed."""
    if found.value.split:
        await finish_split(lake, scope, segment_id, found)
        return {}
    truth = await read_entries(lake, scope, names)
    entries = merge_entries(found.value.entries, truth)
    return truth if await swap_segment(lake, scope, segment_id, entries, expected=found.version) else {}


class PreparedInsert(NamedTuple):
    """The object of the index that will have the entry, as it was before the name was written (I2).

    `part` is None if it is not known; then `insert_entry` does nothing.
    """

    place: Place
    part: Versioned[Manifest] | Versioned[Segment] | None
    segment_id: str | None = None


async def prepare_insert(lake: Lake, identifier: Identifier, operation_id: str) -> PreparedInsert:
    """I1 and the first half of I2 in one round: write the mark and read the index."""
    lake, place = _by_keys(lake, identifier)
    before = lake.index(place.scope).last_seen
    guessed = _segments_of(before.value, [place.name]) if before else ()
    _, manifest, guesses = await gather_all(
        (
            mark(lake, place, operation_id),
            read_manifest(lake, place.scope),
            read_segments(lake, place.scope, guessed),
        )
    )
    if not isinstance(manifest, Versioned):
        return PreparedInsert(place, None)
    if not manifest.value.segments:
        return PreparedInsert(place, manifest)
    (segment_id,) = _segments_of(manifest.value, [place.name])
    segment = guesses.get(segment_id)  # Reading another segment than the guessed one would cost a round.
    return PreparedInsert(place, segment if isinstance(segment, Versioned) else None, segment_id)


async def insert_entry(lake: Lake, prepared: PreparedInsert, name: NameRecord, record: BoundRecord) -> bool:
    """The second half of I2, after the name was written; whether the index has the entry now."""
    lake, scope, part = lake.by_keys, prepared.place.scope, prepared.part
    if part is None or scope in lake.feature(IndexMemory).updates:  # `finish` joins that update.
        return False
    try:
        entry = await index_entry(lake, Identifier(*scope.namespace, prepared.place.name), name, record)
        entries = merge_entries(part.value.entries, {entry.name: entry})
        if isinstance(part.value, Segment):
            if part.value.split or is_full(entries) or prepared.segment_id is None:
                return False
            return await swap_segment(lake, scope, prepared.segment_id, entries, expected=part.version)
        if needs_segments(entries):
            return False
        await lake.index(scope).swap(manifest_of(entries, (), lake.clock.now_ms()), expected=part.version)
    except SandurError as error:  # `finish` updates the entry: the mark exists.
        if not isinstance(error, SwapLost):
            lake.incidents.work_failed("insert an index entry", error)
        return False
    return True


async def is_insert_current(lake: Lake, prepared: PreparedInsert) -> bool:
    """Whether the manifest still names the segment with the entry; after a rebuild it does not."""
    if prepared.segment_id is None:
        return True
    manifest = await read_manifest(lake.by_keys, prepared.place.scope)
    return isinstance(manifest, Versioned) and any(ref.id == prepared.segment_id for ref in manifest.value.segments)


async def begin_deferred_update(lake: Lake, identifier: Identifier, uuid: str) -> DeferredUpdate:
    """I1 for a commit to a table: afterwards the mark exists, and stays until this commit has called `end` too.

    A commit joins an existing mark only during its pause. The index is updated after the answers.
    """
    lake, identifier = lake.by_keys, lake.layout.aliases.keys_of(identifier)
    shared = lake.feature(IndexMemory).deferred
    while joined := shared.get((identifier, uuid)):
        await joined.is_marked.wait()
        if shared.get((identifier, uuid)) is joined:
            joined.users += 1
            return joined
    deferred = shared[identifier, uuid] = DeferredUpdate(identifier, uuid, lake.clock.new_id())
    try:
        await mark(lake, place_of(identifier), deferred.mark, uuid=uuid)
        await lake.background.run("index a change", _update_after_pause(lake, deferred))
    except BaseException:  # Nothing will update the index for this mark: waiting commits write another one.
        del shared[identifier, uuid]
        raise
    finally:
        deferred.is_marked.set()
    return deferred


async def _update_after_pause(lake: Lake, deferred: DeferredUpdate) -> None:
    now = asyncio.get_running_loop().time()
    await lake.background.pause(PAUSE_SECONDS - now % PAUSE_SECONDS, asyncio.Event())
    # From here on a commit writes its own mark. This one is removed when all commits that share it have ended.
    del lake.feature(IndexMemory).deferred[deferred.identifier, deferred.uuid]
    if deferred.users:
        deferred.is_unused.clear()
        await lake.background.pause(LATE_SECONDS, deferred.is_unused)
    place = place_of(deferred.identifier)
    if deferred.users:  # One of them may still be made (`leave`), and keeps the mark. The others show now.
        await update_entry(lake, place, deferred.uuid)
    else:
        await finish(lake, place, deferred.mark, uuid=deferred.uuid)


class ListUpdate:
    """The mark that keeps lists right while a commit changes an entry (I1): begun at most once, then ended."""

    def __init__(self, lake: Lake, identifier: Identifier) -> None:
        self._lake = lake
        self._identifier = identifier
        self._update: DeferredUpdate | None = None

    async def begin(self, uuid: str, before: TableMetadata | ViewMetadata, after: TableMetadata | ViewMetadata) -> None:
        """When this returns, the mark exists, if the change of the table or view with that uuid shows in lists."""
        if self._update and self._update.uuid != uuid:  # The name belongs to another table by now.
            self.end()
        if self._update is None and _listed_fields(before) != _listed_fields(after):
            self._update = await begin_deferred_update(self._lake, self._identifier, uuid)

    def leave(self) -> None:
        """The commit may still be made: the mark stays, until a janitor updates the entry."""
        self._update = None

    def end(self) -> None:
        """The commit has ended, in any other way: the mark is no longer needed for it."""
        if self._update:
            self._update.end()
            self._update = None


def _listed_fields(metadata: TableMetadata | ViewMetadata) -> tuple[object, ...]:
    """What an entry shows of a table or view, besides the time of its last change."""
    if isinstance(metadata, ViewMetadata):
        return (metadata,)
    return (metadata.current_schema_id, metadata.default_spec_id, metadata.location, metadata.properties)
