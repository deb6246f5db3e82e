"""Read lists page by page: from the index in one round, from the listed records when there is no index."""

import asyncio
import bisect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.catalog.identifiers import Kind, Namespace
from sandur.catalog.index import (
    SEGMENT_MAX,
    Entry,
    Manifest,
    Scope,
    Segment,
    entries_after,
    merge_entries,
    names_scope,
    segment_at,
)
from sandur.catalog.paging import checked_page_size, decode_page_token, encode_page_token
from sandur.operations.containers.records import namespace_not_found
from sandur.operations.counters import INDEX_READS, LIST_FALLBACKS
from sandur.operations.grounds import still_held
from sandur.operations.index.rebuild import Damaged, read_manifest, read_segment, rebuild
from sandur.operations.index.truth import LOOKS_AT_ONCE, list_written_names, read_entries
from sandur.operations.lake import Lake
from sandur.operations.tables.load import Page
from sandur.operations.tables.names import resolve_namespace
from sandur.storage.cell import Versioned
from sandur.storage.contract import Version

READ_TRIES_MAX: Final = 4
READS_AT_ONCE_MAX: Final = 64
_KEPT_ENTRY_BYTES: Final = 16  # The entries themselves are the index's, which is kept anyway.

Accepts = Callable[[Entry], bool]
Parts = Mapping[str, Versioned[Segment] | Damaged | None]


class Prefetched(NamedTuple):
    """The first look at an index: what it is, and those of its segments that could be guessed to be needed.

    `changed` was under way before the look: an update that ends during it is in neither the index that was read nor
    among what is under way afterwards.
    """

    manifest: Versioned[Manifest] | Damaged | None
    parts: Parts
    changed: Sequence[str]


class EntriesPage(NamedTuple):
    """Entries in the order of their names; when there may be more, they come behind `next_last`."""

    entries: Sequence[Entry]
    next_last: str | None
    is_fallback: bool = False
    """Whether there was no index that could be used."""


class _Examined(NamedTuple):
    """All entries from one place on: up to the last of them, or to the end of the index.

    `versions` are those of everything they were read from: equal versions, equal entries.
    """

    entries: Sequence[Entry]
    is_all: bool
    versions: Sequence[Version]


class _Kept(NamedTuple):
    """A whole list, and what it was read from."""

    versions: Sequence[Version]
    page: EntriesPage


async def prefetch(lake: Lake, scope: Scope, *, last: str | None, wanted: int | None) -> Prefetched:
    """Read the index, and in the same round what the page needs of it if it is as it was seen last."""
    changed = lake.index_memory.under_way(scope, lake.clock.now_ms())
    before = lake.index(scope).last_seen
    ids = _ids_from(before.value, last, _segments_for(wanted)) if before else ()
    manifest, parts = await asyncio.gather(read_manifest(lake, scope), _read_parts(lake, scope, ids))
    return Prefetched(manifest, parts, changed)


async def read_page(
    lake: Lake,
    scope: Scope,
    *,
    last: str | None,
    wanted: int | None,
    accepts: Accepts = lambda _: True,
    seen: Prefetched | None = None,
    kept_as: str = "",
) -> EntriesPage:
    """At most `wanted` entries (all, if None) that are accepted and come behind `last`.

    What operations of this process have changed is looked up if the index may not say it yet: who lists after an answer
    sees what was answered. Where nothing is touched, pages neither skip nor repeat an entry: their borders are names.
    With `kept_as`, which names what is accepted, a whole list is kept: while the index stays, so does the very object.
    """
    changed = seen.changed if seen else lake.index_memory.under_way(scope, lake.clock.now_ms())
    examined = await _from_index(lake, scope, last, _Selection(wanted, accepts), seen)
    if examined is None:
        return await _without_index(lake, scope, last, _Selection(wanted, accepts))
    bound = None if examined.is_all else examined.entries[-1].name
    names = [name for name in changed if (last is None or name > last) and (bound is None or name <= bound)]
    if names:
        entries = merge_entries(examined.entries, await read_entries(lake, scope, names))
        return _page(entries, _Selection(wanted, accepts), bound)
    if not kept_as or wanted is not None or last is not None:
        return _page(examined.entries, _Selection(wanted, accepts), bound)
    key = (f"list of {kept_as}", scope.text)
    kept: _Kept | None = lake.documents.get(key)
    if kept is None or kept.versions != examined.versions:
        kept = _Kept(examined.versions, _page(examined.entries, _Selection(wanted, accepts), bound))
        lake.documents.put(key, kept, _KEPT_ENTRY_BYTES * (len(kept.page.entries) + 1))
    return kept.page


class _Selection(NamedTuple):
    """How many entries are wanted, and which."""

    wanted: int | None
    accepts: Accepts

    def is_met(self, entries: Sequence[Entry]) -> bool:
        """Whether a page is full and one more entry shows that it is not the last."""
        return self.wanted is not None and sum(map(self.accepts, entries)) > self.wanted


def _page(entries: Sequence[Entry], wish: _Selection, bound: str | None) -> EntriesPage:
    """The page of what was examined up to `bound`, which is None when that was everything."""
    accepted = [entry for entry in entries if wish.accepts(entry)]
    if wish.wanted is not None and len(accepted) > wish.wanted:
        page = accepted[: wish.wanted]
        return EntriesPage(page, page[-1].name)
    return EntriesPage(accepted, bound)


async def _from_index(
    lake: Lake, scope: Scope, last: str | None, wish: _Selection, seen: Prefetched | None
) -> _Examined | None:
    """What the index says; None when it cannot be used, or is not to be."""
    if not lake.settings.unity_catalog.preview_index_enabled:
        return None
    for _ in range(READ_TRIES_MAX):
        found = seen or await prefetch(lake, scope, last=last, wanted=wish.wanted)
        seen = None
        if not isinstance(found.manifest, Versioned):
            lake.counters.add(INDEX_READS, "error" if found.manifest else "miss")
            return None
        if not found.manifest.value.segments:
            lake.counters.add(INDEX_READS, "hit")
            entries = entries_after(found.manifest.value.entries, last)
            return _Examined(entries, is_all=True, versions=(found.manifest.version,))
        examined = await _from_segments(lake, scope, last, wish, found)
        if examined is not None:
            lake.counters.add(INDEX_READS, "hit")
            return examined
        # A segment is gone: split since, so that the manifest is another by now; otherwise it is lost.
    lake.counters.add(INDEX_READS, "error")
    return None


async def _from_segments(
    lake: Lake, scope: Scope, last: str | None, wish: _Selection, found: Prefetched
) -> _Examined | None:
    if not isinstance(found.manifest, Versioned):
        return None
    entries: list[Entry] = []
    versions = [found.manifest.version]
    ids = _ids_from(found.manifest.value, last, None)
    done, step = 0, len(found.parts) or _segments_for(wish.wanted) or len(ids)
    while done < len(ids) and not wish.is_met(entries):
        some = ids[done : done + step]
        missing = [segment_id for segment_id in some if segment_id not in found.parts]
        parts = {**found.parts, **await _read_parts(lake, scope, missing)}
        for segment_id in some:
            part = parts[segment_id]
            if not isinstance(part, Versioned):
                return None
            entries += entries_after(part.value.entries, last)
            versions.append(part.version)
        done += len(some)
        step = min(2 * step, READS_AT_ONCE_MAX)
    return _Examined(entries, is_all=done == len(ids), versions=versions)


def _segments_for(wanted: int | None) -> int | None:
    """How many segments a page needs when they are half full, and the one in which it begins."""
    return None if wanted is None else min(wanted // (SEGMENT_MAX // 2) + 2, READS_AT_ONCE_MAX)


def _ids_from(manifest: Manifest, last: str | None, count: int | None) -> Sequence[str]:
    """The segments from the one that `last` belongs to, so many or all."""
    segments = manifest.segments
    if not segments:
        return ()
    start = 0 if last is None else segment_at(segments, last)
    return [ref.id for ref in segments[start : None if count is None else start + count]]


async def _read_parts(lake: Lake, scope: Scope, ids: Sequence[str]) -> Parts:
    standing = {segment_id: still_held(lake, lake.index_segment(scope, segment_id)) for segment_id in ids}
    others = [segment_id for segment_id, held in standing.items() if held is None or not held.value.is_sound]
    return {**standing, **await _read_one_by_one(lake, scope, others)} if others else standing


async def _read_one_by_one(lake: Lake, scope: Scope, ids: Sequence[str]) -> Parts:
    places = asyncio.Semaphore(READS_AT_ONCE_MAX)

    async def one(segment_id: str) -> Versioned[Segment] | Damaged | None:
        async with places:
            return await read_segment(lake, scope, segment_id)

    return dict(zip(ids, await asyncio.gather(*map(one, ids)), strict=True))


async def _without_index(lake: Lake, scope: Scope, last: str | None, wish: _Selection) -> EntriesPage:
    """The same page, in the same order, from the things themselves; the index is made anew behind the answer."""
    lake.counters.add(LIST_FALLBACKS, scope.collection)
    is_used = lake.settings.unity_catalog.preview_index_enabled
    if is_used and lake.index_memory.may_rebuild(scope, lake.clock.now_ms()):
        await lake.background.run("rebuild index", rebuild(lake, scope))
    names = await list_written_names(lake, scope)
    names = names[0 if last is None else bisect.bisect_right(names, last) :]
    entries: list[Entry] = []
    done = 0
    while done < len(names) and not wish.is_met(entries):
        some = names[done : done + LOOKS_AT_ONCE]
        truth = await read_entries(lake, scope, some)
        entries += [entry for name in some if (entry := truth[name])]
        done += len(some)
    return _page(entries, wish, None if done == len(names) else names[done - 1])._replace(is_fallback=True)


class PageRequest(NamedTuple):
    """Which part of a list a client asks for: without a token everything, with an empty one the first page."""

    token: str | None
    size: int | None


async def list_names(
    lake: Lake, namespace: Namespace, *, kind: Kind, page_token: str | None, page_size: int | None
) -> Page[Entry]:
    """What has a name of one kind in a namespace; NotFound when the namespace does not exist."""
    listing = Listing(lake, names_scope(namespace), kind, PageRequest(page_token, page_size))
    page = await listing.read(beside=require_namespace(lake, namespace))
    return Page(page.entries, listing.next_token(page))


def _is_for_iceberg(entry: Entry) -> bool:
    """Whether an Iceberg client could use what it is shown: a table or view of another format it could not load."""
    return entry.kind not in {"table", "view"} or entry.format == "iceberg"


async def require_namespace(lake: Lake, namespace: Namespace) -> None:
    if await resolve_namespace(lake, namespace) is None:
        raise namespace_not_found(namespace)


class Listing:
    """One request for a list. What it asks for is checked before anything is read."""

    def __init__(self, lake: Lake, scope: Scope, kind: str, request: PageRequest) -> None:
        self._lake = lake
        self._scope = scope
        self._kind = kind
        self._what = (lake.layout.root, kind, scope.text)
        size = checked_page_size(request.size)
        self._wanted = None if request.token is None else size
        self._last = decode_page_token(request.token, self._what) if request.token else None

    async def read(self, *, beside: Awaitable[object]) -> EntriesPage:
        """The page; `beside` is done in the same round, and what it raises is raised."""
        first_look = prefetch(self._lake, self._scope, last=self._last, wanted=self._wanted)
        _, seen = await asyncio.gather(beside, first_look)
        return await read_page(
            self._lake,
            self._scope,
            last=self._last,
            wanted=self._wanted,
            accepts=lambda entry: entry.kind == self._kind and _is_for_iceberg(entry),
            seen=seen,
            kept_as=self._kind,
        )

    def next_token(self, page: EntriesPage) -> str | None:
        return None if page.next_last is None else encode_page_token(self._what, page.next_last)
