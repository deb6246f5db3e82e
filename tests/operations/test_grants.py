"""Grants in the manifest: who may change and see them, what a change promises, and what a drop takes along."""

import asyncio
import contextlib
import hashlib
from functools import partial

import pytest
from msgspec.structs import replace

from sandur.catalog.records import Pending, Transaction
from sandur.catalog.security.grants import EffectivePrivilege, GrantChange
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import Privilege, SecurableType
from sandur.errors import Forbidden, Invalid, NotFound, SandurError, SwapLost, Unauthenticated
from sandur.operations.access import Security
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit, without_subject
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.grants import load_effective_privileges, load_grants, update_grants
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.authorized_lakes import NEEDS
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake
from tests.operations.principals import ADMIN, GRANT, SHOW, acting, add_principals, grant, id_of, request_of, revoke
from tests.operations.requests import (
    NAMESPACE,
    append,
    content,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    set_up_catalog,
)

TABLE = "main.a.t"
DROP, RENAME = NEEDS["dropTable"], NEEDS["renameTable"]


@pytest.fixture
async def lake() -> Lake:
    """A table `main.a.t` of the principal `owner`, and principals without rights."""
    lake = make_lake()
    await set_up_catalog(lake)
    await create(lake, "t")
    await add_principals(lake, "owner", "reader", "other", team=("reader",))
    await give(lake, "owner")
    return lake


async def give(lake: Lake, name: str) -> None:
    """Make the principal the owner of the table."""
    found = await lake.name(identifier_of("t")).read()
    assert found
    pointer = await lake.pointer(found.value.uuid).read()
    assert pointer
    await lake.pointer(found.value.uuid).swap(replace(pointer.value, owner_id=id_of(name)), expected=pointer.version)


async def change(lake: Lake, by: str, to: str, type_: SecurableType = "table", full_name: str = TABLE) -> object:
    sent = request_of(by, f"grant {lake.clock.new_id()}")
    return await update_grants(acting(lake, by, GRANT), type_, full_name, (GrantChange(to, ("SELECT",)),), sent)


async def shown(lake: Lake, by: str) -> object:
    return await load_grants(acting(lake, by, SHOW), "table", TABLE)


async def test_owners_and_managers_may_grant_and_others_may_not(lake: Lake) -> None:
    await grant(lake, "owner", "catalog", "main", "USE CATALOG", "USE SCHEMA")
    assert await change(lake, "owner", "reader") == {"reader": ("SELECT",)}
    assert await change(lake, ADMIN, "other") == {"other": ("SELECT",), "reader": ("SELECT",)}

    with pytest.raises(Forbidden, match="USE CATALOG on catalog main"):
        await change(lake, "reader", "reader")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG", "USE SCHEMA")
    with pytest.raises(Forbidden, match=r"MANAGE or ownership on table a\.t"):
        await change(lake, "reader", "reader")
    await grant(lake, "team", "schema", "main.a", "MANAGE")

    assert await change(lake, "reader", "everyone")


async def test_a_securable_that_the_caller_must_not_see_reads_as_missing(lake: Lake) -> None:
    names: list[tuple[SecurableType, str, str]] = [
        ("catalog", "main", "none"),
        ("schema", "main.a", "none.a"),
        ("table", "main.a.t", "none.a.t"),
        ("table", "main.a.none", "none.a.none"),
    ]
    for type_, hidden, missing in names:
        texts = []
        for full_name in (hidden, missing):
            with pytest.raises(NotFound) as raised:
                await change(lake, "other", "other", type_, full_name)
            texts.append((str(raised.value).replace("none", "main"), raised.value.subject))
            with pytest.raises(NotFound):
                await load_grants(acting(lake, "other", SHOW), type_, full_name)

        assert texts[0] == texts[1]
        assert texts[0][1] == "catalog"  # The first part of the name that is hidden.


async def test_a_grant_inside_a_container_makes_the_container_visible(lake: Lake) -> None:
    await grant(lake, "other", "table", TABLE, "SELECT")

    assert await shown(lake, "other") == {"other": ("SELECT",)}
    assert await load_grants(acting(lake, "other", SHOW), "schema", "main.a") == {}
    with pytest.raises(NotFound, match="Namespace does not exist"):
        await load_grants(acting(lake, "other", SHOW), "schema", "main.b")


async def test_a_caller_sees_its_own_grants_and_a_manager_all(lake: Lake) -> None:
    await grant(lake, "reader", "table", TABLE, "SELECT")
    await grant(lake, "team", "table", TABLE, "MODIFY")
    await grant(lake, "other", "table", TABLE, "BROWSE")

    assert await shown(lake, "reader") == {"reader": ("SELECT",), "team": ("MODIFY",)}
    assert await shown(lake, "other") == {"other": ("BROWSE",)}
    assert await shown(lake, ADMIN) == {"other": ("BROWSE",), "reader": ("SELECT",), "team": ("MODIFY",)}


async def test_a_change_is_decided_on_the_manifest_that_it_swaps(lake: Lake) -> None:
    """A11: a right that is revoked between the decision and the swap no longer counts."""
    await grant(lake, "reader", "metastore", "metastore", "MANAGE")
    store = HookedStore(lake.store)
    server = make_lake(store, lake.clock)

    async def revoked() -> None:
        await revoke(lake, "reader", "metastore", "metastore", "MANAGE")

    store.before("put", lake.layout.security_manifest(), revoked)
    with pytest.raises(NotFound):
        await change(server, "reader", "other")

    assert await shown(lake, ADMIN) == {}


@pytest.mark.parametrize("unknown", ["nobody", "id-reader"])
async def test_only_registered_names_get_grants(lake: Lake, unknown: str) -> None:
    with pytest.raises(NotFound, match=unknown):
        await change(lake, ADMIN, unknown)


def _without(name: str, authority: Authority) -> SecurityEdit:
    return without_subject(authority, id_of(name))


async def test_a_dropped_principal_or_group_loses_its_grants_and_memberships_in_one_swap(lake: Lake) -> None:
    await grant(lake, "reader", "table", TABLE, "SELECT")
    await grant(lake, "team", "table", TABLE, "SELECT", "MODIFY")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG")
    for name in ("reader", "team"):
        before = (await lake.feature(Security).read()).manifest.number
        await SecurityChange(lake, request(f"drop {name}"), "drop", partial(_without, name)).run()
        assert (await lake.feature(Security).read()).manifest.number == before + 1

    authority = await make_lake(lake.store, lake.clock).feature(Security).read()
    assert authority.principal_named("reader") is None
    assert authority.groups == {}
    assert all(not shard.segment.grants for shard in authority.shards.values())


async def test_a_disabled_principal_is_refused(lake: Lake) -> None:
    await grant(lake, "reader", "metastore", "metastore", "MANAGE")

    def disable(authority: object) -> SecurityEdit:
        del authority
        principal = found.principal(id_of("reader"))
        assert principal
        return SecurityEdit(principals={principal.id: replace(principal, disabled=True)})

    found = await lake.feature(Security).read()
    await SecurityChange(lake, request("disable"), "disable", disable).run()

    with pytest.raises(Unauthenticated):
        await change(lake, "reader", "other")


async def test_of_many_concurrent_grants_by_two_servers_none_is_lost(lake: Lake) -> None:
    servers = [make_lake(lake.store, lake.clock) for _ in range(2)]
    names = [f"p{number}" for number in range(6)]
    await add_principals(lake, "owner", "reader", "other", *names)

    await asyncio.gather(*(change(servers[place % 2], ADMIN, name) for place, name in enumerate(names)))

    assert await shown(lake, ADMIN) == dict.fromkeys(names, ("SELECT",))


async def test_without_the_manifest_nothing_is_allowed() -> None:
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    lake = make_lake(store, clock)
    await set_up_catalog(lake)
    await create(lake, "t")

    with pytest.raises(SandurError):
        await change(lake, ADMIN, ADMIN)
    assert await update_grants(lake, "table", TABLE, (), keyed_request("nothing")) == {}


async def test_effective_privileges_say_where_each_privilege_comes_from(lake: Lake) -> None:
    await grant(lake, "reader", "catalog", "main", "USE CATALOG")
    await grant(lake, "team", "schema", "main.a", "SELECT", "MANAGE")
    await grant(lake, "everyone", "table", TABLE, "BROWSE")
    await give(lake, "reader")

    own = await load_effective_privileges(acting(lake, "reader", SHOW), "table", TABLE, None)
    by_admin = await load_effective_privileges(acting(lake, ADMIN, SHOW), "table", TABLE, "reader")

    expected = [
        EffectivePrivilege("USE CATALOG", "catalog", "main", "reader"),
        EffectivePrivilege("SELECT", "schema", "main.a", "team"),
        EffectivePrivilege("MANAGE", "schema", "main.a", "team"),
        EffectivePrivilege("OWNER", "table", "main.a.t", "reader"),
        EffectivePrivilege("BROWSE", "table", "main.a.t", "everyone"),
    ]
    assert own == expected
    assert by_admin == expected


async def test_only_a_manager_sees_the_effective_privileges_of_others(lake: Lake) -> None:
    await grant(lake, "reader", "table", TABLE, "SELECT")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG", "USE SCHEMA")

    with pytest.raises(Forbidden):
        await load_effective_privileges(acting(lake, "reader", SHOW), "table", TABLE, "other")
    with pytest.raises(NotFound, match="nobody"):
        await load_effective_privileges(acting(lake, ADMIN, SHOW), "table", TABLE, "nobody")


async def fenced(lake: Lake, text: str = "fenced", privileges: tuple[Privilege, ...] = ("MODIFY",)) -> None:
    change = (GrantChange("reader", remove=privileges),)
    await update_grants(lake, "table", TABLE, change, request(text), is_fenced=True)


async def test_a_fenced_revocation_stops_commits_that_were_allowed_before(lake: Lake) -> None:
    """A5: the revocation comes right before the swap of a commit that was allowed. Without the bump it would land."""
    await grant(lake, "reader", "table", TABLE, "MODIFY")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG", "USE SCHEMA")
    store = HookedStore(lake.store)
    server = make_lake(store, lake.clock)
    found = await lake.name(identifier_of("t")).read()
    assert found
    pointer = await server.pointer(found.value.uuid).read()
    assert pointer

    store.before("put", lake.layout.pointer(found.value.uuid), lambda: fenced(lake))
    with pytest.raises(SwapLost):
        await server.pointer(found.value.uuid).swap(pointer.value, expected=pointer.version)

    again = await lake.pointer(found.value.uuid).read()
    assert again
    assert replace(again.value, event_id="") == replace(pointer.value, event_id="")


async def test_a_fenced_revocation_aborts_an_undecided_transaction(lake: Lake) -> None:
    """A15: a transaction whose changes are prepared commits without another swap of the pointer."""
    store = HookedStore(lake.store)
    server = make_lake(store, lake.clock)
    await load(server, identifier_of("t"))
    await create(lake, "u")
    sent = request("transaction", key="key")
    transaction = hashlib.sha256(b"key").hexdigest()
    states = []

    async def revoked() -> None:
        await fenced(lake)
        found = await make_lake(lake.store, lake.clock).transaction(transaction).read()
        states.append(found.value.state if found else None)

    store.before("put", lake.layout.transaction(transaction), _nothing)  # The record, before its changes.
    store.before("put", lake.layout.transaction(transaction), revoked)
    changes = [(identifier_of("t"), append(1)), (identifier_of("u"), append(1))]
    with contextlib.suppress(SandurError):
        await commit_transaction(server, "main", changes, sent)

    assert states == ["aborted"]


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("what", ["drop", "rename"])
async def test_a_fenced_revocation_stops_a_drop_and_a_rename_that_were_allowed_before(lake: Lake, what: str) -> None:
    """A5: they swap the name, not the pointer. Without the bump of the name they would happen after the answer."""
    table, target = identifier_of("t"), identifier_of("u")
    await grant(lake, "reader", "table", TABLE, "MODIFY", "MANAGE")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG", "USE SCHEMA", "CREATE TABLE")
    store = HookedStore(lake.store)
    server = acting(make_lake(store, lake.clock), "reader", {"drop": DROP, "rename": RENAME}[what])
    store.before("put", lake.layout.name(table), lambda: fenced(lake, privileges=("MANAGE",)))

    with pytest.raises(Forbidden, match="MANAGE"):
        await (
            drop_name(server, table, kind="table", request=request_of("reader", "drop"))
            if what == "drop"
            else rename(server, table, target, kind="table", request=request_of("reader", "rename"))
        )

    assert not store.hooks
    assert await load(make_lake(lake.store, lake.clock), table)


async def test_a_fenced_revocation_stops_a_drop_under_a_name_that_the_table_just_got(lake: Lake) -> None:
    """A5: the table is renamed while it is revoked, and a drop of the new name was allowed before."""
    renamed = identifier_of("u")
    await grant(lake, "reader", "table", TABLE, "SELECT", "MANAGE")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG", "USE SCHEMA")
    store, revoking = HookedStore(lake.store), HookedStore(lake.store)
    server, allowed, is_revoked = acting(make_lake(store, lake.clock), "reader", DROP), asyncio.Event(), asyncio.Event()
    drops: list[asyncio.Task[object]] = []

    async def wait_for_revocation() -> None:
        allowed.set()
        await is_revoked.wait()

    async def rename_and_begin_drop() -> None:
        await rename(lake, identifier_of("t"), renamed, kind="table", request=request("rename"))
        await lake.background.drain()
        store.before("put", lake.layout.name(renamed), wait_for_revocation)
        drop = drop_name(server, renamed, kind="table", request=request_of("reader", "drop"))
        drops.append(asyncio.create_task(drop))
        await allowed.wait()

    revoking.before("put", lake.layout.security_manifest(), rename_and_begin_drop)
    await fenced(make_lake(revoking, lake.clock), privileges=("MANAGE",))
    is_revoked.set()

    with pytest.raises(Forbidden, match="MANAGE"):
        await drops[0]
    assert await load(make_lake(lake.store, lake.clock), renamed)


async def test_a_fenced_revocation_stops_a_transaction_that_lost_its_swap_to_it(lake: Lake) -> None:
    """A6 (attempt): the bump makes it decide again, on a version that was not known when it read the grants."""
    await grant(lake, "reader", "table", TABLE, "SELECT", "MODIFY")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG", "USE SCHEMA")
    found = await lake.name(identifier_of("t")).read()
    assert found
    store = HookedStore(lake.store)
    server = acting(make_lake(store, lake.clock), "reader", NEEDS["commitTransaction"])
    store.before("put", lake.layout.pointer(found.value.uuid), lambda: fenced(lake))

    with pytest.raises(Forbidden, match="MODIFY"):
        await commit_transaction(server, "main", [(identifier_of("t"), append(1))], request_of("reader", "transaction"))

    assert not store.hooks
    assert content(await load(make_lake(lake.store, lake.clock), identifier_of("t")))["snapshots"] == []


async def test_a_fenced_revocation_stops_a_registration_that_waited_for_a_transaction(lake: Lake) -> None:
    """A6: the registration reads the pointer again after the wait, and then the grants again."""
    await grant(lake, "reader", "table", TABLE, "SELECT", "MANAGE")
    await grant(lake, "reader", "catalog", "main", "USE CATALOG", "USE SCHEMA", "CREATE TABLE", "READ FILES")
    first = await load(lake, identifier_of("t"))
    await commit_table(lake, identifier_of("t"), append(1), request("append"))
    name = await lake.name(identifier_of("t")).read()
    pointer = await lake.pointer(name.value.uuid).read() if name else None
    assert pointer
    assert pointer.value.head
    assert first.metadata_location
    now_ms = lake.clock.now_ms()
    undecided = Transaction(
        state="preparing", attempt="attempt", request_hash="hash", started_ms=now_ms, attempt_ms=now_ms
    )
    await lake.transaction("transaction").create(undecided)
    pending = Pending(transaction="transaction", attempt="attempt", head=pointer.value.head)
    await lake.pointer(pointer.value.uuid).swap(replace(pointer.value, pending=pending), expected=pointer.version)
    store = HookedStore(lake.store)
    server = acting(make_lake(store, lake.clock), "reader", NEEDS["registerTable"])
    # The second read of the pointer, after the wait.
    revokes = partial(fenced, lake, privileges=("MANAGE",))
    store.before("get_if_changed", lake.layout.pointer(pointer.value.uuid), revokes)
    sent = request_of("reader", "register")

    with pytest.raises(Forbidden, match="MANAGE"):
        await register_table(server, NAMESPACE, "t", first.metadata_location, overwrite=True, request=sent)

    assert not store.hooks
    now = await load(make_lake(lake.store, lake.clock), identifier_of("t"))
    assert now.metadata_location != first.metadata_location


async def test_a_fenced_change_needs_a_table(lake: Lake) -> None:
    with pytest.raises(Invalid, match="single table"):
        await update_grants(lake, "schema", "main.a", (), request("fenced"), is_fenced=True)


async def test_a_replay_is_authorized_again_and_never_reveals_an_answer(lake: Lake) -> None:
    await grant(lake, "reader", "metastore", "metastore", "MANAGE")
    sent = request_of("reader", "grant", key="key")
    changes = (GrantChange("other", ("SELECT",)),)
    server = acting(lake, "reader", GRANT)
    first = await update_grants(server, "table", TABLE, changes, sent)
    await lake.background.drain()

    assert await update_grants(server, "table", TABLE, changes, sent) == first
    await revoke(lake, "reader", "metastore", "metastore", "MANAGE")
    with pytest.raises(NotFound):
        await update_grants(server, "table", TABLE, changes, sent)  # A9


async def test_a_refusal_is_not_kept_under_the_key(lake: Lake) -> None:
    """A10: the same request succeeds once the caller has the right."""
    sent = request_of("reader", "grant", key="key")
    changes = (GrantChange("other", ("SELECT",)),)
    server = acting(lake, "reader", GRANT)
    with pytest.raises(NotFound):
        await update_grants(server, "table", TABLE, changes, sent)

    await grant(lake, "reader", "table", TABLE, "SELECT")
    with pytest.raises(Forbidden):
        await update_grants(server, "table", TABLE, changes, sent)
    await grant(lake, "reader", "metastore", "metastore", "MANAGE")

    assert await update_grants(server, "table", TABLE, changes, sent) == {"other": ("SELECT",), "reader": ("SELECT",)}
