"""Overlaps: no table or view lies at, below or above a volume or a model, and the reverse.

O1: a creation at a location that the client chose writes its record first and looks for the others afterwards, before
its name makes it visible. Of two creations at the same moment, at least one finds the other.
O2: where the catalog chose the location, which ends in the uuid, a table looks before it writes. This saves a round. A
volume above it that is created at the same moment can be missed; a purge does not miss it, so that no file is lost.
O3: a purge looks for volumes after its order is due, a volume for orders after its record is written.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

from sandur.catalog.garbage import metadata_locations
from sandur.catalog.locations import Occupied, check_free, find_overlap, is_within, normalize_location, paths_of
from sandur.catalog.records import BoundRecord, DeltaTable, Pointer, PurgeOrder, Securable
from sandur.errors import Busy, NotFound, SandurError, Unavailable
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.lake import CELLS_MAX, Lake, LruCache
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.drop import is_drop_confirmed
from sandur.storage.cell import Versioned, decode_record
from sandur.storage.contract import get_many, list_all, list_pages

B = TypeVar("B", bound=BoundRecord)

Table = Pointer | DeltaTable
"""The records of tables and views with files."""

_ENDED = frozenset({"dropped", "killed"})


def places_of(metadata: TableMetadata | ViewMetadata) -> tuple[str, ...]:
    """The folders of a table or view: its location, and the paths in its properties; normalized, without duplicates."""
    return tuple(dict.fromkeys(map(normalize_location, (metadata.location, *paths_of(metadata.properties)))))


async def table_folders(lake: Lake, table: Table) -> tuple[str, ...]:
    """The normalized folders of a table; empty if its metadata file is missing. BadRequest if that is not readable."""
    if isinstance(table, DeltaTable):
        return (normalize_location(table.location),)
    try:
        return places_of((await load_head(lake, table.kind, table.head)).metadata) if table.head else ()
    except NotFound:
        return ()


def known_places(record: BoundRecord) -> Sequence[tuple[str, str]]:
    """Known files of a record, each with the folder that contains all files of the record, as far as it shows."""
    if isinstance(record, Pointer):
        files = map(normalize_location, metadata_locations(record))
        return [(file, file.rpartition("/")[0].removesuffix("/metadata")) for file in files]
    return [(normalize_location(record.location),) * 2] if record.location else []


def _securables_seen(_lake: Lake) -> LruCache[str, Versioned[Securable]]:
    """The volumes, functions and models that were read last, by key."""
    return LruCache(CELLS_MAX)


async def living_securables(lake: Lake, *, skips_damaged: bool = False) -> list[Securable]:
    """Every volume and model with a location that may exist; Unavailable if a record is damaged, unless it is skipped.

    One call lists them all; only those that have changed since the last call are read.
    """
    seen = lake.feature(_securables_seen)
    listed = await list_all(lake.store, lake.layout.securables_folder())
    current = {
        entry.key: held.value for entry in listed if (held := seen.get(entry.key)) and held.version == entry.version
    }
    missing = [entry.key for entry in listed if entry.key not in current]
    for key, stored in zip(missing, await get_many(lake.store, missing), strict=True):
        if stored is None:
            continue
        try:
            current[key] = decode_record(key, stored.data, Securable)
        except Unavailable:
            if not skips_damaged:
                raise
            continue
        seen[key] = Versioned(current[key], stored.version)
    return [record for record in current.values() if record.location and record.state not in _ENDED]


async def occupied_places(lake: Lake, *, skips_damaged: bool = True) -> list[Occupied]:
    """The locations of volumes and models, where no table may lie. A damaged record must not stop all creations."""
    records = await living_securables(lake, skips_damaged=skips_damaged)
    return [Occupied(normalize_location(record.location), describe_record(record)) for record in records]


async def check_places(lake: Lake, places: Iterable[str]) -> None:
    """Raise Invalid if a volume or model is at, below or above one of the places."""
    check_free(places, await occupied_places(lake))


async def find_table_overlap(lake: Lake, volume: Securable) -> SandurError | None:
    """The error if the location of a volume or model overlaps a table or view; None if it is free.

    Busy while the files of a dropped table there wait for deletion (O3). The record is written already: if a purge has
    not found it, its order is found here, or all its files are deleted. This reads the record of every table.
    """
    async for table in living_tables(lake):
        for _, folder in known_places(table):
            if error := find_overlap((volume.location,), (Occupied(folder, describe_record(table)),)):
                return error
    place = normalize_location(volume.location)
    for listed in await list_all(lake.store, lake.layout.purge_orders_folder()):
        order = await lake.purge_order(*lake.layout.parse_purge_order(listed.key)).read()
        if order and not order.value.blocked and await _is_purged_at(lake, order.value, place):
            dropped = order.value.identifier
            return Busy(f"Location {volume.location}: the files of the dropped table {dropped} are being purged there")
    return None


async def _is_purged_at(lake: Lake, order: PurgeOrder, place: str) -> bool:
    """Whether the files of the order overlap the place."""
    found = await lake.bound_record(order.uuid, order.format).read()
    if found is None or isinstance(found.value, Securable) or not await is_drop_confirmed(lake, order):
        return False
    folders = await table_folders(lake, found.value)
    return any(is_within(place, folder) or is_within(folder, place) for folder in folders)


async def living_tables(lake: Lake) -> AsyncIterator[Table]:
    """Every table and view that may exist, of both formats; Unavailable if a record is damaged."""
    async for pointer in _living(lake, lake.layout.pointers_folder(), Pointer):
        yield pointer
    async for table in _living(lake, lake.layout.delta_tables_folder(), DeltaTable):
        yield table


async def _living(lake: Lake, folder: str, kind: type[B]) -> AsyncIterator[B]:
    async for page in list_pages(lake.store, folder):
        stored = await get_many(lake.store, [entry.key for entry in page])
        for listed, found in zip(page, stored, strict=True):
            if found and (record := decode_record(listed.key, found.data, kind)).state not in _ENDED:
                yield record


def describe_record(record: BoundRecord) -> str:
    """The kind of a record with the name that it was created under; it may have been renamed since."""
    name = f"{record.made_for.catalog}.{record.made_for}" if record.made_for else record.uuid
    return f"{record.kind} {name}"
