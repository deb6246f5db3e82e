"""Making an index anew from what is true (I4): versions first, then the listing, then the replacement."""

from collections.abc import Sequence
from typing import Final

from sandur.catalog.index import Entry, Manifest, Scope, group_by_segment, is_full, needs_segments
from sandur.errors import Busy, SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.counters import INDEX_REBUILDS
from sandur.operations.index_objects import (
    expected_of,
    finish_split,
    manifest_of,
    read_manifest,
    read_segment,
    remove_segments,
    segment_of,
    write_segments,
)
from sandur.operations.index_truth import truth_about, written_names
from sandur.operations.lake import Lake
from sandur.storage.cell import Held
from sandur.storage.contract import Expected

TRIES_MAX: Final = 8


async def rebuild(lake: Lake, scope: Scope) -> None:
    """When this returns, the index says what is true, or what somebody else made true since; otherwise Busy."""
    try:
        await _rebuild(lake, scope)
    except SandurError:
        lake.counters.add(INDEX_REBUILDS, "error")
        raise
    lake.counters.add(INDEX_REBUILDS, "ok")


async def _rebuild(lake: Lake, scope: Scope) -> None:
    for _ in range(TRIES_MAX):
        found = await read_manifest(lake, scope)
        if isinstance(found, Held) and found.value.segments:
            is_done = await _rebuild_segments(lake, scope, found)
        else:
            is_done = await replace_all(lake, scope, expected=expected_of(found))
        if is_done:
            return
    raise Busy(f"index {scope.text!r}: it keeps changing while it is made anew")


async def replace_all(lake: Lake, scope: Scope, *, expected: Expected) -> bool:
    """Replace an index without segments, read at `expected` before the listing; False when somebody was faster."""
    return await write_index(lake, scope, await _true_entries(lake, scope), expected=expected)


async def write_index(lake: Lake, scope: Scope, entries: tuple[Entry, ...], *, expected: Expected) -> bool:
    """Write a whole index, in segments if it is too large for one object; False when the swap is lost."""
    refs = await write_segments(lake, scope, entries) if needs_segments(entries) else ()
    manifest = manifest_of(() if refs else entries, refs, lake.clock.now_ms())
    try:
        await lake.index(scope).swap(manifest, expected=expected)
    except SwapLost as lost:
        if lost.is_definite:
            await remove_segments(lake, scope, refs)
        return False
    return True


async def _true_entries(lake: Lake, scope: Scope) -> tuple[Entry, ...]:
    names = await written_names(lake, scope)
    truth = await truth_about(lake, scope, names)
    return tuple(entry for name in names if (entry := truth[name]))


async def _rebuild_segments(lake: Lake, scope: Scope, manifest: Held[Manifest]) -> bool:
    """I4 for every segment by itself: an update changes a segment, not the manifest. False to start over."""
    positions: Sequence[int] = range(len(manifest.value.segments))
    for _ in range(TRIES_MAX):
        positions = await _replace_segments(lake, scope, manifest.value, positions)
        if not positions:
            break
    # Segments that the manifest does not name any more were written for nobody.
    again = await read_manifest(lake, scope)
    return not positions and isinstance(again, Held) and again.version == manifest.version


async def _replace_segments(lake: Lake, scope: Scope, manifest: Manifest, positions: Sequence[int]) -> Sequence[int]:
    """Bring the segments at these positions in line with the truth; those where somebody was faster come back."""
    refs = manifest.segments
    found = await gather_all(read_segment(lake, scope, refs[position].id) for position in positions)
    names = group_by_segment(await written_names(lake, scope), refs)

    async def is_replaced(position: int, expected: Expected) -> bool:
        truth = await truth_about(lake, scope, names.get(position, ()))
        entries = tuple(entry for entry in truth.values() if entry)
        segment = segment_of(lake, scope, entries, is_full=is_full(entries))
        try:
            held = await lake.index_segment(scope, refs[position].id).swap(segment, expected=expected)
        except SwapLost:
            return False
        await finish_split(lake, scope, refs[position].id, held)
        return True

    lost: list[int] = []
    for position, segment in zip(positions, found, strict=True):
        if isinstance(segment, Held) and segment.value.split:
            await finish_split(lake, scope, refs[position].id, segment)
        elif not await is_replaced(position, expected_of(segment)):
            lost.append(position)
    return lost
