"""The handler of events in the form that is proposed for Iceberg's REST API; behind the setting `iceberg_events`."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sandur.catalog.event_feed.events import Event, EventFilter
from sandur.catalog.identifiers import checked_catalog
from sandur.errors import BadRequest
from sandur.operations.event_feed.reader import pull_events
from sandur.server.context import Call
from sandur.server.http import NO_STORE, Answer, json_answer
from sandur.server.iceberg_rest.tables import encode

_NAMESPACE_OPERATIONS: Final = {
    "created": "create-namespace",
    "changed": "update-namespace-properties",
    "dropped": "drop-namespace",
}
_COMMITS: Final = {"create": "create", "register": "register"}
_VERBS: Final = {"renamed": "rename", "dropped": "drop"}


class _ObjectUuid(msgspec.Struct, frozen=True):
    uuid: str


class QueryEvents(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a client asks for. Drafts of the proposal differ in two names; both are accepted."""

    continuation_token: str | None = None
    page_size: int | None = None
    since_timestamp_ms: int | None = None
    after_timestamp_ms: int | None = None
    operation_types: tuple[str, ...] = ()
    catalog_objects_by_name: tuple[tuple[str, ...], ...] = ()
    catalog_objects_by_uuid: tuple[str, ...] = ()
    catalog_objects_by_id: tuple[_ObjectUuid, ...] = ()
    object_types: tuple[str, ...] = ()
    custom_filters: dict[str, msgspec.Raw] = {}


async def query_events(call: Call) -> Answer:
    body = call.body(QueryEvents, "events query") if call.http.body else QueryEvents()
    catalog = checked_catalog(call.value("prefix"))
    wanted = _filter(catalog, body)
    page, token = await pull_events(call.lake, wanted, token=body.continuation_token, page_size=body.page_size)
    inside = [one.event for one in page.events if one.event.identifier and one.event.identifier.catalog == catalog]
    events = [found for event in inside for found in _event_json(event, body.operation_types)]
    highest_ms = max(page.highest_ms, wanted.since_ms)
    answer = {"continuation-token": token, "highest-processed-timestamp-ms": highest_ms, "events": events}
    return json_answer(encode(answer), NO_STORE)


def _filter(catalog: str, body: QueryEvents) -> EventFilter:
    """What the client wants of one catalog; raises BadRequest for what this server does not know."""
    if body.custom_filters:
        raise BadRequest(f"Unknown custom filter {min(body.custom_filters)[:40]!r}: this server has none")
    if body.page_size is not None and body.page_size < 1:
        raise BadRequest(f"Invalid page-size: {body.page_size}, expected at least 1")
    uuids = (*body.catalog_objects_by_uuid, *(one.uuid for one in body.catalog_objects_by_id))
    is_whole = not body.catalog_objects_by_name and not uuids
    since_ms = body.since_timestamp_ms if body.since_timestamp_ms is not None else body.after_timestamp_ms
    return EventFilter(
        names=((catalog,),) if is_whole else tuple((catalog, *path) for path in body.catalog_objects_by_name),
        uuids=uuids,
        object_types=body.object_types,
        since_ms=since_ms or 0,
    )


def _event_json(event: Event, wanted: Sequence[str]) -> Sequence[Mapping[str, object]]:
    """The event, or nothing if the proposal has another event for it, or the client does not want its operation."""
    operation = operation_type(event)
    if operation is None or (wanted and operation not in wanted):
        return ()
    actor = {"principal": event.source.principal, "client": event.source.client}
    return (
        {
            "event-id": event.id,
            # A receipt does not keep the request of its commit: every event counts as one of its own.
            "request-id": event.source.run_id or event.id,
            "request-event-count": 1,
            "timestamp-ms": event.time_ms,
            "actor": {name: value for name, value in actor.items() if value},
            "operation": {"operation-type": operation, **_subject(event)},
        },
    )


def operation_type(event: Event) -> str | None:
    """The operation of the proposal; own ones begin with `x-sandur-`. None for what a commit reports already."""
    kind = event.object_type
    own = f"x-sandur-{event.kind}-{kind.replace('_', '-')}"
    if kind == "namespace":
        return _NAMESPACE_OPERATIONS.get(event.kind, own)
    if kind not in {"table", "view"} or event.format != "iceberg":
        return own
    if event.kind == "created":
        return None
    if event.kind == "committed":
        return f"{_COMMITS.get(event.operation, 'update')}-{kind}"
    return f"{_VERBS[event.kind]}-{kind}" if event.kind in _VERBS else own


def _subject(event: Event) -> Mapping[str, object]:
    named = event.identifier
    if named is None:
        return {}
    if not named.name:
        return {"namespace": named.levels} if named.levels else {}
    identifier = {"namespace": named.levels, "name": named.name}
    uuid = {"view-uuid" if event.object_type == "view" else "table-uuid": event.object_id}
    if event.kind == "renamed":
        former = event.renamed_from
        source = {"namespace": former.levels, "name": former.name} if former else {"namespace": [], "name": ""}
        return {**uuid, "source-identifier": source, "dest-identifier": identifier}
    return {**uuid, "identifier": identifier, **({"updates": []} if event.kind == "committed" else {})}
