"""Putting the segments of an index together again when there is little left in them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from sandur.catalog.index import (
    Entry,
    Manifest,
    Scope,
    Segment,
    SegmentRef,
    Split,
    needs_segments,
    pack_segments,
    split_key,
)
from sandur.errors import SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.index_objects import (
    finish_split,
    manifest_of,
    new_segment_id,
    read_manifest,
    read_segment,
    remove_segments,
    write_segments,
)
from sandur.operations.index_rebuild import rebuild
from sandur.operations.lake import Lake
from sandur.storage.cell import Held

WORTH_IT: Final = 2
"""Segments are merged when so many times fewer of them would do."""


class Remade(NamedTuple):
    """What became of an index: whether it listed the same things before, how many they are, and in how many segments.

    Times do not count: a commit that only adds data leaves the entry of its table as it is.
    """

    was_right: bool
    entries: int
    segments_before: int
    segments: int


async def remake(lake: Lake, scope: Scope) -> Remade:
    """Make an index anew from what is true, and merge its segments if that is worth it; Busy when it keeps changing."""
    before, segments_before = await _content(lake, scope)
    await rebuild(lake, scope)
    await merge_segments(lake, scope)
    after, segments = await _content(lake, scope)
    return Remade(_things(before) == _things(after), len(after or ()), segments_before, segments)


def _things(entries: Sequence[Entry] | None) -> Sequence[tuple[str, str, str, str]] | None:
    return None if entries is None else [(entry.name, entry.kind, entry.uuid, entry.format) for entry in entries]


async def merge_segments(lake: Lake, scope: Scope) -> bool:
    """Replace many segments by few, without a listing; False when there is no need, or somebody else is at it.

    Every segment is sealed first, at the version that was read, as if it were to be split: an update that comes later
    finds it sealed and splits it, an update that came before makes the sealing lose. Either way the swap of the
    manifest loses as well, and nothing that anybody wrote is missing from what is written here.
    """
    manifest = await read_manifest(lake, scope)
    if not isinstance(manifest, Held) or not manifest.value.segments:
        return False
    refs = manifest.value.segments
    segments = await _segments(lake, scope, refs)
    splits = _splits(lake, refs, segments) if segments else None
    if segments is None or splits is None:
        return False
    entries = tuple(entry for segment in segments for entry in segment.value.entries)
    if needs_segments(entries) and len(pack_segments(entries)) * WORTH_IT > len(refs):
        return False
    sealed = await _sealed(lake, scope, refs, segments, splits)
    if len(sealed) == len(refs) and await _swapped(lake, scope, manifest, entries):
        await remove_segments(lake, scope, refs)
        return True
    for ref, segment in sealed:
        await finish_split(lake, scope, ref.id, segment)
    return False


async def _content(lake: Lake, scope: Scope) -> tuple[Sequence[Entry] | None, int]:
    """The entries of an index and the number of its segments; None when it is damaged or changing.

    An index that is not there says that there is nothing: most namespaces have none below them, and no list of them.
    """
    manifest = await read_manifest(lake, scope)
    if manifest is None:
        return (), 0
    if not isinstance(manifest, Held):
        return None, 0
    if not manifest.value.segments:
        return manifest.value.entries, 0
    segments = await _segments(lake, scope, manifest.value.segments)
    entries = tuple(entry for segment in segments or () for entry in segment.value.entries)
    return entries if segments is not None else None, len(manifest.value.segments)


async def _segments(lake: Lake, scope: Scope, refs: Sequence[SegmentRef]) -> list[Held[Segment]] | None:
    """All segments; None when one of them is missing or damaged."""
    found = await gather_all(read_segment(lake, scope, ref.id) for ref in refs)
    held = [segment for segment in found if isinstance(segment, Held)]
    return held if len(held) == len(refs) else None


def _splits(lake: Lake, refs: Sequence[SegmentRef], segments: Sequence[Held[Segment]]) -> list[Split] | None:
    """How each segment is cut, should somebody meet it sealed; None when one is sealed already, or cannot be cut."""
    ends = [ref.first for ref in refs[1:]]
    splits: list[Split] = []
    for at, (ref, segment) in enumerate(zip(refs, segments, strict=True)):
        entries = segment.value.entries
        cut = split_key(entries) if len(entries) > 1 else f"{ref.first}\x00"
        if segment.value.split or (at < len(ends) and cut >= ends[at]):
            return None
        splits.append(Split(cut, new_segment_id(lake), new_segment_id(lake)))
    return splits


async def _sealed(
    lake: Lake,
    scope: Scope,
    refs: Sequence[SegmentRef],
    segments: Sequence[Held[Segment]],
    splits: Sequence[Split],
) -> list[tuple[SegmentRef, Held[Segment]]]:
    """The segments that are sealed now; fewer than there are when somebody changed one of them meanwhile."""
    sealed: list[tuple[SegmentRef, Held[Segment]]] = []
    for ref, segment, split in zip(refs, segments, splits, strict=True):
        cell = lake.index_segment(scope, ref.id)
        try:
            sealed.append((ref, await cell.swap(replace(segment.value, split=split), expected=segment.version)))
        except SwapLost:
            break
    return sealed


async def _swapped(lake: Lake, scope: Scope, manifest: Held[Manifest], entries: tuple[Entry, ...]) -> bool:
    refs = await write_segments(lake, scope, entries) if needs_segments(entries) else ()
    merged = manifest_of(() if refs else entries, refs, lake.clock.now_ms())
    try:
        await lake.index(scope).swap(merged, expected=manifest.version)
    except SwapLost as lost:
        if lost.is_definite:
            await remove_segments(lake, scope, refs)
        return False
    return True
