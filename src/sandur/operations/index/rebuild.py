"""The objects of a list index, and its rebuild from the records that it lists.

A small index is one object, the manifest. A large one has segments, which the manifest names. A segment that becomes
full is sealed by the same swap, with the ids of its two successors in it; any writer that finds it sealed completes the
split. A rebuild reads the versions first, then lists the records, then replaces the objects (I4): an update in between
makes the replacement lose.
"""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.index import (
    CATALOGS,
    Entry,
    Manifest,
    Scope,
    Segment,
    SegmentRef,
    Split,
    after_split,
    count_segments,
    group_by_segment,
    is_full,
    names_scope,
    namespaces_scope,
    needs_segments,
    pack_segments,
    split_entries,
    split_key,
)
from sandur.errors import Busy, Damaged, SandurError, SwapLost
from sandur.operations.counters import INDEX_REBUILDS, Counters
from sandur.operations.index.truth import list_keys, list_written_names, read_entries
from sandur.operations.lake import Lake
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all, gather_in_batches
from sandur.storage.contract import ABSENT, Expected, Version
from sandur.storage.record_form import decode_record

T = TypeVar("T", Manifest, Segment)

READS_AT_ONCE_MAX: Final = 64
MERGE_FACTOR: Final = 2
"""Segments are merged if at most one in this many is needed."""

_NAMES_AT_ONCE: Final = 512
"""How many names a rebuild reads at a time; their segments are written in one round."""
_ID_LENGTH: Final = 16


class Broken(NamedTuple):
    """An object that cannot be decoded or is inconsistent; it can only be replaced."""

    version: Version


Parts = Mapping[str, Versioned[Segment] | Broken | None]


async def read_manifest(lake: Lake, scope: Scope) -> Versioned[Manifest] | Broken | None:
    """The manifest of an index; None if there is no index."""
    return await _read(lake, lake.index(scope))


async def read_segment(lake: Lake, scope: Scope, segment_id: str) -> Versioned[Segment] | Broken | None:
    return await _read(lake, lake.index_segment(scope, segment_id))


async def read_segments(lake: Lake, scope: Scope, ids: Collection[str]) -> Parts:
    """The segments by id. A cached one that the store confirms at once costs no read."""
    cached = {segment_id: lake.index_segment(scope, segment_id).confirmed() for segment_id in sorted(ids)}
    others = [segment_id for segment_id, held in cached.items() if held is None or not held.value.is_sound]
    found = await gather_in_batches(others, lambda one: read_segment(lake, scope, one), at_once=READS_AT_ONCE_MAX)
    return {**cached, **dict(zip(others, found, strict=True))}


async def _read(lake: Lake, cell: Cell[T]) -> Versioned[T] | Broken | None:
    try:
        found = await cell.read()
    except Damaged:
        # Read again for its version.
        stored = await lake.store.get(cell.key)
        if stored is None:
            return None
        try:
            found = Versioned(decode_record(cell.key, stored.data, cell.kind), stored.version)
        except Damaged as damage:
            lake.incidents.object_damaged(damage.key, damage.reason)
            return Broken(stored.version)
    if found is None or found.value.is_sound:
        return found
    lake.incidents.object_damaged(cell.key, "its entries contradict each other")
    return Broken(found.version)


def expected_of(found: Versioned[Manifest] | Versioned[Segment] | Broken | None) -> Expected:
    """The version that a swap of the object expects."""
    return found.version if found else ABSENT


def manifest_of(entries: tuple[Entry, ...], segments: tuple[SegmentRef, ...], now_ms: int) -> Manifest:
    return Manifest(version=1, updated_at_epoch_ms=now_ms, entries=entries, segments=segments)


def segment_of(lake: Lake, scope: Scope, entries: tuple[Entry, ...], *, is_full: bool) -> Segment:
    """A segment with these entries; a full one is sealed, with the ids of its successors."""
    split = Split(split_key(entries), new_segment_id(lake), new_segment_id(lake)) if is_full else None
    return Segment(scope=scope, updated_at_epoch_ms=lake.clock.now_ms(), entries=entries, split=split)


class IndexWriter:
    """Writes an index whose entries come in order. It holds only those that do not fill a segment yet.

    Segments get fresh ids: readers find them once a manifest names them.
    """

    def __init__(self, lake: Lake, scope: Scope) -> None:
        self._lake, self._scope = lake, scope
        self._refs: tuple[SegmentRef, ...] = ()
        self._rest: tuple[Entry, ...] = ()

    async def add(self, entries: tuple[Entry, ...]) -> None:
        self._rest += entries
        if needs_segments(self._rest):
            *full, (_, rest) = pack_segments(self._rest, is_begin=not self._refs)
            self._rest = rest
            await self._write(full)

    async def finish(self, *, expected: Expected) -> bool:
        """Write the manifest; False if its swap is lost, and then nothing is left."""
        if self._refs:
            await self._write(pack_segments(self._rest, is_begin=False))
            self._rest = ()
        manifest = manifest_of(self._rest, self._refs, self._lake.clock.now_ms())
        try:
            await self._lake.index(self._scope).swap(manifest, expected=expected)
        except SwapLost as lost:
            if lost.is_definite:
                await self.discard()
            return False
        return True

    async def discard(self) -> None:
        await gather_all(_remove(self._lake, self._scope, ref.id) for ref in self._refs)

    async def _write(self, parts: Sequence[tuple[str, tuple[Entry, ...]]]) -> None:
        lake, scope = self._lake, self._scope
        refs = tuple(SegmentRef(first, new_segment_id(lake)) for first, _ in parts)
        await gather_all(
            lake.index_segment(scope, ref.id).create(segment_of(lake, scope, part, is_full=False))
            for ref, (_, part) in zip(refs, parts, strict=True)
        )
        self._refs += refs


async def swap_segment(
    lake: Lake, scope: Scope, segment_id: str, entries: tuple[Entry, ...], *, expected: Expected
) -> bool:
    """Write the entries of a segment, and split it if it is full; False if the swap is lost."""
    segment = segment_of(lake, scope, entries, is_full=is_full(entries))
    try:
        held = await lake.index_segment(scope, segment_id).swap(segment, expected=expected)
    except SwapLost:
        return False
    await finish_split(lake, scope, segment_id, held)
    return True


async def finish_split(lake: Lake, scope: Scope, sealed_id: str, sealed: Versioned[Segment]) -> None:
    """Complete a split that any writer began: write both successors, then name them in the manifest.

    A successor that exists is complete: only writers that found it in the manifest change it. A sealed segment that the
    manifest does not name needs no split.
    """
    split = sealed.value.split
    if split is None:
        return
    left, right = split_entries(sealed.value, split)
    await gather_all([_put_successor(lake, scope, split.left, left), _put_successor(lake, scope, split.right, right)])
    manifest = await read_manifest(lake, scope)
    if not isinstance(manifest, Versioned):
        return

    def name_successors(found: Manifest | None) -> Manifest | None:
        refs = after_split(found.segments, sealed_id, split) if found else None
        return replace(found, segments=refs, updated_at_epoch_ms=lake.clock.now_ms()) if found and refs else None

    try:
        named = await lake.index(scope).update(name_successors, found=manifest, is_idempotent=True)
    except Busy:  # The next writer that finds the sealed segment completes the split.
        return
    if named and named.version != manifest.version:
        await lake.background.run("remove a split segment", _remove(lake, scope, sealed_id))


async def _put_successor(lake: Lake, scope: Scope, segment_id: str, entries: tuple[Entry, ...]) -> None:
    with contextlib.suppress(SwapLost):
        await lake.index_segment(scope, segment_id).create(segment_of(lake, scope, entries, is_full=False))


async def _remove(lake: Lake, scope: Scope, segment_id: str) -> None:
    """Delete a segment that no manifest names."""
    cell = lake.index_segment(scope, segment_id)
    found = await cell.read()
    if found:
        with contextlib.suppress(SwapLost):
            await cell.empty(expected=found.version)


def new_segment_id(lake: Lake) -> str:
    return lake.clock.new_uuid().replace("-", "")[:_ID_LENGTH]


async def rebuild(lake: Lake, scope: Scope) -> None:
    """Rebuild an index: afterwards it lists the current records, or later ones. Busy if it keeps changing."""
    try:
        async for _ in Attempts(lake.clock):
            found = await read_manifest(lake, scope)
            if isinstance(found, Versioned) and found.value.segments:
                is_done = await _rebuild_segments(lake, scope, found)
            else:
                is_done = await replace_all(lake, scope, expected=expected_of(found))
            if is_done:
                return lake.feature(Counters).add(INDEX_REBUILDS, "ok")
        raise Busy(f"index {scope.text!r} keeps changing during its rebuild")
    except SandurError:
        lake.feature(Counters).add(INDEX_REBUILDS, "error")
        raise


async def replace_all(lake: Lake, scope: Scope, *, expected: Expected) -> bool:
    """Replace an index without segments that was at `expected` before the listing; False if the swap is lost."""
    names = await list_written_names(lake, scope)
    writer = IndexWriter(lake, scope)
    for start in range(0, len(names), _NAMES_AT_ONCE):
        truth = await read_entries(lake, scope, names[start : start + _NAMES_AT_ONCE])
        await writer.add(tuple(entry for entry in truth.values() if entry))
    return await writer.finish(expected=expected)


async def write_index(lake: Lake, scope: Scope, entries: tuple[Entry, ...], *, expected: Expected) -> bool:
    """Write a whole index, in segments if it is too large for one object; False if the swap is lost."""
    writer = IndexWriter(lake, scope)
    await writer.add(entries)
    return await writer.finish(expected=expected)


async def _rebuild_segments(lake: Lake, scope: Scope, manifest: Versioned[Manifest]) -> bool:
    """I4 for each segment, since an update changes a segment and not the manifest. False to start over."""
    positions: Sequence[int] = range(len(manifest.value.segments))
    async for _ in Attempts(lake.clock):
        positions = await _replace_segments(lake, scope, manifest.value, positions)
        if not positions:
            break
    # If the manifest has changed, it may not name the replaced segments.
    again = await read_manifest(lake, scope)
    return not positions and isinstance(again, Versioned) and again.version == manifest.version


async def _replace_segments(lake: Lake, scope: Scope, manifest: Manifest, positions: Sequence[int]) -> Sequence[int]:
    """Replace the segments at these positions by current entries; returns the positions where the swap was lost."""
    refs = manifest.segments
    before: dict[int, Expected | None] = {}
    async for position, segment in _segments_at(lake, scope, refs, positions):
        is_sealed = isinstance(segment, Versioned) and segment.value.split
        before[position] = None if is_sealed else expected_of(segment)
    names = group_by_segment(await list_written_names(lake, scope), refs)
    lost: list[int] = []
    for position, expected in before.items():
        segment_id = refs[position].id
        if expected is None:
            await _finish_sealed(lake, scope, segment_id)
            continue
        truth = await read_entries(lake, scope, names.get(position, ()))
        entries = tuple(entry for entry in truth.values() if entry)
        if not await swap_segment(lake, scope, segment_id, entries, expected=expected):
            lost.append(position)
    return lost


async def _finish_sealed(lake: Lake, scope: Scope, segment_id: str) -> None:
    """Complete the split of a segment that was sealed. It never changes, but may be removed."""
    sealed = await read_segment(lake, scope, segment_id)
    if isinstance(sealed, Versioned):
        await finish_split(lake, scope, segment_id, sealed)


class RebuiltIndex(NamedTuple):
    """The result of a rebuild: whether the index was right before, its entries, and its segments before and after.

    The times in the entries are not compared: a commit that only adds data does not update the entry of its table.
    """

    was_right: bool
    entries: int
    segments_before: int
    segments: int


async def rebuild_and_merge(lake: Lake, scope: Scope) -> RebuiltIndex:
    """Rebuild an index, and merge its segments if far fewer are enough; Busy if it keeps changing."""
    lake, scope = lake.by_keys, lake.layout.aliases.scope_by_keys(scope)
    before, segments_before = await _content(lake, scope)
    await rebuild(lake, scope)
    await merge_segments(lake, scope)
    after, segments = await _content(lake, scope)
    return RebuiltIndex(before == after, after[0] if after else 0, segments_before, segments)


async def merge_segments(lake: Lake, scope: Scope) -> bool:
    """Replace many segments by few, without a listing; False if there is no need, or the index changes meanwhile.

    Every segment is sealed at the version that was read, as for a split, before its entries are written again. A later
    update finds a sealed segment and splits it; an earlier one makes the sealing lose. Either way the swap of the
    manifest is lost too, so no update is missing from the merged segments.
    """
    manifest = await read_manifest(lake, scope)
    if not isinstance(manifest, Versioned) or not await _can_be_merged(lake, scope, manifest.value.segments):
        return False
    refs = manifest.value.segments
    writer, sealed = IndexWriter(lake, scope), 0
    async for position, segment in _segments_at(lake, scope, refs, range(len(refs))):
        cut = _cut(refs, position, segment)
        if cut is None or not isinstance(segment, Versioned):
            break
        split = Split(cut, new_segment_id(lake), new_segment_id(lake))
        cell = lake.index_segment(scope, refs[position].id)
        if not await cell.try_swap(replace(segment.value, split=split), expected=segment.version):
            break
        sealed += 1
        await writer.add(segment.value.entries)
    if sealed < len(refs):
        await writer.discard()
    elif await writer.finish(expected=manifest.version):
        await gather_all(_remove(lake, scope, ref.id) for ref in refs)
        return True
    for ref in refs[:sealed]:
        await _finish_sealed(lake, scope, ref.id)
    return False


async def _can_be_merged(lake: Lake, scope: Scope, refs: Sequence[SegmentRef]) -> bool:
    """Whether every segment can be sealed, and far fewer segments are enough."""
    sizes_bytes: list[int] = []
    async for position, segment in _segments_at(lake, scope, refs, range(len(refs))):
        if not isinstance(segment, Versioned) or _cut(refs, position, segment) is None:
            return False
        sizes_bytes += [entry.size_bytes for entry in segment.value.entries]
    return bool(refs) and count_segments(sizes_bytes) * MERGE_FACTOR <= len(refs)


def _cut(refs: Sequence[SegmentRef], position: int, segment: Versioned[Segment] | Broken | None) -> str | None:
    """Where a writer that finds the segment sealed splits it; None if it is sealed already, or cannot be split."""
    if not isinstance(segment, Versioned) or segment.value.split:
        return None
    entries = segment.value.entries
    cut = split_key(entries) if len(entries) > 1 else f"{refs[position].first}\x00"
    is_last = position == len(refs) - 1
    return cut if is_last or cut < refs[position + 1].first else None


async def _content(lake: Lake, scope: Scope) -> tuple[tuple[int, str] | None, int]:
    """The number of entries with a hash of their identities, and the number of segments.

    None if the index is damaged or changing. A missing index has no entries: most namespaces have no children, and no
    index of them.
    """
    manifest = await read_manifest(lake, scope)
    if isinstance(manifest, Broken):
        return None, 0
    count, identities = 0, hashlib.sha256()
    refs = manifest.value.segments if manifest else ()
    for entry in manifest.value.entries if manifest else ():
        count += 1
        identities.update(_identity(entry))
    async for _, segment in _segments_at(lake, scope, refs, range(len(refs))):
        if not isinstance(segment, Versioned):
            return None, len(refs)
        for entry in segment.value.entries:
            count += 1
            identities.update(_identity(entry))
    return (count, identities.hexdigest()), len(refs)


def _identity(entry: Entry) -> bytes:
    return msgspec.json.encode((entry.name, entry.kind, entry.uuid, entry.format))


async def find_names(lake: Lake, scope: Scope, uuid: str) -> Sequence[str]:
    """The names that an index has for an object; this reads the whole index."""
    manifest = await read_manifest(lake, scope)
    if not isinstance(manifest, Versioned):
        return ()  # It will be rebuilt from the records.
    names = [entry.name for entry in manifest.value.entries if entry.uuid == uuid]
    refs = manifest.value.segments
    async for _, segment in _segments_at(lake, scope, refs, range(len(refs))):
        if not isinstance(segment, Versioned):
            return ()
        names += [entry.name for entry in segment.value.entries if entry.uuid == uuid]
    return names


async def _segments_at(
    lake: Lake, scope: Scope, refs: Sequence[SegmentRef], positions: Sequence[int]
) -> AsyncIterator[tuple[int, Versioned[Segment] | Broken | None]]:
    """The segments at these positions, a few at a time: an index can be larger than the memory of a server."""
    for start in range(0, len(positions), READS_AT_ONCE_MAX):
        some = positions[start : start + READS_AT_ONCE_MAX]
        parts = await read_segments(lake, scope, [refs[position].id for position in some])
        for position in some:
            yield position, parts[refs[position].id]


async def rebuild_all(lake: Lake, catalog: str | None = None) -> AsyncIterator[tuple[Scope, SandurError | None]]:
    """Rebuild every index of a catalog, or of all catalogs; yields each scope, and the error of its rebuild."""
    catalog = lake.layout.aliases.key_path((catalog,))[0] if catalog else None
    lake = lake.by_keys
    scopes = [] if catalog else [CATALOGS]
    for name in [catalog] if catalog else await list_written_names(lake, CATALOGS):
        scopes.append(namespaces_scope(name, None))
        async for key in list_keys(lake, lake.layout.namespaces_folder(name)):
            namespace = lake.layout.parse_namespace(key)
            scopes += [namespaces_scope(name, namespace), names_scope(namespace)]
    for scope in scopes:
        try:
            await rebuild(lake, scope)
        except SandurError as error:
            yield scope, error
        else:
            yield scope, None
