"""Keep a list index in step with what it lists (rules I1-I3): mark, change, update the entry, remove the mark.

An operation calls `mark` before it changes a name and `finish` afterwards, behind its answer. What it leaves when it
dies in between is put right by the janitor of marks.

Nothing depends on it: a ride that is lost, or cannot be taken without another round, leaves the entry to `finish`,
which comes behind the answer.

A commit that changes what lists show calls `begin` before its swap and `end` after it. The first of them writes the
mark; the others find it written and only join. The index is put right a moment later, once for all of them, so that a
table which is changed a hundred times in a second is listed anew once. Who never says how it ended, because it does not
know, leaves the mark to the janitor.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
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
from sandur.errors import Busy, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.concurrency import gather_all
from sandur.operations.counters import INDEX_UPDATES
from sandur.operations.index.rebuild import (
    Damaged,
    expected_of,
    finish_split,
    manifest_of,
    read_manifest,
    read_segment,
    rebuild,
    replace_all,
    segment_of,
    write_index,
)
from sandur.operations.index.truth import index_entry, read_entries
from sandur.operations.lake import Lake
from sandur.storage.cell import Versioned
from sandur.storage.contract import ABSENT

TRIES_MAX: Final = 12
_BACKOFF_SECONDS: Final = 0.005
_BACKOFF_DOUBLINGS_MAX: Final = 6

Parts = Mapping[str, Versioned[Segment] | Damaged | None]


async def mark(lake: Lake, identifier: Identifier | Namespace, operation_id: str) -> None:
    """I1: note that the index may not say the truth about an entry; when this returns the mark is there.

    Written in the same round as the files of an operation, before the name changes.
    """
    await mark_place(lake, place_of(identifier), operation_id)


async def finish(lake: Lake, identifier: Identifier | Namespace, operation_id: str, *, is_right: bool = False) -> None:
    """Put the entry right unless it is, then take the mark away. What fails here is left to the janitor."""
    await finish_place(lake, place_of(identifier), operation_id, is_right=is_right)


async def mark_place(lake: Lake, place: Place, operation_id: str) -> None:
    """As `mark`, for any entry of any index."""
    memory = lake.index_memory
    memory.begin(place, operation_id, lake.clock.now_ms())
    key = lake.layout.mark(place.scope.hash, operation_id)
    body = Mark(place.scope.collection, place.scope.catalog, place.scope.levels, place.name)
    # A mark that is there already is that of an earlier attempt of the same operation.
    with contextlib.suppress(SwapLost):
        memory.mark_versions[key] = await lake.store.put(key, msgspec.json.encode(body), expected=ABSENT)


async def finish_place(lake: Lake, place: Place, operation_id: str, *, is_right: bool = False) -> None:
    """As `finish`, for any entry of any index."""
    if not is_right:
        await update_entry(lake, place)
    lake.index_memory.end(place, operation_id)
    await _remove_mark(lake, lake.layout.mark(place.scope.hash, operation_id))


async def _remove_mark(lake: Lake, key: str) -> None:
    version = lake.index_memory.mark_versions.pop(key, None)
    if version is None:
        listed = await lake.store.head(key)
        version = listed.version if listed else None
    if version is not None:
        with contextlib.suppress(SwapLost):
            await lake.store.delete(key, expected=version)


async def update_entry(lake: Lake, place: Place) -> None:
    """I2: when this returns, the index says what is true about the entry, or what somebody made true since.

    Those who call this at the same time for one scope share a swap: whoever comes first works for all who wait.
    """
    async with lake.index_memory.batch(place.scope) as batch:
        mine = batch.waiting.setdefault(place.name, asyncio.get_running_loop().create_future())
        async with batch.lock:
            if mine.done():
                return mine.result()
            # Taken before the index is read: what these names are is looked up after that.
            names, batch.waiting = batch.waiting, {}
            try:
                await _update_entries(lake, place.scope, names)
            except BaseException as error:
                _end(names.values(), error)
                raise
            _end(names.values(), None)
            return None


def _end(waiting: Iterable["asyncio.Future[None]"], error: BaseException | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error if isinstance(error, SandurError) else Busy("the index was not put right"))
            future.exception()  # Looked at: nobody may be waiting.


async def _update_entries(lake: Lake, scope: Scope, names: Collection[str]) -> None:
    for tries in range(TRIES_MAX):
        if tries:
            waits = _BACKOFF_SECONDS * lake.clock.chance() * (1 << min(tries, _BACKOFF_DOUBLINGS_MAX))
            await lake.clock.sleep(waits)
        if await _try_update(lake, scope, names):
            lake.counters.add(INDEX_UPDATES, "ok")
            return
        lake.counters.add(INDEX_UPDATES, "conflict")
    lake.counters.add(INDEX_UPDATES, "error")
    raise Busy(f"index {scope.text!r}: it keeps changing")


async def _try_update(lake: Lake, scope: Scope, names: Collection[str]) -> bool:
    """One try; False when somebody was faster."""
    manifest, parts = await _read(lake, scope, names)
    if not isinstance(manifest, Versioned):
        return await replace_all(lake, scope, expected=expected_of(manifest))
    if manifest.value.segments:
        return await _update_segments(lake, scope, manifest.value, parts, names)
    truth = await read_entries(lake, scope, names)
    entries = merge_entries(manifest.value.entries, truth)
    if needs_segments(entries):
        return await write_index(lake, scope, entries, expected=manifest.version)
    try:
        # I3: also when nothing changes, so that whoever read the index before us cannot write what is not so.
        await lake.index(scope).swap(manifest_of(entries, (), lake.clock.now_ms()), expected=manifest.version)
    except SwapLost:
        return False
    return True


async def _read(lake: Lake, scope: Scope, names: Collection[str]) -> tuple[Versioned[Manifest] | Damaged | None, Parts]:
    """The manifest, and the segments these names belong to; in one round if the manifest is as it was seen last."""
    before = lake.index(scope).last_seen
    guessed = _segments_of(before.value, names) if before else set()
    manifest, guesses = await asyncio.gather(read_manifest(lake, scope), _read_segments(lake, scope, guessed))
    if not isinstance(manifest, Versioned):
        return manifest, {}
    missing = _segments_of(manifest.value, names) - guessed
    return manifest, {**guesses, **await _read_segments(lake, scope, missing)}


def _segments_of(manifest: Manifest, names: Iterable[str]) -> set[str]:
    segments = manifest.segments
    return {segments[segment_at(segments, name)].id for name in names} if segments else set()


async def _read_segments(lake: Lake, scope: Scope, ids: Collection[str]) -> Parts:
    ordered = sorted(ids)
    found = await gather_all(read_segment(lake, scope, segment_id) for segment_id in ordered)
    return dict(zip(ordered, found, strict=True))


async def _update_segments(lake: Lake, scope: Scope, manifest: Manifest, parts: Parts, names: Collection[str]) -> bool:
    refs = manifest.segments
    names_by_id = {refs[position].id: some for position, some in group_by_segment(names, refs).items()}
    found = {segment_id: part for segment_id in names_by_id if isinstance(part := parts[segment_id], Versioned)}
    if len(found) < len(names_by_id):
        return await _without_segment(lake, scope, manifest)
    are_updated = await gather_all(
        _update_segment(lake, scope, segment_id, found[segment_id], some) for segment_id, some in names_by_id.items()
    )
    # An index that was lost and made anew meanwhile does not have these segments: then this was for nobody.
    again = await read_manifest(lake, scope)
    named = {ref.id for ref in again.value.segments} if isinstance(again, Versioned) else set()
    return all(are_updated) and named >= names_by_id.keys()


async def _update_segment(
    lake: Lake, scope: Scope, segment_id: str, found: Versioned[Segment], names: Collection[str]
) -> bool:
    """I2 for the names of one segment. A segment that is sealed is split first; one that is full is sealed."""
    if found.value.split:
        await finish_split(lake, scope, segment_id, found)
        return False
    truth = await read_entries(lake, scope, names)
    entries = merge_entries(found.value.entries, truth)
    segment = segment_of(lake, scope, entries, is_full=is_full(entries))
    try:
        held = await lake.index_segment(scope, segment_id).swap(segment, expected=found.version)
    except SwapLost:
        return False
    await finish_split(lake, scope, segment_id, held)
    return True


async def _without_segment(lake: Lake, scope: Scope, manifest: Manifest) -> bool:
    """A segment is not there: it was split since the manifest was read, or it is lost and has to be made anew."""
    again = await read_manifest(lake, scope)
    if isinstance(again, Versioned) and again.value == manifest:
        await rebuild(lake, scope)
        return True
    return False


class PreparedInsert(NamedTuple):
    """The part of the index that has or will have the entry, as it was before the name was written (I2)."""

    place: Place
    part: Versioned[Manifest] | Versioned[Segment] | None
    segment_id: str | None = None


async def prepare_insert(lake: Lake, identifier: Identifier, operation_id: str) -> PreparedInsert:
    """I1, and the first half of I2, in one round: the mark, and the index."""
    place = place_of(identifier)
    before = lake.index(place.scope).last_seen
    guessed = _segment_id(before.value, place) if before else None
    _, manifest, segment = await gather_all(
        (
            mark_place(lake, place, operation_id),
            read_manifest(lake, place.scope),
            read_segment(lake, place.scope, guessed) if guessed else _nothing(),
        )
    )
    if not isinstance(manifest, Versioned):
        return PreparedInsert(place, None)
    segment_id = _segment_id(manifest.value, place)
    if segment_id is None:
        return PreparedInsert(place, manifest)
    # A segment that was not guessed would cost a round of its own.
    is_known = segment_id == guessed and isinstance(segment, Versioned)
    return PreparedInsert(place, segment if is_known and isinstance(segment, Versioned) else None, segment_id)


async def insert_entry(lake: Lake, boarded: PreparedInsert, name: NameRecord, record: BoundRecord) -> bool:
    """The second half of I2, for whoever wrote the name after it boarded: whether the index says so now."""
    if boarded.part is None or lake.index_memory.is_being_put_right(boarded.place.scope):
        return False
    identifier = Identifier(*boarded.place.scope.namespace, boarded.place.name)
    try:
        return await _swap_entry(lake, boarded, await index_entry(lake, identifier, name, record))
    except SandurError:  # Lost, or worse: the mark is there, and `finish` puts it right.
        return False


async def _swap_entry(lake: Lake, boarded: PreparedInsert, entry: Entry) -> bool:
    scope, part = boarded.place.scope, boarded.part
    if part is None:
        return False
    entries = merge_entries(part.value.entries, {entry.name: entry})
    if isinstance(part.value, Segment):
        if part.value.split or is_full(entries) or boarded.segment_id is None:
            return False
        segment = segment_of(lake, scope, entries, is_full=False)
        await lake.index_segment(scope, boarded.segment_id).swap(segment, expected=part.version)
    else:
        if needs_segments(entries):
            return False
        manifest = manifest_of(entries, (), lake.clock.now_ms())
        await lake.index(scope).swap(manifest, expected=part.version)
    return True


async def is_insert_current(lake: Lake, boarded: PreparedInsert) -> bool:
    """Whether the segment that was swapped is still part of the index: one made anew does not have it."""
    if boarded.segment_id is None:
        return True
    manifest: Versioned[Manifest] | Damaged | None = await read_manifest(lake, boarded.place.scope)
    return isinstance(manifest, Versioned) and any(ref.id == boarded.segment_id for ref in manifest.value.segments)


def _segment_id(manifest: Manifest, place: Place) -> str | None:
    segments = manifest.segments
    return segments[segment_at(segments, place.name)].id if segments else None


async def _nothing() -> None:
    return None


PAUSE_SECONDS: Final = 1.0
"""The pauses of all tables end at the same moments, so that one swap of the index serves all of a namespace."""

LATE_SECONDS: Final = 5.0
"""How long after the pause a user may say how it ended; then the mark is left to the janitor."""


def changes_entry(before: TableMetadata | ViewMetadata, after: TableMetadata | ViewMetadata) -> bool:
    """Whether an entry made of `after` would differ from one made of `before`, but for the time of the change."""
    if isinstance(before, TableMetadata) and isinstance(after, TableMetadata):
        return _listed_fields(before) != _listed_fields(after)
    return True


def _listed_fields(metadata: TableMetadata) -> tuple[object, ...]:
    return (metadata.current_schema_id, metadata.default_spec_id, metadata.location, metadata.properties)


class DeferredUpdate:
    """A mark that several commits share, from the first of them until the index is right."""

    def __init__(self, place: Place, mark: str) -> None:
        self.place = place
        self.mark = mark
        self.users = 1
        self.is_marked = asyncio.Event()
        self.is_unused = asyncio.Event()

    def end(self) -> None:
        """A commit that shares the mark has ended, one way or the other."""
        self.users -= 1
        if not self.users:
            self.is_unused.set()


async def begin_deferred_update(lake: Lake, identifier: Identifier) -> DeferredUpdate:
    """I1: when this returns the mark is there, and stays until this user has ended too.

    The index is put right behind the answers, whatever becomes of the users: nobody joins a mark that is old.
    """
    place, shared = place_of(identifier), lake.index_memory.relistings
    while joined := shared.get(place):
        await joined.is_marked.wait()
        if shared.get(place) is joined:
            joined.users += 1
            return joined
    relisting = shared[place] = DeferredUpdate(place, lake.clock.new_id())
    try:
        await mark_place(lake, place, relisting.mark)
    except BaseException:
        del shared[place]  # Whoever waits for this mark writes another.
        raise
    finally:
        relisting.is_marked.set()
    await lake.background.run("index a change", _update_after_pause(lake, relisting))
    return relisting


async def _update_after_pause(lake: Lake, relisting: DeferredUpdate) -> None:
    now = asyncio.get_running_loop().time()
    await lake.background.pause(PAUSE_SECONDS - now % PAUSE_SECONDS, asyncio.Event())
    # From here on a commit writes a mark of its own: this one goes when those who share it have ended.
    del lake.index_memory.relistings[relisting.place]
    if relisting.users:
        relisting.is_unused.clear()
        await lake.background.pause(LATE_SECONDS, relisting.is_unused)
    if not relisting.users:
        await finish_place(lake, relisting.place, relisting.mark)
