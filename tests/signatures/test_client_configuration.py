"""What a client gets that wants its requests signed: the signer of its table, and no keys."""

import httpx
import pytest
from msgspec.structs import replace

from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.server.requests import create_table
from tests.signatures.signing_server import NS, OLD_ROUTE, S3, SIGNING, SigningServer, set_up

SIGNS = {"X-Iceberg-Access-Delegation": "remote-signing"}
TABLE = f"{NS}/tables/orders"


async def loaded(server: SigningServer, caller: str = "admin", **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()} or SIGNS
    answer = await server.client.get(TABLE, headers={**await server.caller(caller), **given})
    assert answer.status_code == 200, answer.text
    return answer


async def test_a_client_gets_the_signer_of_its_table_and_how_to_reach_the_bucket(server: SigningServer) -> None:
    answer = await loaded(server)

    assert answer.json()["config"] == {
        "s3.remote-signing-enabled": "true",
        "s3.signer": "S3V4RestSigner",
        "s3.signer.endpoint": TABLE.removeprefix("/") + "/sign",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "s3.endpoint": f"{S3.endpoint}/",
        "s3.path-style-access": "true",
        "s3.region": S3.region,
        "client.region": S3.region,
    }
    assert "storage-credentials" not in answer.json()
    assert S3.access_key_id not in answer.text


async def test_the_endpoint_of_the_configuration_signs(server: SigningServer) -> None:
    made = await server.client.post(
        f"{NS}/tables", json=create_table("a b/ü"), headers={**server.callers["admin"], **SIGNS}
    )
    endpoint = made.json()["config"]["s3.signer.endpoint"]
    location = made.json()["metadata"]["location"]

    await server.signed("admin", "GET", server.uri(f"{location}/data/x"), path=f"/{endpoint}")


async def test_pyiceberg_gets_the_route_that_finds_the_table_by_location(server: SigningServer) -> None:
    """It uses the signer of one table for all of them, so a signer of one table would refuse the others."""
    pyiceberg = {**SIGNS, "User-Agent": "PyIceberg/0.12.0"}
    staged = await server.client.post(
        f"{NS}/tables",
        json=create_table("staged", stage_create=True),
        headers={**await server.caller("creator"), **pyiceberg},
    )

    assert (await loaded(server, **pyiceberg)).json()["config"]["s3.signer.endpoint"] == OLD_ROUTE.removeprefix("/")
    assert staged.json()["config"]["s3.signer.endpoint"] == f"{NS}/tables/staged/sign".removeprefix("/")


@pytest.mark.parametrize("accepted", ["vended-credentials", "", "other"])
async def test_a_client_that_does_not_accept_signatures_gets_nothing(server: SigningServer, accepted: str) -> None:
    answer = await loaded(server, X_Iceberg_Access_Delegation=accepted)

    assert answer.json()["config"] == {}


async def test_a_client_that_accepts_both_gets_what_the_storage_is_set_to(server: SigningServer) -> None:
    answer = await loaded(server, X_Iceberg_Access_Delegation="vended-credentials,remote-signing")

    assert answer.json()["config"]["s3.remote-signing-enabled"] == "true"


async def test_only_a_caller_that_may_read_the_files_gets_a_signer(server: SigningServer) -> None:
    assert (await loaded(server, "reader")).json()["config"]
    assert (await loaded(server, "modifier")).json()["config"] == {}


async def test_aws_needs_no_endpoint_and_has_a_region(catalogs: Catalogs) -> None:
    settings = replace(SIGNING, s3=replace(S3, endpoint="", region=""))
    server = await set_up(await catalogs.open_with(settings, MemoryStore()))

    config = (await loaded(server)).json()["config"]

    assert "s3.endpoint" not in config
    assert config["client.region"] == config["s3.region"] == "us-east-1"
