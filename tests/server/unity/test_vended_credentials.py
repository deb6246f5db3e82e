"""Credentials for buckets over Unity Catalog's API and the Delta API, on a real S3 that enforces them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
import msgspec
import obstore
import pytest
from obstore.exceptions import GenericError, PermissionDeniedError
from obstore.store import S3Store

from sandur.clock import SystemClock
from sandur.operations.credentials.sealed_secrets import new_sealing_key
from sandur.settings import S3Settings, Settings
from tests.server.audited import audited_server
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table
from tests.server.unity.client import UNITY, Json, Unity, code
from tests.server.unity.delta_requests import SCHEMA, add_commit, creation, staged, update
from tests.servers.seaweedfs import BUCKET, ROLE

WHERE: Final = {"catalog_name": "main", "schema_name": "s"}
AWS: Final = "aws_temp_credentials"


class Access(NamedTuple):
    """Access to the bucket by the keys of an answer."""

    store: S3Store

    @classmethod
    def of(cls, s3: S3Settings, keys: Mapping[str, str]) -> "Access":
        keys = {name.removeprefix("s3.").replace("-", "_"): value for name, value in keys.items()}
        return cls(
            S3Store(
                BUCKET,
                endpoint=s3.endpoint,
                region=s3.region,
                access_key_id=keys["access_key_id"],
                secret_access_key=keys["secret_access_key"],
                session_token=keys["session_token"] or None,
                client_options={"allow_http": True},
                retry_config={"max_retries": 0},
            )
        )

    async def may(self, what: str, location: str) -> bool:
        """Whether the keys allow to write, read or list below a location."""
        key = f"{location.removeprefix(f's3://{BUCKET}/')}/data/file"
        try:
            match what:
                case "write":
                    await obstore.put_async(self.store, key, b"rows")
                case "read":
                    await obstore.get_async(self.store, key)
                case _:
                    await obstore.list_with_delimiter_async(self.store, key.rpartition("/")[0])
        except PermissionDeniedError:
            return False
        except FileNotFoundError:
            return True
        except GenericError as error:
            if "403 Forbidden" not in str(error):
                raise
            return False
        return True


class Lakehouse(NamedTuple):
    """A server on a bucket of its own prefix, with the schema main.s and the managed Delta tables t and u."""

    unity: Unity
    settings: Settings
    tables: Mapping[str, str]
    """The locations of the tables."""

    def access(self, answer: Json) -> Access:
        return Access.of(self.settings.s3, answer[AWS])


def settings_on(seaweed: Settings, **s3: Any) -> Settings:
    fields = {"store": f"s3://{BUCKET}/{SystemClock().new_id()}", "s3": msgspec.structs.replace(seaweed.s3, **s3)}
    return msgspec.structs.replace(SECURED, authentication="off", sealing_keys=(new_sealing_key(),), **fields)


async def open_lakehouse(catalogs: Catalogs, settings: Settings) -> Lakehouse:
    unity = Unity(await catalogs.open_with(settings))
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    tables = {}
    for name in ("t", "u"):
        stage = await staged(unity, name)
        await unity.made(f"{SCHEMA}/tables", creation(stage, name))
        tables[name] = stage["location"]
    return Lakehouse(unity, settings, tables)


@pytest.fixture
async def vending(catalogs: Catalogs, seaweedfs_sts: Settings) -> Lakehouse:
    return await open_lakehouse(catalogs, settings_on(seaweedfs_sts))


async def table_id(unity: Unity, name: str) -> str:
    return str((await unity.get(f"/tables/main.s.{name}")).json()["table_id"])


async def table_credentials(lakehouse: Lakehouse, name: str, operation: str) -> Json:
    body = {"table_id": await table_id(lakehouse.unity, name), "operation": operation}
    return await lakehouse.unity.made("/temporary-table-credentials", body)


async def test_a_credential_opens_its_table_and_no_neighbour(vending: Lakehouse) -> None:
    given = await table_credentials(vending, "t", "READ_WRITE")
    location, access = vending.tables["t"], vending.access(given)

    assert set(given) == {AWS, "expiration_time", "url"}
    assert given["url"] == location
    assert given["expiration_time"] > 1_700_000_000_000
    assert [await access.may(what, location) for what in ("write", "read", "list")] == [True] * 3
    for place in (vending.tables["u"], f"{location}-x", location.rpartition("/")[0]):
        assert [await access.may(what, place) for what in ("write", "read", "list")] == [False] * 3, place


async def test_a_credential_to_read_does_not_write(vending: Lakehouse) -> None:
    given = await table_credentials(vending, "t", "READ")

    allowed = [await vending.access(given).may(what, vending.tables["t"]) for what in ("write", "read", "list")]

    assert allowed == [False, True, True]


async def test_the_delta_api_gives_the_same_access(vending: Lakehouse) -> None:
    unity = vending.unity
    stage = await staged(unity, "n")
    own = await unity.get(f"/delta/v1/staging-tables/{stage['table-id']}/credentials")
    table = await unity.get(f"{SCHEMA}/tables/t/credentials", operation="READ")

    for entry, place, operation in (
        (stage["storage-credentials"], stage["location"], "READ_WRITE"),
        (own.json()["storage-credentials"], stage["location"], "READ_WRITE"),
        (table.json()["storage-credentials"], vending.tables["t"], "READ"),
    ):
        (credential,) = entry
        assert (credential["prefix"], credential["operation"]) == (place, operation)
        assert set(credential["config"]) == {"s3.access-key-id", "s3.secret-access-key", "s3.session-token"}
        access = Access.of(vending.settings.s3, credential["config"])
        assert await access.may("write", place) == (operation == "READ_WRITE")
        assert await access.may("read", place)
        assert not await access.may("read", vending.tables["u"])
    assert table.headers["cache-control"] == "no-store"


async def test_a_client_without_keys_creates_commits_and_publishes_a_managed_table(vending: Lakehouse) -> None:
    unity = vending.unity
    stage = await staged(unity, "n")
    path = stage["location"].removeprefix(f"s3://{BUCKET}/")
    first = Access.of(vending.settings.s3, stage["storage-credentials"][0]["config"])
    await obstore.put_async(first.store, f"{path}/_delta_log/{0:020d}.json", b"{}")
    made = await unity.made(f"{SCHEMA}/tables", creation(stage, "n"))

    answer = await unity.get(f"{SCHEMA}/tables/n/credentials", operation="READ_WRITE")
    store = Access.of(vending.settings.s3, answer.json()["storage-credentials"][0]["config"]).store
    for version in (1, 2):
        name = f"{version:020d}.{version}.json"
        await obstore.put_async(store, f"{path}/_delta_log/_staged_commits/{name}", b"{}")
        commits = update(made["metadata"]["table-uuid"], add_commit(version, name))
        assert (await unity.post(f"{SCHEMA}/tables/n", commits)).status_code == 200
        await obstore.put_async(store, f"{path}/_delta_log/{version:020d}.json", b"{}")
    published = {"action": "set-latest-backfilled-version", "latest-published-version": 2}
    backfilled = await unity.post(f"{SCHEMA}/tables/n", update(made["metadata"]["table-uuid"], published))
    loaded = (await unity.get(f"{SCHEMA}/tables/n")).json()

    assert backfilled.status_code == 200, backfilled.text
    assert (loaded["latest-table-version"], loaded["commits"]) == (2, [])


async def test_volumes_models_and_iceberg_tables_get_credentials(vending: Lakehouse) -> None:
    unity = vending.unity
    volume = await unity.made("/volumes", {**WHERE, "name": "v", "volume_type": "MANAGED"})
    await unity.made("/models", {**WHERE, "name": "m"})
    version = await unity.made("/models/versions", {**WHERE, "model_name": "m", "source": "x"})
    made = (await unity.http.post("/v1/main/namespaces/s/tables", json=create_table("i"))).json()["metadata"]

    for kind, body, place in (
        ("volume", {"volume_id": volume["volume_id"], "operation": "WRITE_VOLUME"}, volume["storage_location"]),
        (
            "model-version",
            {**WHERE, "model_name": "m", "version": 1, "operation": "READ_WRITE_MODEL_VERSION"},
            version["storage_location"],
        ),
        ("table", {"table_id": made["table-uuid"], "operation": "READ_WRITE"}, made["location"]),
    ):
        given = await unity.made(f"/temporary-{kind}-credentials", body)
        access = vending.access(given)
        assert given["url"] == place
        assert [await access.may(what, place) for what in ("write", "read")] == [True, True], kind
        assert not await access.may("read", vending.tables["t"])


@pytest.mark.parametrize(
    ("access", "reason"),
    [("none", 's3.access (SANDUR_S3_ACCESS) is "none"'), ("sign", "clients of Unity Catalog and Delta cannot use")],
)
async def test_without_vending_the_answer_says_what_to_change(
    catalogs: Catalogs, seaweedfs_settings: Settings, access: str, reason: str
) -> None:
    lakehouse = await open_lakehouse(catalogs, settings_on(seaweedfs_settings, access=access))
    unity = lakehouse.unity

    body = {"table_id": await table_id(unity, "t"), "operation": "READ"}
    classic = await unity.post("/temporary-table-credentials", body)
    delta = await unity.get(f"{SCHEMA}/tables/t/credentials", operation="READ")
    stage = await staged(unity, "n")

    assert code(classic) == (400, "INVALID_ARGUMENT")
    assert reason in classic.json()["message"]
    assert (delta.status_code, delta.json()["error"]["type"]) == (400, "InvalidParameterValueException")
    assert stage["storage-credentials"] == []


async def test_an_issuer_that_fails_is_unavailable_and_tables_are_still_staged_and_loaded(
    catalogs: Catalogs, seaweedfs_sts: Settings
) -> None:
    settings = settings_on(seaweedfs_sts, sts_endpoint="http://127.0.0.1:9")
    unity = (await open_lakehouse(catalogs, settings)).unity

    answer = await unity.post(
        "/temporary-table-credentials", {"table_id": await table_id(unity, "t"), "operation": "READ"}
    )

    assert code(answer) == (503, "UNAVAILABLE")
    assert int(answer.headers["retry-after"]) > 0
    assert (await unity.get(f"{SCHEMA}/tables/t")).status_code == 200


class External(NamedTuple):
    """A server whose settings give clients no access, with the external location `landing` at `place`."""

    unity: Unity
    settings: Settings
    place: str

    @property
    def s3(self) -> S3Settings:
        return self.settings.s3


@pytest.fixture
async def external(catalogs: Catalogs, seaweedfs_settings: Settings) -> External:
    allowed = f"s3://{BUCKET}/{SystemClock().new_id()}"
    settings = msgspec.structs.replace(settings_on(seaweedfs_settings), allowed_locations=(allowed,))
    unity = Unity(await catalogs.open_with(settings))
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    await unity.made("/credentials", {"name": "k", "aws_iam_role": {"role_arn": ROLE}})
    await unity.made("/external-locations", {"name": "landing", "url": f"{allowed}/landing", "credential_name": "k"})
    return External(unity, settings, f"{allowed}/landing")


def path_of(external: External, name: str = "x", operation: str = "PATH_READ_WRITE") -> Json:
    return {"url": f"{external.place}/{name}", "operation": operation}


async def test_the_credential_of_an_external_location_is_its_profile(external: External) -> None:
    unity = external.unity

    given = await unity.made("/temporary-path-credentials", path_of(external))
    beside = await unity.post(
        "/temporary-path-credentials", {"url": f"{external.place}-not/x", "operation": "PATH_READ"}
    )

    access = Access.of(external.s3, given[AWS])
    assert given["url"] == f"{external.place}/x"
    assert [await access.may(what, f"{external.place}/x") for what in ("write", "read")] == [True, True]
    assert not await access.may("read", f"{external.place}/y")
    assert code(beside) == (400, "INVALID_ARGUMENT")
    assert "s3.access" in beside.json()["message"]


async def test_a_credential_opens_all_places_of_an_iceberg_table(external: External) -> None:
    body = {
        **create_table("i"),
        "location": f"{external.place}/i",
        "properties": {"write.data.path": f"{external.place}/data", "write.metadata.path": f"{external.place}/meta"},
    }
    made = await external.unity.http.post("/v1/main/namespaces/s/tables", json=body)

    wanted = {"table_id": made.json()["metadata"]["table-uuid"], "operation": "READ_WRITE"}
    given = await external.unity.made("/temporary-table-credentials", wanted)

    access = Access.of(external.s3, given[AWS])
    assert given["url"] == f"{external.place}/i"
    for name in ("i", "data", "meta"):
        assert [await access.may(what, f"{external.place}/{name}") for what in ("write", "read", "list")] == [True] * 3
    assert not await access.may("read", f"{external.place}/other")


async def test_the_own_keys_of_a_credential_are_used(external: External) -> None:
    unity, s3 = external.unity, external.s3
    keys = {"access_key_id": s3.access_key_id, "secret_access_key": s3.secret_access_key}
    storage = {"endpoint": s3.endpoint, "region": s3.region, **keys}

    vended = await unity.patch("/credentials/k", {"storage": storage})
    given = await unity.made("/temporary-path-credentials", path_of(external))
    wrong = await unity.patch("/credentials/k", {"storage": {**storage, "secret_access_key": "wrong"}})
    refused = await unity.post("/temporary-path-credentials", path_of(external))
    await unity.patch("/credentials/k", {"storage": {**storage, "access": "static"}})
    static = await unity.made("/temporary-path-credentials", path_of(external))

    assert (vended.status_code, wrong.status_code) == (200, 200)
    assert await Access.of(s3, given[AWS]).may("write", f"{external.place}/x")
    assert code(refused) == (503, "UNAVAILABLE")
    assert "wrong" not in refused.text
    assert static[AWS] == {**keys, "session_token": ""}
    assert static["expiration_time"] > 1_700_000_000_000


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ({"access": "none"}, 'the credential k has "none" as its storage.access'),
        ({"access": "sign", "access_key_id": "x", "secret_access_key": "y"}, 'set its access to "vend"'),
    ],
)
async def test_a_credential_may_give_clients_nothing(external: External, storage: Json, reason: str) -> None:
    await external.unity.patch("/credentials/k", {"storage": storage})

    answer = await external.unity.post("/temporary-path-credentials", path_of(external))

    assert code(answer) == (400, "INVALID_ARGUMENT")
    assert reason in answer.json()["message"]


async def test_a_location_whose_credential_was_dropped_gives_nothing(external: External) -> None:
    await external.unity.delete("/credentials/k", force="true")

    answer = await external.unity.post("/temporary-path-credentials", path_of(external))

    assert code(answer) == (400, "INVALID_ARGUMENT")
    assert "external location landing has no credential" in answer.json()["message"]


async def test_secrets_that_no_key_opens_are_unavailable(catalogs: Catalogs, external: External) -> None:
    storage = {"access_key_id": "x", "secret_access_key": "hush"}
    await external.unity.patch("/credentials/k", {"storage": storage})
    other = msgspec.structs.replace(external.settings, sealing_keys=(new_sealing_key(),))
    unity = Unity(await catalogs.open_with(other))

    answer = await unity.post("/temporary-path-credentials", path_of(external))

    assert code(answer) == (503, "UNAVAILABLE")
    assert "sealing_keys (SANDUR_SEALING_KEYS)" in answer.json()["message"]
    assert "hush" not in answer.text


@pytest.mark.parametrize("url", ["", "/tenant=default", "/tenant=default/workspace=default/_catalog"])
async def test_no_path_credential_opens_the_state_of_the_catalog(
    catalogs: Catalogs, seaweedfs_sts: Settings, url: str
) -> None:
    settings = msgspec.structs.replace(settings_on(seaweedfs_sts), allowed_locations=(f"s3://{BUCKET}",))
    unity = Unity(await catalogs.open_with(settings))

    answer = await unity.post(
        "/temporary-path-credentials", {"url": f"{settings.store}{url}", "operation": "PATH_READ"}
    )

    assert code(answer) == (400, "INVALID_ARGUMENT")
    assert "the catalog" in answer.json()["message"]


class Secured(NamedTuple):
    """A server with authentication, a managed table, and a principal with rights that the tests give it."""

    client: httpx.AsyncClient
    admin: Mapping[str, str]
    ann: Mapping[str, str]
    s3: S3Settings
    place: str

    async def grant(self, type_: str, name: str, *privileges: str) -> None:
        body = {"changes": [{"principal": "ann", "add": privileges}]}
        answer = await self.client.patch(f"{UNITY}/permissions/{type_}/{name}", json=body, headers=self.admin)
        assert answer.status_code == 200, answer.text

    async def post(self, path: str, body: Json) -> httpx.Response:
        return await self.client.post(f"{UNITY}{path}", json=body, headers=self.ann)


@pytest.fixture
async def secured(catalogs: Catalogs, seaweedfs_sts: Settings) -> Secured:
    allowed = f"s3://{BUCKET}/{SystemClock().new_id()}"
    settings = msgspec.structs.replace(settings_on(seaweedfs_sts), authentication="on", allowed_locations=(allowed,))
    client = await catalogs.open_with(settings)
    admin = await bearer(client)
    ann = await make_principal(client, admin, "ann")
    place = f"{allowed}/landing"
    for path, body in (
        ("/schemas", {"catalog_name": "main", "name": "s"}),
        ("/credentials", {"name": "k", "aws_iam_role": {"role_arn": ROLE}}),
        ("/external-locations", {"name": "landing", "url": place, "credential_name": "k"}),
        (
            "/tables",
            {**WHERE, "name": "t", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": []}
            | {"storage_location": f"{place}/t"},
        ),
    ):
        answer = await client.post(f"{UNITY}{path}", json=body, headers=admin)
        assert answer.status_code == 200, answer.text
    return Secured(client, admin, ann, settings.s3, place)


async def test_the_rights_of_the_caller_decide_between_reading_and_writing(secured: Secured) -> None:
    table = (await secured.client.get(f"{UNITY}/tables/main.s.t", headers=secured.admin)).json()
    read, write = ({"table_id": table["table_id"], "operation": one} for one in ("READ", "READ_WRITE"))
    hidden = await secured.post("/temporary-table-credentials", read)
    await secured.grant("catalog", "main", "USE CATALOG", "USE SCHEMA", "SELECT")

    given = await secured.post("/temporary-table-credentials", read)
    refused = await secured.post("/temporary-table-credentials", write)
    await secured.grant("table", "main.s.t", "MODIFY")
    writing = await secured.post("/temporary-table-credentials", write)

    assert (hidden.status_code, given.status_code) == (404, 200)
    assert code(refused) == (403, "PERMISSION_DENIED")
    for answer, may_write in ((given, False), (writing, True)):
        access = Access.of(secured.s3, answer.json()[AWS])
        assert await access.may("write", f"{secured.place}/t") == may_write
        assert not await access.may("read", f"{secured.place}/other")


async def test_a_path_needs_the_right_to_its_location_and_to_the_data_of_others_there(secured: Secured) -> None:
    read = {"url": f"{secured.place}/free", "operation": "PATH_READ"}
    await secured.grant("catalog", "main", "USE CATALOG", "USE SCHEMA")
    without = await secured.post("/temporary-path-credentials", read)
    await secured.grant("external_location", "landing", "READ FILES")

    given = await secured.post("/temporary-path-credentials", read)
    write = await secured.post("/temporary-path-credentials", {**read, "operation": "PATH_READ_WRITE"})
    others = [
        await secured.post("/temporary-path-credentials", {**read, "url": url})
        for url in (secured.place, f"{secured.place}/t", f"{secured.place}/t/part")
    ]

    assert (without.status_code, given.status_code, write.status_code) == (403, 200, 403)
    assert {answer.status_code for answer in others} == {403}
    access = Access.of(secured.s3, given.json()[AWS])
    assert await access.may("read", f"{secured.place}/free")
    assert not await access.may("write", f"{secured.place}/free")
    assert not await access.may("read", f"{secured.place}/t")


async def test_the_audit_trail_says_who_got_which_prefixes_and_no_keys(seaweedfs_sts: Settings) -> None:
    given = settings_on(seaweedfs_sts)
    secured: Any = {"authentication": "on", "admin_secret": given.admin_secret}
    async with audited_server(store=given.store, s3=msgspec.to_builtins(given.s3), **secured) as server:
        server.client.headers.update(await server.admin())
        unity = Unity(server.client)
        await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
        stage = await staged(unity, "t")
        answer = await unity.get(f"/delta/v1/staging-tables/{stage['table-id']}/credentials")
        (credential,) = answer.json()["storage-credentials"]
        records = await server.records()
        objects = b"".join((await server.objects()).values())

    for record in records[-2:]:
        assert record.principal == "admin"
        assert record.credentials
        assert record.credentials.prefixes == (stage["location"],)
        assert record.credentials.mode == "write"
        assert record.credentials.expires_ms == credential["expiration-time-ms"]
    for name in ("s3.secret-access-key", "s3.session-token"):
        assert credential["config"][name].encode() not in objects
