"""The invariants of the catalog's events: one chain per object without holes, which replays to what loads show."""

import copy
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.errors import Busy, SwapLost
from sandur.operations.janitors.events import EVENT_FOLDERS, EVENT_KEYS, ensure_events
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipt, catalog_receipt_key
from sandur.operations.tables.names import catalog_exists, resolve_name, resolve_namespace
from sandur.storage.contract import ObjectStore, list_all
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock

Names = Mapping[str, Identifier | None]
"""The name of every object that exists, by its id."""

RECONCILES_MAX: Final = 3
_NAMED: Final = frozenset({"table", "view", "volume", "function", "model"})
_STALE_MS: Final = 3_600_000
_checked: Final[set[int]] = set()


async def all_events(lake: Lake) -> Sequence[CatalogReceipt]:
    """The receipts of all events; asserts that key and bytes of each follow from its content (E1)."""
    events = []
    for listed in await list_all(lake.store, lake.layout.events_folder()):
        if lake.layout.parse_receipt(listed.key).family != "catalog":
            continue
        found = await lake.store.get(listed.key)
        assert found is not None
        event = msgspec.json.decode(found.data, type=CatalogReceipt)
        assert catalog_receipt_key(lake.layout, event) == listed.key
        events.append(event)
    return events


async def check_events(lake: Lake) -> None:
    """Assert that no chain has a hole now, and that after a repair the chains replay to what loads show.

    The repair is done on a copy of the store, so that the check changes nothing.
    """
    if not isinstance(lake.store, MemoryStore) or not isinstance(lake.clock, FixedClock):
        check_holes(await all_events(lake))
        return
    state = hash(frozenset((key, stored.data) for key, (stored, _) in lake.store._objects.items()))
    if state not in _checked:  # Many crash points leave the same store.
        check_holes(await all_events(lake))
        await check_replay(await reconciled(lake, lake.store, lake.clock))
        _checked.add(state)


def check_holes(events: Sequence[CatalogReceipt]) -> None:
    keys = {event.commit_key for event in events}
    holes = [event for event in events if event.previous_commit_key and event.previous_commit_key not in keys]
    assert not holes, f"events whose predecessor has no receipt: {holes}"


async def reconciled(lake: Lake, store: MemoryStore, clock: FixedClock) -> Lake:
    """A copy of the lake after the reconciler has visited every record."""
    ticking = copy.deepcopy(clock)
    twin = MemoryStore(clock=ticking)
    twin._objects, twin._sorted_keys, twin._writes = dict(store._objects), list(store._sorted_keys), store._writes
    repaired = on_store(lake, twin, ticking)
    ticking.advance(_STALE_MS)  # Transactions in progress are stale.
    await reconcile(repaired)
    return repaired


def on_store(lake: Lake, store: ObjectStore, clock: FixedClock) -> Lake:
    return Lake(
        store=store,
        layout=lake.layout,
        clock=clock,
        settings=lake.settings,
        locations=lake.locations,
        form=lake.form,
    )


async def reconcile(lake: Lake) -> None:
    """Visit every record with events, as the job does; a record that changed is visited again."""
    keys = [key async for key in _keys(lake)]
    for _ in range(RECONCILES_MAX):
        left = []
        for key in keys:
            try:
                assert await ensure_events(lake, key)
            except (Busy, SwapLost):
                left.append(key)
        if not left:
            return
        keys = left
    raise AssertionError(f"cannot be reconciled: {keys}")


async def _keys(lake: Lake) -> AsyncIterator[str]:
    for folder in EVENT_FOLDERS:
        for listed in await list_all(lake.store, folder(lake.layout)):
            yield listed.key
    for key in EVENT_KEYS:
        if await lake.store.head(key(lake.layout)):
            yield key(lake.layout)


async def check_replay(lake: Lake) -> None:
    """Assert that every object has one chain, and that the chains tell exactly what loads show."""
    events = await all_events(lake)
    check_holes(events)
    by_object: dict[str, list[CatalogReceipt]] = defaultdict(list)
    for event in events:
        by_object[event.object_id].append(event)
    lives: dict[str, Identifier | None] = {}
    for object_id, own in by_object.items():
        is_named = own[0].object_type in _NAMED
        life = ordered([event for event in own if not is_named or event.kind != "changed"])
        ordered([event for event in own if is_named and event.kind == "changed"])
        is_there = False
        for event in life:
            begins = event.kind in {"created", "adopted", "undropped"}
            assert is_there != begins, f"{event.kind} cannot follow: {life}"
            is_there = event.kind != "dropped"
        if is_there and own[0].object_type in _NAMED | {"catalog", "namespace"}:
            lives[object_id] = life[-1].identifier
    shown = await visible_objects(lake)
    assert lives == shown, f"receipts say {lives}, names show {shown}"


def ordered(events: Sequence[CatalogReceipt]) -> Sequence[CatalogReceipt]:
    """The events of a chain from its first one on; asserts that it has no fork and no hole."""
    after = {event.previous_commit_key: event for event in events}
    assert len(after) == len(events), f"two events follow the same one: {events}"
    chain: list[CatalogReceipt] = []
    key: str | None = None
    while key in after:
        chain.append(after[key])
        key = after[key].commit_key
    assert len(chain) == len(events), f"events that no chain leads to: {events}"
    assert [event.committed_at_ms for event in chain] == sorted(event.committed_at_ms for event in chain)
    return chain


async def visible_objects(lake: Lake) -> Names:
    """What loads show: every catalog, namespace and name that exists."""
    shown: dict[str, Identifier | None] = {}
    layout = lake.layout
    for listed in await list_all(lake.store, layout.catalogs_folder()):
        catalog = await lake.catalog(layout.parse_catalog(listed.key)).read()
        if catalog and catalog_exists(catalog.value):
            shown[catalog.value.id] = Identifier(catalog.value.name, (), "")
    for listed in await list_all(lake.store, layout.all_namespaces_folder()):
        namespace = layout.parse_namespace(listed.key)
        if found := await resolve_namespace(lake, namespace):
            shown[found.value.id] = Identifier(*namespace, "")
    for listed in await list_all(lake.store, layout.all_names_folder()):
        identifier = layout.parse_name(listed.key)
        if named := await resolve_name(lake, identifier):
            shown[named.uuid] = identifier
    return shown
