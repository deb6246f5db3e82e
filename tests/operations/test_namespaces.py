"""Namespaces as clients see them, with keys and refusals."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Claim, LastChange, NamespaceRecord
from sandur.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Invalid,
    KeyReused,
    NotEmpty,
    NotFound,
    Unprocessable,
)
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import (
    PropertiesUpdate,
    create_namespace,
    list_namespaces,
    load_namespace,
    namespace_exists,
    update_namespace_properties,
)
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake, complete_new_store
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake, make_request, put_name, remove_name

A = Namespace("main", ("a",))
B = Namespace("main", ("a", "b"))
C = Namespace("main", ("a", "b", "c"))
ROOT = "memory://store/tables/default/default/main"


async def create(
    lake: Lake, namespace: Namespace, properties: Mapping[str, str] | None = None, key: str | None = None
) -> Mapping[str, str]:
    request = make_request(f"create {namespace} {properties}", key)
    return (await create_namespace(lake, namespace, properties or {}, request)).properties


async def drop(lake: Lake, namespace: Namespace, key: str | None = None) -> None:
    await drop_namespace(lake, namespace, make_request(f"drop {namespace}", key))


async def update(
    lake: Lake,
    namespace: Namespace,
    *,
    removals: Sequence[str] = (),
    updates: Mapping[str, str] | None = None,
    key: str | None = None,
) -> PropertiesUpdate:
    request = make_request(f"update {namespace} {removals} {updates}", key)
    return await update_namespace_properties(lake, namespace, removals=removals, updates=updates or {}, request=request)


async def children(lake: Lake, parent: Namespace | None) -> list[str]:
    page = await list_namespaces(lake, "main", parent=parent, page_token=None, page_size=None)
    return [str(namespace) for namespace in page.entries]


async def test_a_namespace_is_loaded_as_it_was_created() -> None:
    lake = make_lake()

    created = await create(lake, A, {"owner": "me"})

    assert created == {"owner": "me", "location": f"{ROOT}/a"}
    assert (await load_namespace(lake, A)).properties == created
    assert await namespace_exists(lake, A)


async def test_an_explicit_location_is_kept_unchanged() -> None:
    lake = make_lake(allowed_locations=["s3://bucket/house"])
    await complete_new_store(lake.store, lake.clock)

    created = await create(lake, A, {"location": "s3a://bucket/house/a"})

    assert created["location"] == "s3a://bucket/house/a"


@pytest.mark.parametrize("location", ["s3://other/a", f"{ROOT}/../else", "memory://store/tables/default/other/x"])
async def test_a_location_outside_of_the_catalog_is_refused(location: str) -> None:
    lake = make_lake()
    await create(lake, A)

    with pytest.raises(Invalid, match="Invalid location"):
        await create(lake, B, {"location": location})
    with pytest.raises(Invalid, match="Invalid location"):
        await update(lake, A, updates={"location": location})


async def test_reserved_properties_cannot_be_set_or_removed() -> None:
    lake = make_lake()
    await create(lake, A)

    with pytest.raises(Invalid, match=r"SANDUR\.x"):
        await create(lake, B, {"SANDUR.x": "1"})
    with pytest.raises(Invalid, match=r"sandur\.x"):
        await update(lake, A, updates={"sandur.x": "1"})
    with pytest.raises(Invalid, match=r"Sandur\.x"):
        await update(lake, A, removals=["Sandur.x"])


@pytest.mark.parametrize("levels", [(), ("",), ("a", ""), ("a\x1fb",), ("x" * 256,), ("a",) * 17])
async def test_an_invalid_name_is_refused(levels: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest):
        await create(make_lake(), Namespace("main", levels))


async def test_a_namespace_is_created_once() -> None:
    lake = make_lake()
    await create(lake, A)
    await create(lake, B)

    for namespace in (A, B):
        with pytest.raises(AlreadyExists, match=f"^Namespace already exists: {namespace}$") as refused:
            await create(lake, namespace)
        assert refused.value.subject == "namespace"


async def test_missing_parents_are_created_with_the_child() -> None:
    """As in Iceberg's own catalogs, where a namespace exists as soon as one below it does."""
    lake = make_lake()

    properties = await create(lake, C, {"owner": "me"})

    server = make_lake(lake.store, lake.clock)
    assert properties["owner"] == "me"
    assert await children(server, None) == ["a"]
    assert await children(server, A) == ["a.b"]
    assert await children(server, B) == ["a.b.c"]
    assert "owner" not in (await load_namespace(server, B)).properties


async def test_the_parents_that_exist_stay_as_they_are() -> None:
    lake = make_lake()
    await create(lake, A, {"owner": "me"})

    await create(lake, C)

    assert (await load_namespace(lake, A)).properties["owner"] == "me"


async def test_children_of_one_missing_parent_can_be_created_at_the_same_time() -> None:
    lake = make_lake()
    servers = {one: make_lake(lake.store, lake.clock) for one in ("b", "c", "d")}

    await asyncio.gather(*(create(server, Namespace("main", ("a", one))) for one, server in servers.items()))

    for server in servers.values():  # Another server lists them once they are in the index.
        await server.background.drain()
    assert await children(lake, A) == [f"a.{one}" for one in servers]


async def test_a_keyed_child_and_its_missing_parents_are_created_once() -> None:
    lake = make_lake()

    first = await create(lake, B, key="k")
    again = await create(make_lake(lake.store, lake.clock), B, key="k")

    assert first == again


async def test_namespaces_of_a_catalog_that_does_not_exist_are_not_found() -> None:
    lake = make_lake()
    nowhere = Namespace("nowhere", ("a",))

    with pytest.raises(NotFound) as refused:
        await create(lake, nowhere)

    assert refused.value.subject == "catalog"
    assert not await namespace_exists(lake, nowhere)


async def test_every_operation_on_a_missing_namespace_is_not_found() -> None:
    lake = make_lake()

    for attempt in (
        load_namespace(lake, A),
        drop(lake, A),
        drop(lake, A, key="k"),
        update(lake, A, updates={"x": "1"}),
        update(lake, A, updates={"x": "1"}, key="l"),
        list_namespaces(lake, "main", parent=A, page_token=None, page_size=None),
    ):
        with pytest.raises(NotFound, match=r"^Namespace does not exist: a$"):
            await attempt


async def test_an_update_reports_updated_removed_and_missing_keys() -> None:
    lake = make_lake()
    await create(lake, A, {"one": "1", "two": "2"})

    outcome = await update(lake, A, removals=["two", "none", "two"], updates={"three": "3", "one": "0"})

    assert outcome == PropertiesUpdate(["three", "one"], ["two"], ["none"])
    assert (await load_namespace(lake, A)).properties == {"one": "0", "three": "3", "location": f"{ROOT}/a"}


async def test_a_property_that_is_set_and_removed_at_once_is_refused() -> None:
    lake = make_lake()
    await create(lake, A)

    with pytest.raises(Unprocessable, match="x"):
        await update(lake, A, removals=["x", "y"], updates={"x": "1"})


async def test_an_update_without_a_change_reports_that() -> None:
    lake = make_lake()
    await create(lake, A, {"one": "1"})

    for key in (None, "k", "k"):
        outcome = await update(lake, A, removals=["none"], updates={"one": "1"}, key=key)
        assert outcome == PropertiesUpdate(["one"], [], ["none"])


async def test_a_namespace_with_a_child_is_not_dropped() -> None:
    lake = make_lake()
    await create(lake, A)
    await create(lake, B)

    with pytest.raises(NotEmpty, match=r"^Namespace a is not empty\. It holds the namespace a\.b$"):
        await drop(lake, A)

    assert await namespace_exists(lake, A)
    await drop(lake, B)
    await drop(lake, A)
    assert not await namespace_exists(lake, A)


async def test_a_namespace_with_a_table_or_view_is_not_dropped() -> None:
    lake = make_lake()
    await create(lake, A)
    table, view = Identifier("main", ("a",), "t"), Identifier("main", ("a",), "v")
    await put_name(lake, table)
    await put_name(lake, view, kind="view")

    for name, kind in ((table, "table"), (view, "view")):
        with pytest.raises(NotEmpty, match=f"It holds the {kind} {name}"):
            await drop(lake, A)
        await remove_name(lake, name)

    await drop(lake, A)


async def test_namespaces_with_similar_names_are_not_children() -> None:
    """Neighbours with the same prefix, and the same levels in another catalog, are not children."""
    lake = make_lake()
    await create(lake, A)
    for other in (("ab",), ("a b",), ("a.b",), ("a", "b")):
        await create(lake, Namespace("main", other))
    await drop(lake, B)

    await drop(lake, A)

    assert await children(lake, None) == ["a b", "a.b", "ab"]


@pytest.mark.parametrize("length", range(190, 206))
async def test_children_of_long_names_are_found(length: int) -> None:
    """Keys are split into pieces of 200 characters; the split may be anywhere in or after the parent's name."""
    lake = make_lake()
    parent = Namespace("main", ("x" * length,))
    child = Namespace("main", (*parent.levels, "y" * 150))
    await create(lake, parent)
    await create(lake, Namespace("main", ("x" * (length - 1),)))
    await create(lake, child)

    with pytest.raises(NotEmpty):
        await drop(lake, parent)

    assert await children(make_lake(lake.store, lake.clock), parent) == [str(child)]
    await drop(lake, child)
    await drop(lake, parent)


async def test_a_dropped_namespace_can_be_created_again_with_a_new_id() -> None:
    lake = make_lake()
    for namespace in (A, B):
        await create(lake, namespace, {"n": "1"})
    first = (await lake.namespace(B).read()) or pytest.fail("it is not there")
    await drop(lake, B)

    await create(lake, B, {"n": "2"})

    second = (await lake.namespace(B).read()) or pytest.fail("it is not there")
    assert first.value.id != second.value.id
    assert (await load_namespace(lake, B)).properties["n"] == "2"


async def test_lists_show_one_level() -> None:
    lake = make_lake()
    for namespace in (Namespace("main", ("b",)), A, B, C):
        await create(lake, namespace)

    assert await children(lake, None) == ["a", "b"]
    assert await children(lake, A) == ["a.b"]
    assert await children(lake, B) == ["a.b.c"]
    assert await children(lake, C) == []


async def test_a_replay_gets_the_same_answer() -> None:
    lake = make_lake()
    await create(lake, A)
    created = await create(lake, B, {"x": "1"}, key="k1")
    updated = await update(lake, B, removals=["x"], updates={"y": "2"}, key="k2")
    await update(lake, B, updates={"x": "3"})
    await lake.background.drain()

    assert await create(lake, B, {"x": "1"}, key="k1") == created
    assert await update(lake, B, removals=["x"], updates={"y": "2"}, key="k2") == updated
    assert (await load_namespace(lake, B)).properties == {"x": "3", "y": "2", "location": f"{ROOT}/a/b"}

    await drop(lake, B, key="k3")
    await lake.background.drain()
    await create(lake, B)
    await drop(lake, B, key="k3")
    assert await namespace_exists(lake, B)


async def test_a_refusal_is_replayed_under_its_key() -> None:
    lake = make_lake()
    await create(lake, A)
    with pytest.raises(AlreadyExists):
        await create(lake, A, {"x": "1"}, key="k1")
    with pytest.raises(NotFound):
        await create(lake, Namespace("none", ("a",)), key="k2")
    await create(lake, B)
    with pytest.raises(NotEmpty):
        await drop(lake, A, key="k3")
    await drop(lake, B)
    await drop(lake, A)

    with pytest.raises(AlreadyExists, match="Namespace already exists: a"):
        await create(lake, A, {"x": "1"}, key="k1")
    await create(lake, A)
    await create(lake, B)
    await create_catalog(lake, "none", root=None, properties={}, request=make_request("create none"))
    with pytest.raises(NotFound, match="Catalog does not exist: none"):
        await create(lake, Namespace("none", ("a",)), key="k2")
    await drop(lake, B)
    with pytest.raises(NotEmpty, match=r"It holds the namespace a\.b"):
        await drop(lake, A, key="k3")


async def test_a_key_used_for_another_request_is_refused() -> None:
    lake = make_lake()
    await create(lake, A, key="k")
    await update(lake, A, updates={"x": "1"}, key="l")
    await lake.background.drain()

    with pytest.raises(KeyReused):
        await create(lake, Namespace("main", ("z",)), key="k")
    with pytest.raises(KeyReused):
        await update(lake, A, updates={"x": "2"}, key="l")


async def test_a_key_reused_before_its_first_request_ends_is_refused() -> None:
    """The record has a change with this key; only the claim has the hash of the request."""
    lake = make_lake()
    await create(lake, A)
    await update(lake, A, updates={"x": "1"}, key="l")

    with pytest.raises(KeyReused):
        await update(lake, A, updates={"x": "2"}, key="l")


async def test_a_drop_is_replayed_only_for_the_same_request() -> None:
    lake = make_lake()
    await create(lake, A)
    await drop(lake, A, key="k")

    with pytest.raises(KeyReused):
        await drop_namespace(lake, A, make_request("something else", "k"))


async def create_orphan(lake: Lake, key: str) -> None:
    """A child whose creator died after its parent was dropped; the parent was created again."""
    request = make_request(f"create {B} None", key)
    claim = Claim(
        state="open",
        request_hash=request.hash,
        operation="create-namespace",
        owner="somebody",
        started_ms=0,
        namespace_id="orphan",
    )
    await lake.claim("create-namespace", key_hash_of(request) or "").create(claim)
    change = LastChange(key_hash_of(request) or "", "create-namespace")
    await lake.namespace(B).create(NamespaceRecord(state="new", id="orphan", parent_id="another parent", change=change))


async def test_an_orphan_does_not_count_as_a_child() -> None:
    lake = make_lake()
    await create(lake, A)
    await create_orphan(lake, "k")

    assert not await namespace_exists(lake, B)
    assert await children(lake, A) == []
    await drop(lake, A)
    with pytest.raises(NotFound):
        await create(lake, B, key="k")


async def test_a_retry_learns_that_its_orphaned_creation_did_not_happen() -> None:
    lake = make_lake()
    await create(lake, A)
    await create_orphan(lake, "k")
    await create(lake, B, {"mine": "yes"})

    with pytest.raises(NotFound, match="Namespace does not exist: a"):
        await create(lake, B, key="k")

    assert (await load_namespace(lake, B)).properties["mine"] == "yes"


async def test_keys_of_different_operations_are_independent() -> None:
    lake = make_lake()

    await create(lake, A, key="k")
    await update(lake, A, updates={"x": "1"}, key="k")
    await drop(lake, A, key="k")

    assert not await namespace_exists(lake, A)


async def test_the_rounds_before_the_answer_are_bounded() -> None:
    store = SpyStore(MemoryStore())
    lake = make_lake(store)
    await create(lake, A)
    await lake.background.drain()

    async def rounds(work: object) -> int:
        await lake.background.drain()
        store.reset()
        await work  # type: ignore[misc]  # a coroutine
        counted = store.rounds
        await lake.background.drain()
        return counted

    assert await rounds(load_namespace(lake, A)) == 1
    assert await rounds(namespace_exists(lake, A)) == 1
    assert await rounds(create(lake, B, key="k1")) == 4
    assert await rounds(create(lake, Namespace("main", ("n",)), key="k2")) == 4
    assert await rounds(update(lake, A, updates={"x": "1"}, key="k3")) == 3
    assert await rounds(drop(lake, B, key="k4")) == 5


async def test_a_busy_key_is_not_taken_over_before_its_timeout() -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    lake = make_lake(inner, clock)
    request = make_request("create a None", "k")
    claim = Claim(
        state="open",
        request_hash=request.hash,
        operation="create-namespace",
        owner="somebody",
        started_ms=clock.now_ms(),
        namespace_id="pinned",
    )
    await lake.claim("create-namespace", key_hash_of(request) or "").create(claim)

    with pytest.raises(Busy):
        await create(lake, A, key="k")
    clock.advance(lake.settings.claim_timeout_ms + 1)
    await create(lake, A, key="k")

    found = (await lake.namespace(A).read()) or pytest.fail("it is not there")
    assert found.value.id == "pinned"
