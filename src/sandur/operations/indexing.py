"""Keeping the list index in step with what it lists (I1–I3): marks and updates.

An operation calls `mark` before it changes a name and `finish` afterwards, behind its answer. What it leaves when it
dies in between is put right by the janitor of marks.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import (
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
from sandur.errors import Busy, SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.counters import INDEX_UPDATES
from sandur.operations.index_objects import (
    Damaged,
    expected_of,
    finish_split,
    manifest_of,
    read_manifest,
    read_segment,
    segment_of,
)
from sandur.operations.index_rebuild import rebuild, replace_all, write_index
from sandur.operations.index_truth import truth_about
from sandur.operations.lake import Lake
from sandur.storage.cell import Held
from sandur.storage.contract import ABSENT

TRIES_MAX: Final = 12
_BACKOFF_SECONDS: Final = 0.005
_BACKOFF_DOUBLINGS_MAX: Final = 6

Parts = Mapping[str, Held[Segment] | Damaged | None]


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
        await put_right(lake, place)
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


async def put_right(lake: Lake, place: Place) -> None:
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
                await _put_right(lake, place.scope, names)
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


async def _put_right(lake: Lake, scope: Scope, names: Collection[str]) -> None:
    for tries in range(TRIES_MAX):
        if tries:
            waits = _BACKOFF_SECONDS * lake.clock.chance() * (1 << min(tries, _BACKOFF_DOUBLINGS_MAX))
            await lake.clock.sleep(waits)
        if await _updated(lake, scope, names):
            lake.counters.add(INDEX_UPDATES, "ok")
            return
        lake.counters.add(INDEX_UPDATES, "conflict")
    lake.counters.add(INDEX_UPDATES, "error")
    raise Busy(f"index {scope.text!r}: it keeps changing")


async def _updated(lake: Lake, scope: Scope, names: Collection[str]) -> bool:
    """One try; False when somebody was faster."""
    manifest, parts = await _read(lake, scope, names)
    if not isinstance(manifest, Held):
        return await replace_all(lake, scope, expected=expected_of(manifest))
    if manifest.value.segments:
        return await _update_segments(lake, scope, manifest.value, parts, names)
    truth = await truth_about(lake, scope, names)
    entries = merge_entries(manifest.value.entries, truth)
    if needs_segments(entries):
        return await write_index(lake, scope, entries, expected=manifest.version)
    try:
        # I3: also when nothing changes, so that whoever read the index before us cannot write what is not so.
        await lake.index(scope).swap(manifest_of(entries, (), lake.clock.now_ms()), expected=manifest.version)
    except SwapLost:
        return False
    return True


async def _read(lake: Lake, scope: Scope, names: Collection[str]) -> tuple[Held[Manifest] | Damaged | None, Parts]:
    """The manifest, and the segments these names belong to; in one round if the manifest is as it was seen last."""
    before = lake.index(scope).last_seen
    guessed = _segments_of(before.value, names) if before else set()
    manifest, guesses = await asyncio.gather(read_manifest(lake, scope), _read_segments(lake, scope, guessed))
    if not isinstance(manifest, Held):
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
    found = {segment_id: part for segment_id in names_by_id if isinstance(part := parts[segment_id], Held)}
    if len(found) < len(names_by_id):
        return await _without_segment(lake, scope, manifest)
    are_updated = await gather_all(
        _update_segment(lake, scope, segment_id, found[segment_id], some) for segment_id, some in names_by_id.items()
    )
    # An index that was lost and made anew meanwhile does not have these segments: then this was for nobody.
    again = await read_manifest(lake, scope)
    named = {ref.id for ref in again.value.segments} if isinstance(again, Held) else set()
    return all(are_updated) and named >= names_by_id.keys()


async def _update_segment(
    lake: Lake, scope: Scope, segment_id: str, found: Held[Segment], names: Collection[str]
) -> bool:
    """I2 for the names of one segment. A segment that is sealed is split first; one that is full is sealed."""
    if found.value.split:
        await finish_split(lake, scope, segment_id, found)
        return False
    truth = await truth_about(lake, scope, names)
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
    if isinstance(again, Held) and again.value == manifest:
        await rebuild(lake, scope)
        return True
    return False
