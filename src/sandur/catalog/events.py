"""Events of the catalog: what changed, and the source of each change. An event lies in the record that changed."""

import hashlib
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.catalog.identifiers import Format, Identifier, Kind
from sandur.trace_context import traceparent


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a change.

    `pipeline` is a job of Sandur, which has no principal, or a principal that an administrator marked as a pipeline.
    Every other client of the server is `rest`, and only declares its run and task. `admin` works directly on the store:
    `principal` is the user of the operating system, or the one that the command names.
    `trace_id` is the trace of the request. `span_id` is the span that further work continues; empty if the trace is not
    sampled.
    """

    kind: Literal["rest", "pipeline", "admin", "unknown"] = "unknown"
    principal: str = ""
    principal_id: str = ""
    client: str = ""
    run_id: str = ""
    task_id: str = ""
    trace_id: str = ""
    span_id: str = ""

    @property
    def traceparent(self) -> str:
        """The value of `traceparent` for work that follows from the change; empty if its trace is not sampled."""
        return traceparent(self.trace_id, self.span_id, is_sampled=True) if self.span_id else ""


EventKind = Literal["adopted", "created", "changed", "renamed", "dropped", "undropped"]
"""`adopted` is the first event of an object that is older than the events of its store (V5)."""

ObjectType = Kind | Literal["catalog", "namespace", "model_version", "grants", "storage", "policy"]
"""`grants`: principals, groups and grants of a workspace. `storage`: its storage credentials and external locations."""


DETAILS_MAX: Final = 50
"""The most details of an event: it lies in a record that every reader of the object transfers."""

_DETAIL_CHARS_MAX: Final = 120


class EventSubject(NamedTuple):
    """The object of an event: what it is, the id that survives a rename, and its name after the change.

    `renamed_from` is the name before a rename.
    """

    object_type: ObjectType
    object_id: str
    identifier: Identifier | None = None
    format: Format | None = None
    renamed_from: Identifier | None = None


class CatalogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last change of an object, in the record whose swap made it happen.

    `id` is new for every attempt. `object_id` is the id that survives a rename; `previous` is the `commit_key` of the
    event before, None for the first event of an object's chain. `identifier` is the name after the change, and
    `renamed_from` the name before a rename; a catalog has neither levels nor name, a namespace no name. `details` name
    what changed: keys of properties, fields, grants; never a secret or the value of a property.
    """

    id: str
    kind: EventKind
    object_type: ObjectType
    object_id: str
    at_ms: int
    identifier: Identifier | None = None
    renamed_from: Identifier | None = None
    format: Format | None = None
    previous: str | None = None
    details: tuple[str, ...] = ()
    source: Source = Source()


class AttemptedEvent(msgspec.Struct, frozen=True):
    """An event that an attempt wrote, or tried to write, into a record: with its object, the key of its receipt."""

    id: str
    at_ms: int


def event_commit_key(object_id: str, event_id: str) -> str:
    """The id of the receipt of an event."""
    return hashlib.sha256(f"{object_id}\n{event_id}".encode()).hexdigest()


def commit_key_of_event(event: CatalogEvent) -> str:
    return event_commit_key(event.object_id, event.id)


def next_event(
    kind: EventKind,
    subject: EventSubject,
    *,
    event_id: str,
    now_ms: int,
    source: Source,
    before: CatalogEvent | None = None,
    details: Iterable[str] = (),
) -> CatalogEvent:
    """The event of a change of a record whose last event is `before`.

    E8: an event of another object is no predecessor; the chain of a new object begins. The time is never before that of
    the predecessor, because chains are read in the order of time.
    """
    is_predecessor = before is not None and before.object_id == subject.object_id
    return CatalogEvent(
        id=event_id,
        kind=kind,
        object_type=subject.object_type,
        object_id=subject.object_id,
        at_ms=max(now_ms, before.at_ms) if before and is_predecessor else now_ms,
        identifier=subject.identifier,
        renamed_from=subject.renamed_from,
        format=subject.format,
        previous=commit_key_of_event(before) if before and is_predecessor else None,
        details=_bounded(details),
        source=source,
    )


def _bounded(details: Iterable[str]) -> tuple[str, ...]:
    """At most DETAILS_MAX texts, sorted; the last one then says how many are left out."""
    texts = sorted({text[:_DETAIL_CHARS_MAX] for text in details})
    if len(texts) <= DETAILS_MAX:
        return tuple(texts)
    return (*texts[: DETAILS_MAX - 1], f"and {len(texts) - DETAILS_MAX + 1} more")


def attempted(event: CatalogEvent) -> AttemptedEvent:
    return AttemptedEvent(event.id, event.at_ms)
