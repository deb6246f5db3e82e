"""Creation of tables: answers, refusals and their texts, and retries."""

import pytest

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Claim
from sandur.errors import AlreadyExists, Busy, Conflict, Invalid, KeyReused, NotFound, Unsupported
from sandur.operations.access import Security, with_current_names
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.containers.rename import rename_namespace
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import create_view
from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.invariants import all_pointers, check_invariants
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    same_uuid,
    set_location,
    set_property,
    set_up_catalog,
    table,
    view,
)

T = identifier_of("t")
UUID = "5b6b2b4e-0000-4000-8000-00000000000a"


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


def restarted(lake: Lake) -> Lake:
    """Another server on the same store."""
    return make_lake(lake.store, lake.clock)


async def test_the_answer_to_a_creation_equals_the_loaded_table(lake: Lake) -> None:
    made = await create(lake, "t", properties={"owner": "me"})

    loaded = await load(restarted(lake), T)

    assert loaded == made
    assert content(made)["properties"]["owner"] == "me"
    assert content(made)["metadata-log"] == []
    assert (made.metadata_location or "").startswith(content(made)["location"] + "/metadata/00000-")


async def test_an_existing_name_refuses_a_creation(lake: Lake) -> None:
    await create(lake, "t")

    with pytest.raises(AlreadyExists, match=r"^Table already exists: a\.t$") as refused:
        await create_table(lake, NAMESPACE, table("t"), request("again"))

    assert refused.value.subject == "table"


async def test_tables_and_views_share_one_name_space(lake: Lake) -> None:
    await create_view(lake, NAMESPACE, view("v"), request("create v"))
    await create(lake, "t")

    with pytest.raises(AlreadyExists, match=r"^View with same name already exists: a\.v$"):
        await create_table(lake, NAMESPACE, table("v"), request("table v"))
    with pytest.raises(AlreadyExists, match=r"^View with same name already exists: a\.v$"):
        await commit_table(lake, identifier_of("v"), create_commit(UUID), request("commit v"))
    with pytest.raises(AlreadyExists, match=r"^Table with same name already exists: a\.t$"):
        await create_view(lake, NAMESPACE, view("t"), request("view t"))
    with pytest.raises(AlreadyExists, match=r"^View already exists: a\.v$"):
        await create_view(lake, NAMESPACE, view("v"), request("view v"))


async def test_the_error_names_the_missing_namespace(lake: Lake) -> None:
    nowhere = Namespace("main", ("non-existing",))

    with pytest.raises(NotFound, match=r"^Namespace does not exist: non-existing$") as refused:
        await create_table(lake, nowhere, table("t"), request("create"))

    assert refused.value.subject == "namespace"


@pytest.mark.parametrize("key", ["sandur.owner", "SANDUR.owner", "Sandur.x"])
async def test_properties_of_the_catalog_cannot_be_set(lake: Lake, key: str) -> None:
    with pytest.raises(Invalid, match=key):
        await create_table(lake, NAMESPACE, table("t", properties={key: "1"}), request("create"))
    await create(lake, "u")
    with pytest.raises(Invalid, match=key):
        await commit_table(lake, identifier_of("u"), commit(set_property(key, "1")), request("commit"))
    with pytest.raises(Invalid, match=key):
        await commit_table(lake, T, create_commit(UUID, set_property(key, "1")), request("by commit"))

    assert not await table_exists(lake, T)


async def test_every_server_gives_the_same_answer_to_a_keyed_create(lake: Lake) -> None:
    made = await create_table(lake, NAMESPACE, table("t"), keyed_request("create"))
    await lake.background.drain()

    assert await create_table(lake, NAMESPACE, table("t"), keyed_request("create")) == made
    assert await create_table(restarted(lake), NAMESPACE, table("t"), keyed_request("create")) == made


async def test_a_keyed_refusal_is_repeated_after_its_reason_is_gone(lake: Lake) -> None:
    await create(lake, "t")
    with pytest.raises(AlreadyExists):
        await create_table(lake, NAMESPACE, table("t"), keyed_request("create"))
    await drop_name(lake, T, kind="table", request=request("drop"))

    with pytest.raises(AlreadyExists, match=r"^Table already exists: a\.t$"):
        await create_table(restarted(lake), NAMESPACE, table("t"), keyed_request("create"))

    assert not await table_exists(lake, T)


async def test_a_key_that_was_used_for_another_request_is_refused(lake: Lake) -> None:
    await create_table(lake, NAMESPACE, table("t"), request("one", key="k"))

    with pytest.raises(KeyReused, match="k was already used for a different request"):
        await create_table(lake, NAMESPACE, table("u"), request("two", key="k"))

    assert not await table_exists(lake, identifier_of("u"))


async def test_a_replay_finds_the_table_after_it_was_renamed_or_dropped(lake: Lake) -> None:
    made = await create_table(lake, NAMESPACE, table("t"), keyed_request("create"))
    await lake.background.drain()
    await rename(lake, T, identifier_of("u"), kind="table", request=request("rename"))
    assert await create_table(restarted(lake), NAMESPACE, table("t"), keyed_request("create")) == made

    await drop_name(lake, identifier_of("u"), kind="table", request=request("drop"))

    assert await create_table(restarted(lake), NAMESPACE, table("t"), keyed_request("create")) == made
    assert not await table_exists(lake, T)


async def test_a_young_claim_is_busy_and_a_stale_one_is_taken_over() -> None:
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    first = make_lake(store, clock)
    await set_up_catalog(first)
    claim = Claim(
        state="open",
        request_hash=keyed_request("create").hash,
        operation="create-table",
        owner="somebody",
        started_ms=clock.now_ms(),
        uuid=UUID,
        namespace_id="id of a",
    )
    await first.claim("create-table", key_hash_of(keyed_request("create")) or "").create(claim)

    with pytest.raises(Busy) as busy:
        await create_table(make_lake(store, clock), NAMESPACE, table("t"), keyed_request("create"))
    clock.advance(first.settings.claim_timeout_ms)
    made = await create_table(make_lake(store, clock), NAMESPACE, table("t"), keyed_request("create"))

    assert 1 <= busy.value.retry_after_seconds <= 5
    assert made.table_uuid == UUID


async def test_a_commit_with_assert_create_creates_the_table(lake: Lake) -> None:
    made = await commit_table(lake, T, create_commit(UUID, set_property("p", "1")), request("create"))
    await lake.background.drain()

    assert made.table_uuid == UUID
    assert content(made)["metadata-log"] == []
    assert content(made)["properties"]["p"] == "1"
    assert await load(restarted(lake), T) == made


async def test_a_commit_with_assert_create_that_lost_the_race_is_a_conflict(lake: Lake) -> None:
    await create(lake, "t")

    with pytest.raises(Conflict, match=r"^Requirement failed: table already exists$"):
        await commit_table(lake, T, create_commit(UUID), request("create"))


async def test_a_repeated_create_by_commit_without_a_key_is_recognized(lake: Lake) -> None:
    made = await commit_table(lake, T, create_commit(UUID), request("create"))
    assert await commit_table(restarted(lake), T, create_commit(UUID), request("create")) == made

    await lake.background.drain()
    await rename(lake, T, identifier_of("u"), kind="table", request=request("rename"))

    assert await commit_table(restarted(lake), T, create_commit(UUID), request("create")) == made
    assert not await table_exists(lake, T)
    await check_invariants(restarted(lake))


async def test_the_uuid_of_another_request_is_a_conflict_and_not_a_replay(lake: Lake) -> None:
    await commit_table(lake, T, create_commit(UUID), request("create"))

    with pytest.raises(Conflict):
        await commit_table(lake, T, create_commit(UUID, set_property("p", "1")), request("another"))


async def test_a_commit_to_a_missing_table_is_not_found_and_never_a_conflict(lake: Lake) -> None:
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$") as refused:
        await commit_table(lake, T, append(1), request("commit"))
    assert refused.value.subject == "table"

    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$"):
        await commit_table(lake, T, append(1, uuid=UUID), keyed_request("commit"))


async def test_assert_create_cannot_be_combined_with_another_requirement(lake: Lake) -> None:
    change = commit(set_property("p", "1"), require=({"type": "assert-create"}, same_uuid(UUID)))

    with pytest.raises(Invalid):
        await commit_table(lake, T, change, request("create"))

    assert not await table_exists(lake, T)


async def test_a_stage_is_invisible_and_writes_nothing_at_the_table_location(lake: Lake) -> None:
    staged = await create_table(lake, NAMESPACE, table("t", stage_create=True), request("stage"))

    assert staged.metadata_location is None
    assert content(staged)["table-uuid"] == staged.table_uuid
    assert not await table_exists(restarted(lake), T)
    assert not await lake.store.list("tables/")
    await create(lake, "t")


async def test_a_commit_creates_the_staged_table_and_deletes_the_stage(lake: Lake) -> None:
    staged = await create_table(lake, NAMESPACE, table("t", stage_create=True), request("stage"))
    change = create_commit(staged.table_uuid, set_location(content(staged)["location"]))

    made = await commit_table(restarted(lake), T, change, request("create"))
    await lake.background.drain()

    assert (made.table_uuid, content(made)["location"]) == (staged.table_uuid, content(staged)["location"])


async def test_a_stage_is_refused_for_the_same_reasons_as_a_creation(lake: Lake) -> None:
    await create(lake, "t")

    with pytest.raises(AlreadyExists, match=r"^Table already exists: a\.t$"):
        await create_table(lake, NAMESPACE, table("t", stage_create=True), request("stage"))
    with pytest.raises(NotFound, match=r"^Namespace does not exist: no$"):
        await create_table(lake, Namespace("main", ("no",)), table("t", stage_create=True), request("no"))
    off = make_lake(lake.store, lake.clock, stage_create=False)
    with pytest.raises(Unsupported):
        await create_table(off, NAMESPACE, table("u", stage_create=True), request("off"))


async def test_a_keyed_stage_is_created_once_and_gets_the_same_answer(lake: Lake) -> None:
    staged = await create_table(lake, NAMESPACE, table("t", stage_create=True), keyed_request("stage"))

    assert (
        await create_table(restarted(lake), NAMESPACE, table("t", stage_create=True), keyed_request("stage")) == staged
    )
    assert len(await lake.store.list(lake.layout.stages_folder())) == 1


async def knowing(lake: Lake) -> Lake:
    """Another server that has read the catalog, the namespace and its list, as after a creation of its own."""
    server = restarted(lake)
    await create(server, "its own")
    return server


async def left_behind(lake: Lake) -> list[str]:
    """The metadata files that no living pointer refers to, and the pointers that wait for a name."""
    pointers = [one.value for one in (await all_pointers(lake)).values()]
    named = {one.head.metadata_location for one in pointers if one.head and one.state in {"live", "dropped"}}
    files = await list_all(lake.store, f"{lake.area.removeprefix('memory://store/')}/main/")
    unbound = [one.uuid for one in pointers if one.state == "unbound"]
    return [one.key for one in files if f"memory://store/{one.key}" not in named] + unbound


async def test_a_creation_that_wrote_before_it_saw_that_its_name_is_taken_leaves_nothing(lake: Lake) -> None:
    """N2 ahead, on a list that is stale."""
    server = await knowing(lake)
    made = await create(lake, "t")

    with pytest.raises(AlreadyExists):
        await create_table(server, NAMESPACE, table("t"), request("late"))

    await server.background.drain()
    assert (await load(restarted(lake), T)).table_uuid == made.table_uuid
    assert await left_behind(lake) == []


async def test_a_creation_that_wrote_before_it_saw_that_its_namespace_is_gone_leaves_nothing(lake: Lake) -> None:
    server = await knowing(lake)
    await drop_name(lake, identifier_of("its own"), kind="table", request=request("drop"))
    await drop_namespace(lake, NAMESPACE, request("drop namespace"))

    with pytest.raises(NotFound, match=r"^Namespace does not exist: a$"):
        await create_table(server, NAMESPACE, table("t"), request("late"))

    await server.background.drain()
    assert await left_behind(lake) == []


async def test_a_creation_lies_where_its_namespace_says_now_not_where_it_said_before(lake: Lake) -> None:
    server = await knowing(lake)
    place = f"{lake.area}/main/elsewhere"
    await update_namespace_properties(lake, NAMESPACE, removals=[], updates={"location": place}, request=request("m"))

    made = await create(server, "t")

    assert content(made)["location"].startswith(place)
    assert (await load(restarted(lake), T)).metadata_location == made.metadata_location
    assert await left_behind(lake) == []


async def test_a_creation_is_refused_for_its_namespace_before_it_is_for_its_content(lake: Lake) -> None:
    """The order of the refusals is that of a server that reads first."""
    server = await knowing(lake)
    await drop_name(lake, identifier_of("its own"), kind="table", request=request("drop"))
    await drop_namespace(lake, NAMESPACE, request("drop namespace"))
    wrong = table("t", properties={"format-version": "9"})

    with pytest.raises(NotFound):
        await create_table(server, NAMESPACE, wrong, request("late"))


async def test_a_creation_that_wrote_before_it_saw_that_its_namespace_was_renamed_leaves_nothing(lake: Lake) -> None:
    server = await knowing(lake)
    await server.feature(Security).read()
    await with_current_names(lake, None, lambda one: rename_namespace(one, NAMESPACE, "z", request("r")), is_read=False)

    with pytest.raises(NotFound, match=r"^Namespace does not exist: a$"):
        await with_current_names(
            server, None, lambda one: create_table(one, NAMESPACE, table("t"), request("late")), is_read=False
        )

    await server.background.drain()
    assert await left_behind(lake) == []
