"""A consistent cut of the records of a workspace while they change.

Every record is copied once, in an order in which what it refers to is copied later or is looked for afterwards. Then
what changed meanwhile is looked at again:

* names and records that do not fit together, because a rename, a creation or a drop passed between two reads,
* tables that got a commit of a transaction of which another table was copied with its part,
* receipts of what was copied, which were written after the receipts were listed.

Records leave this module settled: without pending transactions, unfinished renames and unconfirmed names.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from sandur.catalog.backups import commits_to_include
from sandur.catalog.events import CatalogEvent
from sandur.catalog.identifiers import Format, Namespace
from sandur.catalog.record_versions import Record
from sandur.catalog.records import (
    BoundRecord,
    Catalog,
    DeltaTable,
    Head,
    NameRecord,
    NamespaceRecord,
    Pointer,
    Securable,
    head_of,
)
from sandur.errors import Busy
from sandur.operations.backups.repository import BackupWriter, Entry
from sandur.operations.delta.publishing import staged_location
from sandur.operations.events import event_in
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.receipts import (
    CatalogReceipt,
    DeltaReceipt,
    Receipt,
    commit_key,
    commit_key_of,
    head_in,
    receipt_date,
)
from sandur.operations.tables.documents import request_part_of
from sandur.operations.tables.names import active_record, resolve_name, resolve_namespace
from sandur.operations.transactions.resolution import effective_record
from sandur.storage.cell import Versioned, gather_in_batches
from sandur.storage.contract import Listed, list_pages
from sandur.storage.layout import EventFamily, Layout
from sandur.storage.record_form import decode_record, encode_record

READS_AT_ONCE: Final = 64
ROUNDS_MAX: Final = 16
MARGIN_MS: Final = 600_000
"""No request takes longer from its decision to its commit (`claim_timeout_ms`)."""

_ALIVE: Final = frozenset({"live", "unbound", "condemned"})
_KINDS: Final[Mapping[Format, tuple[Callable[[Layout, str], str], type[BoundRecord]]]] = {
    "iceberg": (Layout.pointer, Pointer),
    "delta": (Layout.delta_table, DeltaTable),
    "unity": (Layout.securable, Securable),
}


class _Bound(NamedTuple):
    """What was copied of a record that names lead to; `head` is the commit key of its head.

    `files` are those that hold its state: the metadata file, or the staged files of Delta commits.
    """

    state: str
    uuid: str
    life: str
    head: str
    files: Sequence[str]
    version: str
    is_fresh: bool


class _Name(NamedTuple):
    state: str
    uuid: str
    life: str
    format: str
    namespace_id: str


@dataclass
class Cut:
    """The copy of one workspace. `previous` are the entries of the backup before, by key."""

    lake: Lake
    writer: BackupWriter
    previous: Mapping[str, Entry]
    began_ms: int
    _bound: dict[str, _Bound] = field(default_factory=dict)
    _names: dict[str, _Name] = field(default_factory=dict)
    _containers: dict[str, tuple[str, str]] = field(default_factory=dict)
    _events: list[CatalogEvent] = field(default_factory=list)
    _records: dict[str, BoundRecord] = field(default_factory=dict)
    """The records that were read in this run, as they were copied."""
    _passed: dict[str, Head] = field(default_factory=dict)
    _dates: Sequence[str] = ()

    async def copy(self) -> None:
        """Copy all records of the workspace and the receipts that they need. Other folders are copied before."""
        layout = self.lake.layout
        self._dates = self._known_dates()
        await self._each(layout.catalogs_folder(), self._copy_catalog)
        await self._each(layout.all_namespaces_folder(), self._copy_namespace)
        await self._each(layout.pointers_folder(), partial(self._copy_bound, kind=Pointer))
        await self._each(layout.delta_tables_folder(), partial(self._copy_bound, kind=DeltaTable))
        await self._each(layout.securables_folder(), partial(self._copy_bound, kind=Securable))
        await self._each(layout.all_names_folder(), self._copy_name)
        await self._fit_names()
        await self._fit_transactions()
        await self._add_receipts()

    @property
    def files(self) -> Sequence[str]:
        """The current metadata files of tables and views, and the Delta commits that are not known to be published."""
        return [file for bound in self._bound.values() if bound.state != "killed" for file in bound.files if file]

    async def _each(self, folder: str, copy: Callable[[Listed], Awaitable[None]]) -> None:
        async for page in list_pages(self.lake.store, folder):
            await gather_in_batches(page, copy, at_once=READS_AT_ONCE)

    def _kept(self, listed: Listed) -> Entry | None:
        """The entry of an object that has not changed since the backup before."""
        entry = self.previous.get(listed.key)
        if entry is None or not entry.version or entry.version != listed.version:
            return None
        self.writer.keep(entry)
        return entry

    async def _copy_catalog(self, listed: Listed) -> None:
        if entry := self._kept(listed):
            self._containers[listed.key] = (entry.about[0], entry.about[1])
        elif found := await self.lake.uncached(listed.key, Catalog).read():
            await self._add_container(listed.key, found.value, found.version)

    async def _copy_namespace(self, listed: Listed) -> None:
        if entry := self._kept(listed):
            self._containers[listed.key] = (entry.about[0], entry.about[1])
        elif found := await self.lake.uncached(listed.key, NamespaceRecord).read():
            await self._add_namespace(listed.key, found)

    async def _add_namespace(self, key: str, found: Versioned[NamespaceRecord]) -> None:
        record, version = found.value, str(found.version)
        if record.state == "new":
            if await resolve_namespace(self.lake, self.lake.layout.parse_namespace(key)) is None:
                return
            record, version = replace(record, state="active"), ""
        await self._add_container(key, record, version)

    async def _add_container(self, key: str, record: Catalog | NamespaceRecord, version: str) -> None:
        self._containers[key] = (record.state, record.id)
        await self._add(key, record, version=version, about=(record.state, record.id))

    async def _copy_bound(self, listed: Listed, *, kind: type[BoundRecord]) -> None:
        if entry := self._kept(listed):
            state, uuid, life, head, *files = entry.about
            self._bound[listed.key] = _Bound(state, uuid, life, head, files, entry.version, is_fresh=False)
        elif found := await self.lake.uncached(listed.key, kind).read():
            await self._add_bound(listed.key, Versioned(found.value, found.version))

    async def _add_bound(self, key: str, found: Versioned[BoundRecord], *, head: Head | None = None) -> None:
        """Copy a record as readers see it; with `head`, as it was when that was its head."""
        record = (await effective_record(self.lake, found)).value
        if isinstance(record, Pointer):
            self._note_passed(record)
            record = replace(record, pending=None)
            if head and head != record.head:
                record = replace(record, head=head, passed=_passed_before(record, head))
        await self._write_bound(key, record, str(found.version), is_plain=record == found.value)

    async def _write_bound(self, key: str, record: BoundRecord, version: str, *, is_plain: bool) -> None:
        """`is_plain`: the copy is what the source has at that version, and a later backup need not read it again."""
        head = head_of(record)
        about = (record.state, record.uuid, record.life, commit_key_of(head) if head else "")
        files = [head.metadata_location] if head else _staged_files(record)
        self._records[key] = record
        self._bound[key] = _Bound(*about, files, version, is_fresh=True)
        await self._add(key, record, version=version if is_plain else "", about=(*about, *files))

    async def _copy_name(self, listed: Listed) -> None:
        if entry := self._kept(listed):
            self._names[listed.key] = _Name(*entry.about)
        elif found := await self.lake.uncached(listed.key, NameRecord).read():
            await self._add_name(listed.key, found)

    async def _add_name(self, key: str, found: Versioned[NameRecord]) -> None:
        """Copy a name as readers see it; one that does not count is left out."""
        record, version = found.value, str(found.version)
        if record.state in {"new", "moving", "pending"}:
            seen = await resolve_name(self.lake, self.lake.layout.parse_name(key))
            if seen is None:
                self._drop_name(key)
                return
            record, version = active_record(seen.name.value), ""
        if record.state not in {"active", "dropped"}:
            self._drop_name(key)
            return
        about = (record.state, record.uuid, record.life, record.format, record.namespace_id)
        self._names[key] = _Name(*about)
        await self._add(key, record, version=version, about=about)

    def _drop_name(self, key: str) -> None:
        self._names.pop(key, None)
        self.writer.drop(key)

    async def _add(self, key: str, record: Record, *, version: str, about: Sequence[str]) -> None:
        for event in (event_in(record), getattr(record, "last_change", None)):
            if isinstance(event, CatalogEvent):
                self._events.append(event)
        await self.writer.add(key, encode_record(record), version=version, about=about)

    # Names, and what they lead to.

    async def _fit_names(self) -> None:
        """Look again at names and records that do not fit, until all do. Raises Busy if others keep changing them."""
        for _ in range(ROUNDS_MAX):
            wrong = await self._misfits()
            if not wrong:
                break
            await self._look_again(wrong)
        else:
            raise Busy("other requests keep renaming and dropping what is copied; start the backup again")
        names = self._by_uuid()
        for key, bound in list(self._bound.items()):
            if bound.state in {"unbound", "condemned"}:
                await self._settle_unbound(key, is_named=bound.uuid in names)

    async def _settle_unbound(self, key: str, *, is_named: bool) -> None:
        """A record whose name counts is live. Without a name it has not happened yet, or is dropped again (U5)."""
        found = await self._read_bound(self._bound[key].uuid)
        record = self._records.get(key) or (found[1].value if found else None)
        if record is None or not (is_named or record.life):
            self._bound.pop(key)
            self.writer.drop(key)
        else:
            settled = replace(record, state="live" if is_named else "dropped")
            await self._write_bound(key, settled, self._bound[key].version, is_plain=False)

    def _by_uuid(self) -> Mapping[str, Sequence[str]]:
        """The active names of each uuid."""
        found: dict[str, list[str]] = defaultdict(list)
        for key, name in self._names.items():
            if name.state == "active":
                found[name.uuid].append(key)
        return found

    async def _misfits(self) -> Sequence[str]:
        """The uuids whose names and records do not fit together."""
        named = self._by_uuid()
        dropped = {name.uuid for name in self._names.values() if name.state == "dropped"}
        alive = {bound.uuid: bound for bound in self._bound.values() if bound.state in _ALIVE}
        wrong = [uuid for uuid, keys in named.items() if not self._fits(keys, alive.get(uuid))]
        for uuid in alive.keys() - named.keys():
            bound = alive[uuid]
            if uuid in dropped:
                is_wrong = bound.is_fresh and await self._is_dropped_now(bound)
            else:
                is_wrong = bound.state == "live"
            wrong += [uuid] if is_wrong else []
        wrong += [self._names[key].uuid for key in await self._homeless()]
        return list(dict.fromkeys(wrong))

    def _fits(self, names: Sequence[str], bound: _Bound | None) -> bool:
        """Whether a record has one active name, which is of its life."""
        return bound is not None and len(names) == 1 and self._names[names[0]].life == bound.life

    async def _is_dropped_now(self, bound: _Bound) -> bool:
        found = await self._read_bound(bound.uuid)
        return found is None or found[1].value.state not in _ALIVE

    async def _homeless(self) -> Sequence[str]:
        """The active names whose namespaces were not copied and do not exist; those that exist now are copied."""
        places = {self.lake.layout.parse_name(key).namespace: key for key in self._active_names()}
        return [key for namespace, key in places.items() if not await self._has_home(namespace)]

    def _active_names(self) -> Sequence[str]:
        return [key for key, name in self._names.items() if name.state == "active"]

    async def _has_home(self, namespace: Namespace) -> bool:
        """Whether a namespace, its parents and its catalog are copied; missing ones are copied now."""
        layout = self.lake.layout
        key, parent = layout.namespace(namespace), namespace.parent
        if self._is_missing(key):
            found = await self.lake.uncached(key, NamespaceRecord).read()
            if found is None or found.value.state == "dropped":
                return False
            await self._add_namespace(key, found)
        if parent is not None:
            return await self._has_home(parent)
        catalog_key = layout.catalog(namespace.catalog)
        if self._is_missing(catalog_key) and (catalog := await self.lake.uncached(catalog_key, Catalog).read()):
            await self._add_container(catalog_key, catalog.value, str(catalog.version))
        return not self._is_missing(catalog_key)

    def _is_missing(self, container: str) -> bool:
        return self._containers.get(container, ("dropped", ""))[0] == "dropped"

    async def _look_again(self, uuids: Sequence[str]) -> None:
        """Read the names and records of some uuids again, and every name that has changed."""
        wanted = set(uuids)
        for key in [key for key, name in self._names.items() if name.uuid in wanted]:
            found = await self.lake.uncached(key, NameRecord).read()
            if found is None:
                self._drop_name(key)
            else:
                await self._add_name(key, found)
        async for page in list_pages(self.lake.store, self.lake.layout.all_names_folder()):
            for listed in page:
                entry = self.writer.entries.get(listed.key)
                if entry is None or entry.version != listed.version:
                    found = await self.lake.uncached(listed.key, NameRecord).read()
                    if found and found.value.uuid in wanted:
                        await self._add_name(listed.key, found)
        for uuid in wanted:
            if read := await self._read_bound(uuid):
                await self._take_bound(*read)

    async def _read_bound(self, uuid: str) -> tuple[str, Versioned[BoundRecord]] | None:
        for key_of, kind in _KINDS.values():
            key = key_of(self.lake.layout, uuid)
            if found := await self.lake.uncached(key, kind).read():
                return key, Versioned(found.value, found.version)
        return None

    async def _take_bound(self, key: str, found: Versioned[BoundRecord]) -> None:
        """Copy the record as it is now, with the head that was copied before; a new table with its first one.

        A later head may be that of a transaction whose other tables were copied without it.
        """
        head, bound = None, self._bound.get(key)
        if isinstance(found.value, Pointer):
            chain = await self._chain(found, until=bound.head if bound else "")
            if chain:
                head = await self._before(chain[0]) if bound else chain[0]
        await self._add_bound(key, found, head=head)

    # Transactions.

    async def _fit_transactions(self) -> None:
        """Copy the later commits of tables that share a transaction with a commit that was copied."""
        included: list[str] = []
        for key, record in self._records.items():
            head = head_of(record)
            if head and key in self._bound and self._bound[key].state == "live":
                included += map(_request_of, await self._recent(head))
        now = await self._changed_pointers()
        later = {key: await self._chain(found, until=self._head_copied(key)) for key, found in now.items()}
        parts = {key: list(map(_request_of, heads)) for key, heads in later.items()}
        for key, count in commits_to_include([part for part in included if part], parts).items():
            before = self._bound.get(key)
            await self._add_bound(key, now[key], head=later[key][count - 1])
            await self._revive(key, before)

    async def _changed_pointers(self) -> Mapping[str, Versioned[BoundRecord]]:
        """The pointers of live and of new tables that may have other heads than their copies."""
        changed: dict[str, Versioned[BoundRecord]] = {}
        async for page in list_pages(self.lake.store, self.lake.layout.pointers_folder()):
            for listed in page:
                bound = self._bound.get(listed.key)
                is_same = bound is not None and bound.version == listed.version
                if (is_same and not self._may_be_pending(listed.key)) or (bound and bound.state != "live"):
                    continue
                if found := await self.lake.uncached(listed.key, Pointer).read():
                    changed[listed.key] = Versioned(found.value, found.version)
        return changed

    def _head_copied(self, key: str) -> str:
        bound = self._bound.get(key)
        return bound.head if bound else ""

    def _may_be_pending(self, key: str) -> bool:
        """Whether a transaction was undecided when the pointer was copied: it commits without a change of it."""
        entry = self.writer.entries.get(key)
        return entry is not None and not entry.version

    async def _revive(self, key: str, before: _Bound | None) -> None:
        """The table lives at the cut, in the life that was copied, whatever happened since; a new one gets its name."""
        record = self._records[key]
        life = before.life if before else record.life
        if (record.state, record.life) != ("live", life):
            live = replace(record, state="live", life=life, dropped_as=None)
            await self._write_bound(key, live, self._bound[key].version, is_plain=False)
        if before is None and record.made_for:
            name = self.lake.layout.name(record.made_for)
            found = await self.lake.uncached(name, NameRecord).read()
            if found and found.value.uuid == record.uuid:
                await self._add_name(name, Versioned(active_record(found.value), found.version))

    async def _recent(self, head: Head) -> Sequence[Head]:
        """The head and those before it that were decided since the backup began, or shortly before."""
        heads: list[Head] = []
        current: Head | None = head
        while current and current.last_updated_ms >= self.began_ms - MARGIN_MS:
            heads.append(current)
            current = await self._before(current)
        return heads

    async def _chain(self, found: Versioned[BoundRecord], *, until: str) -> Sequence[Head]:
        """The heads after the one with the commit key `until`, or after the first one, oldest first."""
        record = (await effective_record(self.lake, found)).value
        heads: list[Head] = []
        current = record.head if isinstance(record, Pointer) else None
        if isinstance(record, Pointer):
            self._note_passed(record)
        while current and commit_key_of(current) != until:
            heads.append(current)
            current = await self._before(current)
        return heads[::-1]

    async def _before(self, head: Head) -> Head | None:
        """The head before another one, from its receipt, which exists before the pointer moves on (C5, B4)."""
        if head.previous_commit_key is None:
            return None
        if passed := self._passed.get(head.previous_commit_key):
            return passed
        found = await self._receipt("iceberg", head.previous_commit_key)
        if found is None:
            return None
        receipt = decode_record(found[0], found[1], Receipt)
        if receipt.commit_key != commit_key(receipt.metadata_location):
            return None  # Registered: only the head that it was knows its registration.
        return head_in(receipt)

    def _note_passed(self, pointer: Pointer) -> None:
        """Commits that a batch made before its last one (B3): their receipts may not exist yet."""
        self._passed.update({commit_key_of(head): head for head in pointer.passed})

    # Receipts.

    async def _receipt(self, family: EventFamily, key: str) -> tuple[str, bytes] | None:
        """The object of a receipt, looked for on the newest dates first."""
        for date in self._dates:
            place = self.lake.layout.receipt(date, family, key)
            if stored := await self.lake.store.get(place):
                return place, stored.data
        return None

    def _known_dates(self) -> Sequence[str]:
        """The dates of the receipts that were copied, and those since the backup began, newest first."""
        folder = self.lake.layout.events_folder()
        copied = {key[len(folder) :].partition("/")[0] for key in self.writer.entries if key.startswith(folder)}
        times_ms = range(self.began_ms - DAY_MS, self.lake.clock.now_ms() + 2 * DAY_MS, DAY_MS)
        return sorted({*copied, *map(receipt_date, times_ms)}, reverse=True)

    async def _add_receipts(self) -> None:
        """Complete the chains of what was copied: receipts that were listed too early to have them."""
        for key, record in self._records.items():
            if key in self._bound and isinstance(record, Pointer):
                for head in (*record.passed, *([record.head] if record.head else [])):
                    await self._add_chain("iceberg", head.previous_commit_key)
            if isinstance(record, DeltaTable):
                for commit in record.commits:
                    await self._add_chain("delta", commit.previous_commit_key)
        for event in self._events:
            await self._add_chain("catalog", event.previous)

    async def _add_chain(self, family: EventFamily, key: str | None) -> None:
        kinds: Mapping[str, type[Receipt | DeltaReceipt | CatalogReceipt]] = {
            "iceberg": Receipt,
            "delta": DeltaReceipt,
            "catalog": CatalogReceipt,
        }
        while key is not None:
            found = await self._receipt(family, key)
            if found is None or found[0] in self.writer.entries:
                return
            await self.writer.add(*found)
            key = decode_record(*found, kinds[family]).previous_commit_key


def _passed_before(pointer: Pointer, head: Head) -> tuple[Head, ...]:
    """What a pointer would have in `passed` with one of its earlier heads: receipts prove everything else (B4)."""
    keys = [commit_key_of(one) for one in pointer.passed]
    return pointer.passed[: keys.index(commit_key_of(head))] if commit_key_of(head) in keys else ()


def _staged_files(record: BoundRecord) -> Sequence[str]:
    """The files of the Delta commits that are not known to be published: only the catalog knows that they count."""
    if not isinstance(record, DeltaTable):
        return []
    return [staged_location(record, one.file_name) for one in record.commits if one.version > record.published]


def _request_of(head: Head) -> str:
    """The request that committed a head, by the name of its file (C3)."""
    return request_part_of(head.metadata_location)
