"""Authorization of the Iceberg operations: what is allowed, refused and hidden."""

from functools import partial
from typing import cast

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import Forbidden, Hidden
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
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.definitions import NewTable, define_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.server.control.routes import ROUTES as CONTROL_ROUTES
from tests.operations.authorized_lakes import ABSENT, T, by, enter, lake_of_principals, text_of
from tests.operations.hooked_store import HookedStore
from tests.operations.principals import ADMIN, acting, grant, id_of, request_of
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    append,
    commit,
    create,
    create_commit,
    identifier_of,
    load,
    set_location,
    set_property,
    table,
)


@pytest.fixture
async def lake() -> Lake:
    return await lake_of_principals()


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


async def test_nothing_is_written_or_read_at_a_location_by_a_caller_who_may_not_create_a_table(lake: Lake) -> None:
    """A Delta table at a location begins with a file there, so the right comes before it."""
    await enter(lake, "ann")
    needs = next(route.needs for route in CONTROL_ROUTES if route.operation == "defineTable")
    place = "memory://store/tables/default/default/main/elsewhere/t"
    store = cast("HookedStore", lake.store)
    before = [listed.key for listed in await store.list("tables/default/default/main/elsewhere/")]

    for columns in ("id INT", ""):
        with pytest.raises(Forbidden):
            await define_table(
                acting(lake, "ann", needs),
                NAMESPACE,
                NewTable(name="d", columns=columns, format="delta", location=place),
                request_of("ann", f"define{columns}"),
            )

    assert [listed.key for listed in await store.list("tables/default/default/main/elsewhere/")] == before == []
