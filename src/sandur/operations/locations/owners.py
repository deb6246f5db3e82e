"""Whether the owner of a location claim lives (P6), and how it is kept from ever having the place (P7).

The record of the owner decides, never the claim.
"""

from typing import Literal, assert_never

from msgspec.structs import replace

from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.identifiers import Kind
from sandur.catalog.location_claims import Owner, Seen
from sandur.catalog.locations import canonical_address
from sandur.catalog.records import BoundRecord, Catalog, DeltaTable, Pointer, Securable, drop_of
from sandur.errors import Invalid
from sandur.operations.lake import Lake
from sandur.operations.tables.names import catalog_exists, settle_name, take_back
from sandur.operations.transactions.resolution import abort_pending, effective_record
from sandur.storage.cell import Attempts, Cell, Versioned
from sandur.storage.contract import ABSENT, list_all
from sandur.storage.layout import Layout

Standing = Literal["lives", "purging", "staged", "open", "over"]
"""How an owner stands to a place (P6).

`lives`: it has the place. `purging`: it was dropped, and its files wait for deletion. `staged`: a stage reserves the
place until it expires. `open`: it may yet get the place. `over`: it never will.
"""


async def standing_of(lake: Lake, seen: Seen) -> Standing:
    """P6. A creation whose name exists is bound first, so that a refusal because of it is final (G3)."""
    owner, place = seen.holder.owner, str(seen.address)
    there = lake.in_workspace(Layout(owner.tenant, owner.workspace))
    match owner.record:
        case "catalog":
            return await _catalog_standing(there, owner, place)
        case "external":
            found = await there.storage_registry().read()
            return "lives" if found and has_location(found.value, owner.uuid, place) else "open"
        case "iceberg" | "delta" | "unity":
            return await _record_standing(there, owner, place)
    assert_never(owner.record)


async def _record_standing(lake: Lake, owner: Owner, place: str) -> Standing:
    found = await _record_cell(lake, owner).read()
    if found is None:
        return "staged" if await _is_staged(lake, owner) else "open"
    record = (await effective_record(lake, found)).value
    match record.state:
        case "killed":
            return "over"
        case "dropped" | "purging":
            return "purging" if await has_open_order(lake, record) else "over"
        case "live":
            return "lives" if place in record.places else "open"
        case "unbound" | "condemned":
            is_named = await _is_named(lake, record)
            return "lives" if is_named and place in record.places else "open"
    assert_never(record.state)


async def _is_named(lake: Lake, record: BoundRecord) -> bool:
    """Whether the first name of a record leads to it; if it does, the record is bound now (N7)."""
    live = (await settle_name(lake, record.made_for)).live if record.made_for else None
    return live is not None and live.uuid == record.uuid


async def _is_staged(lake: Lake, owner: Owner) -> bool:
    if owner.identifier is None or owner.record != "iceberg":
        return False
    stage = await lake.stage(owner.identifier, owner.uuid).read()
    return stage is not None and stage.value.expires_ms > lake.clock.now_ms()


async def has_open_order(lake: Lake, dropped: BoundRecord) -> bool:
    """Whether the files of a dropped table wait for deletion."""
    if dropped.is_ended:
        return False
    order = await lake.purge_order(dropped.table_uuid, drop_of(dropped)).read()
    return order is not None and not order.value.blocked


async def _catalog_standing(lake: Lake, owner: Owner, place: str) -> Standing:
    found = await lake.catalog(owner.name).read()
    if found is None:
        return "open"
    if found.value.id == owner.uuid and catalog_exists(found.value):
        return "lives" if place in catalog_places(found.value) else "open"
    if await has_orders_of(lake, owner.name):
        return "purging"
    return "over" if found.value.id == owner.uuid else "open"


def catalog_places(catalog: Catalog) -> tuple[str, ...]:
    """The addresses of a catalog's roots: its own, and those of its namespaces."""
    return (str(canonical_address(catalog.root)), *catalog.places) if catalog.root else catalog.places


async def has_orders_of(lake: Lake, catalog: str) -> bool:
    """P12: whether files of a catalog's tables wait for deletion; until then its roots stay claimed."""
    for listed in await list_all(lake.store, lake.layout.purge_orders_folder()):
        order = await lake.purge_order(*lake.layout.parse_purge_order(listed.key)).read()
        if order and not order.value.blocked and order.value.identifier.catalog == catalog:
            return True
    return False


def has_location(registry: StorageRegistry, location_id: str, place: str) -> bool:
    """Whether an external location of that id is at the place."""
    return any(one.id == location_id and _address_text(one.url) == place for one in registry.locations.values())


def _address_text(url: str) -> str:
    try:
        return str(canonical_address(url))
    except Invalid:  # An older one; it has no claim.
        return ""


async def fence(lake: Lake, seen: Seen) -> bool:
    """P7: True once the owner does not have the place and no attempt of it can get it; False if it has it."""
    owner, place = seen.holder.owner, str(seen.address)
    there = lake.in_workspace(Layout(owner.tenant, owner.workspace))
    match owner.record:
        case "catalog":
            return await _fence_catalog(there, owner, place)
        case "external":
            return await _fence_external(there, owner, place)
        case "iceberg" | "delta" | "unity":
            return await _fence_record(there, owner, place)
    assert_never(owner.record)


async def _fence_record(lake: Lake, owner: Owner, place: str) -> bool:
    cell = _record_cell(lake, owner)
    async for _ in Attempts(lake.clock):
        found = await cell.read()
        if found is None:
            if await cell.try_swap(_killed(owner), expected=ABSENT):
                return True
            continue
        fenced = await _fence_found(lake, cell, found, place)
        if fenced is not None:
            return fenced
    return False


async def _fence_found(lake: Lake, cell: Cell[BoundRecord], found: Versioned[BoundRecord], place: str) -> bool | None:
    """One try of `_fence_record` on a record that exists; None if a swap was lost."""
    record = found.value
    match record.state:
        case "killed":
            return True
        case "dropped" | "purging":
            if await has_open_order(lake, record):
                return False
            return True if await cell.try_swap(record, expected=found.version) else None  # A bump.
        case "live":
            settled = (await abort_pending(lake, found)).value if _adds(record, place) else record
            if place in settled.places:
                return False
            return True if await cell.try_swap(record, expected=found.version) else None
        case "unbound" | "condemned":
            over = await kill_orphan(lake, cell, found)
            return None if over and record.life else over  # A half-done undrop is dropped now: see above.
    assert_never(record.state)


def _adds(record: BoundRecord, place: str) -> bool:
    """Whether a transaction is about to give the record the place; it is aborted (T5), unless it has committed."""
    return isinstance(record, Pointer) and record.pending is not None and place in record.pending.places


async def kill_orphan(lake: Lake, cell: Cell[BoundRecord], found: Versioned[BoundRecord]) -> bool | None:
    """GC2: mark, look at the name, act. A mark of another request will do, if the name is read after it.

    False if the name leads to the record, None if a swap was lost. A half-done undrop is taken back (U5).
    """
    if found.value.life:
        return await take_back(lake, cell, found)
    marked: Versioned[BoundRecord] | None = found
    if found.value.state != "condemned":
        marked = await cell.try_swap(replace(found.value, state="condemned"), expected=found.version)
    if marked is None:
        return None
    if await _is_named(lake, marked.value):
        return False
    return True if await cell.try_swap(replace(marked.value, state="killed"), expected=marked.version) else None


async def _fence_catalog(lake: Lake, owner: Owner, place: str) -> bool:
    cell = lake.catalog(owner.name)
    async for _ in Attempts(lake.clock):
        found = await cell.read()
        if found and catalog_exists(found.value):
            if found.value.id != owner.uuid:
                return True
            if place in catalog_places(found.value):
                return False
        bumped = found.value if found else Catalog(name=owner.name, id=owner.uuid, root="", state="dropped")
        if await cell.try_swap(bumped, expected=found.version if found else ABSENT):
            return True
    return False


async def _fence_external(lake: Lake, owner: Owner, place: str) -> bool:
    cell = lake.storage_registry()
    async for _ in Attempts(lake.clock):
        found = await cell.read()
        if found and has_location(found.value, owner.uuid, place):
            return False
        bumped = found.value if found else StorageRegistry()
        if await cell.try_swap(bumped, expected=found.version if found else ABSENT):
            return True
    return False


def _record_cell(lake: Lake, owner: Owner) -> Cell[BoundRecord]:
    match owner.record:
        case "iceberg" | "delta" | "unity":
            return lake.bound_record(owner.uuid, owner.record)
        case _:
            raise Invalid(f"{owner}: a {owner.record} has no record of its own")


def _killed(owner: Owner) -> BoundRecord:
    """The record of a creation that was fenced before it wrote one."""
    kind: Kind = "volume" if owner.record == "unity" else "table"
    match owner.record:
        case "delta":
            made: BoundRecord = DeltaTable(uuid=owner.uuid, table_uuid=owner.uuid, state="killed", kind=kind)
        case "unity":
            made = Securable(uuid=owner.uuid, table_uuid=owner.uuid, state="killed", kind=kind)
        case _:
            made = Pointer(uuid=owner.uuid, table_uuid=owner.uuid, state="killed", kind=kind)
    return replace(made, made_for=owner.identifier)
