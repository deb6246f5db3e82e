"""Repair of events: settle one record, and write the receipt of its event if that happened (E2, E3).

The next writer of a record does the same. This is for records without a next writer: a job visits every key, and
a killed request has left no event without its receipt then.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from sandur.catalog.events import EventSubject
from sandur.catalog.record_versions import Record
from sandur.catalog.records import (
    BoundRecord,
    Catalog,
    DeltaTable,
    ModelVersion,
    NamespaceRecord,
    Pointer,
    Securable,
)
from sandur.catalog.security import SecurityManifest
from sandur.catalog.storage_registry import StorageRegistry
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
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.tables.names import activate_name, is_namespace_visible, settle_name
from sandur.storage.cell import Cell, Versioned
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
