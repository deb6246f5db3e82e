"""Repair of events: settle one record, and write the receipt of its event if that happened (E2, E3).

The next writer of a record does the same. This is for records without a next writer: a job visits every key, and
a killed request has left no event without its receipt then. The janitors here do the same for recent commits and
changes: a server that was killed between its answer and the receipt must not leave a quiet record without its last
event.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.events import EventSubject
from sandur.catalog.record_versions import Record
from sandur.catalog.records import (
    BoundRecord,
    Catalog,
    DeltaCommit,
    DeltaTable,
    ModelVersion,
    NameRecord,
    NamespaceRecord,
    Pointer,
    Securable,
)
from sandur.catalog.security.manifest import SecurityManifest
from sandur.operations.events import (
    adoption_of,
    catalog_subject,
    event_in,
    grants_subject,
    is_adoptable,
    namespace_subject,
    storage_subject,
    version_subject,
    with_event,
)
from sandur.operations.janitors.sweep import DAY_MS, DELTA_UNPUBLISHED, Janitor, Outcome, findings, read_listed
from sandur.operations.lake import Lake
from sandur.operations.receipts import (
    CatalogReceipts,
    DeltaReceipts,
    Receipts,
    catalog_receipt_key,
    commit_key_of,
    delta_receipt_key,
    delta_receipt_of,
    first_delta_commit,
    receipt_of_event,
    tried_of,
)
from sandur.operations.tables.names import activate_name, is_namespace_visible, resolve_name, settle_name
from sandur.operations.transactions.resolution import effective_pointer
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

R = TypeVar("R", bound=Record)
B = TypeVar("B", bound=BoundRecord)

Visit = Callable[[Lake, str], Awaitable[None]]


async def ensure_events(lake: Lake, key: str) -> bool:
    """Settle the record under a key, and ensure the receipts of its events; False if it is no record with events.

    Raises Busy while another request works on the record, and SwapLost if it has changed since: visit it again.
    """
    for folder, visit in EVENT_FOLDERS.items():
        if key.startswith(folder(lake.layout)):
            await visit(lake, key)
            return True
    for single, visit in EVENT_KEYS.items():
        if key == single(lake.layout):
            await visit(lake, key)
            return True
    return False


async def _visit_name(lake: Lake, key: str) -> None:
    """`settle_name` writes the receipt. What is confirmed and bound becomes active, so that readers need no proof."""
    if live := (await settle_name(lake, lake.layout.parse_name(key))).live:
        await activate_name(lake, live)


async def _visit_namespace(lake: Lake, key: str) -> None:
    namespace, cell = lake.layout.parse_namespace(key), lake.uncached(key, NamespaceRecord)
    found = await cell.read()
    # E3: a `new` record happened if its parent, read after it, exists.
    if found and (found.value.state != "new" or await is_namespace_visible(lake, namespace, found.value)):
        await _write_receipt(lake, cell, found, lambda record: namespace_subject(namespace, record.id))


async def _visit_record(lake: Lake, key: str, *, kind: type[R], subject: Callable[[R], EventSubject]) -> None:
    """A record that exists as soon as it is written."""
    cell = lake.uncached(key, kind)
    if found := await cell.read():
        await _write_receipt(lake, cell, found, subject)


async def _visit_manifest(lake: Lake, key: str) -> None:
    await _visit_record(lake, key, kind=SecurityManifest, subject=grants_subject)
    if found := await lake.uncached(key, SecurityManifest).read():
        await lake.feature(CatalogReceipts).ensure(found.value.last_rename)


async def _write_receipt(lake: Lake, cell: Cell[R], found: Versioned[R], subject: Callable[[R], EventSubject]) -> None:
    """Write the receipt of a record that counts; one that is older than events gets its first one (V5)."""
    event = event_in(found.value)
    if is_adoptable(found.value) and (event := await adoption_of(lake, subject(found.value))):
        await cell.swap(with_event(found.value, event), expected=found.version)
    await lake.feature(CatalogReceipts).ensure(event)


async def _visit_bound(lake: Lake, key: str, *, kind: type[B]) -> None:
    """What a name leads to: the changes of its content, and its drop (E6). Its name has the rest of its life."""
    if found := await lake.uncached(key, kind).read():
        await lake.feature(CatalogReceipts).ensure(found.value.last_change)
        if found.value.state in {"dropped", "purging"}:
            await lake.feature(CatalogReceipts).ensure(found.value.last_event)


EVENT_FOLDERS: Final[Mapping[Callable[[Layout], str], Visit]] = {
    Layout.all_names_folder: _visit_name,
    Layout.all_namespaces_folder: _visit_namespace,
    Layout.catalogs_folder: partial(_visit_record, kind=Catalog, subject=catalog_subject),
    Layout.pointers_folder: partial(_visit_bound, kind=Pointer),
    Layout.delta_tables_folder: partial(_visit_bound, kind=DeltaTable),
    Layout.securables_folder: partial(_visit_bound, kind=Securable),
    # The name of the model is not known here; the id says which version it is.
    Layout.all_model_versions_folder: partial(_visit_record, kind=ModelVersion, subject=partial(version_subject, None)),
}
"""The folders of a workspace whose records have events."""

EVENT_KEYS: Final[Mapping[Callable[[Layout], str], Visit]] = {
    Layout.security_manifest: _visit_manifest,
    Layout.storage_registry: partial(_visit_record, kind=StorageRegistry, subject=storage_subject),
}
"""The single records of a workspace that have events."""

HEAD_AGE_MS: Final = 60_000
"""Younger commits are left to their own servers, which write the receipts right behind the answers."""


def recent_ms(settings: Settings) -> int:
    """How long the janitors look for the receipts of a commit; older ones may have been collected."""
    return min(2 * DAY_MS, seconds_of(settings.receipt_retention) * 1_000)


async def is_effective(lake: Lake, pointer: Pointer) -> bool:
    """Whether the pointer's commits happened; an unbound pointer counts if its name resolves to it (N4)."""
    if pointer.state in {"unbound", "condemned"} and not pointer.life:
        found = await resolve_name(lake, pointer.made_for) if pointer.made_for else None
        return found is not None and found.uuid == pointer.uuid
    return pointer.state != "killed"


def receipted_commits(table: DeltaTable) -> Sequence[DeltaCommit]:
    """The commits of a Delta table whose receipts follow from its record, newest first."""
    if table.state not in {"live", "dropped", "purging"} or table.data_source_format != "DELTA":
        return ()
    first = () if any(not commit.version for commit in table.commits) else (first_delta_commit(table),)
    return (*reversed(table.commits), *first)


async def visit_events(lake: Lake, listed: Listed, *, kind: type[Record]) -> Outcome:
    """E2 without a next writer: write the receipt of the last change of a record, if that change happened (E3)."""
    found = await read_listed(lake.uncached(listed.key, kind), listed)
    return await _write_missing(lake, listed.key, found.value)


async def _write_missing(lake: Lake, key: str, record: Record) -> Outcome:
    missing = await _missing_receipts(lake, record)
    if not missing:
        return "kept"
    await ensure_events(lake, key)
    # An event that did not happen has no receipt afterwards, either.
    return "settled" if await _existing(lake, missing) else "kept"


async def _missing_receipts(lake: Lake, record: Record) -> Sequence[str]:
    """The keys of the receipts that do not exist, of the recent events in a record."""
    after_ms = lake.clock.now_ms() - recent_ms(lake.settings)
    events = [event_in(record)]
    if isinstance(record, BoundRecord) and record.state in {"dropped", "purging"}:
        events.append(record.last_event)
    recent = [one for one in events if one and one.at_ms > after_ms]
    keys = [catalog_receipt_key(lake.layout, receipt_of_event(one)) for one in recent]
    there = await _existing(lake, keys)
    return [key for key in keys if key not in there]


async def _existing(lake: Lake, keys: Sequence[str]) -> set[str]:
    return {key for key in keys if await lake.store.head(key)}


async def visit_head(lake: Lake, listed: Listed) -> Outcome:
    """C5 without a successor: write the receipts of the newest commits, and of the one below a transaction."""
    held = await read_listed(lake.uncached(listed.key, Pointer), listed)
    outcome = await _write_missing(lake, listed.key, held.value)
    if not await is_effective(lake, held.value):
        return outcome
    after_ms = lake.clock.now_ms() - recent_ms(lake.settings)
    heads = (*held.value.passed, held.value.head, (await effective_pointer(lake, held)).value.head)
    recent = {commit_key_of(head): head for head in heads if head and head.last_updated_ms > after_ms}
    for head in recent.values():
        if not await lake.feature(Receipts).exists(tried_of(head)):
            await lake.feature(Receipts).ensure(held.value.table_uuid, head)
            outcome = "settled"
    return outcome


async def visit_delta_commits(lake: Lake, listed: Listed) -> Outcome:
    """Write the missing receipts of a Delta table's recent commits, oldest first."""
    table = (await read_listed(lake.uncached(listed.key, DeltaTable), listed)).value
    lake.feature(findings)[DELTA_UNPUBLISHED] += sum(one.version > table.published for one in table.commits)
    after_ms = lake.clock.now_ms() - recent_ms(lake.settings)
    outcome = await _write_missing(lake, listed.key, table)
    for commit in reversed([one for one in receipted_commits(table) if one.timestamp_ms > after_ms]):
        if await lake.store.head(delta_receipt_key(lake.layout, delta_receipt_of(table, commit))) is None:
            await lake.feature(DeltaReceipts).ensure(table, commit)
            outcome = "settled"
    return outcome


HEADS: Final = Janitor("heads", Layout.pointers_folder, lambda _: HEAD_AGE_MS, visit_head, recent_ms)
DELTA_COMMITS: Final = Janitor(
    "delta_commits", Layout.delta_tables_folder, lambda _: HEAD_AGE_MS, visit_delta_commits, recent_ms
)


def _of_events(name: str, folder: Callable[[Layout], str], kind: type[Record]) -> Janitor:
    return Janitor(name, folder, lambda _: HEAD_AGE_MS, partial(visit_events, kind=kind), recent_ms)


OF_EVENTS: Final = (
    _of_events("name_events", Layout.all_names_folder, NameRecord),
    _of_events("namespace_events", Layout.all_namespaces_folder, NamespaceRecord),
    _of_events("catalog_events", Layout.catalogs_folder, Catalog),
    _of_events("securable_events", Layout.securables_folder, Securable),
    _of_events("model_version_events", Layout.all_model_versions_folder, ModelVersion),
)
"""Janitors for the changes of the catalog itself; `heads` and `delta_commits` have those of their records."""
