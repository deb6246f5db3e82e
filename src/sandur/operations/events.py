"""Events of the catalog (rules E1–E8): the event of each change, and the first event of what is older than events.

The record whose swap makes a change carries its event. Before the event is replaced, its receipt is known to exist
(E2). A store of the first format has no events (V3): there, every function here returns None.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.events import CatalogEvent, EventKind, EventSubject, Source, next_event
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.record_versions import WITH_EVENTS, Record
from sandur.catalog.records import BoundRecord, Catalog, DeltaTable, ModelVersion, NameRecord, Pointer, Securable
from sandur.catalog.security.manifest import SecurityManifest
from sandur.operations.lake import Lake

R = TypeVar("R", bound=Record)

STORAGE_ID: Final = "storage"
"""The object id of the storage registry: a workspace has one."""

_BOOKKEEPING: Final = frozenset(Record.__struct_fields__) | {
    "change",
    "changed_by",
    "changed_ms",
    "last_change",
    "last_event",
    "owner_id",
    "places",
    "state",
    "updated_by",
    "updated_ms",
}
_UNKNOWN: Final = Source()


async def event_of(
    lake: Lake,
    kind: EventKind,
    subject: EventSubject,
    source: Source,
    *,
    before: CatalogEvent | None = None,
    details: Iterable[str] = (),
) -> CatalogEvent | None:
    """A new event, for one attempt to change a record whose last event is `before`."""
    if not await has_events(lake):
        return None
    return next_event(
        kind,
        subject,
        event_id=lake.clock.new_id(),
        now_ms=lake.clock.now_ms(),
        source=source,
        before=before,
        details=details,
    )


async def has_events(lake: Lake) -> bool:
    """Whether records carry events: from version 2 on."""
    if not lake.form.is_read:  # Only the first event of a process that did not read it at its start.
        await lake.form.read()
    return lake.form.major >= WITH_EVENTS.major


async def adoption_of(lake: Lake, subject: EventSubject) -> CatalogEvent | None:
    """V5: the first event of an object whose record is older than events. Its creator and its time are unknown."""
    return await event_of(lake, "adopted", subject, _UNKNOWN)


def catalog_subject(catalog: Catalog) -> EventSubject:
    return EventSubject("catalog", catalog.id, Identifier(catalog.name, (), ""))


def namespace_subject(namespace: Namespace, namespace_id: str) -> EventSubject:
    return EventSubject("namespace", namespace_id, Identifier(*namespace, ""))


def grants_subject(manifest: SecurityManifest) -> EventSubject:
    return EventSubject("grants", manifest.metastore_id)


def storage_subject(_registry: StorageRegistry) -> EventSubject:
    return EventSubject("storage", STORAGE_ID)


def version_subject(model: Identifier | None, version: ModelVersion) -> EventSubject:
    """A version of a registered model, by the name of its model."""
    return EventSubject("model_version", version.id, model, "unity")


def name_subject(identifier: Identifier, name: NameRecord) -> EventSubject:
    return EventSubject(name.kind, name.uuid, identifier, name.format)


def record_subject(identifier: Identifier, record: BoundRecord) -> EventSubject:
    return EventSubject(record.kind, record.uuid, identifier, record.format)


def event_in(record: Record) -> CatalogEvent | None:
    """The event of the last change in the record itself: for what a name leads to, of its content."""
    found: CatalogEvent | None = getattr(record, _field(record), None)
    return found


def with_event(record: R, event: CatalogEvent | None) -> R:
    fields: dict[str, Any] = {_field(record): event}
    return replace(record, **fields)


def _field(record: Record) -> str:
    return "last_change" if isinstance(record, Pointer | DeltaTable | Securable) else "last_event"


def is_adoptable(record: Record) -> bool:
    """Whether the record stands for an object without an event. The life of what a name leads to is in the name.

    The content of such a record needs no adoption: its chain begins with its first change.
    """
    if isinstance(record, Pointer | DeltaTable | Securable) or event_in(record) is not None:
        return False
    state: str = getattr(record, "state", "active")
    return state != "dropped"


def changed_fields(before: msgspec.Struct | None, after: msgspec.Struct) -> Iterable[str]:
    """The names of the fields that differ, and of the keys that differ in a mapping; never a value."""
    for field in after.__struct_fields__:
        if field in _BOOKKEEPING:
            continue
        old, new = getattr(before, field, None), getattr(after, field)
        if old == new:
            continue
        if isinstance(new, dict):
            was = old if isinstance(old, dict) else {}
            yield from (f"{field}.{key}" for key in {*was, *new} if was.get(key) != new.get(key))
        else:
            yield field
