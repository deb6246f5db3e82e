"""The objects of an index as they are found, and how a full segment is split by whoever meets it."""

import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.index import (
    Entry,
    Manifest,
    Scope,
    Segment,
    SegmentRef,
    Split,
    after_split,
    pack_segments,
    split_entries,
    split_key,
)
from sandur.errors import SwapLost, Unavailable
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import Lake
from sandur.storage.cell import Cell, Held
from sandur.storage.contract import ABSENT, Expected, Version

T = TypeVar("T", Manifest, Segment)

SWAPS_MAX: Final = 8
_ID_LENGTH: Final = 16


class Damaged(NamedTuple):
    """An object that says nothing sensible; it can only be replaced."""

    version: Version


async def read_manifest(lake: Lake, scope: Scope) -> Held[Manifest] | Damaged | None:
    """The index; None when there is none."""
    return await _read(lake, lake.index(scope), Manifest)


async def read_segment(lake: Lake, scope: Scope, segment_id: str) -> Held[Segment] | Damaged | None:
    return await _read(lake, lake.index_segment(scope, segment_id), Segment)


async def _read(lake: Lake, cell: Cell[T], kind: type[T]) -> Held[T] | Damaged | None:
    try:
        found = await cell.read()
    except Unavailable:
        # Either the store does not answer, and this raises again, or the object is there and is none of ours.
        stored = await lake.store.get(cell.key)
        if stored is None:
            return None
        try:
            found = Held(msgspec.json.decode(stored.data, type=kind), stored.version)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Damaged(stored.version)
    return found if found is None or found.value.is_sound else Damaged(found.version)


def expected_of(found: Held[Manifest] | Held[Segment] | Damaged | None) -> Expected:
    """What a swap of the object has to expect."""
    return found.version if found else ABSENT


def manifest_of(entries: tuple[Entry, ...], segments: tuple[SegmentRef, ...], now_ms: int) -> Manifest:
    return Manifest(version=1, updated_at_epoch_ms=now_ms, entries=entries, segments=segments)


def segment_of(lake: Lake, scope: Scope, entries: tuple[Entry, ...], *, is_full: bool) -> Segment:
    """A segment with these entries; one that is full is sealed at once, with the ids of its successors in it."""
    split = Split(split_key(entries), new_segment_id(lake), new_segment_id(lake)) if is_full else None
    return Segment(scope=scope, updated_at_epoch_ms=lake.clock.now_ms(), entries=entries, split=split)


async def write_segments(lake: Lake, scope: Scope, entries: Sequence[Entry]) -> tuple[SegmentRef, ...]:
    """Segments for these entries, under fresh ids; nobody sees them before a manifest names them."""
    parts = pack_segments(entries)
    refs = tuple(SegmentRef(first, new_segment_id(lake)) for first, _ in parts)
    await gather_all(
        lake.index_segment(scope, ref.id).create(segment_of(lake, scope, part, is_full=False))
        for ref, (_, part) in zip(refs, parts, strict=True)
    )
    return refs


async def remove_segments(lake: Lake, scope: Scope, refs: Sequence[SegmentRef]) -> None:
    """Take away segments that no manifest names."""
    await gather_all(_remove(lake, scope, ref.id) for ref in refs)


async def finish_split(lake: Lake, scope: Scope, sealed_id: str, sealed: Held[Segment]) -> None:
    """Bring a split to its end, whoever began it: both successors are there, then the manifest names them.

    A successor that is there already is as it should be, or has changed since, which only those do who found it in
    the manifest. A sealed segment that the manifest does not name is over.
    """
    split = sealed.value.split
    if split is None:
        return
    left, right = split_entries(sealed.value, split)
    await gather_all([_put_successor(lake, scope, split.left, left), _put_successor(lake, scope, split.right, right)])
    for _ in range(SWAPS_MAX):
        manifest = await read_manifest(lake, scope)
        if manifest is None or isinstance(manifest, Damaged):
            return
        refs = after_split(manifest.value.segments, sealed_id, split)
        if refs is None:
            return
        grown = replace(manifest.value, segments=refs, updated_at_epoch_ms=lake.clock.now_ms())
        with contextlib.suppress(SwapLost):
            await lake.index(scope).swap(grown, expected=manifest.version)
            await lake.background.run("remove a split segment", _remove(lake, scope, sealed_id))
            return


async def _put_successor(lake: Lake, scope: Scope, segment_id: str, entries: tuple[Entry, ...]) -> None:
    with contextlib.suppress(SwapLost):
        await lake.index_segment(scope, segment_id).create(segment_of(lake, scope, entries, is_full=False))


async def _remove(lake: Lake, scope: Scope, segment_id: str) -> None:
    cell = lake.index_segment(scope, segment_id)
    found = await cell.read()
    if found:
        with contextlib.suppress(SwapLost):
            await cell.empty(expected=found.version)


def new_segment_id(lake: Lake) -> str:
    return lake.clock.new_uuid().replace("-", "")[:_ID_LENGTH]
