"""The evaluator agrees with examples that were written by hand from the table of privileges."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.authorization.evaluator import (
    METASTORE,
    RULES,
    Check,
    Decision,
    Grant,
    Kind,
    World,
    create_namespace_at,
    create_table_at,
    decide,
    is_visible,
    purge_table,
    register_table,
    rename_table,
    rename_view,
    transaction,
    visible_children,
)
from tests.authorization.worlds import (
    GRANTABLE,
    PRINCIPALS,
    SINGLE,
    SUBJECTS,
    questions,
    world_owned_by,
    worlds,
)

ALLOWED, FORBIDDEN, HIDDEN = Decision.ALLOWED, Decision.FORBIDDEN, Decision.HIDDEN
ORDERS, SALES = "main.sales.orders", "main.sales"
USE_MAIN = (("USE CATALOG", "main"), ("USE SCHEMA", SALES))


def world_of(
    *grants: tuple[str, str], owners: dict[str, str] | None = None, groups: tuple[tuple[str, str], ...] = ()
) -> World:
    """A world in which "ann" has these privileges, as pairs of a privilege and an object."""
    granted = frozenset(Grant("ann", *grant) for grant in grants)
    return replace(world_owned_by("root", owners or {}), grants=granted, memberships=frozenset(groups))


def ask(world: World, operation: str, object_id: str) -> Decision:
    return decide(world, "ann", Check(operation, object_id))


@pytest.mark.parametrize("operation", ["load table", "plan scan", "report metrics", "read table"])
def test_a_table_is_read_with_use_on_its_containers_and_select(operation: str) -> None:
    assert ask(world_of(*USE_MAIN, ("SELECT", ORDERS)), operation, ORDERS) is ALLOWED
    assert ask(world_of(("USE CATALOG", "main"), ("SELECT", ORDERS)), operation, ORDERS) is FORBIDDEN
    assert ask(world_of(("USE SCHEMA", SALES), ("SELECT", ORDERS)), operation, ORDERS) is FORBIDDEN
    assert ask(world_of(*USE_MAIN), operation, ORDERS) is HIDDEN
    assert ask(world_of(), operation, ORDERS) is HIDDEN


def test_modify_alone_loads_metadata_and_gives_no_credentials() -> None:
    world = world_of(*USE_MAIN, ("MODIFY", ORDERS))

    assert ask(world, "load table", ORDERS) is ALLOWED
    assert ask(world, "update table", ORDERS) is ALLOWED
    assert ask(world, "read table", ORDERS) is FORBIDDEN
    assert ask(world, "write table", ORDERS) is FORBIDDEN


def test_credentials_to_write_need_select_and_modify() -> None:
    assert ask(world_of(*USE_MAIN, ("SELECT", ORDERS)), "write table", ORDERS) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, ("SELECT", SALES), ("MODIFY", "main")), "write table", ORDERS) is ALLOWED


def test_a_commit_needs_modify_and_moving_a_table_needs_manage() -> None:
    writer = world_of(*USE_MAIN, ("SELECT", ORDERS), ("MODIFY", ORDERS))

    assert ask(world_of(*USE_MAIN, ("SELECT", ORDERS)), "update table", ORDERS) is FORBIDDEN
    assert ask(writer, "update table", ORDERS) is ALLOWED
    assert ask(writer, "move table", ORDERS) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, ("MANAGE", ORDERS)), "move table", ORDERS) is ALLOWED


def test_privileges_are_inherited_from_the_metastore_the_catalog_and_parent_namespaces() -> None:
    nested = "main.sales.eu.orders"

    assert ask(
        world_of(("USE CATALOG", METASTORE), ("USE SCHEMA", "main"), ("SELECT", SALES)), "load table", nested
    ) is (ALLOWED)
    assert ask(
        world_of(("USE CATALOG", "main"), ("USE SCHEMA", "main.sales.eu"), ("SELECT", nested)), "load table", nested
    ) is (FORBIDDEN), "USE SCHEMA is needed on every level"


def test_use_and_create_privileges_do_not_make_a_table_visible() -> None:
    world = world_of(*USE_MAIN, ("CREATE TABLE", SALES))

    assert is_visible(world, "ann", SALES)
    assert not is_visible(world, "ann", ORDERS)
    assert visible_children(world, "ann", SALES) == {"main.sales.eu"}


def test_any_privilege_on_a_container_shows_the_containers_in_it() -> None:
    world = world_of(("CREATE CATALOG", METASTORE))

    assert visible_children(world, "ann", METASTORE) == {"main", "other"}
    assert ask(world, "create catalog", METASTORE) is ALLOWED
    assert visible_children(world, "ann", SALES) == {"main.sales.eu"}


def test_browse_makes_a_table_visible_and_nothing_more() -> None:
    world = world_of(*USE_MAIN, ("BROWSE", ORDERS))

    assert visible_children(world, "ann", SALES) == {"main.sales.eu", ORDERS}
    assert {ask(world, name, ORDERS) for name, row in RULES.items() if Kind.TABLE in row.kinds} == {FORBIDDEN}


def test_a_grant_on_a_table_makes_its_containers_visible_and_not_its_siblings() -> None:
    world = world_of(("SELECT", ORDERS))

    assert visible_children(world, "ann", METASTORE) == {"main"}
    assert visible_children(world, "ann", "main") == {SALES}
    assert visible_children(world, "ann", SALES) == {ORDERS}
    assert ask(world, "list", "main.hr") is HIDDEN


def test_the_owner_of_a_table_may_do_everything_with_use_on_its_containers() -> None:
    owners = {ORDERS: "ann"}
    operations = [name for name, row in RULES.items() if Kind.TABLE in row.kinds]

    assert {ask(world_of(*USE_MAIN, owners=owners), name, ORDERS) for name in operations} == {ALLOWED}
    assert {ask(world_of(owners=owners), name, ORDERS) for name in operations} == {FORBIDDEN}


@pytest.mark.parametrize("owned", [METASTORE, "main", SALES])
def test_the_owner_of_a_container_manages_what_is_below_without_its_data(owned: str) -> None:
    world = world_of(("USE CATALOG", "main"), owners={owned: "ann"})

    for operation in ("load table", "move table", "drop table", "change grants"):
        assert ask(world, operation, ORDERS) is ALLOWED
    for operation in ("read table", "write table", "update table", "plan scan", "delete files"):
        assert ask(world, operation, ORDERS) is FORBIDDEN
    assert ask(world, "create table", SALES) is ALLOWED


def test_the_owner_of_a_schema_needs_use_catalog() -> None:
    assert ask(world_of(owners={SALES: "ann"}), "load table", ORDERS) is FORBIDDEN
    assert ask(world_of(("USE CATALOG", "main"), owners={SALES: "ann"}), "load table", ORDERS) is ALLOWED


def test_manage_is_what_an_owner_may_do_without_data() -> None:
    world = world_of(*USE_MAIN, ("MANAGE", ORDERS))

    assert ask(world, "drop table", ORDERS) is ALLOWED
    assert ask(world, "change grants", ORDERS) is ALLOWED
    assert ask(world, "read table", ORDERS) is FORBIDDEN
    assert decide(world, "ann", *purge_table(ORDERS)) is FORBIDDEN
    assert decide(world_of(*USE_MAIN, ("MANAGE", ORDERS), ("MODIFY", SALES)), "ann", *purge_table(ORDERS)) is ALLOWED


def test_manage_on_a_container_replaces_use_on_it() -> None:
    assert ask(world_of(("MANAGE", "main")), "load table", ORDERS) is ALLOWED
    assert ask(world_of(("MANAGE", SALES)), "load table", ORDERS) is FORBIDDEN


def test_a_table_is_dropped_by_an_owner_or_with_manage_only() -> None:
    everything = ("SELECT", "MODIFY", "CREATE TABLE", "BROWSE")

    assert ask(world_of(*USE_MAIN, *((one, "main") for one in everything)), "drop table", ORDERS) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, owners={ORDERS: "ann"}), "drop table", ORDERS) is ALLOWED


def test_a_table_is_created_with_create_table_and_use() -> None:
    assert ask(world_of(*USE_MAIN, ("CREATE TABLE", SALES)), "create table", SALES) is ALLOWED
    assert ask(world_of(*USE_MAIN, ("CREATE VIEW", SALES)), "create table", SALES) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, ("CREATE VIEW", SALES)), "create view", SALES) is ALLOWED
    assert ask(world_of(*USE_MAIN, ("CREATE TABLE", SALES)), "create view", SALES) is ALLOWED
    assert ask(world_of(*USE_MAIN, ("CREATE VOLUME", SALES)), "create view", SALES) is FORBIDDEN
    assert ask(world_of(("USE CATALOG", "main"), ("CREATE TABLE", SALES)), "create table", SALES) is FORBIDDEN
    assert ask(world_of(("SELECT", "other.logs.clicks")), "create table", SALES) is HIDDEN


def test_a_table_at_an_external_location_needs_a_privilege_on_it() -> None:
    creator = (*USE_MAIN, ("CREATE TABLE", SALES))
    at_location = create_table_at(SALES, "landing")

    assert decide(world_of(*creator), "ann", *at_location) is HIDDEN
    assert decide(world_of(*creator, ("READ FILES", "landing")), "ann", *at_location) is FORBIDDEN
    assert decide(world_of(*creator, ("CREATE EXTERNAL TABLE", "landing")), "ann", *at_location) is ALLOWED


def test_register_needs_the_files_too() -> None:
    creator = (*USE_MAIN, ("CREATE TABLE", SALES), ("CREATE EXTERNAL TABLE", "landing"))

    assert decide(world_of(*creator), "ann", *register_table(SALES, "landing")) is FORBIDDEN
    assert decide(world_of(*creator, ("READ FILES", "landing")), "ann", *register_table(SALES, "landing")) is ALLOWED
    assert ask(world_of(*creator, ("MODIFY", ORDERS)), "overwrite table", ORDERS) is FORBIDDEN


def test_namespaces_are_created_with_create_schema_and_managed_by_their_owner() -> None:
    creator = world_of(("USE CATALOG", "main"), ("CREATE SCHEMA", "main"))

    assert ask(creator, "create namespace", "main") is ALLOWED
    assert ask(creator, "create namespace", SALES) is FORBIDDEN, "USE SCHEMA is needed on the parent"
    assert ask(creator, "drop namespace", SALES) is FORBIDDEN
    assert decide(creator, "ann", *create_namespace_at("main", "landing")) is HIDDEN
    assert ask(world_of(("USE CATALOG", "main"), owners={SALES: "ann"}), "drop namespace", SALES) is ALLOWED


def test_a_rename_needs_the_drop_and_the_creation_at_the_target() -> None:
    target = (("USE SCHEMA", "main.hr"), ("CREATE TABLE", "main.hr"))
    owner = {ORDERS: "ann"}

    assert decide(world_of(*USE_MAIN, *target), "ann", *rename_table(ORDERS, "main.hr")) is HIDDEN
    assert (
        decide(world_of(*USE_MAIN, *target, ("MODIFY", ORDERS)), "ann", *rename_table(ORDERS, "main.hr")) is FORBIDDEN
    )
    assert decide(world_of(*USE_MAIN, owners=owner), "ann", *rename_table(ORDERS, "main.hr")) is FORBIDDEN
    assert decide(world_of(*USE_MAIN, owners=owner), "ann", *rename_table(ORDERS, "other.logs")) is HIDDEN
    assert decide(world_of(*USE_MAIN, *target, owners=owner), "ann", *rename_table(ORDERS, "main.hr")) is ALLOWED


def test_a_transaction_needs_the_right_of_every_table() -> None:
    both = ("main.sales.orders", "main.hr.people")
    use = (("USE CATALOG", "main"), ("USE SCHEMA", "main"))

    assert decide(world_of(*use, ("MODIFY", "main")), "ann", *transaction(both)) is ALLOWED
    assert decide(world_of(*use, ("MODIFY", ORDERS)), "ann", *transaction(both)) is HIDDEN
    assert decide(world_of(*use, ("MODIFY", ORDERS), ("SELECT", "main.hr")), "ann", *transaction(both)) is FORBIDDEN
    assert decide(world_of(*use, ("SELECT", ORDERS)), "ann", *transaction(both)) is HIDDEN
    assert decide(world_of(*use, ("MODIFY", ORDERS)), "ann", *transaction((ORDERS,), ("main.hr",))) is FORBIDDEN


def test_views_are_loaded_with_select_and_replaced_with_manage() -> None:
    view = "main.sales.recent"

    assert ask(world_of(*USE_MAIN, ("SELECT", view)), "load view", view) is ALLOWED
    assert ask(world_of(*USE_MAIN, ("MODIFY", SALES)), "load view", view) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, ("READ VOLUME", SALES)), "load view", view) is HIDDEN
    assert ask(world_of(*USE_MAIN, ("SELECT", view)), "replace view", view) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, ("MANAGE", view)), "replace view", view) is ALLOWED
    assert decide(world_of(*USE_MAIN, ("MANAGE", view)), "ann", *rename_view(view, SALES)) is FORBIDDEN


@pytest.mark.parametrize(
    ("object_id", "privilege", "load", "data"),
    [
        ("main.sales.files", "READ VOLUME", "load volume", "read volume"),
        ("main.sales.churn", "EXECUTE", "load model", "read model"),
        ("main.sales.score", "EXECUTE", "load function", "load function"),
    ],
)
def test_volumes_models_and_functions_have_their_own_privileges(
    object_id: str, privilege: str, load: str, data: str
) -> None:
    assert ask(world_of(*USE_MAIN, (privilege, SALES)), load, object_id) is ALLOWED
    assert ask(world_of(*USE_MAIN, (privilege, object_id)), data, object_id) is ALLOWED
    assert ask(world_of(*USE_MAIN, ("SELECT", SALES)), load, object_id) is HIDDEN


def test_a_volume_is_written_with_both_privileges() -> None:
    files = "main.sales.files"

    assert ask(world_of(*USE_MAIN, ("READ VOLUME", files)), "write volume", files) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, ("READ VOLUME", files), ("WRITE VOLUME", files)), "write volume", files) is ALLOWED


def test_paths_are_read_with_the_privileges_of_the_external_location() -> None:
    assert ask(world_of(("READ FILES", "landing")), "read files", "landing") is ALLOWED
    assert ask(world_of(("READ FILES", "landing")), "write files", "landing") is FORBIDDEN
    assert ask(world_of(owners={METASTORE: "ann"}), "read files", "landing") is FORBIDDEN
    assert ask(world_of(owners={"landing": "ann"}), "write files", "landing") is ALLOWED


def test_grants_are_changed_by_owners_on_the_chain_and_with_manage() -> None:
    assert ask(world_of(*USE_MAIN, ("SELECT", ORDERS)), "change grants", ORDERS) is FORBIDDEN
    assert ask(world_of(*USE_MAIN, owners={ORDERS: "ann"}), "change grants", ORDERS) is ALLOWED
    assert ask(world_of(owners={"main": "ann"}), "change grants", ORDERS) is ALLOWED
    assert ask(world_of(), "change grants", METASTORE) is FORBIDDEN


def test_grants_reach_principals_through_groups_and_nested_roles() -> None:
    world = replace(
        world_of(groups=(("ann", "analysts"), ("analysts", "reader"), ("reader", "writer"))),
        grants=frozenset(Grant("writer", *grant) for grant in (*USE_MAIN, ("SELECT", ORDERS))),
    )

    assert ask(world, "read table", ORDERS) is ALLOWED
    assert decide(world, "ben", Check("read table", ORDERS)) is HIDDEN


def test_a_group_can_own() -> None:
    world = world_of(*USE_MAIN, owners={ORDERS: "analysts"}, groups=(("ann", "analysts"),))

    assert ask(world, "drop table", ORDERS) is ALLOWED


def test_what_does_not_exist_is_hidden_from_its_metastore_owner_too() -> None:
    assert ask(world_of(owners={METASTORE: "ann"}), "load table", "main.sales.nothing") is HIDDEN
    assert ask(world_of(owners={METASTORE: "ann"}), "load table", "main.sales.recent") is HIDDEN


@given(worlds(), questions(), st.sampled_from(SUBJECTS), st.data())
def test_a_further_grant_takes_nothing_away(
    world: World, question: tuple[str, tuple[Check, ...]], subject: str, data: st.DataObject
) -> None:
    principal, checks = question
    order = (HIDDEN, FORBIDDEN, ALLOWED)
    on = data.draw(st.sampled_from(world.objects))
    grant = Grant(subject, data.draw(st.sampled_from(GRANTABLE[on.kind])), on.id)

    more = replace(world, grants=world.grants | {grant})

    assert order.index(decide(more, principal, *checks)) >= order.index(decide(world, principal, *checks))


@given(worlds(), st.sampled_from(PRINCIPALS), st.sampled_from(SINGLE))
def test_what_is_hidden_is_not_listed_and_what_is_not_hidden_is(
    world: World, principal: str, checks: tuple[Check, ...]
) -> None:
    (check,) = checks
    parent = world.by_id[check.object_id].parent

    is_listed = parent is None or check.object_id in visible_children(world, principal, parent)

    assert is_listed == (decide(world, principal, check) is not HIDDEN)


@given(worlds(), st.sampled_from(PRINCIPALS))
def test_what_is_visible_by_a_grant_has_visible_containers(world: World, principal: str) -> None:
    for one in world.objects:
        owners = {above.owner for above in world.chain(one.id)}
        if is_visible(world, principal, one.id) and owners.isdisjoint(world.subjects(principal)):
            hidden = [above.id for above in world.chain(one.id) if not is_visible(world, principal, above.id)]
            assert hidden == []
