"""Authorization under races, retries and failures: nothing is allowed too long, and nothing hidden is revealed."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import Busy, Forbidden, Hidden, NotFound, SandurError, Unauthenticated, Unavailable
from sandur.iceberg.requests import TableCommit
from sandur.operations.containers.namespaces import (
    create_namespace,
)
from sandur.operations.idempotency import claim_for
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import list_all
from sandur.storage.retry import RetryingStore
from tests.crash.test_batches_races import Unanswered
from tests.fakes.fixed_clock import FixedClock
from tests.operations.authorized_lakes import T, by, enter, lake_of_principals, text_of
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake
from tests.operations.principals import ADMIN, grant, id_of, request_of, revoke
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    append,
    commit,
    content,
    create,
    identifier_of,
    load,
    set_property,
    table,
)


@pytest.fixture
async def lake() -> Lake:
    return await lake_of_principals()


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


@pytest.mark.parametrize("is_renamed", [False, True])
async def test_no_refusal_by_the_grants_hides_a_commit_that_may_have_been_made(lake: Lake, *, is_renamed: bool) -> None:
    """A7: the swap is made and then replaced, its answer is lost, and the right is taken."""
    store = Unanswered(lake.store)
    server = make_lake(RetryingStore(store, lake.clock), lake.clock)
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT", "MODIFY")

    async def happens() -> None:
        await commit_table(lake, T, commit(set_property("other", "1")), request_of(ADMIN, "other"))
        await revoke(lake, "ann", "table", "main.a.t", "SELECT", "MODIFY")
        if is_renamed:
            await rename(lake, T, identifier_of("u"), kind="table", request=request_of(ADMIN, "rename"))

    store.happens = happens
    with pytest.raises(Busy, match="may still be applied"):
        await commit_table(by(server, "ann", "updateTable"), T, append(1), request_of("ann", "commit"))


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


async def test_a_transaction_that_would_follow_the_grants_too_late_reads_them_again(lake: Lake) -> None:
    await enter(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT", "MODIFY")
    store, clock = lake.store, lake.clock
    assert isinstance(store, HookedStore)
    assert isinstance(clock, FixedClock)
    found = await lake.name(T).read()
    assert found
    other = make_lake(store, clock)

    async def stall() -> None:
        """The grants were read beside the pending changes, and the right is revoked before those are written."""
        clock.advance(SWAP_DELAY_MS_MAX + 1)
        await revoke(other, "ann", "table", "main.a.t", "MODIFY")

    store.before("put", lake.layout.pointer(found.value.uuid), stall)

    with pytest.raises(Forbidden, match="MODIFY"):
        await commit_transaction(
            by(lake, "ann", "commitTransaction"), "main", [(T, append(1))], request_of("ann", "transaction")
        )
    assert not store.hooks


@pytest.mark.parametrize("what", ["create-table", "drop-table", "rename"])
async def test_a_name_that_would_change_too_late_after_the_grants_were_read_is_authorized_again(
    lake: Lake, what: str
) -> None:
    await enter(lake, "ann")
    await grant(lake, "ann", "schema", "main.a", "CREATE TABLE", "MANAGE")
    store, clock = lake.store, lake.clock
    assert isinstance(store, HookedStore)
    assert isinstance(clock, FixedClock)
    other, sent = make_lake(store, clock), request_of("ann", what, "key")
    claim = claim_for(lake, sent, what)._cell
    assert claim

    async def stall() -> None:
        clock.advance(SWAP_DELAY_MS_MAX + 1)
        await revoke(other, "ann", "schema", "main.a", "CREATE TABLE", "MANAGE")

    store.before("put", claim.key, stall)

    operations = {"create-table": "createTable", "drop-table": "dropTable", "rename": "renameTable"}
    ann, target = by(lake, "ann", operations[what]), "u"
    changes: dict[str, Callable[[], Awaitable[object]]] = {
        "create-table": lambda: create_table(ann, NAMESPACE, table(target), sent),
        "drop-table": lambda: drop_name(ann, T, kind="table", request=sent),
        "rename": lambda: rename(ann, T, identifier_of(target), kind="table", request=sent),
    }
    with pytest.raises((Forbidden, Hidden)):
        await changes[what]()
    assert not store.hooks
    await lake.background.drain()
    assert await load(other, T)
    with pytest.raises(NotFound):
        await load(other, identifier_of("u"))


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
