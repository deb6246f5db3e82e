"""The routes that sign: who gets a signature, for which table, and how clients may keep it."""

import random  # noqa: TID251 - seeded
from typing import Any, Final

import pytest
from msgspec.structs import replace

from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.requests import create_table, rename, set_properties
from tests.signatures.generated import attack, delete_body
from tests.signatures.signing_server import NS, OLD_ROUTE, S3, SIGNING, SigningServer, set_up

RESTRICTIONS = {"required-column-projections": [{"field-id": 1, "action": "replace-with-null"}]}


DECISIONS = {
    "reader": {"GET": 200, "HEAD": 200, "PUT": 403, "DELETE": 403},
    "writer": {"GET": 200, "PUT": 200, "DELETE": 200},
    "modifier": {"GET": 403, "PUT": 403},
    "creator": {"GET": 404},
    "stranger": {"GET": 404, "PUT": 404},
    "admin": {"GET": 200, "PUT": 200},
}
PATHS = (f"{NS}/tables/orders/sign", OLD_ROUTE)


async def test_reading_needs_select_and_writing_needs_select_and_modify(server: SigningServer) -> None:
    uri = server.uri(f"{server.table}/data/a")
    for path in PATHS:
        for caller, expected in DECISIONS.items():
            assert {method: await server.status(caller, method, uri, path=path) for method in expected} == expected


@pytest.mark.parametrize("path", PATHS)
async def test_a_read_may_be_kept_by_its_client_and_a_write_may_not(server: SigningServer, path: str) -> None:
    uri = server.uri(f"{server.table}/data/a")

    read = await server.sign("writer", "GET", uri, path=path)
    write = await server.sign("writer", "PUT", uri, path=path)

    assert read.headers["Cache-Control"] == "private"
    assert write.headers["Cache-Control"] == "no-cache"


async def test_the_answer_has_the_signature_and_what_is_signed_but_no_range(server: SigningServer) -> None:
    headers = {"Range": ["bytes=0-9"], "Content-Type": ["text/plain"], "User-Agent": ["x"]}

    signed = await server.signed("reader", "GET", server.uri(f"{server.table}/a"), headers=headers)

    assert set(signed) == {"Authorization", "content-type", "x-amz-content-sha256", "x-amz-date"}
    assert "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date" in signed["Authorization"]
    assert "the-secret" not in str(signed)


@pytest.mark.parametrize("path", PATHS)
async def test_the_files_of_another_table_are_refused_although_the_caller_may_read_it(
    server: SigningServer, path: str
) -> None:
    own, other = f"{server.table}/a", f"{server.neighbour}/a"

    body = delete_body(own.removeprefix("s3://bucket/"), other.removeprefix("s3://bucket/"))
    answers = [
        await server.sign("writer", "GET", server.uri(other)),
        await server.sign("writer", "GET", server.uri(f"{server.table}-x/a")),
        await server.sign("writer", "POST", f"{S3.endpoint}/bucket?delete", path=path, body=body),
    ]

    for answer in answers:
        assert answer.status_code == 403, answer.text
        assert answer.json()["error"]["type"] == "ForbiddenException"
        assert "not below a location of the table" in answer.json()["error"]["message"]


async def test_a_revoked_right_counts_at_once(server: SigningServer) -> None:
    uri = server.uri(f"{server.table}/a")
    await server.signed("writer", "PUT", uri)

    await server.grant("writer", remove=("MODIFY",))
    assert (await server.sign("writer", "PUT", uri)).status_code == 403

    await server.grant("writer", remove=("SELECT",))
    assert (await server.sign("writer", "GET", uri)).status_code == 404


async def test_a_restricted_table_is_not_signed(server: SigningServer) -> None:
    await server.administer("PUT", "/api/sandur/v1/restrictions/main.sales.orders", RESTRICTIONS)
    uri = server.uri(f"{server.table}/a")

    for path in PATHS:
        refused = await server.sign("writer", "GET", uri, path=path)
        assert refused.status_code == 403
        assert "row filters or column masks" in refused.text
    assert (await server.sign("admin", "GET", uri)).status_code == 200


async def test_every_location_of_a_table_is_signed_and_a_former_one_too(server: SigningServer) -> None:
    folder = server.table.rpartition("/__unitystorage")[0]
    placed = create_table("placed", location=f"{folder}/placed", properties={"write.data.path": f"{folder}/files"})
    await server.administer("POST", f"{NS}/tables", placed)
    move = {"requirements": [], "updates": [{"action": "set-location", "location": f"{folder}/moved"}]}
    await server.administer("POST", f"{NS}/tables/placed", move)

    for place in ("placed/metadata/a", "files/b", "moved/c"):
        for path in (f"{NS}/tables/placed/sign", OLD_ROUTE):
            await server.signed("writer", "GET", server.uri(f"{folder}/{place}"), path=path)
    assert (await server.sign("writer", "GET", server.uri(f"{folder}/other/c"), path=OLD_ROUTE)).status_code == 404


async def test_a_table_is_signed_under_its_new_name_after_a_rename(server: SigningServer) -> None:
    uri = server.uri(f"{server.table}/a")
    await server.administer("POST", "/v1/main/tables/rename", rename("orders", "renamed", namespace="sales"))

    assert (await server.sign("reader", "GET", uri)).status_code == 404
    await server.signed("reader", "GET", uri, path=f"{NS}/tables/renamed/sign")
    await server.signed("reader", "GET", uri, path=OLD_ROUTE)


async def test_a_dropped_table_is_not_signed(server: SigningServer) -> None:
    await server.administer("DELETE", f"{NS}/tables/orders")

    for path in PATHS:
        assert (await server.sign("reader", "GET", server.uri(f"{server.table}/a"), path=path)).status_code == 404


async def test_only_the_caller_that_stages_a_table_writes_its_files(server: SigningServer) -> None:
    staged = await server.client.post(
        f"{NS}/tables", json=create_table("stäged", stage_create=True), headers=await server.caller("creator")
    )
    uri = server.uri(f"{staged.json()['metadata']['location']}/data/a")
    path = f"{NS}/tables/stäged/sign"

    await server.signed("creator", "PUT", uri, path=path)
    await server.signed("creator", "GET", uri, path=path)
    for caller in ("writer", "stranger", "admin"):
        assert (await server.sign(caller, "PUT", uri, path=path)).status_code == 404
    assert (await server.sign("creator", "PUT", server.uri(f"{server.table}/a"), path=path)).status_code == 404
    await server.grant("creator", remove=("CREATE TABLE",))
    assert (await server.sign("creator", "PUT", uri, path=path)).status_code == 404


async def test_a_missing_table_and_a_hidden_one_get_the_same_answer(server: SigningServer) -> None:
    uri = server.uri(f"{server.table}/a")

    for given in (uri, f"{uri}/../b", "", f"{S3.endpoint}/bucket?delete", f"{S3.endpoint}/bucket?prefix=%ff"):
        for method in ("GET", "POST"):
            hidden = await server.sign("stranger", method, given)
            missing = await server.sign("stranger", method, given, path=f"{NS}/tables/nothing/sign")

            assert hidden.status_code == missing.status_code == 404, given
            assert hidden.text.replace("orders", "nothing") == missing.text


@pytest.mark.parametrize("access", ["none", "vend", "static"])
async def test_without_the_mode_sign_nothing_is_signed(catalogs: Catalogs, access: str) -> None:
    settings = replace(SIGNING, s3=replace(S3, access=access, role_arn="arn:aws:iam::role/R"))
    server = await set_up(await catalogs.open_with(settings, MemoryStore()))

    answer = await server.sign("admin", "GET", server.uri(f"{server.table}/a"))

    assert answer.status_code == 501
    assert "s3.access" in answer.json()["error"]["message"]


async def test_views_and_other_formats_are_not_signed(server: SigningServer) -> None:
    assert (await server.sign("admin", "GET", server.uri("s3://bucket/x"), path=OLD_ROUTE)).status_code == 404
    assert (await server.sign("admin", "GET", server.uri("s3://other/x"), path=OLD_ROUTE)).status_code == 404


MALFORMED = (
    b"",
    b"{",
    b"[]",
    b"{}",
    b'{"method":"GET","uri":"http://h/b/k","region":"r"}',
    b'{"method":1,"uri":"http://h/b/k","region":"r","headers":{}}',
    b'{"method":"GET","uri":"http://h/b/k","region":"r","headers":{"a":"b"}}',
    b'{"method":"GET","uri":"http://h/b/k","region":"r","headers":{},"provider":"gcs"}',
    b'{"method":"GET","uri":"http://h/b/\xff","region":"r","headers":{}}',
    b"[" * 10_000,
)
AT: Final = S3.endpoint
ODD: tuple[dict[str, object], ...] = (
    {"uri": ""},
    {"uri": "http://[::1"},
    {"uri": "http://\ud800"},
    {"uri": AT},
    {"uri": f"{AT}/"},
    {"uri": f"{AT}//"},
    {"uri": f"{AT}/bucket?prefix=%ff"},
    {"uri": f"{AT}/bucket?prefix=a"},
    {"uri": f"{AT}/bucket/{'a/' * 100}b"},
    {"uri": f"{AT}/bucket/{'%25' * 300}"},
    {"uri": f"{AT}/bucket/__unitystorage/a/b-c"},
    {"uri": f"{AT}/bucket/a", "method": ""},
    {"uri": f"{AT}/bucket?delete", "method": "POST", "body": "<Delete>\ud800</Delete>"},
    {"uri": f"{AT}/bucket?delete", "method": "POST", "body": "x" * (3 << 20)},
    {"uri": f"{AT}/bucket/a", "headers": {"\ud800": ["a"]}},
    {"uri": f"{AT}/bucket/a", "headers": {"content-type": ["\ud800"]}},
    {"uri": f"{AT}/bucket/a", "region": "\ud800"},
)


async def test_a_malformed_request_is_a_bad_request(server: SigningServer) -> None:
    for path in PATHS:
        for body in MALFORMED:
            answer = await server.client.post(path, content=body, headers=server.callers["admin"])

            assert answer.status_code == 400, (body, answer.text)
            assert answer.json()["error"]["type"] == "BadRequestException"


async def test_no_request_ends_in_an_internal_error(server: SigningServer) -> None:
    for path in PATHS:
        for fields in ODD:
            given: Any = {"method": "GET", **fields}
            answer = await server.sign("admin", **given, path=path)

            assert answer.status_code in {400, 403, 404}, (fields, answer.text)


@pytest.mark.parametrize("seed", range(3))
async def test_generated_requests_get_a_signature_or_a_reason(server: SigningServer, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        made = attack(chance, AT)
        given: Any = {"headers": dict(made.headers), "region": made.region, "body": made.body}
        for path in PATHS:
            answer = await server.sign("admin", made.method, made.uri, **given, path=path)

            assert answer.status_code in {403, 404}, (made, answer.text)


async def test_signing_takes_the_one_round_of_a_load(catalogs: Catalogs) -> None:
    spy = SpyStore(MemoryStore())
    server = await set_up(await catalogs.open_with(replace(SIGNING, audit="off"), spy))
    uri = server.uri(f"{server.table}/a")
    for method in ("GET", "PUT"):
        await server.signed("writer", method, uri)

    for method in ("GET", "PUT"):
        spy.reset()
        await server.signed("writer", method, uri)
        assert spy.rounds == 1


async def test_the_route_of_a_table_is_advertised(server: SigningServer) -> None:
    config = (await server.client.get("/v1/config", headers=server.callers["admin"])).json()

    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign" in config["endpoints"]


async def test_a_commit_keeps_the_signature_of_the_table(server: SigningServer) -> None:
    await server.client.post(f"{NS}/tables/orders", json=set_properties(a="b"), headers=await server.caller("writer"))

    await server.signed("reader", "GET", server.uri(f"{server.table}/a"))
