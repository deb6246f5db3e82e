"""What objects of several folders must say together: one name for every table, one chain for every object."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import get_args

from sandur.catalog.records import BoundRecord, DeltaTable, NameRecord, Pointer, Securable
from sandur.catalog.verification.chains import Chains, Loose
from sandur.catalog.verification.findings import Finding, finding
from sandur.errors import Damaged, NewerRecord, SandurError
from sandur.operations.index.truth import list_keys
from sandur.operations.janitors.events import receipted_commits
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipt, DeltaReceipt, Receipt, delta_receipt_of, list_dates
from sandur.operations.tables.documents import TABLES, load_document
from sandur.operations.verification.objects import (
    CHECKS_AT_ONCE,
    LOOK_PAUSE_SECONDS,
    LOOKS_MAX,
    AnyReceipt,
    Checked,
    Fact,
    read_receipt,
    read_record,
    receipts_kept_from_ms,
)
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import list_pages
from sandur.storage.layout import EventFamily


class Joined:
    """The facts of single objects, joined: uuids of names, records that live, and chains."""

    def __init__(self) -> None:
        self._named: set[int] = set()
        self._perhaps: set[int] = set()
        self.suspects: set[str] = set()
        """The uuids that have no name, or more than one. Names are added before the records they lead to."""
        self.chains = Chains()

    def add(self, checked: Iterable[Checked]) -> Sequence[Finding]:
        """Take the facts; returns the findings."""
        findings: list[Finding] = []
        for one in checked:
            if isinstance(one, Finding):
                findings.append(one)
            else:
                self._join(one)
        return findings

    def _join(self, fact: Fact) -> None:
        uuid = hash(fact.value)
        match fact.what:
            case "named":
                if uuid in self._named:
                    self.suspects.add(fact.value)
                self._named.add(uuid)
            case "perhaps":
                self._perhaps.add(uuid)
            case "living":
                if uuid not in self._named and uuid not in self._perhaps:
                    self.suspects.add(fact.value)
            case "receipt":
                self.chains.add(fact.key, fact.value, fact.other or None)


async def settle_suspects(lake: Lake, suspects: Iterable[str]) -> AsyncIterator[Finding]:
    """The findings about uuids that seem to have no name or several: a rename may have passed the first look."""
    wanted = set(suspects)
    names: Mapping[str, Sequence[str]] = {}
    for look in range(LOOKS_MAX):
        if not wanted:
            return
        if look:
            await lake.clock.sleep(LOOK_PAUSE_SECONDS)
        names = await _names_of(lake, wanted)
        wrong = {uuid: keys for uuid in wanted if len(keys := names.get(uuid, ())) != 1}
        wanted = {uuid for uuid in wrong if len(wrong[uuid]) > 1 or await _living(lake, uuid)}
    for uuid in sorted(wanted):
        keys = names.get(uuid, ())
        if keys:
            yield finding("two-names", keys[1], expected=f"one name of {uuid}", found=" and ".join(keys))
        elif key := await _living(lake, uuid):
            yield finding("record-without-name", key, expected="a name that leads to it", found="no name")


async def _names_of(lake: Lake, uuids: set[str]) -> Mapping[str, Sequence[str]]:
    """The keys of the active names of some uuids; one that a rename moved is followed."""
    found: dict[str, list[str]] = {}

    async def look(key: str) -> tuple[str, NameRecord | None]:
        try:
            return key, await read_record(lake, key, NameRecord)
        except (Damaged, NewerRecord):  # It has a finding of its own.
            return key, None

    async for page in list_pages(lake.store, lake.layout.all_names_folder()):
        keys = [listed.key for listed in page]
        for key, name in await gather_in_batches(keys, look, at_once=CHECKS_AT_ONCE):
            if name is None or name.uuid not in uuids:
                continue
            if name.state == "moved" and name.other:
                key, name = await look(lake.layout.name(name.other))  # noqa: PLW2901 - where the rename led to
            if name and name.state not in {"free", "dropped", "moved"} and key not in found.setdefault(name.uuid, []):
                found[name.uuid].append(key)
    return found


async def _living(lake: Lake, uuid: str) -> str | None:
    """The key of a record that lives under that uuid."""
    layout = lake.layout
    kinds: Mapping[str, type[BoundRecord]] = {
        layout.pointer(uuid): Pointer,
        layout.delta_table(uuid): DeltaTable,
        layout.securable(uuid): Securable,
    }
    for key, kind in kinds.items():
        record = await read_record(lake, key, kind)
        if record is not None and record.state == "live":
            return key
    return None


async def settle_loose(lake: Lake, loose: Sequence[Loose]) -> AsyncIterator[Finding]:
    """The findings about receipts without a predecessor of their own: a hole, a fork, or neither."""
    if not loose:
        return
    dates = [date async for date, _ in list_dates(lake.store, lake.layout.events_folder())]
    for one in loose:
        receipt = await read_receipt(lake, one.key)
        if receipt is None:
            continue
        parts = lake.layout.parse_receipt(one.key)
        families: Mapping[str, EventFamily] = {name: name for name in get_args(EventFamily)}
        keys = [lake.layout.receipt(date, families[parts.family], one.previous_commit_key) for date in dates]
        there = [key for key in keys if await lake.store.head(key)]
        if there and await _has_sibling(lake, one, there[0]):
            yield finding("chain-fork", one.key, expected="one receipt that follows another", found=there[0])
        elif not there and not await _is_explained(lake, receipt):
            expected = f"the receipt {one.previous_commit_key} before it"
            yield finding("chain-hole", one.key, expected=expected, found="no receipt")


async def _has_sibling(lake: Lake, one: Loose, previous: str) -> bool:
    """Whether another receipt names the same predecessor; the predecessor may have been written since the look."""
    async for key in list_keys(lake, lake.layout.events_folder()):
        if key not in {one.key, previous}:
            receipt = await read_receipt(lake, key)
            if receipt and receipt.previous_commit_key == one.previous_commit_key:
                return True
    return False


async def _is_explained(lake: Lake, receipt: AnyReceipt) -> bool:
    """Whether the receipt before this one was removed because of its age, or may still be written.

    Those of events are never removed. A Delta commit is followed by others before its receipt has to exist: while the
    record tracks it, the receipt follows from the record (G6).
    """
    kept_from_ms = receipts_kept_from_ms(lake)
    record: Pointer | DeltaTable | None
    match receipt:
        case CatalogReceipt():
            return False
        case Receipt():
            if (time_ms := await _time_before(lake, receipt)) is not None:
                return time_ms < kept_from_ms
            record = await read_record(lake, lake.layout.pointer(receipt.table_uuid), Pointer)
        case DeltaReceipt():
            record = await read_record(lake, lake.layout.delta_table(receipt.table_uuid), DeltaTable)
            tracked = [delta_receipt_of(record, one).commit_key for one in receipted_commits(record)] if record else []
            if receipt.previous_commit_key in tracked:
                return True
    return receipt.committed_at_ms < kept_from_ms or record is None or record.created_ms < kept_from_ms


async def _time_before(lake: Lake, receipt: Receipt) -> int | None:
    """The time of the metadata file before that of a receipt; None if neither file says it."""
    for location in (receipt.previous_metadata_location, receipt.metadata_location):
        try:
            metadata = (await load_document(lake, TABLES, location)).metadata if location else None
        except SandurError:
            continue
        if metadata is None:
            continue
        if location == receipt.previous_metadata_location:
            return metadata.last_updated_ms
        for entry in metadata.metadata_log:
            if entry.metadata_file == receipt.previous_metadata_location:
                return entry.timestamp_ms
    return None
