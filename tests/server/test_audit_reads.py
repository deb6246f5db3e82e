"""Allowed reads: each has its own record, although what they share is encoded once."""

import gzip
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pytest

from sandur.catalog.audit import AuditRecord
from sandur.catalog.security.manifest import Actor, Caller, Decision
from sandur.catalog.security.privileges import ALLOWED, READ_TABLE, READ_VIEW, Link
from sandur.operations.audit.trail import encode_batch
from sandur.server.audit import AllowedRead
from sandur.server.identity import Identity
from tests.server.audited import audited_server
from tests.server.requests import create_table

ADA: Final = Caller("p1", "ada")
IDENTITY: Final = Identity("acme", "prod", "ada", ADA, "https://idp", "t1")
ORDERS: Final = Link("id-1", "table", "sales.orders")
DECISION: Final = Decision(ORDERS, READ_TABLE, ALLOWED, 17, "main")
READ: Final = AllowedRead(5, "r1", "", "iceberg", "loadTable", 200, "10.0.0.9", b"Spark", IDENTITY, DECISION, 1.0)

OTHERS: Final[Mapping[str, Sequence[object]]] = {
    "time_ms": [6],
    "request_id": ["r2", 'a"b\\c'],
    "declared_trace_id": ["0af7651916cd43dd8448eb211c80319c"],
    "protocol": ["delta"],
    "operation": ["tableExists"],
    "status": [304],
    "peer": ["", "10.0.0.8"],
    "agent": [b"", b"Trino", b"\xff\x00", b"token=secret1234"],
    "identity": [
        Identity("acme", "prod", "ada", ADA, "https://idp", "t2"),
        Identity("acme", "prod", "ada", ADA, "", "t1"),
        IDENTITY._replace(caller=Caller("p2", "bob")),
        IDENTITY._replace(caller=ADA._replace(actor=Actor("p3", "trino", 0))),
    ],
    "decision": [
        DECISION._replace(link=ORDERS._replace(id="id-2")),
        DECISION._replace(rule=READ_VIEW),
        DECISION._replace(manifest_number=18),
        DECISION._replace(catalog=""),
    ],
    "sampled": [0.5],
}
"""Other values of every field."""


def lines(*reads: AllowedRead | AuditRecord) -> list[object]:
    """The lines of one batch, without the ids, which say only the place."""
    found = gzip.decompress(encode_batch("b", reads)).splitlines()
    return [{**msgspec.json.decode(line), "id": ""} for line in found]


def test_every_field_is_tried() -> None:
    assert set(OTHERS) == set(AllowedRead.__struct_fields__) - {"kind"}


@pytest.mark.parametrize("field", OTHERS)
def test_reads_that_differ_have_different_lines_and_each_is_that_of_its_record(field: str) -> None:
    reads = [READ, *(msgspec.structs.replace(READ, **{field: value}) for value in OTHERS[field]), READ]

    found = lines(*reads)

    assert found == [lines(read.build())[0] for read in reads]
    assert found[0] == found[-1]
    assert all(other != found[0] for other in found[1:-1])


async def test_reads_of_several_clients_in_one_batch_have_their_own_records() -> None:
    async with audited_server(authentication="on", admin_secret="the secret of the administrator") as server:  # noqa: S106 - of this test
        admin, path = await server.admin(), "/v1/namespaces/ns/tables"
        await server.client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=admin)
        for name in ("a", "b"):
            await server.client.post(path, json=create_table(name), headers=admin)
        expected = []
        for number, (name, agent) in enumerate([("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")]):
            sent = {**admin, "user-agent": agent, "x-request-id": f"r{number}"}
            answer = await server.client.get(f"{path}/{name}", headers=sent)
            assert answer.status_code == 200
            expected.append((f"main.ns.{name}", agent, f"r{number}", "admin", "10.1.2.3"))
        found = [record for record in await server.records() if record.operation == "loadTable"]

    assert [
        (one.securable_name, one.declared_agent, one.request_id, one.principal, one.peer) for one in found
    ] == expected
    assert all(record.token_id and record.manifest_number for record in found)


async def test_a_waiting_read_holds_no_header_but_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with audited_server(authentication="on", admin_secret="the secret of the administrator") as server:  # noqa: S106 - of this test
        admin = await server.admin()
        kept: list[AllowedRead] = []
        monkeypatch.setattr(server.catalog.audit, "add_read", kept.append)  # To see what would wait.
        answer = await server.client.get("/v1/namespaces", headers={**admin, "user-agent": "x" * 5_000})
        again = await server.client.get("/v1/namespaces", headers={**admin, "cookie": "c" * 5_000})

    assert (answer.status_code, again.status_code) == (200, 200)
    (read,) = kept  # A long name of a client is cut before it waits.
    held = msgspec.structs.astuple(read)
    token = admin["authorization"].partition(" ")[2]
    assert all(token not in str(value) and "cccc" not in str(value) for value in held)
