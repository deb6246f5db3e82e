"""Calls: tokens, deadlines, cancellation, unknown outcomes, idempotency keys, limits, and withheld answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import structlog

from sandur.catalog.identifiers import Identifier
from sandur.catalog.security.privileges import AUTHENTICATED, OPEN
from sandur.errors import OutcomeUnknown
from sandur.server.context import Call as ServerCall
from sandur.server.delta_rest.routes import ROUTES as DELTA_ROUTES
from sandur.server.grpc.containers import no_names
from sandur.server.grpc.routes import METHODS
from sandur.server.grpc.service import DEADLINE_SECONDS_MIN, Method, Services, unary
from sandur.server.iceberg_rest.routes import ROUTES as ICEBERG_ROUTES
from sandur.server.unity_rest.routes import CLASSIC_ROUTES
from sandur.storage.memory import MemoryStore
from sandur.v1 import catalogs_pb2, tables_pb2
from tests.crash.gated_store import GatedStore, writes_to
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.grpc.direct import Aborted, Direct, FakeContext, opened, run
from tests.grpc.stubs import body, namespace_name, table_name
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table, set_properties

T = TypeVar("T")

KEY = "01890a5d-ac96-774b-bcce-b302099a8057"
TABLE = table_name("t")
GET = tables_pb2.GetTableRequest(table=TABLE)


async def make_table(direct: Direct, name: str = "t") -> Any:
    await direct.call("Namespaces.Create", catalogs_pb2.CreateNamespaceRequest(name=namespace_name("ns")))
    sent = tables_pb2.CreateTableRequest(namespace=namespace_name("ns"), body=body(create_table(name)))
    return await direct.call("Tables.Create", sent)


def commit(**properties: str) -> tables_pb2.CommitTableRequest:
    return tables_pb2.CommitTableRequest(table=TABLE, body=body(set_properties(**properties)))


async def properties_of(direct: Direct) -> dict[str, str]:
    found: dict[str, str] = json.loads((await direct.call("Tables.Get", GET)).metadata)["properties"]
    return found


async def secured(store: MemoryStore | None = None) -> Direct:
    direct = await opened(store, authentication="on", admin_secret=SECURED.admin_secret)
    token = (await bearer(direct.http))["Authorization"]
    direct.metadata = (("authorization", token),)
    return direct


async def test_every_method_needs_what_the_rest_api_needs_for_its_operation() -> None:
    """Delta tables and Iceberg tables have operations of the same name, with needs of their own."""
    rest = {route.operation: route.needs for route in (*CLASSIC_ROUTES, *ICEBERG_ROUTES)}
    delta = {route.operation: route.needs for route in DELTA_ROUTES}

    for path, method in METHODS.items():
        declared = delta if "/sandur.v1.DeltaTables/" in path else rest
        if method.operation in declared:
            assert method.needs == declared[method.operation], path
        else:
            assert method.needs is AUTHENTICATED, path
        assert method.needs is not OPEN


async def test_without_a_token_nothing_is_decoded() -> None:
    direct = await secured()
    direct.metadata = ()

    problem = await direct.problem("Tables.Get", b"\xff not a message")

    assert problem.code == "UNAUTHENTICATED"
    await direct.close()


async def test_a_message_that_cannot_be_decoded_is_refused(direct: Direct) -> None:
    problem = await direct.problem("Tables.Get", b"\xff not a message")

    assert problem.code == "INVALID_ARGUMENT"
    assert "sandur.v1.GetTableRequest" in problem.text


async def test_an_answer_without_a_decision_is_withheld_and_logged() -> None:
    direct = await secured()

    async def forgetful(_call: ServerCall, _sent: tables_pb2.GetTableRequest) -> tables_pb2.Table:
        return tables_pb2.Table(metadata=b"a secret")

    method: Method = unary("forgetful", "GET", tables_pb2.GetTableRequest, AUTHENTICATED, no_names, forgetful)
    logs = structlog.testing.LogCapture()
    structlog.configure(processors=[logs])
    direct.requests._log = structlog.get_logger().bind()
    services = Services({"/sandur.v1.Tables/Get": method}, direct.requests, SECURED)

    with pytest.raises(Aborted) as aborted:
        await run(services, "/sandur.v1.Tables/Get", GET, FakeContext(direct.metadata, None))

    assert aborted.value.problem.code == "INTERNAL"
    assert "secret" not in str(aborted.value)
    assert any(entry["event"] == "unexpected error" for entry in logs.entries)
    await direct.close()


async def test_what_a_caller_must_not_see_does_not_exist_for_it() -> None:
    direct = await secured()
    made = await make_table(direct)
    uuid = json.loads(made.metadata)["table-uuid"]
    header = await make_principal(direct.http, {"Authorization": direct.metadata[0][1]}, "stranger")
    direct.metadata = (("authorization", header["Authorization"]),)

    resolved = await direct.call("Directory.Resolve", catalogs_pb2.ResolveRequest(names=[TABLE]))
    looked_up = await direct.call("Directory.Lookup", catalogs_pb2.LookupRequest(uuids=[uuid]))

    assert [entry.found for entry in (*resolved.entries, *looked_up.entries)] == [False, False]
    assert not resolved.entries[0].uuid
    assert not looked_up.entries[0].name.name
    assert (await direct.problem("Tables.Get", GET)).code == "NOT_FOUND"
    await direct.close()


async def test_names_and_ids_are_found_also_after_a_rename_whose_traces_are_gone(direct: Direct) -> None:
    made = await make_table(direct)
    uuid = json.loads(made.metadata)["table-uuid"]
    renamed = tables_pb2.RenameTableRequest(source=TABLE, destination=table_name("u"))
    await direct.call("Tables.Rename", renamed)
    lake = direct.catalog.lakes.lake("default", "default")
    await lake.background.drain()
    missing = "00000000-0000-4000-8000-000000000000"
    asked = catalogs_pb2.LookupRequest(uuids=[uuid, missing])

    by_traces = await direct.call("Directory.Lookup", asked)
    held = await lake.name(Identifier("main", ("ns",), "t")).read()
    assert held
    await lake.store.delete(lake.layout.name(Identifier("main", ("ns",), "t")), expected=held.version)
    by_lists = await direct.call("Directory.Lookup", asked)
    names = catalogs_pb2.ResolveRequest(names=[table_name("u"), TABLE])
    resolved = await direct.call("Directory.Resolve", names)

    assert by_lists == by_traces
    assert [(entry.found, entry.name.name) for entry in by_traces.entries] == [(True, "u"), (False, "")]
    assert [(entry.found, entry.uuid) for entry in resolved.entries] == [(True, uuid), (False, "")]


async def test_a_call_without_enough_time_left_is_refused_and_does_nothing(direct: Direct) -> None:
    await make_table(direct)

    with pytest.raises(Aborted) as aborted:
        await direct.call("Tables.Commit", commit(a="b"), seconds_left=DEADLINE_SECONDS_MIN - 0.001)
    await direct.call("Tables.Commit", commit(c="d"), seconds_left=DEADLINE_SECONDS_MIN)

    assert aborted.value.problem.code == "DEADLINE_EXCEEDED"
    assert "a" not in await properties_of(direct)


async def test_a_change_is_finished_although_its_client_cancels() -> None:
    store = GatedStore(MemoryStore(), holds=writes_to("iceberg_pointers", b'"created_ms"'))
    store._holds = lambda _call: False
    direct = await opened(store)
    await make_table(direct)
    store._holds = writes_to("iceberg_pointers")

    call = asyncio.create_task(direct.call("Tables.Commit", commit(a="b")))
    await store.is_held.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    store.release()
    await direct.services.finish_changes(60)

    assert (await properties_of(direct))["a"] == "b"
    await direct.close()


async def test_a_read_ends_when_its_client_cancels() -> None:
    store = GatedStore(MemoryStore(), holds=lambda _call: False)
    direct = await opened(store)
    await make_table(direct)
    store._holds = lambda _call: True

    call = asyncio.create_task(direct.call("Tables.Get", GET))
    await store.is_held.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert not direct.services._changes
    store.release()
    await direct.close()


class _Unanswered(WrappingStore):
    """When armed, applies the next write of a pointer and loses its answer; from then on nothing answers."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.is_armed = False
        self.is_lost = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.is_armed and writes_to("iceberg_pointers")(call):
            await perform()
            self.is_armed, self.is_lost = False, True
        if self.is_lost:
            raise OutcomeUnknown(f"object {call.key}: no answer")
        return await perform()


async def test_an_unknown_outcome_is_unknown_and_the_same_key_learns_it() -> None:
    store = _Unanswered()
    direct = await opened(store, claim_timeout_ms=1)
    await make_table(direct)
    store.is_armed = True

    problem = await direct.problem("Tables.Commit", commit(a="b"), ("idempotency-key", KEY))
    store.is_lost = False
    await direct.catalog.lakes.lake("default", "default").clock.sleep(0.002)  # The claim of the first call is old now.
    again = await direct.call("Tables.Commit", commit(a="b"), ("idempotency-key", KEY))

    assert (problem.code, problem.reason) == ("UNKNOWN", "OUTCOME_UNKNOWN")
    assert "RetryInfo" not in problem.details
    assert json.loads(again.metadata)["properties"]["a"] == "b"
    await direct.close()


async def test_an_idempotency_key_holds_over_both_protocols(direct: Direct) -> None:
    await make_table(direct)
    sent = set_properties(a="b")
    first = await direct.http.post("/v1/main/namespaces/ns/tables/t", json=sent, headers={"idempotency-key": KEY})

    replayed = await direct.call("Tables.Commit", commit(a="b"), ("idempotency-key", KEY))
    other = await direct.problem("Tables.Commit", commit(a="c"), ("idempotency-key", KEY))
    invalid = await direct.problem("Tables.Commit", commit(a="b"), ("idempotency-key", "x"))

    assert replayed.metadata_location == first.json()["metadata-location"]
    assert (other.code, other.reason) == ("FAILED_PRECONDITION", "KEY_REUSED")
    assert invalid.code == "INVALID_ARGUMENT"


async def test_tenants_do_not_see_each_other(direct: Direct) -> None:
    await make_table(direct)

    other = await direct.problem("Tables.Get", GET, ("x-sandur-tenant", "other"))
    invalid = await direct.problem("Tables.Get", GET, ("x-sandur-workspace", "../x"))

    assert (other.code, invalid.code) == ("NOT_FOUND", "INVALID_ARGUMENT")


async def test_too_many_requests_are_refused_with_a_time_to_wait() -> None:
    store = GatedStore(MemoryStore(), holds=lambda _call: False)
    direct = await opened(store, requests_at_once_max=1)
    await make_table(direct)
    store._holds = lambda _call: True

    held = asyncio.create_task(direct.call("Tables.Get", GET))
    await store.is_held.wait()
    problem = await direct.problem("Tables.Get", GET)
    store.release()
    await held

    assert problem.code == "RESOURCE_EXHAUSTED"
    assert problem.details["RetryInfo"].retry_delay.seconds >= 1
    await direct.close()


async def test_a_table_that_did_not_change_is_not_sent_again(direct: Direct) -> None:
    made = await make_table(direct)

    same = await direct.call("Tables.Get", tables_pb2.GetTableRequest(table=TABLE, if_none_match=made.etag))
    await direct.call("Tables.Commit", commit(a="b"))
    changed = await direct.call("Tables.Get", tables_pb2.GetTableRequest(table=TABLE, if_none_match=made.etag))

    assert (same.not_modified, same.metadata, same.etag) == (True, b"", made.etag)
    assert not changed.not_modified
    assert changed.etag != made.etag


async def test_the_same_stage_id_gets_the_same_stage(direct: Direct) -> None:
    await direct.call("Namespaces.Create", catalogs_pb2.CreateNamespaceRequest(name=namespace_name("ns")))
    sent = tables_pb2.StageTableRequest(namespace=namespace_name("ns"), body=body(create_table("s")), stage_id="mine")

    first, second = await direct.call("Tables.Stage", sent), await direct.call("Tables.Stage", sent)

    assert first.stage_id == second.stage_id == "mine"
    assert first.metadata == second.metadata
    assert not first.metadata_location


@pytest.mark.parametrize(
    ("method", "sent", "field"),
    [
        ("Tables.Get", tables_pb2.GetTableRequest(), "table.name"),
        ("Tables.Get", tables_pb2.GetTableRequest(table=table_name("t", namespace=())), "table.namespace"),
        ("Tables.Get", tables_pb2.GetTableRequest(table=table_name("t", namespace=("a", ""))), "table"),
        ("Tables.Get", tables_pb2.GetTableRequest(table=table_name("a\x1fb")), "table"),
        ("Tables.List", tables_pb2.ListTablesRequest(), "namespace.levels"),
        (
            "Tables.Rename",
            tables_pb2.RenameTableRequest(source=table_name("t", "main"), destination=table_name("u", "other")),
            "destination.catalog",
        ),
        ("Tables.Register", tables_pb2.RegisterTableRequest(table=TABLE), "metadata_location"),
        ("Catalogs.Get", catalogs_pb2.GetCatalogRequest(), "name"),
        ("Catalogs.Update", catalogs_pb2.UpdateCatalogRequest(name="main"), "update_mask"),
        (
            "Catalogs.Update",
            catalogs_pb2.UpdateCatalogRequest(name="main", update_mask={"paths": ["owner"]}),
            "update_mask",
        ),
        (
            "Namespaces.Update",
            catalogs_pb2.UpdateNamespaceRequest(name=namespace_name("ns"), update_mask={"paths": ["name"]}),
            "update_mask",
        ),
        ("Directory.Resolve", catalogs_pb2.ResolveRequest(names=[TABLE] * 1_001), "names"),
    ],
)
async def test_an_invalid_field_is_named(direct: Direct, method: str, sent: Any, field: str) -> None:
    problem = await direct.problem(method, sent)

    assert problem.code == "INVALID_ARGUMENT"
    assert [one.field for one in problem.details["BadRequest"].field_violations] == [field]
