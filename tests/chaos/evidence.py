"""The content of the store at the end: the history of every table, from its head back to its creation."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Mark, names_scope
from sandur.catalog.records import Pointer
from sandur.operations.index.truth import list_keys, list_written_names, read_entries
from sandur.operations.index.update import update_entry
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipt
from sandur.operations.tables.documents import request_part_of
from sandur.operations.transactions import resolution
from sandur.storage.cell import Versioned, gather_all
from tests.chaos.clients import PAIR
from tests.chaos.world import LAST, MADE_BY, MARKER, OWN

T = TypeVar("T")

_READS_AT_ONCE = 32


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    summary: dict[str, str]


class _Metadata(msgspec.Struct, rename="kebab"):
    table_uuid: str
    properties: dict[str, str] = {}
    snapshots: list[_Snapshot] = []


@dataclass(frozen=True)
class Step:
    """A metadata file that was the head of a table, and the requests whose traces are new in it.

    `request_hash` is equal for two files if the same request made both.
    """

    location: str
    request_hash: str
    markers: frozenset[str]
    pair: str


@dataclass(frozen=True)
class History:
    """All states of a table, oldest first. `is_whole`: no receipt is missing, also not that of the head."""

    uuid: str
    is_live: bool
    dropped_by: str
    made_by: str
    steps: Sequence[Step]
    is_whole: bool


@dataclass(frozen=True)
class Evidence:
    """The evidence for the judge. `names` are all names that exist, with their uuids."""

    histories: Sequence[History]
    names: Mapping[Identifier, str]
    wrong: Sequence[str]


async def gather_evidence(lake: Lake, namespaces: Sequence[Namespace]) -> Evidence:
    receipts = await _receipts(lake)
    wrong: list[str] = []
    histories = []
    async for pointer in _pointers(lake):
        known = receipts.pop(pointer.value.table_uuid, {})
        if pointer.value.state in {"live", "dropped"}:
            histories.append(await _history(lake, pointer.value, known, wrong))
        elif known:
            wrong.append(f"{pointer.value.uuid}: {pointer.value.state}, and has {len(known)} receipts")
    wrong += [f"{uuid}: receipts without a pointer" for uuid in receipts]
    return Evidence(histories, await visible_names(lake, namespaces), wrong)


async def process_marks(lake: Lake) -> None:
    """Do the janitor's work on the marks of dead operations (I1), without waiting until they are old."""
    keys = [key async for key in list_keys(lake, lake.layout.marks_folder())]
    for key in keys:
        stored = await lake.store.get(key)
        assert stored is not None
        mark = msgspec.json.decode(stored.data, type=Mark)
        await update_entry(lake, mark.place, mark.uuid)


async def _receipts(lake: Lake) -> dict[str, dict[str, Receipt]]:
    """The receipts of Iceberg commits by table and file. A second receipt of a file would be under another date."""
    found: dict[str, dict[str, Receipt]] = {}
    listed = [key async for key in list_keys(lake, lake.layout.events_folder())]
    keys = [key for key in listed if lake.layout.parse_receipt(key).family == "iceberg"]
    for some in _batches(keys):
        for stored in await gather_all(map(lake.store.get, some)):
            assert stored is not None
            receipt = msgspec.json.decode(stored.data, type=Receipt)
            of_table = found.setdefault(receipt.table_uuid, {})
            assert receipt.metadata_location not in of_table, f"{receipt.metadata_location} has two receipts"
            of_table[receipt.metadata_location] = receipt
    return found


async def _pointers(lake: Lake) -> AsyncIterator[Versioned[Pointer]]:
    keys = [key async for key in list_keys(lake, lake.layout.pointers_folder())]
    for key in keys:
        pointer = await lake.pointer(lake.layout.parse_pointer(key)).read()
        assert pointer is not None
        yield await resolution.effective_pointer(lake, pointer)


async def _history(lake: Lake, pointer: Pointer, receipts: dict[str, Receipt], wrong: list[str]) -> History:
    """C5: follow the receipts from the head back; a receipt outside this chain is a problem."""
    head = pointer.head
    assert head is not None, pointer
    is_whole = head.metadata_location in receipts
    locations = [head.metadata_location]
    receipts.pop(head.metadata_location, None)
    before = head.previous_metadata_location
    while before is not None:
        locations.append(before)
        receipt = receipts.pop(before, None)
        if receipt is None:
            wrong.append(f"{pointer.uuid}: {before} was the head and has no receipt")
            break
        before = receipt.previous_metadata_location
    wrong += [f"{pointer.uuid}: {location} has a receipt and is not in the chain" for location in receipts]
    steps, made_by = await _steps(lake, locations[::-1], wrong)
    return History(
        uuid=pointer.uuid,
        is_live=pointer.state == "live",
        dropped_by=pointer.by if pointer.state == "dropped" else "",
        made_by=made_by,
        steps=steps,
        is_whole=is_whole,
    )


async def _steps(lake: Lake, locations: Sequence[str], wrong: list[str]) -> tuple[Sequence[Step], str]:
    steps: list[Step] = []
    before = _Metadata(table_uuid="")
    made_by = ""
    for some in _batches(locations):
        for location, data in zip(some, await gather_all(map(lake.locations.read, some)), strict=True):
            if data is None:
                wrong.append(f"{location} was the head, and the file is gone")
                continue
            metadata = msgspec.json.decode(data, type=_Metadata)
            made_by = made_by or metadata.properties.get(MADE_BY, "")
            pair = metadata.properties.get(PAIR, "")
            steps.append(Step(location, request_part_of(location), _new_in(metadata, before), pair))
            before = metadata
    return steps, made_by


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _READS_AT_ONCE):
        yield items[start : start + _READS_AT_ONCE]


def _new_in(metadata: _Metadata, before: _Metadata) -> frozenset[str]:
    """The requests whose traces are new in this file, or have reappeared."""
    snapshots = {snapshot.snapshot_id for snapshot in before.snapshots}
    added = {one.summary[MARKER] for one in metadata.snapshots if one.snapshot_id not in snapshots}
    changed = {name: value for name, value in metadata.properties.items() if before.properties.get(name) != value}
    written = {value for name, value in changed.items() if name in {LAST, MADE_BY, PAIR}}
    return frozenset(added | written | {name.removeprefix(OWN) for name in changed if name.startswith(OWN)})


async def visible_names(lake: Lake, namespaces: Sequence[Namespace]) -> Mapping[Identifier, str]:
    """All names that exist, each looked up by itself, with their uuids."""
    names_found: dict[Identifier, str] = {}
    for namespace in namespaces:
        scope = names_scope(namespace)
        truth = await read_entries(lake, scope, await list_written_names(lake, scope))
        names_found |= {Identifier(*namespace, name): entry.uuid for name, entry in truth.items() if entry}
    return names_found
