"""Events of the catalog: which changes leave one, whose receipt must exist, and records that are older than events."""

import contextlib
from collections.abc import Sequence

import pytest

from sandur.catalog.events import (
    DETAILS_MAX,
    CatalogEvent,
    EventSubject,
    Source,
    attempted,
    commit_key_of_event,
    next_event,
)
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import NameRecord, NamespaceRecord, Request
from sandur.errors import AlreadyExists, NotEmpty, NotFound, OutcomeUnknown, SandurError
from sandur.operations.containers.catalogs import create_catalog, update_catalog
from sandur.operations.containers.drop import drop_catalog, drop_namespace
from sandur.operations.containers.namespaces import create_namespace, update_namespace_properties
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipt, CatalogReceipts
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.unity.governance import change_tags
from sandur.operations.unity.owners import change_owner
from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from sandur.storage.record_form import RecordForm
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import LossyStore
from tests.operations.event_chains import all_events, check_events, ordered, reconcile
from tests.operations.janitor_runs import Cluster
from tests.operations.lakes import make_lake
from tests.operations.requests import NAMESPACE, append, create, identifier_of, request, set_up_catalog

ANN = Source(kind="rest", principal="ann", client="test")
T, U = identifier_of("t"), identifier_of("u")
EVENT = CatalogEvent(id="e", kind="created", object_type="table", object_id="o", at_ms=1)


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


def by_ann(label: str, *, key: str | None = None) -> Request:
    return request(label, key=key)._replace(source=ANN)


async def receipts_of(lake: Lake, object_id: str = "") -> Sequence[CatalogReceipt]:
    """The events of one object, or of all, in the order of their chains and times."""
    await lake.background.drain()
    events = await all_events(lake)
    if object_id:
        return ordered([event for event in events if event.object_id == object_id])
    return sorted(events, key=lambda event: event.committed_at_ms)


async def kinds(lake: Lake, object_id: str = "") -> list[str]:
    return [event.kind for event in await receipts_of(lake, object_id)]


async def without_receipts(lake: Lake) -> None:
    """A server died before it wrote any receipt of an event."""
    await lake.background.drain()
    for listed in await list_all(lake.store, lake.layout.events_folder()):
        if lake.layout.parse_receipt(listed.key).family == "catalog":
            await lake.store.delete(listed.key, expected=listed.version)


async def test_the_life_of_a_table_is_one_chain_with_who_and_what(lake: Lake) -> None:
    made = await create(lake, "t")
    await rename(lake, T, U, kind="table", request=by_ann("rename"))
    await drop_name(lake, U, kind="table", request=by_ann("drop"))

    created, renamed, dropped = await receipts_of(lake, made.table_uuid)

    assert [created.kind, renamed.kind, dropped.kind] == ["created", "renamed", "dropped"]
    assert (created.identifier, renamed.identifier, renamed.renamed_from, dropped.identifier) == (T, U, T, U)
    assert (dropped.source, dropped.object_type, dropped.format) == (ANN, "table", "iceberg")
    assert created.previous_commit_key is None
    await check_events(lake)


async def test_a_name_that_is_used_again_begins_another_chain(lake: Lake) -> None:
    first = await create(lake, "t")
    await drop_name(lake, T, kind="table", request=by_ann("drop"))
    second = await create(lake, "t", properties={"another": "one"})

    assert await kinds(lake, first.table_uuid) == ["created", "dropped"]
    assert await kinds(lake, second.table_uuid) == ["created"]


async def test_containers_tell_their_changes_by_keys_and_never_by_values(lake: Lake) -> None:
    catalog = await create_catalog(lake, "c", root=None, properties={"a": "secret"}, request=by_ann("c"))
    await update_catalog(lake, "c", comment="new", properties={"b": "secret"}, request=by_ann("update"))
    namespace = Namespace("c", ("n",))
    await create_namespace(lake, namespace, {}, by_ann("n"))
    await update_namespace_properties(
        lake, namespace, removals=(), updates={"p": "secret"}, request=by_ann("properties")
    )
    await drop_namespace(lake, namespace, by_ann("drop n"))
    await drop_catalog(lake, "c", force=False, request=by_ann("drop c"))

    of_catalog = await receipts_of(lake, catalog.id)
    of_namespace = [event for event in await receipts_of(lake) if event.object_type == "namespace"]

    assert [event.kind for event in of_catalog] == ["created", "changed", "dropped"]
    assert of_catalog[1].details == ("comment", "properties.a", "properties.b")
    assert [event.kind for event in ordered(of_namespace)] == ["created", "changed", "dropped"]
    assert of_namespace[0].identifier == Identifier("c", ("n",), "")
    assert "secret" not in str(await receipts_of(lake))


async def test_a_request_that_is_refused_or_changes_nothing_leaves_no_event(lake: Lake) -> None:
    await create(lake, "t")
    await create(lake, "u", properties={"another": "one"})
    await update_namespace_properties(lake, NAMESPACE, removals=(), updates={"p": "1"}, request=by_ann("set"))
    before = await receipts_of(lake)

    with pytest.raises(AlreadyExists):
        await rename(lake, T, U, kind="table", request=by_ann("taken"))
    with pytest.raises(NotFound):
        await drop_name(lake, identifier_of("missing"), kind="table", request=by_ann("missing"))
    with pytest.raises(NotEmpty):
        await drop_namespace(lake, NAMESPACE, by_ann("full"))
    with pytest.raises(AlreadyExists):
        await create_namespace(lake, NAMESPACE, {}, by_ann("again"))
    await update_namespace_properties(lake, NAMESPACE, removals=(), updates={"p": "1"}, request=by_ann("same"))
    await commit_table(lake, T, append(1), by_ann("commit"))

    assert await receipts_of(lake) == before


async def test_what_the_catalog_keeps_about_a_table_has_a_chain_of_its_own(lake: Lake) -> None:
    made = await create(lake, "t")
    await change_tags(lake, "table", "main.a.t", by_ann("tag"), set_={"pii": "yes"})
    await change_owner(lake, "table", "main.a.t", "ann", by_ann("owner"))
    await lake.background.drain()

    changes = ordered([event for event in await all_events(lake) if event.kind == "changed"])

    assert [event.details for event in changes] == [("tags.pii",), ("owner",)]
    assert {event.object_id for event in changes} == {made.table_uuid}
    await check_events(lake)  # The bump of the grants is no event (E4), so nothing else changed.


async def test_the_receipt_of_the_last_event_exists_before_the_record_moves_on(lake: Lake) -> None:
    """E2, by servers that did not make that event."""
    store, clock = lake.store, lake.clock
    await create_catalog(lake, "c", root=None, properties={}, request=by_ann("c"))
    await create(lake, "t")
    await create(lake, "u", properties={"another": "one"})
    await change_tags(lake, "table", "main.a.u", by_ann("tag"), set_={"a": "1"})
    await without_receipts(lake)

    await drop_name(make_lake(store, clock), T, kind="table", request=by_ann("drop"))
    await rename(make_lake(store, clock), U, identifier_of("w"), kind="table", request=by_ann("rename"))
    await change_tags(make_lake(store, clock), "table", "main.a.w", by_ann("more"), set_={"b": "1"})
    await update_catalog(make_lake(store, clock), "c", comment="x", properties=None, request=by_ann("update"))

    await check_events(make_lake(store, clock))
    assert sorted(await kinds(make_lake(store, clock))).count("created") == 3


async def test_janitors_write_the_receipt_before_they_delete_a_record() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create_catalog(server, "c", root=None, properties={}, request=by_ann("c"))
    await drop_catalog(server, "c", force=False, request=by_ann("drop c"))
    await create(server, "t")
    await change_tags(server, "table", "main.a.t", by_ann("tag"), set_={"a": "1"})
    await drop_name(server, T, kind="table", request=by_ann("drop"))
    wanted = {event.commit_key for event in await receipts_of(server)} - {
        event.commit_key for event in await receipts_of(server) if event.kind == "created"
    }
    await without_receipts(server)

    for _ in range(60):
        cluster.clock.advance(DAY_MS)
        await cluster.sweep()

    assert await cluster.keys(server.layout.all_names_folder()) == []
    assert await cluster.keys(server.layout.pointers_folder()) == []
    assert wanted <= {event.commit_key for event in await all_events(cluster.server())}


async def test_a_receipt_whose_answer_was_lost_is_written_again() -> None:
    """E2 known."""
    inner = MemoryStore()
    lake = make_lake(LossyStore(inner, loses_at=1, fate="dropped"))
    receipts = lake.feature(CatalogReceipts)

    with pytest.raises(OutcomeUnknown):
        await receipts.ensure(EVENT)
    assert not await receipts.exists("o", attempted(EVENT))
    await receipts.ensure(EVENT)

    assert await make_lake(inner).feature(CatalogReceipts).exists("o", attempted(EVENT))


async def test_a_keyed_drop_is_recognised_by_its_receipt_alone(lake: Lake) -> None:
    """E7: name and pointer are gone, the claim is open."""
    made = await create(lake, "t")
    sent = by_ann("drop", key="k")
    await drop_name(lake, T, kind="table", request=sent)
    await lake.background.drain()
    for key in (lake.layout.name(T), lake.layout.pointer(made.table_uuid)):
        stored = await lake.store.get(key)
        assert stored
        await lake.store.delete(key, expected=stored.version)
    (claim,) = await list_all(lake.store, lake.layout.claims_folder())
    data = await lake.store.get(claim.key)
    assert data
    await lake.store.put(claim.key, data.data.replace(b'"state":"done"', b'"state":"open"'), expected=claim.version)
    later = FixedClock()
    later.advance(DAY_MS)

    await drop_name(make_lake(lake.store, later), T, kind="table", request=sent)

    assert await kinds(lake, made.table_uuid) == ["created", "dropped"]


def on_first_format(lake: Lake) -> Lake:
    old = make_lake(lake.store, lake.clock)
    old.form = RecordForm(major=1)
    return old


async def test_a_store_of_the_first_format_has_no_events() -> None:
    old = on_first_format(make_lake())
    await set_up_catalog(old)
    await create(old, "t")
    await rename(old, T, U, kind="table", request=by_ann("rename"))
    await update_namespace_properties(old, NAMESPACE, removals=(), updates={"p": "1"}, request=by_ann("set"))
    await change_tags(old, "table", "main.a.u", by_ann("tag"), set_={"a": "1"})
    await drop_name(old, U, kind="table", request=by_ann("drop"))

    assert await receipts_of(old) == []


async def test_the_first_change_of_an_older_record_adopts_it() -> None:
    """V5: also what another change needs, such as the namespace of a table, begins its chain only by its own change."""
    lake = make_lake()
    old = on_first_format(lake)
    await set_up_catalog(old)
    made = await create(old, "t")
    await old.background.drain()

    await update_namespace_properties(lake, NAMESPACE, removals=(), updates={"p": "1"}, request=by_ann("set"))
    await drop_name(lake, T, kind="table", request=by_ann("drop"))

    assert await kinds(lake, made.table_uuid) == ["adopted", "dropped"]
    assert await kinds(lake, f"id of {NAMESPACE}") == ["adopted", "changed"]
    (first, _) = await receipts_of(lake, made.table_uuid)
    assert (first.source, first.identifier) == (Source(), T)
    await check_events(lake)


async def test_the_repair_adopts_older_records_and_tells_half_done_requests() -> None:
    lake = make_lake()
    old = on_first_format(lake)
    await set_up_catalog(old)
    made = await create(old, "t")
    await old.background.drain()

    await reconcile(lake)
    await reconcile(make_lake(lake.store, lake.clock))

    assert await kinds(lake, made.table_uuid) == ["adopted"]
    assert await kinds(lake, "catalog") == ["adopted"]


async def test_the_receipt_of_the_last_event_is_the_same_whoever_writes_it(lake: Lake) -> None:
    await create(lake, "t")
    first = await receipts_of(lake)
    await without_receipts(lake)

    await reconcile(make_lake(lake.store, lake.clock))

    assert {event.commit_key: event for event in first}.items() <= {
        event.commit_key: event for event in await receipts_of(lake)
    }.items()


async def test_a_name_that_did_not_happen_tells_nothing(lake: Lake) -> None:
    """E3: a `new` name whose namespace was dropped, and one of another namespace with the same name."""
    cell = lake.name(Identifier(*Namespace("main", ("gone",)), "t"))
    await cell.create(NameRecord(state="new", uuid="u", kind="table", namespace_id="gone", last_event=EVENT))

    with contextlib.suppress(SandurError):
        await reconcile(lake)

    assert "o" not in {event.object_id for event in await all_events(lake)}


async def test_who_replaces_a_namespace_whose_parent_is_gone_tells_nothing_of_it(lake: Lake) -> None:
    """E3 replace: the creator died, and the parent was dropped and created again."""
    child = Namespace("main", ("a", "child"))
    dead = NamespaceRecord(state="new", id="o", parent_id="an earlier parent", last_event=EVENT)
    await lake.namespace(child).create(dead)

    await create_namespace(lake, child, {}, by_ann("child"))

    assert [event.object_type for event in await receipts_of(lake)] == ["namespace"]
    assert "o" not in {event.object_id for event in await receipts_of(lake)}
    await check_events(lake)


def test_an_event_follows_one_of_its_own_object_and_is_never_earlier() -> None:
    subject = EventSubject("table", "o")

    after = next_event("dropped", subject, event_id="f", now_ms=0, source=ANN, before=EVENT)
    other = next_event("created", EventSubject("table", "p"), event_id="f", now_ms=0, source=ANN, before=EVENT)

    assert (after.previous, after.at_ms) == (commit_key_of_event(EVENT), 1)
    assert (other.previous, other.at_ms) == (None, 0)


def test_the_details_of_an_event_are_bounded() -> None:
    details = [f"properties.{'x' * 500}{number}" for number in range(3)] + [f"k{number:04}" for number in range(200)]

    event = next_event("changed", EventSubject("catalog", "o"), event_id="e", now_ms=0, source=ANN, details=details)

    assert len(event.details) == DETAILS_MAX
    assert event.details[-1] == "and 152 more"
    assert max(map(len, event.details)) <= 120
