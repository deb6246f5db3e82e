"""Authorization of the Iceberg operations: what is allowed, refused and hidden, also under races and retries."""

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.privileges import Needs
from sandur.errors import Forbidden, Hidden, NotFound, SandurError, Unauthenticated, Unavailable
from sandur.iceberg.requests import TableCommit
from sandur.iceberg.scan.requests import ScanRequest
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import (
    create_namespace,
    list_namespaces,
    load_namespace,
    update_namespace_properties,
)
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.planning.plans import plan_table_scan
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.commit import SWAP_DELAY_MS_MAX, commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.server.iceberg_rest.routes import ROUTES
from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake
from tests.operations.principals import ADMIN, acting, add_principals, grant, id_of, request_of, revoke
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    append,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    load,
    set_location,
    set_property,
    set_up_catalog,
    table,
)

T, ABSENT = identifier_of("t"), identifier_of("absent")
NEEDS: Final[Mapping[str, Needs]] = {route.operation: route.needs for route in ROUTES}


@pytest.fixture
async def lake() -> Lake:
    """A table `main.a.t` without an owner, and principals without rights."""
    clock = FixedClock()
    lake = make_lake(HookedStore(MemoryStore(clock=clock)), clock, allowed_locations=["s3://bucket/allowed"])
    await set_up_catalog(lake)
    await create(lake, "t")
    await add_principals(lake, "ann", "bob")
    return lake


def by(lake: Lake, name: str, operation: str) -> Lake:
    return acting(lake, name, NEEDS[operation])


async def enter(lake: Lake, name: str) -> None:
    await grant(lake, name, "catalog", "main", "USE CATALOG", "USE SCHEMA")


async def text_of(operation: Awaitable[object]) -> str:
    with pytest.raises(NotFound) as raised:
        await operation
    return str(raised.value)


async def test_a_table_without_a_right_answers_as_one_that_does_not_exist(lake: Lake) -> None:
    await enter(lake, "ann")
    ann = partial(by, lake, "ann")

    hidden = await text_of(load(ann("loadTable"), T))
    missing = await text_of(load(ann("loadTable"), ABSENT))

    assert hidden.replace("a.t", "x") == missing.replace("a.absent", "x")
    assert not await table_exists(ann("tableExists"), T)
    for sent in (append(1), commit(set_property("k", "v"))):
        with pytest.raises(Hidden):
            await commit_table(ann("updateTable"), T, sent, request_of("ann", "commit"))
    with pytest.raises(Hidden):
        await drop_name(ann("dropTable"), T, kind="table", request=request_of("ann", "drop"))


async def test_each_right_allows_its_operations_and_no_others(lake: Lake) -> None:
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    ann = partial(by, lake, "ann")

    await load(ann("loadTable"), T)
    await plan_table_scan(ann("planTableScan"), T, ScanRequest(), request_of("ann", "plan"))
    with pytest.raises(Forbidden, match=r"ann may not do this: it needs MODIFY on table a\.t"):
        await commit_table(ann("updateTable"), T, append(1), request_of("ann", "commit"))
    with pytest.raises(Forbidden, match="MANAGE or ownership"):
        await drop_name(ann("dropTable"), T, kind="table", request=request_of("ann", "drop"))
    await grant(lake, "ann", "table", "main.a.t", "MODIFY")

    await commit_table(ann("updateTable"), T, append(1), request_of("ann", "commit"))
    moves = commit(set_property("write.data.path", f"{lake.area}/main/elsewhere"))
    with pytest.raises(Forbidden, match="MANAGE or ownership"):
        await commit_table(ann("updateTable"), T, moves, request_of("ann", "move"))
    with pytest.raises(Forbidden, match="MANAGE or ownership"):
        await commit_table(ann("updateTable"), T, commit(set_property("gc.enabled", "false")), request_of("ann", "gc"))


async def test_a_right_on_a_table_needs_the_use_of_its_containers(lake: Lake) -> None:
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    with pytest.raises(Forbidden, match="USE CATALOG on catalog main"):
        await load(by(lake, "ann", "loadTable"), T)

    await grant(lake, "ann", "catalog", "main", "USE CATALOG")
    with pytest.raises(Forbidden, match="USE SCHEMA on schema a"):
        await load(by(lake, "ann", "loadTable"), T)


async def test_what_has_no_owner_belongs_to_the_administrator(lake: Lake) -> None:
    await commit_table(by(lake, ADMIN, "updateTable"), T, append(1), request_of(ADMIN, "commit"))
    await plan_table_scan(by(lake, ADMIN, "planTableScan"), T, ScanRequest(), request_of(ADMIN, "plan"))


async def test_an_owner_above_manages_a_table_and_reads_no_data(lake: Lake) -> None:
    found = await lake.name(T).read()
    assert found
    pointer = await lake.pointer(found.value.uuid).read()
    assert pointer
    await lake.pointer(found.value.uuid).swap(replace(pointer.value, owner_id=id_of("bob")), expected=pointer.version)
    await load(by(lake, ADMIN, "loadTable"), T)
    with pytest.raises(Forbidden, match="MODIFY"):
        await commit_table(by(lake, ADMIN, "updateTable"), T, append(1), request_of(ADMIN, "commit"))
    with pytest.raises(Forbidden, match="SELECT or MODIFY"):
        await plan_table_scan(by(lake, ADMIN, "planTableScan"), T, ScanRequest(), request_of(ADMIN, "plan"))

    await drop_name(by(lake, ADMIN, "dropTable"), T, kind="table", request=request_of(ADMIN, "drop"))

    assert not await table_exists(by(lake, ADMIN, "tableExists"), T)


async def test_a_creator_owns_its_table_and_a_table_made_again_inherits_nothing(lake: Lake) -> None:
    await enter(lake, "ann")
    await enter(lake, "bob")
    await grant(lake, "ann", "schema", "main.a", "CREATE TABLE")
    made = identifier_of("made")
    creates = by(lake, "ann", "createTable")
    await create_table(creates, NAMESPACE, table("made"), request_of("ann", "create"))
    await lake.background.drain()
    await commit_table(by(lake, "ann", "updateTable"), made, append(1), request_of("ann", "commit"))
    await grant(lake, "bob", "table", "main.a.made", "SELECT")
    await load(by(lake, "bob", "loadTable"), made)

    await drop_name(by(lake, "ann", "dropTable"), made, kind="table", request=request_of("ann", "drop"))
    await create_table(creates, NAMESPACE, table("made"), request_of("ann", "create again"))
    await lake.background.drain()

    with pytest.raises(Hidden):
        await load(by(lake, "bob", "loadTable"), made)


async def test_a_create_needs_its_right_on_the_namespace_also_by_a_commit(lake: Lake) -> None:
    await enter(lake, "ann")
    sent = create_commit(lake.clock.new_uuid(), set_location(f"{lake.area}/main/a/new"))

    for creates in (
        create_table(by(lake, "ann", "createTable"), NAMESPACE, table("new"), request_of("ann", "create")),
        create_table(
            by(lake, "ann", "createTable"), NAMESPACE, table("new", stage_create=True), request_of("ann", "stage")
        ),
        commit_table(by(lake, "ann", "updateTable"), identifier_of("new"), sent, request_of("ann", "commit")),
        commit_transaction(
            by(lake, "ann", "commitTransaction"), "main", [(identifier_of("new"), sent)], request_of("ann", "both")
        ),
    ):
        with pytest.raises(Forbidden, match="CREATE TABLE on schema a"):
            await creates

    assert not await table_exists(lake, identifier_of("new"))


async def test_a_transaction_needs_the_right_on_every_table_and_changes_none_without(lake: Lake) -> None:
    await create(lake, "u")
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "MODIFY")
    commits = [(T, append(1)), (identifier_of("u"), append(1))]

    with pytest.raises(Hidden):
        await commit_transaction(by(lake, "ann", "commitTransaction"), "main", commits, request_of("ann", "both", "k"))
    assert b'"current-snapshot-id":1' not in (await load(lake, T)).metadata
    await grant(lake, "ann", "table", "main.a.u", "MODIFY")

    # A10: the refusal was not kept with the key.
    await commit_transaction(by(lake, "ann", "commitTransaction"), "main", commits, request_of("ann", "both", "k"))
    assert b'"current-snapshot-id":1' in (await load(lake, T)).metadata


async def test_a_rename_needs_both_rights_and_moves_the_table_under_the_grants_of_its_new_parent(lake: Lake) -> None:
    await enter(lake, "ann")
    await enter(lake, "bob")
    await grant(lake, "bob", "schema", "main.a", "SELECT")
    await grant(lake, "ann", "table", "main.a.t", "MANAGE")
    target = Identifier(*ELSEWHERE, "t")
    await load(by(lake, "bob", "loadTable"), T)
    with pytest.raises(Forbidden, match="CREATE TABLE on schema b"):
        await rename(by(lake, "ann", "renameTable"), T, target, kind="table", request=request_of("ann", "rename"))
    await grant(lake, "ann", "schema", "main.b", "CREATE TABLE")

    await rename(by(lake, "ann", "renameTable"), T, target, kind="table", request=request_of("ann", "rename"))
    await lake.background.drain()

    with pytest.raises(Hidden):
        await load(by(lake, "bob", "loadTable"), target)
    await grant(lake, "bob", "schema", "main.b", "SELECT")
    await load(by(lake, "bob", "loadTable"), target)


async def test_a_key_of_another_principal_finds_nothing(lake: Lake) -> None:
    for name in ("ann", "bob"):
        await enter(lake, name)
        await grant(lake, name, "table", "main.a.t", "MODIFY")
    await commit_table(by(lake, "ann", "updateTable"), T, append(1), request_of("ann", "commit", "key"))
    await lake.background.drain()

    with pytest.raises(SandurError, match="Requirement failed"):
        await commit_table(by(lake, "bob", "updateTable"), T, append(2), request_of("bob", "another", "key"))


# The second commit applies again to its own result, so that only the claim tells that it was made.
@pytest.mark.parametrize("change", [append(1), commit(set_property("k", "v"))], ids=["append", "property"])
async def test_a_replay_is_authorized_before_its_answer_is_found(lake: Lake, change: TableCommit) -> None:
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT", "MODIFY")
    sent = request_of("ann", "commit", "key")
    await commit_table(by(lake, "ann", "updateTable"), T, change, sent)
    await commit_table(lake, T, commit(set_property("k", "other")), request_of(ADMIN, "between"))
    await lake.background.drain()
    await revoke(lake, "ann", "table", "main.a.t", "MODIFY")

    with pytest.raises(Forbidden):
        await commit_table(by(lake, "ann", "updateTable"), T, change, sent)
    await grant(lake, "ann", "table", "main.a.t", "MODIFY")

    replayed = await commit_table(by(lake, "ann", "updateTable"), T, change, sent)
    assert b'"other"' not in replayed.metadata


async def test_a_replay_of_a_drop_is_judged_on_the_record_that_is_left(lake: Lake) -> None:
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "MANAGE")
    sent = request_of("ann", "drop", "key")
    await drop_name(by(lake, "ann", "dropTable"), T, kind="table", request=sent)
    await lake.background.drain()

    await drop_name(by(lake, "ann", "dropTable"), T, kind="table", request=sent)

    with pytest.raises(NotFound):
        await drop_name(by(lake, "bob", "dropTable"), T, kind="table", request=request_of("bob", "drop", "key"))


async def test_a_commit_whose_right_is_revoked_before_its_swap_is_refused_and_leaves_no_file(lake: Lake) -> None:
    """A6: the grants are read after the version that the swap replaces was known."""
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT", "MODIFY")
    await load(by(lake, "ann", "loadTable"), T)
    store = lake.store
    assert isinstance(store, HookedStore)
    before = [listed.key for listed in await list_all(store, "tables/")]
    other = make_lake(store, lake.clock)
    store.before(
        "get_if_changed", lake.layout.security_manifest(), partial(revoke, other, "ann", "table", "main.a.t", "MODIFY")
    )

    with pytest.raises(Forbidden, match="MODIFY"):
        await commit_table(by(lake, "ann", "updateTable"), T, append(1), request_of("ann", "commit"))

    await lake.background.drain()
    assert not store.hooks
    assert [listed.key for listed in await list_all(store, "tables/")] == before


async def test_a_load_never_joins_a_right_with_content_from_another_time(lake: Lake) -> None:
    """A2: the right is revoked and then the table changes, both between the first read of the grants and the answer."""
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    store = lake.store
    assert isinstance(store, HookedStore)
    server, other = make_lake(store, lake.clock), make_lake(store, lake.clock)
    await load(by(server, "ann", "loadTable"), T)

    async def revoke_and_commit() -> None:
        await revoke(other, "ann", "table", "main.a.t", "SELECT")
        await commit_table(other, T, append(1), request_of(ADMIN, "secret"))

    found = await lake.name(T).read()
    assert found
    store.before("get_if_changed", lake.layout.pointer(found.value.uuid), revoke_and_commit)

    with pytest.raises(Hidden):
        await load(by(server, "ann", "loadTable"), T)
    assert not store.hooks


async def test_a_disabled_principal_and_one_whose_tokens_were_revoked_are_refused(lake: Lake) -> None:
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    await load(by(lake, "ann", "loadTable"), T)

    def remove(_authority: object) -> SecurityEdit:
        return SecurityEdit(principals={id_of("ann"): None})

    await SecurityChange(lake, request_of(ADMIN, "remove"), "remove", remove).run()

    with pytest.raises(Unauthenticated, match="log in again"):
        await load(by(lake, "ann", "loadTable"), T)


async def test_lists_contain_what_may_be_seen_and_their_pages_are_full(lake: Lake) -> None:
    for number in range(12):
        await create(lake, f"n{number:02d}")
    await enter(lake, "ann")
    for number in (1, 4, 7, 10):
        await grant(lake, "ann", "table", f"main.a.n{number:02d}", "SELECT")
    await lake.background.drain()
    ann = by(lake, "ann", "listTables")

    first = await list_names(ann, NAMESPACE, kind="table", page_token="", page_size=3)
    second = await list_names(ann, NAMESPACE, kind="table", page_token=first.next_token, page_size=3)
    everything = await list_names(ann, NAMESPACE, kind="table", page_token=None, page_size=None)

    assert [entry.name for entry in first.entries] == ["n01", "n04", "n07"]
    assert [entry.name for entry in second.entries] == ["n10"]
    assert second.next_token is None
    assert [entry.name for entry in everything.entries] == ["n01", "n04", "n07", "n10"]
    assert len((await list_names(lake, NAMESPACE, kind="table", page_token=None, page_size=None)).entries) == 13


async def test_a_namespace_is_seen_by_a_right_on_it_above_it_or_inside_it(lake: Lake) -> None:
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    ann = by(lake, "ann", "listNamespaces")

    page = await list_namespaces(ann, "main", parent=None, page_token=None, page_size=None)

    assert [str(namespace) for namespace in page.entries] == ["a"]
    assert (await load_namespace(by(lake, "ann", "loadNamespaceMetadata"), NAMESPACE)).namespace == NAMESPACE
    with pytest.raises(Hidden, match="Namespace does not exist: b"):
        await load_namespace(by(lake, "ann", "loadNamespaceMetadata"), ELSEWHERE)
    with pytest.raises(Hidden, match="Catalog does not exist: main"):
        await list_namespaces(by(lake, "bob", "listNamespaces"), "main", parent=None, page_token=None, page_size=None)


async def test_namespaces_are_created_by_a_right_and_dropped_by_their_owner(lake: Lake) -> None:
    await enter(lake, "ann")
    await enter(lake, "bob")
    new = Namespace("main", ("new",))
    create_it = partial(create_namespace, by(lake, "ann", "createNamespace"), new, {}, request_of("ann", "create"))
    with pytest.raises(Forbidden, match="CREATE SCHEMA on catalog main"):
        await create_it()
    await grant(lake, "ann", "catalog", "main", "CREATE SCHEMA")

    await create_it()
    await lake.background.drain()

    with pytest.raises(Forbidden, match="MANAGE or ownership on schema new"):
        await drop_namespace(by(lake, "bob", "dropNamespace"), new, request_of("bob", "drop"))
    await drop_namespace(by(lake, "ann", "dropNamespace"), new, request_of("ann", "drop"))


async def test_a_swap_that_would_follow_the_grants_too_late_reads_them_again(lake: Lake) -> None:
    """Revocation promises a bound: a commit that was decided before lands within some seconds, or not at all."""
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT", "MODIFY")
    await load(by(lake, "ann", "loadTable"), T)
    store, clock = lake.store, lake.clock
    assert isinstance(store, HookedStore)
    assert isinstance(clock, FixedClock)
    found = await lake.name(T).read()
    assert found
    other = make_lake(store, clock)

    async def stall() -> None:
        """The grants were read already when the store stalls, and the right is revoked meanwhile."""
        clock.advance(SWAP_DELAY_MS_MAX + 1)
        await revoke(other, "ann", "table", "main.a.t", "MODIFY")

    store.before("are_current", lake.layout.name(T), stall)

    with pytest.raises(Forbidden, match="MODIFY"):
        await commit_table(by(lake, "ann", "updateTable"), T, append(1), request_of("ann", "commit"))
    assert not store.hooks


async def test_grants_that_cannot_be_read_refuse_everything(lake: Lake) -> None:
    """A1, A14: without the manifest or one of its segments there is no decision, and never a yes."""
    await load(by(lake, ADMIN, "loadTable"), T)
    manifest = await lake.store.get(lake.layout.security_manifest())
    assert manifest
    store = lake.store
    assert isinstance(store, HookedStore)

    async def fail() -> None:
        raise Unavailable("the store does not answer")

    store.before("get", lake.layout.security_manifest(), fail)
    with pytest.raises(Unavailable, match="the store does not answer"):
        await load(by(lake, ADMIN, "loadTable"), T)
    for listed in await list_all(store, lake.layout.security_segments_folder()):
        await store.delete(listed.key, expected=listed.version)
    with pytest.raises(Unavailable, match="a segment of them is missing"):
        await load(by(make_lake(store, lake.clock), ADMIN, "loadTable"), T)
    await store.put(lake.layout.security_manifest(), b"{damaged", expected=manifest.version)
    with pytest.raises(Unavailable, match="is not a SecurityManifest"):
        await load(by(lake, ADMIN, "loadTable"), T)


async def test_a_namespace_at_a_named_location_needs_the_right_to_use_that_location(lake: Lake) -> None:
    await grant(lake, "ann", "catalog", "main", "USE CATALOG", "USE SCHEMA", "CREATE SCHEMA", "MANAGE")
    create, update = by(lake, "ann", "createNamespace"), by(lake, "ann", "updateProperties")
    namespace, located = Namespace("main", ("new",)), {"location": "s3://bucket/allowed/new"}

    with pytest.raises(Forbidden, match="CREATE MANAGED STORAGE on metastore"):
        await create_namespace(create, namespace, located, request_of("ann", "create"))
    with pytest.raises(Forbidden, match="CREATE MANAGED STORAGE on metastore"):
        await update_namespace_properties(
            update, NAMESPACE, removals=(), updates=located, request=request_of("ann", "update")
        )
    own = {"location": f"{lake.area}/main/own"}
    await create_namespace(create, namespace, own, request_of("ann", "own"))  # Below the root of the catalog.
    await grant(lake, "ann", "metastore", "metastore", "CREATE MANAGED STORAGE")

    await update_namespace_properties(
        update, namespace, removals=(), updates=located, request=request_of("ann", "move")
    )
    assert (await load_namespace(lake, namespace)).properties["location"] == located["location"]


async def test_a_rename_reveals_no_namespace_to_a_caller_without_a_right_on_the_table(lake: Lake) -> None:
    ann = by(lake, "ann", "renameTable")

    texts = {
        await text_of(rename(ann, T, Identifier("main", (level,), "t"), kind="table", request=request_of("ann", level)))
        for level in ("b", "absent")
    }

    assert texts == {"Table does not exist: a.t"}


@pytest.mark.parametrize("first", ["forbidden", "probed"])
async def test_the_order_of_refusals_in_a_transaction_does_not_reveal_a_hidden_table(lake: Lake, first: str) -> None:
    await create(lake, "seen")
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.seen", "SELECT")
    change = commit(set_property("k", "v"))

    async def outcome(probed: Identifier) -> str:
        changes = [(identifier_of("seen"), change), (probed, change)]
        ordered = changes if first == "forbidden" else changes[::-1]
        with pytest.raises((Forbidden, NotFound)) as raised:
            await commit_transaction(
                by(lake, "ann", "commitTransaction"), "main", ordered, request_of("ann", probed.name)
            )
        return str(raised.value).replace(str(probed), "x")

    assert await outcome(identifier_of("t")) == await outcome(identifier_of("z"))


async def test_a_transaction_proves_nothing_about_a_hidden_table_whose_uuid_the_caller_knows(lake: Lake) -> None:
    await commit_table(lake, T, append(1), request_of(ADMIN, "append"))
    await create(lake, "own")
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.own", "MODIFY")
    uuid = content(await load(lake, T))["table-uuid"]

    outcomes = set()
    for snapshot_id in (1, 2):
        guess = append(snapshot_id, uuid=uuid)
        for name in ("own", "absent"):
            with pytest.raises(SandurError) as raised:
                await commit_transaction(
                    by(lake, "ann", "commitTransaction"),
                    "main",
                    [(identifier_of(name), guess)],
                    request_of("ann", f"{name} {snapshot_id}"),
                )
            outcomes.add((name, type(raised.value).__name__, str(raised.value)))

    assert len(outcomes) == 2


async def test_no_file_is_read_for_a_caller_who_may_not_create_what_it_registers(lake: Lake) -> None:
    await enter(lake, "ann")
    await grant(lake, "ann", "metastore", "metastore", "READ FILES")
    absent = f"{lake.area}/main/absent/metadata/1.metadata.json"
    register = by(lake, "ann", "registerTable")

    with pytest.raises(Forbidden, match="CREATE TABLE on schema a"):
        await register_table(register, NAMESPACE, "new", absent, request=request_of("ann", "register"))
    hidden = await text_of(
        register_table(
            by(lake, "bob", "registerTable"), NAMESPACE, "new", absent, request=request_of("bob", "register")
        )
    )

    assert hidden == "Namespace does not exist: a"


async def test_a_nested_namespace_reveals_no_hidden_parent(lake: Lake) -> None:
    await create(lake, "known", ELSEWHERE)
    await grant(lake, "ann", "table", "main.b.known", "SELECT")  # The catalog is visible, the namespace a is not.

    texts = set()
    for parent in ("a", "absent"):
        nested = Namespace("main", (parent, "new"))
        with pytest.raises(SandurError) as raised:
            await create_namespace(by(lake, "ann", "createNamespace"), nested, {}, request_of("ann", parent))
        texts.add(str(raised.value))

    assert texts == {"ann may not do this: it needs USE CATALOG on catalog main"}
