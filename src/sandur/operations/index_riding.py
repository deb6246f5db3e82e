"""Index entries that ride along with the creation of a name, so that every server lists it when the answer goes out.

Nothing depends on it: a ride that is lost, or cannot be taken without another round, leaves the entry to `finish`,
which comes behind the answer.
"""

from typing import NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.index import (
    Entry,
    Manifest,
    Place,
    Segment,
    is_full,
    merge_entries,
    needs_segments,
    place_of,
    segment_at,
)
from sandur.catalog.records import NameRecord, Pointer
from sandur.errors import SandurError
from sandur.operations.concurrency import all_three
from sandur.operations.index_objects import Damaged, manifest_of, read_manifest, read_segment, segment_of
from sandur.operations.index_truth import entry_of
from sandur.operations.indexing import mark_place
from sandur.operations.lake import Lake
from sandur.storage.cell import Held


class Ride(NamedTuple):
    """The part of the index that has or will have the entry, as it was before the name was written (I2)."""

    place: Place
    part: Held[Manifest] | Held[Segment] | None
    segment_id: str | None = None


async def board(lake: Lake, identifier: Identifier, operation_id: str) -> Ride:
    """I1, and the first half of I2, in one round: the mark, and the index."""
    place = place_of(identifier)
    before = lake.index(place.scope).last_seen
    guessed = _segment_id(before.value, place) if before else None
    _, manifest, segment = await all_three(
        mark_place(lake, place, operation_id),
        read_manifest(lake, place.scope),
        read_segment(lake, place.scope, guessed) if guessed else _nothing(),
    )
    if not isinstance(manifest, Held):
        return Ride(place, None)
    segment_id = _segment_id(manifest.value, place)
    if segment_id is None:
        return Ride(place, manifest)
    # A segment that was not guessed would cost a round of its own.
    is_known = segment_id == guessed and isinstance(segment, Held)
    return Ride(place, segment if is_known and isinstance(segment, Held) else None, segment_id)


async def ride(lake: Lake, boarded: Ride, name: NameRecord, pointer: Pointer) -> bool:
    """The second half of I2, for whoever wrote the name after it boarded: whether the index says so now."""
    if boarded.part is None or lake.index_memory.is_being_put_right(boarded.place.scope):
        return False
    identifier = Identifier(*boarded.place.scope.namespace, boarded.place.name)
    try:
        return await _swapped(lake, boarded, await entry_of(lake, identifier, name, pointer))
    except SandurError:  # Lost, or worse: the mark is there, and `finish` puts it right.
        return False


async def _swapped(lake: Lake, boarded: Ride, entry: Entry) -> bool:
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


async def still_counts(lake: Lake, boarded: Ride) -> bool:
    """Whether the segment that was swapped is still part of the index: one made anew does not have it."""
    if boarded.segment_id is None:
        return True
    manifest: Held[Manifest] | Damaged | None = await read_manifest(lake, boarded.place.scope)
    return isinstance(manifest, Held) and any(ref.id == boarded.segment_id for ref in manifest.value.segments)


def _segment_id(manifest: Manifest, place: Place) -> str | None:
    segments = manifest.segments
    return segments[segment_at(segments, place.name)].id if segments else None


async def _nothing() -> None:
    return None
