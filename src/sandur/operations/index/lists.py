"""Read lists page by page: from the index in one round, or from the listed records if there is no index.

A list shows every change that this process has answered before, also if the index does not have it yet. Pages end at
names: without concurrent changes they neither skip nor repeat an entry.
"""

import asyncio
import bisect
import contextlib
import hashlib
import operator
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.aliases import Aliases
from sandur.catalog.identifiers import Kind, Namespace
from sandur.catalog.index import (
    NO_INFO,
    SEGMENT_MAX,
    Entry,
    Manifest,
    Scope,
    entries_after,
    merge_entries,
    names_scope,
    segment_at,
)
from sandur.catalog.paging import Page, checked_page_size, decode_page_token, encode_page_token
from sandur.catalog.security.manifest import Authority, Viewer
from sandur.catalog.security.privileges import Chain, Link
from sandur.errors import BadRequest, Busy, Damaged, NewerRecord, NotFound
from sandur.operations.access import manifest_versions, read_authority, require, viewer_of
from sandur.operations.caches import BytesLruCache
from sandur.operations.counters import INDEX_READS, LIST_FALLBACKS, Counters
from sandur.operations.index.memory import IndexMemory, batch_of
from sandur.operations.index.rebuild import READS_AT_ONCE_MAX, Broken, Parts, read_manifest, read_segments, rebuild
from sandur.operations.index.truth import LOOKS_AT_ONCE, list_written_names, read_entries
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import TYPES, namespace_chain
from sandur.operations.tables.names import namespace_not_found, resolve_namespace
from sandur.storage.cell import Versioned, gather_all
from sandur.storage.contract import Version

READ_TRIES_MAX: Final = 4
LISTED_ENTRY_BYTES: Final = 336
"""An entry without its info, with a name of ten letters."""
_LISTS_SHARE: Final = 1 / 8

Accepts = Callable[[Entry], bool]


class Prefetched(NamedTuple):
    """The manifest of an index, and the segments that the page probably needs.

    `changed` are the changes in progress before the read: an update that ends during the read may be missing from the
    index that was read, and from the changes in progress afterwards.
    """

    manifest: Versioned[Manifest] | Broken | None
    parts: Parts
    changed: Sequence[str]


class EntriesPage(NamedTuple):
    """Entries sorted by name. If `next_last` is set, there may be more entries behind that name."""

    entries: Sequence[Entry]
    next_last: str | None
    is_fallback: bool = False
    """Whether there was no usable index."""


class _Examined(NamedTuple):
    """Consecutive entries from `last` on; `is_all` if they reach the end of the index.

    `versions` are the versions of all objects that were read: equal versions mean equal entries.
    """

    entries: Sequence[Entry]
    is_all: bool
    versions: Sequence[Version]


def _list_cache(lake: Lake) -> BytesLruCache[tuple[str, str], tuple[Sequence[Version], EntriesPage]]:
    """Whole lists, by what is listed and where, with the versions of the objects that they were read from."""
    return BytesLruCache(lake.cache_bytes(_LISTS_SHARE))


async def prefetch(lake: Lake, scope: Scope, *, last: str | None, wanted: int | None) -> Prefetched:
    """Read the manifest, and in the same round the segments that the page needs if the manifest has not changed."""
    changed = lake.feature(IndexMemory).under_way(scope, lake.clock.now_ms())
    before = lake.index(scope).last_seen
    ids = _probable_ids(lake, scope, before.value, last, wanted) if before else ()
    manifest, parts = await asyncio.gather(read_manifest(lake, scope), read_segments(lake, scope, ids))
    return Prefetched(manifest, parts, changed)


class NamedScope(NamedTuple):
    """What is listed, by the names of containers and by their keys."""

    aliases: Aliases
    scope: Scope
    keyed: Scope

    def admits(self, accepts: Callable[[Entry], bool]) -> Callable[[Entry], bool]:
        """The same condition for entries as they are in the index."""
        if not self.aliases or self.scope.collection == "tables":
            return accepts
        return lambda entry: accepts(replace(entry, name=self.aliases.child_name(self.keyed, entry.name)))

    def entry(self, entry: Entry) -> Entry:
        """An entry with the names of its containers."""
        scope = self.scope
        names: dict[str, str] = {}
        if scope.collection != "catalogs":
            names["catalog_name"] = scope.catalog
        if scope.collection == "tables":
            names["schema_name"] = ".".join(scope.levels)
            names["full_name"] = ".".join((scope.catalog, *scope.levels, entry.name))
        else:
            name = names["name"] = self.aliases.child_name(self.keyed, entry.name)
            entry = replace(entry, name=name)
            names["full_name"] = ".".join((scope.catalog, *scope.levels, name))
        if entry.info is NO_INFO:
            return entry
        info = msgspec.json.decode(entry.info, type=dict[str, msgspec.Raw])
        info.update({key: msgspec.Raw(msgspec.json.encode(name)) for key, name in names.items() if key in info})
        return replace(entry, info=msgspec.Raw(msgspec.json.encode(info)))

    def is_renamed(self, entry: Entry) -> bool:
        if self.scope != self.keyed:
            return True
        return self.scope.collection != "tables" and self.aliases.child_name(self.keyed, entry.name) != entry.name

    def page(self, page: EntriesPage) -> EntriesPage:
        """A page of the index with the names of containers; the same object if none was renamed."""
        if not self.aliases or not any(map(self.is_renamed, page.entries)):
            return page
        entries = [self.entry(entry) if self.is_renamed(entry) else entry for entry in page.entries]
        return page._replace(entries=entries if page.next_last else sorted(entries, key=operator.attrgetter("name")))


def named_scope(lake: Lake, scope: Scope) -> NamedScope:
    aliases = lake.layout.aliases
    return NamedScope(aliases, scope, aliases.scope_by_keys(scope) if aliases else scope)


async def read_page(
    lake: Lake,
    scope: Scope,
    *,
    last: str | None,
    wanted: int | None,
    accepts: Accepts = lambda _: True,
    has_info: bool = True,
    cached_as: str = "",
) -> EntriesPage:
    """At most `wanted` entries (None: all) behind `last` that `accepts` admits.

    A whole list without `has_info` has entries without their info, which is most of a list. With `cached_as`, a name
    for what `accepts` admits, it has none either and is cached: while the index does not change, the same object is
    returned. Pages follow the keys of containers; a whole list is sorted by their names.
    """
    named = named_scope(lake, scope)
    selection = _Selection(wanted, named.admits(accepts), has_info=has_info and not cached_as)
    return named.page(await _read_page_by_keys(lake.by_keys, named.keyed, last, selection, None, cached_as))


async def _read_page_by_keys(
    lake: Lake, scope: Scope, last: str | None, selection: "_Selection", seen: Prefetched | None, cached_as: str
) -> EntriesPage:
    """As `read_page`, by the keys of containers."""
    changed = seen.changed if seen else lake.feature(IndexMemory).under_way(scope, lake.clock.now_ms())
    examined = await _read_index(lake, scope, last, selection, seen)
    if examined is None:
        return await _read_records(lake, scope, last, selection)
    bound = None if examined.is_all else examined.entries[-1].name
    names = [name for name in changed if (last is None or name > last) and (bound is None or name <= bound)]
    if names:
        entries = merge_entries(examined.entries, await _read_changed(lake, scope, names))
        return _page(entries, selection, bound)
    if cached_as and selection.wanted is None and last is None:
        return _cached_page(lake, (f"list of {cached_as}", scope.text), examined, selection)
    return _page(examined.entries, selection, bound)


async def _read_changed(lake: Lake, scope: Scope, names: Sequence[str]) -> Mapping[str, Entry | None]:
    """The entries of names that this process is about to change, read after this call: concurrent lists share them.

    A record of a later major is left out: this server cannot have changed it (V1), so its entry is still right.
    """
    async with batch_of(lake.feature(IndexMemory).reads, scope) as batch:
        return await batch.share(names, partial(_read_each, lake, scope))


async def _read_each(lake: Lake, scope: Scope, names: Collection[str]) -> Mapping[str, Entry | None]:
    with contextlib.suppress(NewerRecord, Damaged, BadRequest):
        return await read_entries(lake, scope, names)
    found: dict[str, Entry | None] = {}
    for name in list(names):
        with contextlib.suppress(NewerRecord, Damaged, BadRequest):
            found.update(await read_entries(lake, scope, [name]))
    return found


def _cached_page(lake: Lake, key: tuple[str, str], examined: _Examined, selection: "_Selection") -> EntriesPage:
    cache = lake.feature(_list_cache)
    versions, page = cache.get(key, (None, None))
    if page is None or versions != examined.versions:
        page = _page(examined.entries, selection, None)
        cache.put(key, (examined.versions, page), LISTED_ENTRY_BYTES * (len(page.entries) + 1))
    return page


class _Selection(NamedTuple):
    """Which entries, how many (None: all), and whether with their info. A page has few, and keeps it in any case."""

    wanted: int | None
    accepts: Accepts
    has_info: bool

    @property
    def is_slim(self) -> bool:
        return self.wanted is None and not self.has_info

    def shown(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        return [entry.without_info for entry in entries] if self.is_slim else entries

    def count(self, entries: Sequence[Entry]) -> int:
        """How many entries are accepted; 0 if all are wanted."""
        return 0 if self.wanted is None else sum(map(self.accepts, entries))

    def is_complete(self, count: int) -> bool:
        """Whether the page is full and one more entry shows that it is not the last page."""
        return self.wanted is not None and count > self.wanted


def _page(entries: Sequence[Entry], selection: _Selection, bound: str | None) -> EntriesPage:
    """The page of the entries up to `bound`; None if they are all."""
    accepted = selection.shown([entry for entry in entries if selection.accepts(entry)])
    if selection.wanted is not None and len(accepted) > selection.wanted:
        page = accepted[: selection.wanted]
        return EntriesPage(page, page[-1].name)
    return EntriesPage(accepted, bound)


async def _read_index(
    lake: Lake, scope: Scope, last: str | None, selection: _Selection, seen: Prefetched | None
) -> _Examined | None:
    """The entries in the index; None if it is missing, damaged or disabled."""
    if not lake.settings.unity_catalog.preview_index_enabled:
        return None
    for _ in range(READ_TRIES_MAX):
        found = seen or await prefetch(lake, scope, last=last, wanted=selection.wanted)
        seen = None
        if not isinstance(found.manifest, Versioned):
            lake.feature(Counters).add(INDEX_READS, "error" if found.manifest else "miss")
            return None
        examined = await _read_segments(lake, scope, last, selection, found.manifest, found.parts)
        if examined is not None:
            lake.feature(Counters).add(INDEX_READS, "hit")
            return examined
        # A segment is missing: it was split and the manifest has changed, or it is lost.
    lake.feature(Counters).add(INDEX_READS, "error")
    return None


async def _read_segments(
    lake: Lake, scope: Scope, last: str | None, selection: _Selection, manifest: Versioned[Manifest], known: Parts
) -> _Examined | None:
    """The entries in the manifest or its segments, `known` or read; None if a segment is missing or damaged."""
    entries = list(entries_after(manifest.value.entries, last))  # Empty if there are segments.
    versions = [manifest.version]
    ids = _ids_from(manifest.value, last, None)
    # Fewer segments are kept as they are: a list that is cached already needs no other entries.
    is_long = len(ids) > READS_AT_ONCE_MAX
    done, step = 0, len(known) or _segments_for(selection.wanted)
    count = selection.count(entries)
    while done < len(ids) and not selection.is_complete(count):
        some = ids[done : done + step]
        missing = [segment_id for segment_id in some if segment_id not in known]
        parts = {**known, **await read_segments(lake, scope, missing)}
        for segment_id in some:
            part = parts[segment_id]
            if not isinstance(part, Versioned):
                return None
            found = entries_after(part.value.entries, last)
            count += selection.count(found)
            entries += selection.shown(found) if is_long else found
            versions.append(part.version)
        done += len(some)
        step = min(2 * step, READS_AT_ONCE_MAX)
    return _Examined(entries, is_all=done == len(ids), versions=versions)


def _segments_for(wanted: int | None) -> int:
    """How many half-full segments are read first: those of a page, with the one that it begins in."""
    return READS_AT_ONCE_MAX if wanted is None else min(wanted // (SEGMENT_MAX // 2) + 2, READS_AT_ONCE_MAX)


def _ids_from(manifest: Manifest, last: str | None, count: int | None) -> Sequence[str]:
    """The ids of `count` segments (None: all), from the segment of `last` on."""
    start = 0 if last is None or not manifest.segments else segment_at(manifest.segments, last)
    return [ref.id for ref in manifest.segments[start : None if count is None else start + count]]


def _probable_ids(lake: Lake, scope: Scope, manifest: Manifest, last: str | None, wanted: int | None) -> Sequence[str]:
    """The ids of the segments that a page needs, by what they had when they were read last."""
    ids = _ids_from(manifest, last, READS_AT_ONCE_MAX)
    if wanted is None:
        return ids
    count = 0
    for number, segment_id in enumerate(ids, start=1):
        held = lake.index_segment(scope, segment_id).last_seen
        if held is None:
            count += SEGMENT_MAX // 2
        else:
            count += len(entries_after(held.value.entries, last))
        if count > wanted:
            return ids[:number]
    return ids


async def _read_records(lake: Lake, scope: Scope, last: str | None, selection: _Selection) -> EntriesPage:
    """The same page in the same order, read from the listed records; the index is rebuilt after the answer."""
    lake.feature(Counters).add(LIST_FALLBACKS, scope.collection)
    names = await list_written_names(lake, scope)
    # A workspace that only reads have seen stays empty.
    is_used = lake.settings.unity_catalog.preview_index_enabled and (names or scope.collection != "catalogs")
    if is_used and lake.feature(IndexMemory).may_rebuild(scope, lake.clock.now_ms()):
        await lake.background.run("rebuild index", rebuild(lake, scope))
    names = names[0 if last is None else bisect.bisect_right(names, last) :]
    entries: list[Entry] = []
    done = count = 0
    while done < len(names) and not selection.is_complete(count):
        some = names[done : done + LOOKS_AT_ONCE]
        truth = await read_entries(lake, scope, some)
        existing = [entry for name in some if (entry := truth[name])]
        count += selection.count(existing)
        entries += selection.shown(existing)
        done += len(some)
    return _page(entries, selection, None if done == len(names) else names[done - 1])._replace(is_fallback=True)


class Container(NamedTuple):
    """The container of a list, which exists: its chain, and the error that hides it."""

    chain: Callable[[Authority], Awaitable[Chain]]
    missing: NotFound


FindContainer = Callable[[], Awaitable[Container]]
"""Finds the container of a list, or raises NotFound."""


async def read_visible_page(
    lake: Lake,
    scope: Scope,
    find_container: FindContainer,
    *,
    last: str | None,
    wanted: int | None,
    accepts: Accepts,
    cached_as: str = "",
) -> EntriesPage:
    """As `read_page`, with only the entries that the caller may see; a page is full unless it is the last one.

    The container, the grants and the first entries are read in one round. Raises NotFound if the container does not
    exist or is hidden, Forbidden if the rule of the route is not met on it.
    """
    named = named_scope(lake, scope)
    by_keys, keyed = lake.by_keys, named.keyed
    for _ in range(READ_TRIES_MAX):
        before = _listed_versions(by_keys, keyed)
        container, seen, authority = await gather_all(
            (find_container(), prefetch(by_keys, keyed, last=last, wanted=wanted), read_authority(lake))
        )
        if authority is None:
            selection = _Selection(wanted, named.admits(accepts), has_info=not cached_as)
            page = await _read_page_by_keys(by_keys, keyed, last, selection, seen, cached_as)
            if lake.names and _listed_versions(by_keys, keyed) != before:  # X2
                await read_authority(lake)
            return named.page(page)
        chain = await container.chain(authority)
        require(lake, authority, chain, missing=container.missing)
        viewer = viewer_of(lake, authority, chain)
        if viewer is None or (cached_as and viewer.sees_all(TYPES[cached_as])):
            is_listed, listed_as = accepts, cached_as
        else:
            is_listed = _visible_to(viewer, accepts)
            listed_as = _listed_for(viewer, cached_as)
        selection = _Selection(wanted, named.admits(is_listed), has_info=not cached_as)
        page = await _read_page_by_keys(by_keys, keyed, last, selection, seen, listed_as)
        # A2: the grants and the entries were valid at one moment.
        if _listed_versions(by_keys, keyed) == before or await lake.store.are_current(
            manifest_versions(lake, authority)
        ):
            return named.page(page)
    raise Busy("the grants keep changing")


def _listed_for(viewer: Viewer, cached_as: str) -> str:
    """The name under which a list is cached for callers that see the same: by the grants and the same subjects."""
    if not cached_as:
        return ""
    subjects = hashlib.sha256("\n".join(sorted(viewer.subjects)).encode()).hexdigest()
    return f"{cached_as} for {subjects} and {viewer.is_owner} {viewer.held} at {viewer.authority.version}"


def _visible_to(viewer: Viewer, accepts: Accepts) -> Accepts:
    """Admits what `accepts` admits and the viewer may see.

    All entries that have neither an own grant nor an owner among the subjects share one decision by their kind. In a
    long list that shows few of its entries, most of them end there.
    """
    granted, subjects = viewer.objects, viewer.subjects
    hidden = {kind for kind, type_ in TYPES.items() if viewer.hides(type_)}

    def is_listed(entry: Entry) -> bool:
        id_ = entry.object_id or entry.uuid
        if entry.kind in hidden and id_ not in granted and entry.owner_id not in subjects:
            return False
        return accepts(entry) and viewer.sees(Link(id_, TYPES[entry.kind], entry.name, entry.owner_id))

    return is_listed


def _listed_versions(lake: Lake, scope: Scope) -> tuple[Version | None, ...]:
    """The versions of the grants, of the index and of its namespace that this process saw last."""
    if lake.access is None and lake.names is None:
        return ()
    grants, index = lake.security().last_seen, lake.index(scope).last_seen
    home = lake.namespace(scope.namespace).last_seen if scope.levels and lake.names else None
    return tuple(held.version if held else None for held in (grants, index, home))


async def list_names(
    lake: Lake, namespace: Namespace, *, kind: Kind, page_token: str | None, page_size: int | None
) -> Page[Entry]:
    """List the names of one kind in a namespace; NotFound if the namespace does not exist."""
    find_container = partial(find_namespace, lake, namespace)
    return await list_entries(lake, names_scope(namespace), kind, page_token, page_size, find_container)


async def find_namespace(lake: Lake, namespace: Namespace) -> Container:
    """The namespace as the container of a list; NotFound if it does not exist."""
    missing = namespace_not_found(namespace)
    found = await resolve_namespace(lake, namespace)
    if found is None:
        raise missing
    namespace_id = found.value.id
    return Container(
        lambda authority: namespace_chain(lake, authority, namespace, namespace_id, missing=missing), missing
    )


async def list_entries(
    lake: Lake,
    scope: Scope,
    kind: str,
    page_token: str | None,
    page_size: int | None,
    find_container: FindContainer,
) -> Page[Entry]:
    """One page of what an Iceberg client lists. Without a token: everything; with an empty token: the first page.

    Page size and token are checked before anything is read.
    """
    subject, size = (lake.layout.root, kind, scope.text), checked_page_size(page_size)
    wanted = None if page_token is None else size
    last = decode_page_token(page_token, subject) if page_token else None

    def accepts(entry: Entry) -> bool:
        # An Iceberg client cannot load a table or view of another format.
        return entry.kind == kind and (entry.kind not in {"table", "view"} or entry.format == "iceberg")

    page = await read_visible_page(
        lake, scope, find_container, last=last, wanted=wanted, accepts=accepts, cached_as=kind
    )
    return Page(page.entries, None if page.next_last is None else encode_page_token(subject, page.next_last))
