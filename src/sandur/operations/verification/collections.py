"""The checks of what spans several objects: indexes, grants, the feed and its readers, published files, locations."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.event_feed.subscriptions import DeliveryCursor, Subscription
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import CATALOGS, Entry, Mark, Scope, names_scope, namespaces_scope
from sandur.catalog.location_claims import Holder, LocationClaim
from sandur.catalog.locations import Address
from sandur.catalog.records import Catalog
from sandur.catalog.security.manifest import SecurityManifest, SecuritySegment
from sandur.catalog.verification.findings import Finding, finding, in_flight
from sandur.catalog.verification.places import Overlap, Overlaps
from sandur.errors import Damaged
from sandur.operations.feed import FEED, RECEIPTS, STATE, TRIM, FeedState, TrimMark
from sandur.operations.feed import Entry as FeedEntry
from sandur.operations.index.rebuild import Broken, read_manifest, read_segments
from sandur.operations.index.truth import list_keys, list_written_names
from sandur.operations.lake import Lake
from sandur.operations.locations.owners import catalog_places, has_location
from sandur.operations.published import CoreManifest, CorePointer
from sandur.operations.tables.names import catalog_exists, resolve_name, resolve_namespace
from sandur.operations.verification.objects import check_record, is_stale, read_record
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import list_pages, portions
from sandur.storage.layout import LOCATION_CLAIMS, Layout, parse_location_claim
from sandur.storage.record_form import decode_record

READS_AT_ONCE: Final = 64
NAMES_AT_ONCE: Final = 1_000

Truth = Mapping[str, tuple[str, str]]
"""The uuid and the kind of everything that exists in a scope, by its name."""


async def list_scopes(lake: Lake) -> AsyncIterator[Scope]:
    """The scopes of all indexes that readers may need."""
    yield CATALOGS
    async for key in list_keys(lake, lake.layout.catalogs_folder()):
        catalog = lake.layout.parse_catalog(key)
        yield namespaces_scope(catalog, None)
        async for namespace_key in list_keys(lake, lake.layout.namespaces_folder(catalog)):
            namespace = lake.layout.parse_namespace(namespace_key)
            yield namespaces_scope(catalog, namespace)
            yield names_scope(namespace)


async def check_index(lake: Lake, scope: Scope) -> Sequence[Finding]:
    """I1, I2: an index lists what exists and nothing else, except where a mark says that it may be wrong."""
    key = lake.layout.list_index(scope)
    entries = await _entries(lake, scope)
    if entries is None:
        return []  # Without an index, lists read the names; the next one builds it.
    if isinstance(entries, Broken):
        return [finding("index-unreadable", key, expected="a whole index", found="it cannot be used")]
    truth = await _truth(lake, scope)
    listed = {entry.name: (entry.uuid, entry.kind) for entry in entries}
    different = sorted(name for name in {*truth, *listed} if truth.get(name) != listed.get(name))
    marked = await _marked(lake, scope) if different else frozenset()
    return [
        in_flight(key, f"a mark for {name}", is_stale=False)
        if name in marked
        else _entry_finding(key, name, truth.get(name), listed.get(name))
        for name in different
    ]


def _entry_finding(key: str, name: str, true: tuple[str, str] | None, listed: tuple[str, str] | None) -> Finding:
    expected = f"{true[1]} {name} with the uuid {true[0]}" if true else f"no entry of {name}"
    found = f"{listed[1]} {name} with the uuid {listed[0]}" if listed else "no entry"
    kind = "index-misses-entry" if listed is None else "index-has-another-entry"
    return finding(kind, key, expected=expected, found=found)


async def _entries(lake: Lake, scope: Scope) -> Sequence[Entry] | Broken | None:
    manifest = await read_manifest(lake, scope)
    if manifest is None or isinstance(manifest, Broken):
        return manifest
    parts = await read_segments(lake, scope, [ref.id for ref in manifest.value.segments])
    entries = list(manifest.value.entries)
    for part in parts.values():
        if part is None or isinstance(part, Broken):
            return Broken(manifest.version)
        entries += part.value.entries
    return entries


async def _truth(lake: Lake, scope: Scope) -> Truth:
    truth: dict[str, tuple[str, str]] = {}
    for some in portions(await list_written_names(lake, scope), NAMES_AT_ONCE):
        found = await gather_in_batches(some, lambda name: _existing(lake, scope, name), at_once=READS_AT_ONCE)
        truth.update({name: one for name, one in zip(some, found, strict=True) if one})
    return truth


async def _existing(lake: Lake, scope: Scope, name: str) -> tuple[str, str] | None:
    match scope.collection:
        case "catalogs":
            catalog = await read_record(lake, lake.layout.catalog(name), Catalog)
            return (catalog.id, "catalog") if catalog and catalog_exists(catalog) else None
        case "schemas":
            namespace = await resolve_namespace(lake, Namespace(scope.catalog, (*scope.levels, name)))
            return (namespace.value.id, "namespace") if namespace else None
        case "tables":
            found = await resolve_name(lake, Identifier(scope.catalog, scope.levels, name))
            return (found.uuid, found.name.value.kind) if found else None


async def _marked(lake: Lake, scope: Scope) -> frozenset[str]:
    """The names that the marks of a scope say may be wrong."""
    names = set()
    async for key in list_keys(lake, lake.layout.marks_folder(scope.hash)):
        if stored := await lake.store.get(key):
            names.add(decode_record(key, stored.data, Mark).name)
    return frozenset(names)


async def check_marks(lake: Lake) -> AsyncIterator[Finding]:
    """I1: a mark is removed once the index is right."""
    async for page in list_pages(lake.store, lake.layout.marks_folder()):
        for listed in page:
            yield in_flight(listed.key, "a mark", is_stale=is_stale(lake, listed), kind="stale-mark")


async def check_grants(lake: Lake) -> AsyncIterator[Finding]:
    """A14: the manifest names segments that exist. The registry of storage can be decoded."""
    for key, kind in (
        (lake.layout.security_manifest(), SecurityManifest),
        (lake.layout.storage_registry(), StorageRegistry),
    ):
        if listed := await lake.store.head(key):
            for problem in await check_record(lake, listed, kind=kind):
                if isinstance(problem, Finding):
                    yield problem
    manifest = await read_record(lake, lake.layout.security_manifest(), SecurityManifest)
    for shard, segment_id in sorted(manifest.segments.items()) if manifest else ():
        key = lake.layout.security_segment(segment_id)
        stored = await lake.store.get(key)
        if stored is None:
            expected = f"the segment of {shard}, which the manifest names"
            yield finding("segment-missing", key, expected=expected, found="no object")
            continue
        try:
            decode_record(key, stored.data, SecuritySegment)
        except Damaged as error:
            yield finding("segment-unreadable", key, expected=f"the segment of {shard}", found=error.reason)


async def check_feed(lake: Lake) -> AsyncIterator[Finding]:
    """F1: the entries behind the trim mark have consecutive numbers; cursors do not lie behind the last one."""
    layout = lake.layout
    mark = await read_record(lake, layout.operational(RECEIPTS.name, TRIM), TrimMark) or TrimMark()
    state = await read_record(lake, layout.operational(RECEIPTS.name, STATE), FeedState) or FeedState()
    last = mark.trimmed
    async for key in list_keys(lake, layout.operational_folder(FEED)):
        name = key.rpartition("/")[2].removesuffix(".json")
        if not name.isdigit() or int(name) <= mark.trimmed:
            continue
        if int(name) != last + 1:
            yield finding("feed-gap", key, expected=f"entry {last + 1} before it", found="no entry")
        last = int(name)
        stored = await lake.store.get(key)
        try:
            if stored:
                decode_record(key, stored.data, FeedEntry)
        except Damaged as error:
            if last not in state.damaged:
                yield finding("feed-unreadable", key, expected="an entry", found=error.reason)
    async for problem in _check_cursors(lake, max(last, state.sequence)):
        yield problem


async def _check_cursors(lake: Lake, last: int) -> AsyncIterator[Finding]:
    layout = lake.layout
    async for page in list_pages(lake.store, layout.deliveries_folder()):
        for listed in page:
            subscription = layout.parse_delivery(listed.key)
            if await lake.store.head(layout.subscription(subscription)) is None:
                what = f"the subscription {subscription} does not exist"
                yield in_flight(listed.key, what, is_stale=is_stale(lake, listed), kind="cursor-without-subscription")
            elif listed.key == layout.delivery_cursor(subscription):
                cursor = await read_record(lake, listed.key, DeliveryCursor)
                if cursor and cursor.position.entry > last + 1:
                    expected, found = f"a position up to entry {last + 1}", f"entry {cursor.position.entry}"
                    yield finding("cursor-beyond-feed", listed.key, expected=expected, found=found)
    async for page in list_pages(lake.store, layout.subscriptions_folder()):
        for listed in page:
            for one in await check_record(lake, listed, kind=Subscription):
                if isinstance(one, Finding):
                    yield one


async def check_published(lake: Lake) -> AsyncIterator[Finding]:
    """The published manifest and every file that it names exist, with the sizes that it names."""
    key = lake.layout.core_manifest()
    pointer = await read_record(lake, key, CorePointer)
    if pointer is None:
        return
    stored = await lake.store.get(pointer.manifest)
    if stored is None:
        yield finding("dataset-missing", key, expected=f"the manifest {pointer.manifest}", found="no object")
        return
    manifest = decode_record(pointer.manifest, stored.data, CoreManifest)
    for name, dataset in manifest.datasets.items():
        for file in dataset.files:
            found = await lake.store.head(file.key)
            if found is None:
                yield finding("dataset-missing", file.key, expected=f"a file of {name}", found="no object")
            elif found.size_bytes != file.size_bytes:
                expected, size = f"{file.size_bytes} bytes of {name}", f"{found.size_bytes} bytes"
                yield finding("dataset-file-differs", file.key, expected=expected, found=size)


async def check_locations(lake: Lake) -> AsyncIterator[Finding]:
    """P5: no two living owners overlap. The owner's record decides whether it lives (P6)."""
    overlaps = Overlaps()
    async for page in list_pages(lake.store, LOCATION_CLAIMS):
        for listed in page:
            claim = await read_record(lake, listed.key, LocationClaim)
            if claim is None:
                continue
            address = parse_location_claim(listed.key)
            if is_stale(lake, listed) and not any([await _lives(lake, one, address) for one in claim.holders]):
                what = "a claim of an owner that does not have the place"
                yield in_flight(listed.key, what, is_stale=True, kind="stale-claim")
            for overlap in overlaps.add(address, claim):
                if await _is_real(lake, overlap):
                    found = f"{overlap.outer.what} {overlap.outer.owner} and {overlap.inner.what} {overlap.inner.owner}"
                    yield finding("places-overlap", listed.key, expected="one living owner", found=found)


async def _is_real(lake: Lake, overlap: Overlap) -> bool:
    outer = await _lives(lake, overlap.outer, overlap.outer_address)
    return outer and await _lives(lake, overlap.inner, overlap.inner_address)


async def _lives(lake: Lake, holder: Holder, address: Address) -> bool:
    """Whether the record of an owner has the place, or may still get it."""
    owner, place = holder.owner, str(address)
    there = lake.in_workspace(Layout(owner.tenant, owner.workspace))
    match owner.record:
        case "catalog":
            catalog = await read_record(there, there.layout.catalog(owner.name), Catalog)
            return catalog is not None and catalog_exists(catalog) and place in catalog_places(catalog)
        case "external":
            registry = await read_record(there, there.layout.storage_registry(), StorageRegistry)
            return registry is not None and has_location(registry, owner.uuid, place)
        case "iceberg" | "delta" | "unity":
            found = await there.bound_record(owner.uuid, owner.record).read()
            return found is not None and found.value.state not in {"dropped", "killed"} and place in found.value.places
