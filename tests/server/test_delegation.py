"""Access delegation of the Iceberg API: who gets credentials for which prefixes, until when, and what else changes."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
import structlog
from msgspec.structs import replace

from sandur.clock import SystemClock
from sandur.errors import Unfit
from sandur.settings import S3Settings, Settings
from sandur.storage.credentials import s3
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.sts import FakeSts, fake_sts
from tests.server.audited import AuditedServer, audited_server
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET, bearer, make_principal
from tests.server.requests import create_table, set_properties

UNITY: Final = "/api/2.1/unity-catalog"
TABLES: Final = "/v1/main/namespaces/sales/tables"
TABLE: Final = f"{TABLES}/orders"
CREDENTIALS: Final = f"{TABLE}/credentials"
VENDED: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}
HALF_HOUR_MS: Final = 1_800_000
KEY: Final = "0198f1a0-0000-7000-8000-000000000001"


def settings_of(sts: FakeSts, **fields: Any) -> dict[str, Any]:
    s3 = S3Settings(
        access=fields.pop("access", "vend"),
        role_arn="arn:aws:iam::role/R",
        endpoint="http://s3.example",
        sts_endpoint=sts.url,
        region="eu-west-1",
        access_key_id="own",
        secret_access_key="own-secret",  # noqa: S106 - of the double
    )
    return {"store": "s3://bucket/lake", "s3": s3, "log_level": "error", "janitors": False, **fields}


class Vending(NamedTuple):
    """A server that issues credentials by the double of STS, with one table."""

    client: httpx.AsyncClient
    sts: FakeSts
    clock: FixedClock

    async def load(self, **headers: str) -> httpx.Response:
        return await self.client.get(TABLE, headers={**VENDED, **headers})


@pytest.fixture
async def sts() -> AsyncIterator[FakeSts]:
    async with fake_sts(FixedClock()) as server:
        yield server


@pytest.fixture
async def vending(catalogs: Catalogs, sts: FakeSts) -> Vending:
    assert isinstance(sts.clock, FixedClock)
    store = MemoryStore(clock=sts.clock)
    client = await catalogs.open_with(Settings(**settings_of(sts)), store, clock=sts.clock)
    await client.post("/v1/main/namespaces", json={"namespace": ["sales"]})
    assert (await client.post(TABLES, json=create_table("orders"))).status_code == 200
    return Vending(client, sts, sts.clock)


def secrets_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return list(answer.json().get("storage-credentials", []))


def prefixes_of(form: dict[str, str]) -> list[str]:
    return list(json.loads(form["Policy"])["Statement"][0]["Resource"])


async def test_a_load_without_the_header_has_no_credentials_and_issues_none(vending: Vending) -> None:
    loaded = await vending.client.get(TABLE)

    assert loaded.json()["config"] == {}
    assert "storage-credentials" not in loaded.json()
    assert loaded.headers["Cache-Control"] == "private"
    assert vending.sts.forms == []


async def test_a_load_with_the_header_has_one_credential_for_the_table_and_the_same_in_its_config(
    vending: Vending,
) -> None:
    loaded = await vending.load()

    body = loaded.json()
    (entry,) = body["storage-credentials"]
    assert entry["prefix"] == body["metadata"]["location"]
    assert entry["config"] == body["config"]
    assert body["config"] == {
        "client.region": "eu-west-1",
        "s3.region": "eu-west-1",
        "s3.endpoint": "http://s3.example/",
        "s3.path-style-access": "true",
        "s3.access-key-id": "ASIA1",
        "s3.secret-access-key": "issued-secret-1",
        "s3.session-token": "issued-token-1",
        "s3.session-token-expires-at-ms": str(vending.sts.expires_ms[0]),
        "client.refresh-credentials-endpoint": "v1/main/namespaces/sales/tables/orders/credentials",
    }
    assert loaded.headers["Cache-Control"] == "private, no-store"
    assert "X-Iceberg-Access-Delegation" in loaded.headers["Vary"]
    place = body["metadata"]["location"].removeprefix("s3://")
    assert prefixes_of(vending.sts.forms[0]) == [f"arn:aws:s3:::{place}/*"]


async def test_the_refresh_endpoint_of_odd_names_leads_back_to_the_table(vending: Vending) -> None:
    await vending.client.post("/v1/main/namespaces", json={"namespace": ["a b", "c/d"]})
    await vending.client.post("/v1/main/namespaces", json={"namespace": ["a b"]})
    await vending.client.post("/v1/main/namespaces", json={"namespace": ["a b", "c/d"]})
    created = await vending.client.post(
        "/v1/main/namespaces/a%20b%1Fc%2Fd/tables", json=create_table("ü?t"), headers=VENDED
    )

    path = created.json()["config"]["client.refresh-credentials-endpoint"]
    refreshed = await vending.client.get(f"/{path}")

    assert secrets_of(refreshed) == secrets_of(created)


async def test_only_vended_credentials_are_an_answer_to_the_wish_for_them(vending: Vending) -> None:
    signing = await vending.client.get(TABLE, headers={"X-Iceberg-Access-Delegation": "remote-signing"})
    both = await vending.client.get(
        TABLE, headers={"X-Iceberg-Access-Delegation": "remote-signing, Vended-Credentials"}
    )
    unknown = await vending.client.get(TABLE, headers={"X-Iceberg-Access-Delegation": "something"})

    assert [len(secrets_of(one)) for one in (signing, both, unknown)] == [0, 1, 0]


async def test_create_stage_and_register_give_credentials_with_the_table(vending: Vending) -> None:
    created = await vending.client.post(TABLES, json=create_table("one"), headers=VENDED)
    staged = await vending.client.post(TABLES, json=create_table("two", stage_create=True), headers=VENDED)
    location = created.json()["metadata-location"]
    await vending.client.delete(f"{TABLES}/one")
    registered = await vending.client.post(
        "/v1/main/namespaces/sales/register",
        json={"name": "three", "metadata-location": location},
        headers=VENDED,
    )

    for answer in (created, staged, registered):
        assert answer.status_code == 200, answer.text
        (entry,) = secrets_of(answer)
        assert entry["prefix"] == answer.json()["metadata"]["location"]
        assert answer.headers["Cache-Control"] == "private, no-store"
        assert entry["config"]["client.refresh-credentials-endpoint"].endswith("/credentials")
    assert all("s3:PutObject" in form["Policy"] for form in vending.sts.forms)


async def test_a_plan_comes_with_a_credential_that_only_reads(vending: Vending) -> None:
    planned = await vending.client.post(f"{TABLE}/plan", json={}, headers=VENDED)
    plain = await vending.client.post(f"{TABLE}/plan", json={})
    fetched = await vending.client.get(f"{TABLE}/plan/{planned.json()['plan-id']}", headers=VENDED)

    assert secrets_of(planned) == secrets_of(fetched)
    assert len(secrets_of(planned)) == 1
    assert "storage-credentials" not in plain.json()
    assert planned.headers["Cache-Control"] == "private, no-store"
    assert "s3:PutObject" not in vending.sts.forms[-1]["Policy"]


async def test_the_credentials_route_returns_the_entry_alone_and_is_advertised(vending: Vending) -> None:
    loaded = await vending.load()

    refreshed = await vending.client.get(CREDENTIALS)

    assert refreshed.json() == {"storage-credentials": secrets_of(loaded)}
    assert refreshed.headers["Cache-Control"] == "private, no-store"
    config = (await vending.client.get("/v1/config")).json()
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials" in config["endpoints"]
    assert (await vending.client.get(f"{TABLES}/none/credentials")).status_code == 404


async def test_an_etag_confirms_a_credential_only_while_the_server_would_give_the_same(vending: Vending) -> None:
    plain = (await vending.client.get(TABLE)).headers["ETag"]
    loaded = await vending.load()
    etag = loaded.headers["ETag"]

    assert etag != plain
    assert (await vending.load(**{"If-None-Match": etag})).status_code == 304
    assert (await vending.load(**{"If-None-Match": plain})).status_code == 200
    assert (await vending.client.get(TABLE, headers={"If-None-Match": etag})).status_code == 200
    vending.clock.advance(HALF_HOUR_MS + 1)
    later = await vending.load(**{"If-None-Match": etag})
    assert later.status_code == 200
    assert secrets_of(later) != secrets_of(loaded)


async def test_the_etag_of_a_created_table_is_that_of_the_credential_that_came_with_it(vending: Vending) -> None:
    created = await vending.client.post(TABLES, json=create_table("new"), headers=VENDED)
    seen = {**VENDED, "If-None-Match": created.headers["ETag"]}

    assert (await vending.client.get(f"{TABLES}/new", headers=seen)).status_code == 304
    vending.sts.answer = "no credential"
    vending.clock.advance(HALF_HOUR_MS + 1)
    later = await vending.client.get(f"{TABLES}/new", headers=seen)

    assert later.status_code == 200
    assert secrets_of(later) == []


async def test_metadata_stays_readable_while_the_issuer_fails(vending: Vending) -> None:
    vending.sts.answer = "no credential"

    loaded = await vending.load()
    created = await vending.client.post(TABLES, json=create_table("other"), headers=VENDED)
    refreshed = await vending.client.get(CREDENTIALS)

    for answer in (loaded, created):
        assert answer.status_code == 200
        assert answer.json()["config"] == {}
        assert "storage-credentials" not in answer.json()
    assert refreshed.status_code == 503
    assert "Retry-After" in refreshed.headers
    assert "credential" in refreshed.text


async def test_a_table_whose_policy_would_be_too_long_is_served_without_credentials(vending: Vending) -> None:
    area, long = f"s3://bucket/lake/{await _area(vending)}", "/".join(["x" * 200] * 3)
    table = create_table("long", location=f"{area}/{long}", properties={"write.data.path": f"{area}/data/{long}"})
    created = await vending.client.post(TABLES, json=table, headers=VENDED)
    refused = await vending.client.get(f"{TABLES}/long/credentials")

    assert created.status_code == 200, created.text
    assert secrets_of(created) == []
    assert refused.status_code == 501
    assert "STS accepts 2048" in refused.text


async def _area(vending: Vending) -> str:
    """The part of every location below the store that all tables of the catalog share."""
    location = (await vending.client.get(TABLE)).json()["metadata"]["location"]
    return str(location.removeprefix("s3://bucket/lake/").partition("/__unitystorage")[0])


async def test_a_retry_gets_a_credential_of_its_own_time(vending: Vending) -> None:
    headers = {**VENDED, "Idempotency-Key": KEY}
    first = await vending.client.post(TABLES, json=create_table("kept"), headers=headers)
    vending.clock.advance(HALF_HOUR_MS + 1)

    again = await vending.client.post(TABLES, json=create_table("kept"), headers=headers)

    assert again.json()["metadata"] == first.json()["metadata"]
    assert secrets_of(again) != secrets_of(first)
    assert len(secrets_of(again)) == 1


async def test_no_stored_object_contains_a_credential(catalogs: Catalogs, sts: FakeSts) -> None:
    store = MemoryStore(clock=sts.clock)
    client = await catalogs.open_with(Settings(**settings_of(sts)), store, clock=sts.clock)
    await client.post("/v1/main/namespaces", json={"namespace": ["sales"]})

    headers = {**VENDED, "Idempotency-Key": KEY}
    created = await client.post(TABLES, json=create_table("orders"), headers=headers)
    await client.post(f"{TABLE}/plan", json={}, headers=VENDED)
    await catalogs.settled()

    assert len(secrets_of(created)) == 1
    for listed in await store.list("", limit=1_000):
        stored = await store.get(listed.key)
        assert stored
        assert b"issued-" not in stored.data


async def test_all_places_of_a_table_share_one_credential(vending: Vending) -> None:
    area = f"s3://bucket/lake/{await _area(vending)}"
    home = (await vending.load()).json()["metadata"]["location"]
    changed = await vending.client.post(TABLE, json=set_properties(**{"write.data.path": f"{area}/fast"}))
    assert changed.status_code == 200, changed.text
    moved = await vending.client.post(
        TABLE, json={"requirements": [], "updates": [{"action": "set-location", "location": f"{area}/moved"}]}
    )
    assert moved.status_code == 200, moved.text

    loaded = await vending.load()

    (entry,) = secrets_of(loaded)
    assert entry["prefix"] == "s3://bucket/"
    places = sorted(place.removeprefix("s3://") for place in (home, f"{area}/fast", f"{area}/moved"))
    assert prefixes_of(vending.sts.forms[-1]) == [f"arn:aws:s3:::{place}/*" for place in places]


async def test_without_access_for_clients_the_answer_says_nothing_about_storage(
    catalogs: Catalogs, sts: FakeSts
) -> None:
    settings = Settings(**settings_of(sts, access="none"))
    client = await catalogs.open_with(settings, MemoryStore(clock=sts.clock), clock=sts.clock)
    await client.post("/v1/main/namespaces", json={"namespace": ["sales"]})

    created = await client.post(TABLES, json=create_table("orders"), headers=VENDED)
    credentials = await client.get(CREDENTIALS)

    assert created.json()["config"] == {}
    assert credentials.json() == {"storage-credentials": []}


class Secured(NamedTuple):
    """A vending server with authentication: a table of the administrator, and principals with rights of their own."""

    server: AuditedServer
    sts: FakeSts
    admin: dict[str, str]

    async def principal(self, name: str, *privileges: str) -> dict[str, str]:
        headers = await make_principal(self.server.client, self.admin, name)
        change = {"principal": name, "add": ["USE CATALOG", "USE SCHEMA", *privileges]}
        answer = await self.server.client.patch(
            f"{UNITY}/permissions/catalog/main", json={"changes": [change]}, headers=self.admin
        )
        assert answer.status_code == 200, answer.text
        return headers

    async def load(self, who: dict[str, str], **headers: str) -> httpx.Response:
        return await self.server.client.get(TABLE, headers={**VENDED, **who, **headers})


@pytest.fixture
async def secured() -> AsyncIterator[Secured]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        sts = await stack.enter_async_context(fake_sts(clock))
        settings = settings_of(sts, authentication="on", admin_secret=ADMIN_SECRET)
        server = await stack.enter_async_context(audited_server(MemoryStore(clock=clock), clock, **settings))
        admin = await bearer(server.client)
        await server.client.post("/v1/main/namespaces", json={"namespace": ["sales"]}, headers=admin)
        await server.client.post(TABLES, json=create_table("orders"), headers=admin)
        yield Secured(server, sts, admin)


async def test_rights_decide_whether_a_credential_reads_writes_or_is_not_given(secured: Secured) -> None:
    reader = await secured.principal("reader", "SELECT")
    writer = await secured.principal("writer", "SELECT", "MODIFY")
    blind = await secured.principal("blind", "MODIFY")

    read, written, unseen = [await secured.load(who) for who in (reader, writer, blind)]

    assert [len(secrets_of(one)) for one in (read, written, unseen)] == [1, 1, 0]
    assert ["s3:PutObject" in form["Policy"] for form in secured.sts.forms] == [False, True]
    assert unseen.status_code == 200
    statuses = [
        (await secured.server.client.get(CREDENTIALS, headers=who)).status_code for who in (reader, writer, blind)
    ]
    assert statuses == [200, 200, 403]


async def test_principals_with_the_same_rights_share_a_credential_but_no_etag(secured: Secured) -> None:
    one, other = await secured.principal("one", "SELECT"), await secured.principal("other", "SELECT")
    first = await secured.load(one)

    second = await secured.load(other, **{"If-None-Match": first.headers["ETag"]})
    again = await secured.load(one, **{"If-None-Match": first.headers["ETag"]})

    assert (second.status_code, again.status_code) == (200, 304)
    assert secrets_of(first) == secrets_of(second)
    assert len(secured.sts.forms) == 1


async def test_a_right_that_is_taken_away_ends_the_credentials(secured: Secured) -> None:
    writer = await secured.principal("writer", "SELECT", "MODIFY")
    before = await secured.load(writer)
    change = {"changes": [{"principal": "writer", "remove": ["MODIFY"]}]}
    await secured.server.client.patch(f"{UNITY}/permissions/catalog/main", json=change, headers=secured.admin)

    after = await secured.load(writer, **{"If-None-Match": before.headers["ETag"]})

    assert after.status_code == 200
    assert secrets_of(after) != secrets_of(before)
    assert "s3:PutObject" not in secured.sts.forms[-1]["Policy"]


async def test_a_restricted_reader_gets_no_credential(secured: Secured) -> None:
    reader = await secured.principal("reader", "SELECT")
    policy = {"required-row-filter": {"type": "eq", "term": "text", "value": "public"}}
    answer = await secured.server.client.put(
        "/api/sandur/v1/restrictions/main.sales.orders", json=policy, headers=secured.admin
    )
    assert answer.status_code == 204

    loaded = await secured.load(reader, **{"X-Sandur-Capabilities": "read-restrictions"})
    refused = await secured.server.client.get(CREDENTIALS, headers=reader)

    assert loaded.status_code == 200
    assert "storage-credentials" not in loaded.json()
    assert loaded.json()["config"] == {}
    assert refused.status_code == 403
    assert secured.sts.forms == []


async def test_a_replay_is_authorized_afresh_before_it_gives_credentials(secured: Secured) -> None:
    maker = await secured.principal("maker", "CREATE TABLE")
    headers = {**VENDED, **maker, "Idempotency-Key": KEY}
    first = await secured.server.client.post(TABLES, json=create_table("made"), headers=headers)
    await secured.server.settled()  # Until the end of its claim, the key is refused as active.
    owner = await secured.server.client.put(
        "/api/sandur/v1/owners/table/main.sales.made", json={"owner": "admin"}, headers=secured.admin
    )
    assert owner.is_success, owner.text

    again = await secured.server.client.post(TABLES, json=create_table("made"), headers=headers)

    assert len(secrets_of(first)) == 1
    assert again.status_code == 200
    assert "storage-credentials" not in again.json()


async def test_the_audit_trail_says_who_got_which_prefixes_how_and_until_when(secured: Secured) -> None:
    reader = await secured.principal("reader", "SELECT")
    loaded = await secured.load(reader)

    record = await secured.server.last()

    assert (record.principal, record.operation, record.kind) == ("reader", "loadTable", "credential")
    assert record.credentials
    assert record.credentials.prefixes == (loaded.json()["metadata"]["location"],)
    assert (record.credentials.mode, record.credentials.access) == ("read", "vend")
    assert record.credentials.expires_ms == secured.sts.expires_ms[0]
    for body in (await secured.server.objects()).values():
        assert b"issued-" not in body
        assert b"own-secret" not in body


async def test_a_304_and_a_load_without_the_header_are_recorded_without_credentials(secured: Secured) -> None:
    reader = await secured.principal("reader", "SELECT")
    etag = (await secured.load(reader)).headers["ETag"]

    await secured.load(reader, **{"If-None-Match": etag})
    confirmed = await secured.server.last()
    await secured.server.client.get(TABLE, headers=reader)
    plain = await secured.server.last()

    assert [(one.credentials, one.kind) for one in (confirmed, plain)] == [(None, "read"), (None, "read")]


async def test_no_log_line_contains_a_secret(sts: FakeSts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = settings_of(sts, log_level="debug")
    with structlog.testing.capture_logs() as lines:
        async with audited_server(MemoryStore(clock=sts.clock), sts.clock, **settings) as server:
            await server.client.post("/v1/main/namespaces", json={"namespace": ["sales"]})
            created = await server.client.post(TABLES, json=create_table("orders"), headers=VENDED)
            await server.client.get(CREDENTIALS)
            sts.answer = "<Credentials><SecretAccessKey>issued-secret-9</SecretAccessKey></Credentials>"
            failed = await server.client.post(TABLES, json=create_table("other"), headers=VENDED)

    assert len(secrets_of(created)) == 1
    assert failed.status_code == 200
    assert any(line["event"] == "no storage credentials" for line in lines)
    logged = caplog.text + str(lines)
    for secret in ("own-secret", "issued-secret", "issued-token"):
        assert secret not in logged


async def test_credentials_are_counted_by_cloud_and_result(vending: Vending) -> None:
    await vending.load()
    await vending.load()
    vending.sts.answer = ""
    vending.clock.advance(HALF_HOUR_MS + 1)
    await vending.load()

    text = (await vending.client.get("/metrics")).text

    for result in ("s3 issued", "s3 cached", "s3 failed"):
        assert f'sandur_storage_credentials_total{{result="{result}"}}' in text


async def test_a_server_without_keys_does_not_start_if_its_clients_need_them(
    catalogs: Catalogs, sts: FakeSts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    given = settings_of(sts)
    given["s3"] = replace(given["s3"], access_key_id="", secret_access_key="")

    with pytest.raises(Unfit, match="the server has no keys for S3"):
        await catalogs.open_with(Settings(**given), MemoryStore(clock=sts.clock), clock=sts.clock)

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment-secret")
    try:
        assert await s3.profile_keys(s3.own_profile(given["s3"])) == ("of the environment", "environment-secret", "")
    finally:
        s3._environment_credentials.cache_clear()


async def test_a_request_to_sts_belongs_to_the_trace_of_the_request_that_needs_it(vending: Vending) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    answer = await vending.load(traceparent=parent)

    assert answer.status_code == 200
    assert f"traceparent: {parent}\r\n" in vending.sts.heads[-1]
    assert "signedheaders" in vending.sts.heads[-1]
    assert "traceparent" not in vending.sts.heads[-1].partition("signedheaders=")[2].partition(",")[0]
