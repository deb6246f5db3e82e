"""Namespaces: what clients see of them, and what keys and refusals do."""

from collections.abc import Mapping, Sequence

import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Change, Claim, NamespaceRecord
from sandur.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Invalid,
    KeyReused,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    Unprocessable,
)
from sandur.operations.namespaces import (
    PropertiesUpdate,
    create_namespace,
    drop_namespace,
    list_namespaces,
    load_namespace,
    namespace_exists,
    update_namespace_properties,
)
from sandur.operations.workspace import Workspace
from sandur.settings import RetrySettings
from sandur.storage.memory import MemoryStore
from sandur.storage.retrying import RetryingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import Fate, LossyStore
from tests.fakes.spy_store import SpyStore
from tests.operations.making import make_request, make_workspace, put_name, take_name_away

A = Namespace("main", ("a",))
B = Namespace("main", ("a", "b"))
C = Namespace("main", ("a", "b", "c"))
ROOT = "memory://store/tables/default/default/main"


async def create(
    workspace: Workspace, namespace: Namespace, properties: Mapping[str, str] | None = None, key: str | None = None
) -> Mapping[str, str]:
    request = make_request(f"create {namespace} {properties}", key)
    return (await create_namespace(workspace, namespace, properties or {}, request)).properties


async def drop(workspace: Workspace, namespace: Namespace, key: str | None = None) -> None:
    await drop_namespace(workspace, namespace, make_request(f"drop {namespace}", key))


async def update(
    workspace: Workspace,
    namespace: Namespace,
    *,
    removals: Sequence[str] = (),
    updates: Mapping[str, str] | None = None,
    key: str | None = None,
) -> PropertiesUpdate:
    request = make_request(f"update {namespace} {removals} {updates}", key)
    return await update_namespace_properties(
        workspace, namespace, removals=removals, updates=updates or {}, request=request
    )


async def children(workspace: Workspace, parent: Namespace | None) -> list[str]:
    page = await list_namespaces(workspace, "main", parent=parent, page_token=None, page_size=None)
    return [str(namespace) for namespace in page.entries]


async def test_a_namespace_is_loaded_as_it_was_created() -> None:
    workspace = make_workspace()

    created = await create(workspace, A, {"owner": "me"})

    assert created == {"owner": "me", "location": f"{ROOT}/a"}
    assert (await load_namespace(workspace, A)).properties == created
    assert await namespace_exists(workspace, A)


async def test_a_location_of_its_own_is_kept_as_it_was_spelled() -> None:
    workspace = make_workspace(allowed_locations=["s3://bucket/house"])

    created = await create(workspace, A, {"location": "s3a://bucket/house/a"})

    assert created["location"] == "s3a://bucket/house/a"


@pytest.mark.parametrize("location", ["s3://other/a", f"{ROOT}/../else", "memory://store/tables/default/other/x"])
async def test_a_location_outside_of_the_catalog_is_refused(location: str) -> None:
    workspace = make_workspace()
    await create(workspace, A)

    with pytest.raises(Invalid, match="Invalid location"):
        await create(workspace, B, {"location": location})
    with pytest.raises(Invalid, match="Invalid location"):
        await update(workspace, A, updates={"location": location})


async def test_what_belongs_to_the_catalog_cannot_be_set_or_removed() -> None:
    workspace = make_workspace()
    await create(workspace, A)

    with pytest.raises(Invalid, match=r"SANDUR\.x"):
        await create(workspace, B, {"SANDUR.x": "1"})
    with pytest.raises(Invalid, match=r"sandur\.x"):
        await update(workspace, A, updates={"sandur.x": "1"})
    with pytest.raises(Invalid, match=r"Sandur\.x"):
        await update(workspace, A, removals=["Sandur.x"])


@pytest.mark.parametrize("levels", [(), ("",), ("a", ""), ("a\x1fb",), ("x" * 256,), ("a",) * 17])
async def test_what_no_namespace_may_be_called_is_refused(levels: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest):
        await create(make_workspace(), Namespace("main", levels))


async def test_a_namespace_is_created_once() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    await create(workspace, B)

    for namespace in (A, B):
        with pytest.raises(AlreadyExists, match=f"^Namespace already exists: {namespace}$") as refused:
            await create(workspace, namespace)
        assert refused.value.subject == "namespace"


async def test_a_child_needs_its_parent() -> None:
    workspace = make_workspace()

    with pytest.raises(NotFound, match=r"^Namespace does not exist: a$") as refused:
        await create(workspace, B)

    assert refused.value.subject == "namespace"
    assert not await namespace_exists(workspace, B)


async def test_namespaces_of_a_catalog_that_does_not_exist_are_not_found() -> None:
    workspace = make_workspace()
    nowhere = Namespace("nowhere", ("a",))

    with pytest.raises(NotFound) as refused:
        await create(workspace, nowhere)

    assert refused.value.subject == "catalog"
    assert not await namespace_exists(workspace, nowhere)


async def test_a_missing_namespace_is_not_found_by_anyone() -> None:
    workspace = make_workspace()

    for attempt in (
        load_namespace(workspace, A),
        drop(workspace, A),
        drop(workspace, A, key="k"),
        update(workspace, A, updates={"x": "1"}),
        update(workspace, A, updates={"x": "1"}, key="l"),
        list_namespaces(workspace, "main", parent=A, page_token=None, page_size=None),
    ):
        with pytest.raises(NotFound, match=r"^Namespace does not exist: a$"):
            await attempt


async def test_an_update_says_what_it_set_removed_and_missed() -> None:
    workspace = make_workspace()
    await create(workspace, A, {"one": "1", "two": "2"})

    outcome = await update(workspace, A, removals=["two", "none", "two"], updates={"three": "3", "one": "0"})

    assert outcome == PropertiesUpdate(["three", "one"], ["two"], ["none"])
    assert (await load_namespace(workspace, A)).properties == {"one": "0", "three": "3", "location": f"{ROOT}/a"}


async def test_a_key_that_is_set_and_removed_at_once_is_refused() -> None:
    workspace = make_workspace()
    await create(workspace, A)

    with pytest.raises(Unprocessable, match="x"):
        await update(workspace, A, removals=["x", "y"], updates={"x": "1"})


async def test_an_update_that_changes_nothing_says_so() -> None:
    workspace = make_workspace()
    await create(workspace, A, {"one": "1"})

    for key in (None, "k", "k"):
        outcome = await update(workspace, A, removals=["none"], updates={"one": "1"}, key=key)
        assert outcome == PropertiesUpdate(["one"], [], ["none"])


async def test_a_namespace_with_a_child_is_not_dropped() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    await create(workspace, B)

    with pytest.raises(NotEmpty, match=r"^Namespace a is not empty\. It holds the namespace a\.b$"):
        await drop(workspace, A)

    assert await namespace_exists(workspace, A)
    await drop(workspace, B)
    await drop(workspace, A)
    assert not await namespace_exists(workspace, A)


async def test_a_namespace_with_a_table_or_view_is_not_dropped() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    table, view = Identifier("main", ("a",), "t"), Identifier("main", ("a",), "v")
    await put_name(workspace, table)
    await put_name(workspace, view, kind="view")

    for name, kind in ((table, "table"), (view, "view")):
        with pytest.raises(NotEmpty, match=f"It holds the {kind} {name}"):
            await drop(workspace, A)
        await take_name_away(workspace, name)

    await drop(workspace, A)


async def test_a_namespace_is_empty_whatever_its_namesakes_hold() -> None:
    """Neighbours whose names begin alike, and the same levels in another catalog, are no children."""
    workspace = make_workspace()
    await create(workspace, A)
    for other in (("ab",), ("a b",), ("a.b",), ("a", "b")):
        await create(workspace, Namespace("main", other))
    await drop(workspace, B)

    await drop(workspace, A)

    assert await children(workspace, None) == ["a b", "a.b", "ab"]


@pytest.mark.parametrize("length", range(190, 206))
async def test_children_of_long_names_are_found(length: int) -> None:
    """Keys are cut into pieces of 200 characters: the cut may fall anywhere in or behind the name of the parent."""
    workspace = make_workspace()
    parent = Namespace("main", ("x" * length,))
    child = Namespace("main", (*parent.levels, "y" * 150))
    await create(workspace, parent)
    await create(workspace, Namespace("main", ("x" * (length - 1),)))
    await create(workspace, child)

    with pytest.raises(NotEmpty):
        await drop(workspace, parent)

    assert await children(make_workspace(workspace.store, workspace.clock), parent) == [str(child)]
    await drop(workspace, child)
    await drop(workspace, parent)


async def test_a_dropped_namespace_can_be_made_again_and_is_another_one() -> None:
    workspace = make_workspace()
    for namespace in (A, B):
        await create(workspace, namespace, {"n": "1"})
    first = (await workspace.namespace(B).read()) or pytest.fail("it is not there")
    await drop(workspace, B)

    await create(workspace, B, {"n": "2"})

    second = (await workspace.namespace(B).read()) or pytest.fail("it is not there")
    assert first.value.id != second.value.id
    assert (await load_namespace(workspace, B)).properties["n"] == "2"


async def test_lists_show_one_level() -> None:
    workspace = make_workspace()
    for namespace in (Namespace("main", ("b",)), A, B, C):
        await create(workspace, namespace)

    assert await children(workspace, None) == ["a", "b"]
    assert await children(workspace, A) == ["a.b"]
    assert await children(workspace, B) == ["a.b.c"]
    assert await children(workspace, C) == []


async def test_keys_replay_alike() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    created = await create(workspace, B, {"x": "1"}, key="k1")
    updated = await update(workspace, B, removals=["x"], updates={"y": "2"}, key="k2")
    await update(workspace, B, updates={"x": "3"})
    await workspace.background.drain()

    assert await create(workspace, B, {"x": "1"}, key="k1") == created
    assert await update(workspace, B, removals=["x"], updates={"y": "2"}, key="k2") == updated
    assert (await load_namespace(workspace, B)).properties == {"x": "3", "y": "2", "location": f"{ROOT}/a/b"}

    await drop(workspace, B, key="k3")
    await workspace.background.drain()
    await create(workspace, B)
    await drop(workspace, B, key="k3")
    assert await namespace_exists(workspace, B)


async def test_a_refusal_stays_what_it_was_under_its_key() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    with pytest.raises(AlreadyExists):
        await create(workspace, A, {"x": "1"}, key="k1")
    with pytest.raises(NotFound):
        await create(workspace, C, key="k2")
    await create(workspace, B)
    with pytest.raises(NotEmpty):
        await drop(workspace, A, key="k3")
    await drop(workspace, B)
    await drop(workspace, A)

    with pytest.raises(AlreadyExists, match="Namespace already exists: a"):
        await create(workspace, A, {"x": "1"}, key="k1")
    await create(workspace, A)
    await create(workspace, B)
    with pytest.raises(NotFound, match=r"Namespace does not exist: a\.b"):
        await create(workspace, C, key="k2")
    await drop(workspace, B)
    with pytest.raises(NotEmpty, match=r"It holds the namespace a\.b"):
        await drop(workspace, A, key="k3")


async def test_a_key_used_for_another_request_is_refused() -> None:
    workspace = make_workspace()
    await create(workspace, A, key="k")
    await update(workspace, A, updates={"x": "1"}, key="l")
    await workspace.background.drain()

    with pytest.raises(KeyReused):
        await create(workspace, Namespace("main", ("z",)), key="k")
    with pytest.raises(KeyReused):
        await update(workspace, A, updates={"x": "2"}, key="l")


async def test_a_key_reused_before_its_first_request_is_finished_is_refused_too() -> None:
    """The record shows a change under this key, but only the claim knows of which request."""
    workspace = make_workspace()
    await create(workspace, A)
    await update(workspace, A, updates={"x": "1"}, key="l")

    with pytest.raises(KeyReused):
        await update(workspace, A, updates={"x": "2"}, key="l")


async def test_a_drop_is_replayed_only_to_the_request_that_made_it() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    await drop(workspace, A, key="k")

    with pytest.raises(KeyReused):
        await drop_namespace(workspace, A, make_request("something else", "k"))


async def orphaned(workspace: Workspace, key: str) -> None:
    """A child whose maker died after its parent was dropped, which is there again by now."""
    request = make_request(f"create {B} None", key)
    claim = Claim(
        state="open",
        request_hash=request.hash,
        operation="create-namespace",
        owner="somebody",
        started_ms=0,
        namespace_id="orphan",
    )
    await workspace.claim("create-namespace", request.key_hash or "").create(claim)
    change = Change(request.key_hash or "", "create-namespace")
    await workspace.namespace(B).create(
        NamespaceRecord(state="new", id="orphan", parent_id="another parent", change=change)
    )


async def test_an_orphan_is_no_child() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    await orphaned(workspace, "k")

    assert not await namespace_exists(workspace, B)
    assert await children(workspace, A) == []
    await drop(workspace, A)
    with pytest.raises(NotFound):
        await create(workspace, B, key="k")


async def test_a_creation_whose_orphan_was_replaced_learns_that_it_did_not_happen() -> None:
    workspace = make_workspace()
    await create(workspace, A)
    await orphaned(workspace, "k")
    await create(workspace, B, {"mine": "yes"})

    with pytest.raises(NotFound, match="Namespace does not exist: a"):
        await create(workspace, B, key="k")

    assert (await load_namespace(workspace, B)).properties["mine"] == "yes"


async def test_a_key_of_one_operation_says_nothing_about_another() -> None:
    workspace = make_workspace()

    await create(workspace, A, key="k")
    await update(workspace, A, updates={"x": "1"}, key="k")
    await drop(workspace, A, key="k")

    assert not await namespace_exists(workspace, A)


async def test_the_rounds_before_the_answer_are_bounded() -> None:
    store = SpyStore(MemoryStore())
    workspace = make_workspace(store)
    await create(workspace, A)
    await workspace.background.drain()

    async def rounds(work: object) -> int:
        await workspace.background.drain()
        store.reset()
        await work  # type: ignore[misc]  # a coroutine
        counted = store.rounds
        await workspace.background.drain()
        return counted

    assert await rounds(load_namespace(workspace, A)) == 1
    assert await rounds(namespace_exists(workspace, A)) == 1
    assert await rounds(create(workspace, B, key="k1")) == 4
    assert await rounds(create(workspace, Namespace("main", ("n",)), key="k2")) == 4
    assert await rounds(update(workspace, A, updates={"x": "1"}, key="k3")) == 3
    assert await rounds(drop(workspace, B, key="k4")) == 5


@pytest.mark.parametrize("fate", ["applied", "dropped"])
@pytest.mark.parametrize("loses_at", range(1, 5))
async def test_a_lost_answer_is_no_failure(loses_at: int, fate: Fate) -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    await create(make_workspace(inner, clock), A)
    lossy = RetryingStore(LossyStore(inner, loses_at=loses_at, fate=fate), clock)
    workspace = make_workspace(lossy, clock)

    await create(workspace, B, {"x": "1"})
    await workspace.background.drain()

    assert (await load_namespace(make_workspace(inner, clock), B)).properties["x"] == "1"


async def test_an_answer_that_stays_lost_is_unknown_and_the_retry_finds_out() -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    await create(make_workspace(inner, clock), A)
    lossy = LossyStore(inner, loses_at=3, fate="late")  # Of claim, mark and record: the record.
    workspace = make_workspace(RetryingStore(lossy, clock, RetrySettings(tries_max=1)), clock)
    with pytest.raises(OutcomeUnknown):
        await create(workspace, B, {"x": "1"}, key="k")

    created = await create(make_workspace(inner, clock), B, {"x": "1"}, key="k")

    assert created["x"] == "1"
    assert not await lossy.deliver()


async def test_a_busy_key_is_not_taken_over_before_its_time() -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    workspace = make_workspace(inner, clock)
    request = make_request("create a None", "k")
    claim = Claim(
        state="open",
        request_hash=request.hash,
        operation="create-namespace",
        owner="somebody",
        started_ms=clock.now_ms(),
        namespace_id="pinned",
    )
    await workspace.claim("create-namespace", request.key_hash or "").create(claim)

    with pytest.raises(Busy):
        await create(workspace, A, key="k")
    clock.advance(workspace.settings.claim_timeout_ms + 1)
    await create(workspace, A, key="k")

    found = (await workspace.namespace(A).read()) or pytest.fail("it is not there")
    assert found.value.id == "pinned"
