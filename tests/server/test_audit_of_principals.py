"""The audit trail of a server with principals and grants: decisions, logins, changes of grants, and who may read it."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from sandur.catalog.audit import AuditRecord
from sandur.cli.audit import AuditFlags, show_audit
from sandur.cli.store_admin import StoreFlags
from sandur.operations.identity.bootstrap import recover
from sandur.storage.layout import Layout
from tests.server.audited import AuditedServer, audited_server
from tests.server.logins import ADMIN_SECRET, PRINCIPALS, TOKENS, bearer, make_principal
from tests.server.requests import create_table

PERMISSIONS = "/api/2.1/unity-catalog/permissions"
AUDIT = "/api/sandur/v1/audit"
TABLE = "/v1/namespaces/ns/tables/t"

Headers = dict[str, str]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AuditedServer]:
    settings: dict[str, Any] = {"store": str(tmp_path / "store"), "fsync": "never"}
    async with audited_server(authentication="on", admin_secret=ADMIN_SECRET, **settings) as running:
        yield running


@pytest.fixture
async def admin(server: AuditedServer) -> Headers:
    """The header of the administrator, who has made a table."""
    header = await server.admin()
    await server.client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=header)
    made = await server.client.post("/v1/namespaces/ns/tables", json=create_table("t"), headers=header)
    assert made.status_code == 200
    return header


async def _grant(client: httpx.AsyncClient, admin: Headers, kind: str, name: str, **grants: list[str]) -> None:
    changes = [{"principal": principal, "add": privileges} for principal, privileges in grants.items()]
    answer = await client.patch(f"{PERMISSIONS}/{kind}/{name}", json={"changes": changes}, headers=admin)
    assert answer.status_code == 200, answer.text


async def _let_in(server: AuditedServer, admin: Headers, name: str, *privileges: str) -> Headers:
    header = await make_principal(server.client, admin, name)
    await _grant(server.client, admin, "catalog", "main", **{name: ["USE CATALOG"]})
    await _grant(server.client, admin, "schema", "main.ns", **{name: ["USE SCHEMA"]})
    if privileges:
        await _grant(server.client, admin, "table", "main.ns.t", **{name: list(privileges)})
    return header


async def test_an_allowed_read_names_the_object_the_privilege_and_the_grants(
    server: AuditedServer, admin: Headers
) -> None:
    ann = await _let_in(server, admin, "ann", "SELECT")

    answer = await server.client.get(TABLE, headers=ann)
    record = await server.last()

    assert answer.status_code == 200
    assert (record.kind, record.decision, record.reason, record.outcome) == ("read", "allowed", "", "done")
    assert (record.principal, record.operation, record.status) == ("ann", "loadTable", 200)
    assert (record.securable_type, record.securable_name) == ("table", "main.ns.t")
    assert (record.privilege, record.securable_id != "") == ("SELECT or MODIFY", True)
    assert record.manifest_number > 0
    assert (record.principal_id != "", record.token_id != "", record.issuer != "") == (True, True, True)


async def test_a_denied_change_says_what_was_missing(server: AuditedServer, admin: Headers) -> None:
    ann = await _let_in(server, admin, "ann", "SELECT")

    answer = await server.client.delete(TABLE, headers=ann)
    record = await server.last()

    assert answer.status_code == 403
    assert (record.kind, record.decision, record.reason) == ("denial", "denied", "forbidden")
    assert (record.principal, record.operation, record.status, record.outcome) == ("ann", "dropTable", 403, "refused")
    assert record.securable_name == "main.ns.t"
    assert record.detail == "needs MANAGE or ownership on table ns.t"


async def test_a_404_that_hides_a_table_is_a_denial_with_the_true_reason(server: AuditedServer, admin: Headers) -> None:
    ben = await _let_in(server, admin, "ben")

    hidden = await server.client.get(TABLE, headers=ben)
    record = await server.last()
    missing = await server.client.get("/v1/namespaces/ns/tables/other", headers=ben)
    other = await server.last()

    assert (hidden.status_code, missing.status_code) == (404, 404)
    assert "hidden" not in hidden.text
    assert (record.kind, record.decision, record.reason, record.status) == ("denial", "denied", "hidden", 404)
    assert record.securable_name == "main.ns.t"
    assert (other.decision, other.reason) == ("none", "NotFound")


async def test_the_token_of_a_removed_principal_is_recorded_as_unauthenticated(
    server: AuditedServer, admin: Headers
) -> None:
    ann = await _let_in(server, admin, "ann", "SELECT")
    await server.client.delete(f"{PRINCIPALS}/ann", headers=admin)

    answer = await server.client.get(TABLE, headers=ann)
    record = await server.last()

    assert answer.status_code == 401
    assert (record.kind, record.decision, record.reason) == ("unauthenticated", "denied", "unauthenticated")


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("admin", "failed login as admin"),
        ("ADMIN", "failed login as admin"),
        ("s3cr3t", "failed login as an unknown client"),
    ],
)
async def test_the_trail_says_whose_secret_was_guessed(server: AuditedServer, name: str, detail: str) -> None:
    """But not what was sent as a name, which may be a secret."""
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": "wrong"}

    await server.client.post(TOKENS, data=form)

    record = await server.last()
    assert (record.decision, record.status, record.reason, record.detail) == ("denied", 401, "unauthenticated", detail)


async def test_a_login_names_the_principal_and_a_failed_one_its_reason(server: AuditedServer) -> None:
    await bearer(server.client)
    done = await server.last()
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": "wrong"}
    answer = await server.client.post(TOKENS, data=form)
    failed = await server.last()

    assert (done.kind, done.operation, done.principal, done.outcome) == ("login", "getToken", "admin", "done")
    assert answer.status_code == 401
    assert (failed.kind, failed.decision, failed.outcome) == ("unauthenticated", "denied", "refused")


async def test_changes_of_principals_and_grants_are_recorded_before_and_after_without_secrets(
    server: AuditedServer, admin: Headers
) -> None:
    made = await server.client.post(PRINCIPALS, json={"name": "ann"}, headers=admin)
    created = await server.last()
    secret = made.json()["client_secret"]
    await _grant(server.client, admin, "table", "main.ns.t", ann=["SELECT"])
    await _grant(server.client, admin, "table", "main.ns.t", ann=["MODIFY"])
    granted = await server.last()
    await server.client.delete(f"{PRINCIPALS}/ann", headers=admin)
    dropped = await server.last()
    written = b"".join(gzip.decompress(data) for data in (await server.objects()).values())

    assert [record.kind for record in (created, granted, dropped)] == ["security"] * 3
    (principal,) = [change for change in created.changes if change.object == "principal"]
    assert (principal.name, bytes(principal.before)) == ("ann", b"null")
    assert _json(principal.after)["name"] == "ann"
    assert "hash" not in str(_json(principal.after))
    (grants,) = granted.changes
    subjects = [list(_json(state)["subjects"].values()) for state in (grants.before, grants.after)]
    assert subjects == [[["SELECT"]], [["SELECT", "MODIFY"]]]
    assert any(change.object == "principal" and bytes(change.after) == b"null" for change in dropped.changes)
    assert secret.encode() not in written
    assert ADMIN_SECRET.encode() not in written


def _json(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


async def test_only_an_administrator_reads_the_trail(server: AuditedServer, admin: Headers) -> None:
    ann = await _let_in(server, admin, "ann", "SELECT")
    await server.client.get(TABLE, headers=ann)
    await server.records()

    refused = await server.client.get(AUDIT, headers=ann)
    found = await server.client.get(AUDIT, params={"principal": "ann", "operation": "loadTable"}, headers=admin)

    assert refused.status_code == 403
    assert found.status_code == 200
    (record,) = found.json()["records"]
    assert (record["principal"], record["securable_name"], record["decision"]) == ("ann", "main.ns.t", "allowed")
    assert found.json()["next_token"] is None


async def test_the_trail_is_read_in_pages(server: AuditedServer, admin: Headers) -> None:
    for number in range(5):
        await server.client.get(TABLE, headers={**admin, "x-request-id": f"r{number}"})
    await server.records()

    found: list[str] = []
    query = {"operation": "loadTable", "page_size": "2"}
    for _ in range(10):
        page = (await server.client.get(AUDIT, params=query, headers=admin)).json()
        found += [record["request_id"] for record in page["records"]]
        if page["next_token"] is None:
            break
        query["page_token"] = page["next_token"]

    assert found == [f"r{number}" for number in range(5)]


@pytest.mark.parametrize(
    "query", [{"since": "yesterday"}, {"decision": "maybe"}, {"page_size": "0"}, {"page_token": "x"}, {"who": "ann"}]
)
async def test_a_search_that_makes_no_sense_is_refused(
    server: AuditedServer, admin: Headers, query: dict[str, str]
) -> None:
    answer = await server.client.get(AUDIT, params=query, headers=admin)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "BadRequestException"


async def test_the_command_prints_what_was_denied(
    server: AuditedServer, admin: Headers, capsys: pytest.CaptureFixture[str]
) -> None:
    ben = await _let_in(server, admin, "ben")
    await server.client.get(TABLE, headers=ben)
    await server.records()
    store = StoreFlags(server.catalog.lakes.lake("default", "default").settings.store)
    flags = AuditFlags({"principal": "ben", "decision": "denied"}, "1h", None, 10)

    # In a thread, because the command runs a loop of its own.
    await asyncio.to_thread(show_audit, flags, store, as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    await asyncio.to_thread(show_audit, flags, store, as_json=False)
    table = capsys.readouterr().out

    record = msgspec.json.decode(line, type=AuditRecord)
    assert (record.reason, record.securable_name) == ("hidden", "main.ns.t")
    assert "loadTable" in table
    assert "denied" in table


async def test_the_recovery_of_the_administrator_on_the_store_is_recorded(server: AuditedServer) -> None:
    lake = server.catalog.lakes.fresh_lake(Layout())

    secret = await recover(lake, "operator")
    record = await server.last()

    assert (record.kind, record.operation, record.protocol) == ("security", "recoverAdmin", "store")
    assert record.principal == "operator"
    assert [change.object for change in record.changes] == ["principal"]
    assert record.changes[0].name == "admin"
    assert secret.encode() not in gzip.decompress(b"".join((await server.objects()).values()))
