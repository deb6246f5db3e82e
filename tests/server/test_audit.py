"""The audit record of a request: each field by its value, for every way in which a request can end."""

import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from sandur.catalog.audit import AuditRecord, UnbuiltRead
from sandur.catalog.security import privileges
from sandur.catalog.security.manifest import Access, Caller, Decision
from sandur.catalog.security.privileges import ALLOWED, Link, Needs, Verdict
from sandur.errors import Conflict, Forbidden, NotFound, OutcomeUnknown, SandurError
from sandur.server.audit import Exchange, hide_secrets, record_request
from sandur.server.identity import Identity
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.server.audited import AuditedServer, audited_server
from tests.server.logins import ADMIN_SECRET
from tests.server.requests import create_table, set_properties
from tests.server.test_app import FailingStore
from tests.server.test_incidents import PartlyFailing

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
KEY: Final = "01970000-0000-7000-8000-000000000001"
HEADERS: Final = {
    "user-agent": "PyIceberg/0.12.0",
    "x-request-id": "request-7",
    "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
    "x-sandur-run-id": "run-1",
    "x-sandur-task-id": "task-2",
}


@pytest.fixture
async def server() -> AsyncIterator[AuditedServer]:
    async with audited_server(authentication="on", admin_secret=ADMIN_SECRET) as running:
        running.client.headers.update({**HEADERS, **await running.admin()})
        yield running


async def _make_table(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    created = await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
    assert created.status_code == 200


async def test_the_record_of_a_read_says_who_read_what_from_where(server: AuditedServer) -> None:
    await _make_table(server.client)

    await server.client.get("/v1/namespaces/ns/tables/t")
    record = await server.last()

    assert record == AuditRecord(
        id=record.id,
        time_ms=record.time_ms,
        kind="read",
        request_id="request-7",
        tenant="default",
        workspace="default",
        principal="admin",
        principal_id=record.principal_id,
        issuer=record.issuer,
        token_id=record.token_id,
        peer="10.1.2.3",
        protocol="iceberg",
        operation="loadTable",
        securable_type="table",
        securable_name="main.ns.t",
        securable_id=record.securable_id,
        privilege="SELECT or MODIFY",
        decision="allowed",
        manifest_number=1,
        status=200,
        outcome="done",
        further_decisions=record.further_decisions,
        declared_agent="PyIceberg/0.12.0",
        declared_trace_id=TRACE,
        declared_run_id="run-1",
        declared_task_id="task-2",
    )
    assert all((record.principal_id, record.issuer, record.token_id, record.securable_id))


async def test_a_change_is_recorded_with_the_hash_of_its_key_and_its_replay_as_a_replay(server: AuditedServer) -> None:
    await _make_table(server.client)

    for _ in range(2):
        answer = await server.client.post(
            "/v1/namespaces/ns/tables/t", json=set_properties(k="v"), headers={"idempotency-key": KEY.upper()}
        )
        assert answer.status_code == 200
    first, again = (await server.records())[-2:]

    key_hash = hashlib.sha256(KEY.encode()).hexdigest()
    assert [(one.kind, one.operation, one.outcome) for one in (first, again)] == [("change", "updateTable", "done")] * 2
    assert first.idempotency_key_hash == again.idempotency_key_hash == key_hash
    assert (first.is_replay, again.is_replay) == (False, True)


async def test_a_request_without_a_valid_token_is_recorded_with_the_reason(server: AuditedServer) -> None:
    await server.client.get("/v1/namespaces", headers={"authorization": "Bearer wrong", "x-sandur-tenant": "acme"})
    record = await server.last()

    assert (record.kind, record.decision, record.reason) == ("unauthenticated", "denied", "unauthenticated")
    assert record.detail == "Not authorized: the bearer token is not valid: it is not a signed token (JWT)"
    assert (record.status, record.outcome, record.principal) == (401, "refused", "")
    assert record.tenant == "default"


async def test_a_request_without_a_token_chooses_no_workspace(server: AuditedServer) -> None:
    await server.client.get("/v1/namespaces", headers={"authorization": "", "x-sandur-tenant": "acme"})

    assert {key.partition("/")[0] for key in await server.objects()} == {"tenant=default"}


async def test_many_bad_tokens_make_few_objects_and_are_counted(server: AuditedServer) -> None:
    for _ in range(300):
        answer = await server.client.get("/v1/namespaces", headers={"authorization": "Bearer wrong"})
        assert answer.status_code == 401
    records = await server.records()
    page = (await server.client.get("/metrics")).text

    kept = sum(record.kind == "unauthenticated" for record in records)
    lost = sum(sum(record.lost.values()) for record in records)
    assert kept + lost == 300
    assert lost > 0
    assert f'sandur_audit_lost_total{{kind="unauthenticated"}} {float(lost)}' in page
    assert f'sandur_audit_records_total{{kind="unauthenticated"}} {float(kept)}' in page


async def test_a_refused_change_and_one_of_unknown_outcome_are_recorded_as_such() -> None:
    store = FailingStore()
    async with audited_server(store, authentication="on", admin_secret=ADMIN_SECRET) as server:
        server.client.headers.update({**HEADERS, **await server.admin()})
        await _make_table(server.client)
        await server.client.post("/v1/namespaces/ns/tables", json=create_table("t"))
        exists = await server.last()
        await server.client.get("/v1/namespaces/ns/tables/missing")
        missing = await server.last()
        store.error, store.only_writes = OutcomeUnknown("no answer"), True
        await server.client.post("/v1/namespaces/ns/tables/t", json=set_properties(k="v"))
        store.error = None
        unknown = await server.last()

    assert (exists.status, exists.outcome, exists.reason) == (409, "refused", "AlreadyExists")
    assert (missing.kind, missing.status, missing.outcome, missing.reason) == ("read", 404, "refused", "NotFound")
    assert (unknown.kind, unknown.status, unknown.outcome) == ("change", 500, "unknown")
    assert unknown.reason == "OutcomeUnknown"


async def test_a_trail_that_cannot_be_written_does_not_delay_answers_and_the_server_stays_ready() -> None:
    store = PartlyFailing()
    async with audited_server(store, authentication="on", admin_secret=ADMIN_SECRET) as server:
        server.client.headers.update({**HEADERS, **await server.admin()})
        store.error = OutcomeUnknown("no answer")
        store.failing = lambda call, _: call.is_write and "/audit/" in call.key
        for _ in range(3):
            assert (await server.client.get("/v1/namespaces")).status_code == 200
        assert not await server.catalog.audit.flush()
        ready = await server.client.get("/readyz")
        store.failing = lambda *_: False

        assert ready.status_code == 200
        assert [record.operation for record in await server.records()] == ["listNamespaces"] * 3


async def test_without_authentication_nothing_is_recorded_unless_it_is_switched_on() -> None:
    async with audited_server() as server:
        await _make_table(server.client)
        assert await server.objects() == {}
    async with audited_server(audit="changes") as server:
        await _make_table(server.client)
        await server.client.get("/v1/namespaces/ns/tables/t")
        records = await server.records()

    assert [(one.operation, one.principal) for one in records] == [
        ("createNamespace", "anonymous"),
        ("createTable", "anonymous"),
    ]


async def test_two_servers_write_into_one_trail() -> None:
    store = MemoryStore()
    settings: dict[str, Any] = {"authentication": "on", "admin_secret": ADMIN_SECRET}
    async with audited_server(store, **settings) as one, audited_server(store, **settings) as two:
        admin = await one.admin()
        for number in range(6):
            client = (one, two)[number % 2].client
            await client.get("/v1/namespaces", headers={**HEADERS, **admin, "x-request-id": f"r{number}"})
            await one.catalog.audit.flush()
            await two.catalog.audit.flush()

        assert sorted(record.request_id for record in await one.records()) == [f"r{number}" for number in range(6)]


async def test_a_stopping_server_writes_what_waits(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "authentication": "on",
        "admin_secret": ADMIN_SECRET,
        "store": str(tmp_path / "store"),
        "fsync": "never",
    }
    async with audited_server(**settings) as server:
        await server.client.get("/v1/namespaces", headers={**HEADERS, **await server.admin()})
    async with audited_server(**settings) as server:
        assert [record.operation for record in await server.records()] == ["listNamespaces"]


SECRET: Final = "s3cr3t-that-must-not-be-written"  # noqa: S105 - of this test only
JWT: Final = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2VjcmV0LXNpZ25hdHVyZQ"


async def test_no_secret_of_a_header_or_a_body_is_written() -> None:
    async with audited_server(authentication="on", admin_secret=ADMIN_SECRET, audit="all") as server:
        client = server.client
        allowed = await server.admin()
        await client.post("/v1/namespaces", json={"namespace": ["ns"], "properties": {"p": SECRET}}, headers=allowed)
        table = create_table("t", properties={"p": SECRET}, location=f"memory://{SECRET}")
        await client.post("/v1/namespaces/ns/tables", json=table, headers=allowed)
        await client.post("/v1/namespaces/ns/tables", content=f"{{{SECRET}".encode(), headers=allowed)
        form = {"grant_type": "client_credentials", "client_id": "ada", "client_secret": SECRET, "scope": SECRET}
        await client.post("/v1/oauth/tokens", data=form)
        await client.post("/v1/oauth/tokens", data={**form, "client_id": "admin", "client_secret": ADMIN_SECRET})
        await client.post("/api/1.0/unity-control/auth/tokens", data={**form, "subject_token": SECRET})
        await client.post("/api/2.1/unity-catalog/catalogs", json={"name": "c", "comment": SECRET}, headers=allowed)
        for value in (f"Bearer {SECRET}", f"Basic {SECRET}", f"Bearer {JWT}", SECRET):
            await client.get("/v1/namespaces", headers={"authorization": value, "cookie": f"UC_TOKEN={SECRET}"})
        for name in ("user-agent", "x-request-id", "traceparent", "x-sandur-run-id", "x-sandur-task-id"):
            for value in (f"token={SECRET}", f"Bearer-{JWT}", f"sdr_abc_{SECRET}"):
                await client.get("/v1/namespaces", headers={**allowed, name: value})
        for name in ("idempotency-key", "origin", "referer", "x-forwarded-for", "x-iceberg-access-delegation", "etag"):
            await client.post("/v1/namespaces", json={"namespace": ["x"]}, headers={**allowed, name: SECRET})
        await client.get("/v1/namespaces", params={"pageToken": SECRET, "parent": SECRET}, headers=allowed)
        written = b"".join(gzip.decompress(data) for data in (await server.objects()).values())

    assert written.count(b"\n") > 30
    assert [line for line in written.splitlines() if SECRET.encode() in line] == []
    assert ADMIN_SECRET.encode() not in written
    assert allowed["authorization"].rpartition(".")[2].encode() not in written
    assert JWT.partition(".")[0].encode() not in written


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("PyIceberg/0.12.0", "PyIceberg/0.12.0"),
        (f"curl {JWT}", "curl (hidden)"),
        ("key sdr_a1_b2c3 end", "key (hidden) end"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: (hidden)"),
        ("x?client_secret=abc&b", "x?client_(hidden)"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, hidden: str) -> None:
    assert hide_secrets(text) == hidden


class _Trail:
    """Keeps the records that it gets."""

    sampled = 1.0
    has_reads = True

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def wants(self, *_: object) -> bool:
        return True

    def add(self, _layout: object, record: AuditRecord) -> None:
        self.records.append(record)

    def add_read(self, read: UnbuiltRead) -> None:
        self.records.append(read.build())


ORDERS: Final = Link("id-1", "table", "main.sales.orders", "p0")
PEOPLE: Final = Link("id-2", "table", "main.hr.people", "p0")
READ: Final = privileges.READ_TABLE


def _record(*decisions: Decision, status: int, error: Exception | None = None, **fields: Any) -> AuditRecord:
    """The record of a request of ada on which these decisions were made."""
    caller = Caller("p1", "ada")
    ended = Exchange(
        scope={"method": fields.pop("method", "GET"), "client": ("10.0.0.9", 1)},
        headers={},
        request_id="r",
        protocol="iceberg",
        operation=fields.pop("operation", "loadTable"),
        needs=Needs("table", READ),
        values={"prefix": b"main", "namespace": b"sales%1Feu", "table": b"orders"},
        identity=Identity("default", "default", "ada", caller),
        access=Access(caller, Needs("table", READ), list(decisions)),
        notes=fields.pop("notes", None),
        status=status,
        error=error,
        time_ms=5,
    )
    trail = _Trail()
    record_request(trail, Settings(), ended)  # type: ignore[arg-type] # It has the methods that are called.
    return trail.records[0]


def test_an_allowed_request_has_its_securable_privilege_and_manifest() -> None:
    record = _record(Decision(ORDERS, READ, ALLOWED, 17), status=200)

    assert (record.kind, record.decision, record.reason) == ("read", "allowed", "")
    assert (record.securable_type, record.securable_name, record.securable_id) == ("table", "main.sales.orders", "id-1")
    assert (record.privilege, record.manifest_number) == ("SELECT or MODIFY", 17)
    assert (record.principal, record.principal_id, record.outcome) == ("ada", "p1", "done")


def test_a_forbidden_request_has_what_was_missing() -> None:
    verdict = Verdict("forbidden", "SELECT or MODIFY on table main.sales.orders", ORDERS)

    record = _record(Decision(ORDERS, READ, verdict, 17), status=403, error=Forbidden("no"))

    assert (record.kind, record.decision, record.reason) == ("denial", "denied", "forbidden")
    assert record.detail == "needs SELECT or MODIFY on table main.sales.orders"
    assert (record.status, record.outcome) == (403, "refused")


def test_a_404_that_hides_an_object_has_the_true_reason() -> None:
    verdict = Verdict("hidden", link=ORDERS)

    record = _record(Decision(ORDERS, READ, verdict, 3), status=404, error=NotFound("no", subject="table"))

    assert (record.kind, record.decision, record.reason) == ("denial", "denied", "hidden")
    assert record.detail == "no right on table main.sales.orders, or on anything inside it"
    assert record.securable_id == "id-1"


def test_of_several_decisions_the_first_denial_settles_a_refused_request() -> None:
    denied = Decision(PEOPLE, READ, Verdict("forbidden", "MODIFY", PEOPLE), 3)
    refused = _record(Decision(ORDERS, READ, ALLOWED, 3), denied, status=403, error=Forbidden("no"))
    allowed = _record(Decision(ORDERS, READ, ALLOWED, 3), Decision(PEOPLE, READ, ALLOWED, 3), status=200)

    assert refused.securable_name == "main.hr.people"
    assert [one.securable_name for one in refused.further_decisions] == ["main.sales.orders"]
    assert allowed.securable_name == "main.sales.orders"
    assert [(one.securable_name, one.decision) for one in allowed.further_decisions] == [("main.hr.people", "allowed")]


def test_an_allowed_request_that_fails_has_the_class_of_its_error_and_never_its_text() -> None:
    record = _record(Decision(ORDERS, READ, ALLOWED, 3), status=409, error=Conflict("quotes the body"), method="POST")

    assert (record.kind, record.decision, record.reason, record.detail) == ("change", "allowed", "Conflict", "")


def test_without_a_decision_the_securable_is_what_the_path_names() -> None:
    record = _record(status=404, error=NotFound("no", subject="table"))

    assert (record.securable_type, record.securable_name, record.securable_id) == ("table", "main.sales.eu.orders", "")
    assert (record.decision, record.reason) == ("none", "NotFound")


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (None, 200, "done"),
        (Conflict("x"), 409, "refused"),
        (SandurError("x"), 503, "failed"),
        (OutcomeUnknown("x"), 500, "unknown"),
        (RuntimeError("a bug"), 500, "unknown"),
    ],
)
def test_the_outcome_is_unknown_if_a_write_may_have_been_applied(
    error: Exception | None, status: int, outcome: str
) -> None:
    assert _record(status=status, error=error, method="POST").outcome == outcome


@pytest.mark.parametrize(
    ("method", "operation", "kind"),
    [
        ("GET", "loadTable", "read"),
        ("HEAD", "tableExists", "read"),
        ("POST", "planTableScan", "read"),
        ("POST", "updateTable", "change"),
        ("POST", "createCredential", "change"),
        ("GET", "getCredential", "read"),
        ("GET", "listCredentials", "read"),
        ("POST", "generateTemporaryTableCredentials", "credential"),
        ("GET", "getTableCredentials", "credential"),
        ("GET", "loadCredentials", "credential"),
        ("POST", "signRequest", "credential"),
        ("PATCH", "updatePermissions", "security"),
        ("DELETE", "deleteUser", "security"),
        ("POST", "getToken", "login"),
        ("POST", "anOperationOfTheFuture", "change"),
    ],
)
def test_each_operation_has_its_kind(method: str, operation: str, kind: str) -> None:
    assert _record(status=200, method=method, operation=operation).kind == kind


def test_lines_are_plain_json_without_empty_fields(server: AuditedServer) -> None:
    del server
    line = json.loads(msgspec.json.encode(_record(Decision(ORDERS, READ, ALLOWED, 17), status=200)))

    assert line == {
        "time_ms": 5,
        "kind": "read",
        "request_id": "r",
        "tenant": "default",
        "workspace": "default",
        "principal": "ada",
        "principal_id": "p1",
        "peer": "10.0.0.9",
        "protocol": "iceberg",
        "operation": "loadTable",
        "securable_type": "table",
        "securable_name": "main.sales.orders",
        "securable_id": "id-1",
        "privilege": "SELECT or MODIFY",
        "decision": "allowed",
        "manifest_number": 17,
        "status": 200,
        "outcome": "done",
    }
