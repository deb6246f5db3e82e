"""Signatures in the audit trail: a signed read is a read, a signed write a credential, and refusals are always kept."""

from typing import Any, Final

import msgspec
import pytest

from sandur.storage.memory import MemoryStore
from tests.server.audited import audited_server
from tests.server.logins import ADMIN_SECRET
from tests.signatures.signing_server import NS, OLD_ROUTE, S3, SIGNING, set_up

SETTINGS: Final[dict[str, Any]] = {
    "store": SIGNING.store,
    "authentication": "on",
    "admin_secret": ADMIN_SECRET,
    "s3": S3,
}


@pytest.mark.parametrize("path", [f"{NS}/tables/orders/sign", OLD_ROUTE])
async def test_the_trail_says_who_got_a_signature_for_which_object_and_until_when(path: str) -> None:
    async with audited_server(MemoryStore(), **SETTINGS) as audited:
        server = await set_up(audited.client)
        uri = server.uri(f"{server.table}/data/a")
        await server.caller("writer")

        await server.signed("writer", "GET", uri, path=path)
        read = await audited.last()
        await server.signed("writer", "PUT", uri, path=path)
        write = await audited.last()

    for record, kind, mode in ((read, "read", "read"), (write, "credential", "write")):
        assert (record.kind, record.principal, record.decision) == (kind, "writer", "allowed")
        assert record.securable_name.endswith("sales.orders")
        assert record.credentials
        assert (record.credentials.prefixes, record.credentials.mode) == ((f"{server.table}/data/a",), mode)
        assert record.credentials.expires_ms - record.time_ms == pytest.approx(15 * 60_000, abs=5_000)


async def test_refusals_are_recorded_with_their_reason_although_reads_are_not_sampled() -> None:
    async with audited_server(MemoryStore(), **SETTINGS, audit_reads_sampled=0.0) as audited:
        server = await set_up(audited.client)
        await server.signed("admin", "GET", server.uri(f"{server.table}/a"))
        assert (await audited.last()).operation != "signRequest"

        assert await server.status("admin", "GET", server.uri(f"{server.neighbour}/a")) == 403
        beyond = await audited.last()
        headers = {"x-amz-copy-source": ["/bucket/secret"]}
        assert await server.status("admin", "PUT", server.uri(f"{server.table}/a"), headers=headers) == 403
        header = await audited.last()
        await server.caller("reader")
        assert await server.status("reader", "PUT", server.uri(f"{server.table}/a")) == 403
        unprivileged = await audited.last()

    for record in (beyond, header, unprivileged):
        assert (record.kind, record.operation, record.outcome) == ("denial", "signRequest", "refused")
        assert record.credentials is None
    assert "not below a location of the table" in beyond.detail
    assert "'x-amz-copy-source'" in header.detail
    assert "SELECT and MODIFY" in unprivileged.detail


async def test_no_secret_and_no_signature_reaches_the_trail() -> None:
    async with audited_server(MemoryStore(), **SETTINGS) as audited:
        server = await set_up(audited.client)
        signed = await server.signed("admin", "PUT", server.uri(f"{server.table}/a"))
        written = msgspec.json.encode(await audited.records())

    assert b"signRequest" in written
    assert signed["Authorization"].rpartition("=")[2].encode() not in written
    assert S3.secret_access_key.encode() not in written
