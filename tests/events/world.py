"""A catalog with tables whose commits become events, for the tests of the feed and of deliveries."""

from collections.abc import Sequence
from typing import Any

import msgspec

from sandur.catalog.event_feed.events import START, Event, EventFilter, Position
from sandur.catalog.events import CatalogEvent, EventKind, ObjectType
from sandur.catalog.identifiers import Identifier
from sandur.catalog.security.privileges import AUTHENTICATED
from sandur.operations.event_feed.reader import EventPage, read_page
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.lake import Lake
from sandur.operations.receipts import catalog_receipt_key, receipt_of_event
from sandur.operations.tables.commit import commit_table
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.operations.principals import acting
from tests.operations.requests import commit, identifier_of, request, set_property, set_up_catalog

ALL = EventFilter()
COMMITS = EventFilter(kinds=("committed",))


async def make_world(store: ObjectStore | None = None, **settings: Any) -> Lake:
    clock = FixedClock()
    lake = make_lake(store or MemoryStore(clock=clock), clock, **settings)
    await set_up_catalog(lake)
    return lake


async def change(lake: Lake, name: str, value: str) -> None:
    """A commit to a table. The clock moves on, so that each commit has its own time."""
    if isinstance(lake.clock, FixedClock):
        lake.clock.advance(10)
    await commit_table(lake, identifier_of(name), commit(set_property("step", value)), request(f"{name} {value}"))
    await lake.background.drain()


async def write_change(
    lake: Lake,
    object_type: ObjectType,
    object_id: str,
    kind: EventKind,
    identifier: Identifier | None,
    **fields: object,
) -> str:
    """The receipt of a change of the catalog, as the writer of that change leaves it; returns its commit key."""
    event = msgspec.convert(
        {
            "id": lake.clock.new_id(),
            "kind": kind,
            "object_type": object_type,
            "object_id": object_id,
            "at_ms": lake.clock.now_ms(),
            "identifier": identifier,
            **fields,
        },
        CatalogEvent,
    )
    receipt = receipt_of_event(event)
    await lake.store.put(catalog_receipt_key(lake.layout, receipt), msgspec.json.encode(receipt), expected=ABSENT)
    return receipt.commit_key


async def page_of(
    lake: Lake, wanted: EventFilter = COMMITS, position: Position = START, *, size: int = 1_000
) -> EventPage:
    """A page after everything that exists has a position."""
    watch = lake.feature(FeedWatch)
    watch._poll_due_ms = 0  # As if the last poll were long ago.
    return await read_page(lake, wanted, position, newest=await watch.refresh(), size=size)


async def events_of(lake: Lake, wanted: EventFilter = COMMITS) -> Sequence[Event]:
    """All events of what was answered before: receipts are written behind the answers."""
    await lake.background.drain()
    return [placed.event for placed in (await page_of(lake, wanted)).events]


def as_principal(lake: Lake, name: str) -> Lake:
    return acting(lake, name, AUTHENTICATED)
