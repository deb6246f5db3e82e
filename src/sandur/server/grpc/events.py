"""Handlers of the service Events."""

from collections.abc import AsyncGenerator
from typing import Final

from sandur.catalog.event_feed.events import Event, EventFilter, encode_position
from sandur.catalog.identifiers import Identifier, checked_uuid
from sandur.operations.event_feed.reader import PlacedEvent, pull_events
from sandur.operations.event_feed.streams import follow, open_stream
from sandur.server.context import Call
from sandur.server.grpc.messages import Form, InvalidField, form_of, name_message, page_of
from sandur.settings import seconds_of
from sandur.v1 import events_pb2 as v1
from sandur.v1.common_pb2 import Name

_END: Final = "the connection is old enough; call again with the position"


def querying(sent: v1.QueryEventsRequest, _default_catalog: str) -> Form:
    """The form of a query: what it filters by, as the REST API has it."""
    return form_of((), query=_query(sent.filter))


def subscribing(sent: v1.SubscribeRequest, _default_catalog: str) -> Form:
    return form_of((), query=_query(sent.filter))


def _query(sent: v1.EventFilter) -> dict[str, str]:
    texts = {"table": sent.object_ids, "kind": sent.kinds, "object_type": sent.object_types}
    names = [".".join((name.catalog, *name.namespace, name.name)).strip(".") for name in sent.names]
    return {name: ",".join(values) for name, values in (*texts.items(), ("namespace", names)) if values}


async def query(call: Call, sent: v1.QueryEventsRequest) -> v1.QueryEventsResponse:
    asked, wanted = page_of(sent.page), _filter(call, sent.filter)
    page, position = await pull_events(call.lake, wanted, token=asked.token or None, page_size=asked.size)
    events = [_event(placed, wanted) for placed in page.events]
    return v1.QueryEventsResponse(events=events, position=position, has_more=page.has_more)


async def subscribe(call: Call, sent: v1.SubscribeRequest) -> AsyncGenerator[v1.SubscribeResponse, None]:
    """Pages of events as they appear, and heartbeats. At the age of a connection the stream ends with its position."""
    position, wanted = await open_stream(call.lake, _filter(call, sent.filter), sent.position or None)
    clock = call.lake.clock
    ends_ms = clock.now_ms() + seconds_of(call.settings.grpc.connection_age) * 1_000
    async for part in follow(call.lake, wanted, position, expires_ms=call.identity.expires_ms):
        end = part.end or (_END if clock.now_ms() >= ends_ms and not part.page.has_more else "")
        yield v1.SubscribeResponse(
            events=[_event(placed, wanted) for placed in part.page.events],
            position=encode_position(part.page.position, wanted),
            end=end,
        )
        if end:
            return


def _filter(call: Call, sent: v1.EventFilter) -> EventFilter:
    if sent.since_ms < 0:
        raise InvalidField("filter.since_ms", f"expected at least 0, found {sent.since_ms}")
    paths = []
    for name in sent.names:
        if name.name and not name.namespace:
            raise InvalidField("filter.names", "a name without a namespace; name at least one level")
        path = (name.catalog or call.settings.default_catalog, *name.namespace, name.name)
        paths.append(path if name.name else path[:-1])
    return EventFilter(
        names=tuple(paths),
        uuids=tuple(checked_uuid("filter.object_ids", uuid) for uuid in sent.object_ids),
        kinds=tuple(sent.kinds),
        object_types=tuple(sent.object_types),
        since_ms=sent.since_ms,
    )


def _event(placed: PlacedEvent, wanted: EventFilter) -> v1.Event:
    event: Event = placed.event
    source = event.source
    return v1.Event(
        id=event.id,
        type=event.type,
        time_ms=event.time_ms,
        object_type=event.object_type,
        object_id=event.object_id,
        name=_name(event.identifier),
        renamed_from=_name(event.renamed_from),
        source=v1.EventSource(
            kind=source.kind,
            principal=source.principal,
            client=source.client,
            run_id=source.run_id,
            task_id=source.task_id,
            trace_id=source.trace_id,
        ),
        format=event.format,
        operation=event.operation,
        version=event.version,
        snapshot_id=event.snapshot_id,
        refs=event.refs,
        details=event.details,
        commit_key=event.commit_key,
        previous=event.previous,
        position=encode_position(placed.behind, wanted),
    )


def _name(identifier: Identifier | None) -> Name | None:
    return name_message(identifier) if identifier else None
