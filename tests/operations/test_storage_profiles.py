"""Which storage profile a location has: by its external location, by the settings, or none."""

from typing import Any

import pytest

from sandur.catalog.credentials.profiles import StorageProfile
from sandur.catalog.credentials.registry import AwsIamRole, CredentialUpdate
from sandur.catalog.credentials.storage_access import ServiceAccount, StorageRequest
from sandur.clock import SystemClock
from sandur.errors import ServiceRefused
from sandur.operations.credentials.profiles import needs_credentials, read_profiles
from sandur.operations.credentials.sealed_secrets import new_sealing_key
from sandur.operations.lake import Lake, complete_new_store
from sandur.operations.unity import registry
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake
from tests.operations.requests import request

ROLE = AwsIamRole("arn:aws:iam::1:role/r")
SERVER = {
    "endpoint": "http://own:1",
    "region": "own-region",
    "access_key_id": "own",
    "secret_access_key": "hush",
    "session_token": "session",
    "access": "sign",
    "role_arn": "arn:aws:iam::1:role/own",
    "sts_endpoint": "http://sts:1",
    "credential_lifetime": "PT30M",
}
KEYS: Any = {"access_key_id": "mine", "secret_access_key": "mine-too"}
KEY = ServiceAccount(
    type="service_account",
    client_email="a@b.example",
    private_key="-----BEGIN PRIVATE KEY-----",
    token_uri="https://oauth2.googleapis.com/token",  # noqa: S106 - an address
)


@pytest.fixture
async def lake() -> Lake:
    made = make_lake(
        MemoryStore(),
        SystemClock(),
        s3=SERVER,
        sealing_keys=(new_sealing_key(),),
        allowed_locations=("s3://bucket", "gs://bucket", "abfs://c@lake.dfs.core.windows.net"),
    )
    await complete_new_store(made.store, made.clock)
    return made


async def locate(lake: Lake, url: str, *, role: AwsIamRole | None = ROLE, **storage: Any) -> str:
    """An external location at the url, with a credential of its own; returns the id of the credential."""
    wanted = StorageRequest(**storage) if storage else None
    made = await registry.create_credential(
        lake, "k", role=role, comment=None, storage=wanted, request=request(f"credential {url}")
    )
    await registry.create_location(
        lake, "l", url=url, credential_name="k", comment=None, request=request(f"location {url}")
    )
    return made.id


async def profile_of(lake: Lake, location: str) -> StorageProfile | None:
    return (await read_profiles(lake)).of(location) if needs_credentials(location) else None


async def found(lake: Lake, location: str) -> StorageProfile:
    profile = await profile_of(lake, location)
    assert profile
    return profile


async def test_the_settings_are_the_profile_of_allowed_locations(lake: Lake) -> None:
    profile = await found(lake, "s3a://bucket/x")

    assert (profile.id, profile.access, profile.role_arn) == ("", "sign", SERVER["role_arn"])
    assert await profile_of(lake, "s3://elsewhere/x") is None
    assert await profile_of(lake, "file:///x") is None


async def test_an_external_location_covers_what_is_at_or_below_it(lake: Lake) -> None:
    id_ = await locate(lake, "s3://bucket/a/b")

    covered = [(await found(lake, f"s3://bucket/{path}")).id for path in ("a/b", "a/b/c/d", "a/b-not", "a", "a/bc/d")]

    assert covered == [id_, id_, "", "", ""]


async def test_a_role_alone_is_assumed_with_the_keys_and_endpoints_of_the_server(lake: Lake) -> None:
    id_ = await locate(lake, "s3://bucket/a")
    external_id = (await registry.load_credential(lake, "k")).aws_iam_role

    profile = await found(lake, "s3://bucket/a/t")

    assert external_id
    assert profile == StorageProfile(
        cloud="s3",
        access="vend",
        id=id_,
        endpoint="http://own:1",
        region="own-region",
        access_key_id="own",
        secret_access_key="hush",  # noqa: S106 - of the settings above
        session_token="session",  # noqa: S106 - likewise
        role_arn=ROLE.role_arn,
        external_id=external_id.external_id,
        sts_endpoint="http://sts:1",
        lifetime_seconds=1_800,
    )


async def test_own_keys_and_endpoints_replace_those_of_the_server(lake: Lake) -> None:
    await locate(lake, "s3://bucket/a", endpoint="http://other:2", path_style=False, **KEYS)

    profile = await found(lake, "s3://bucket/a/t")

    assert (profile.access_key_id, profile.secret_access_key, profile.session_token) == ("mine", "mine-too", "")
    assert (profile.endpoint, profile.sts_endpoint, profile.path_style) == ("http://other:2", "", False)
    assert profile.region == "own-region"


async def test_the_keys_of_other_clouds_are_in_their_profiles(lake: Lake) -> None:
    await locate(lake, "gs://bucket/a", role=None, service_account=KEY)
    google = await found(lake, "gs://bucket/a/t")
    update = CredentialUpdate(storage=StorageRequest(account_name="lake", account_key="aGFzaA=="))
    await registry.drop_location(lake, "l", force=True, request=request("drop"))
    await registry.update_credential(lake, "k", update, request("azure"))
    url = "abfs://c@lake.dfs.core.windows.net/a"
    await registry.create_location(lake, "m", url=url, credential_name="k", comment=None, request=request("m"))
    azure = await found(lake, f"{url}/t")

    assert (google.cloud, google.access, "BEGIN PRIVATE KEY" in google.service_account) == ("gcs", "vend", True)
    assert (azure.cloud, azure.account_name, azure.account_key) == ("azure", "lake", "aGFzaA==")


async def test_a_credential_that_says_nothing_about_storage_leaves_the_settings(lake: Lake) -> None:
    await locate(lake, "s3://bucket/a", role=None)

    assert (await found(lake, "s3://bucket/a/t")).id == ""


async def test_a_location_without_its_credential_gives_nothing(lake: Lake) -> None:
    await locate(lake, "s3://bucket/a")
    await registry.drop_credential(lake, "k", force=True, request=request("drop"))

    assert (await found(lake, "s3://bucket/a/t")).access == "none"


async def test_a_change_counts_for_the_next_read(lake: Lake) -> None:
    await locate(lake, "s3://bucket/a", access="none")
    before = await found(lake, "s3://bucket/a/t")
    other = make_lake(lake.store, SystemClock(), s3=SERVER, sealing_keys=lake.settings.sealing_keys)

    change = CredentialUpdate(storage=StorageRequest(access="static", **KEYS))
    await registry.update_credential(other, "k", change, request("static"))

    assert (before.access, (await found(lake, "s3://bucket/a/t")).access) == ("none", "static")


async def test_secrets_that_cannot_be_opened_are_refused_only_there(lake: Lake) -> None:
    await locate(lake, "s3://bucket/a", **KEYS)
    other = make_lake(
        lake.store,
        SystemClock(),
        s3=SERVER,
        sealing_keys=(new_sealing_key(),),
        allowed_locations=lake.settings.allowed_locations,
    )

    with pytest.raises(ServiceRefused, match="Credential k: no key of the setting sealing_keys"):
        await profile_of(other, "s3://bucket/a/t")
    assert await profile_of(other, "s3://bucket/b") is not None


async def test_files_need_no_read_and_other_locations_one_conditional_read() -> None:
    spy = SpyStore(MemoryStore())
    lake = make_lake(spy, SystemClock(), s3=SERVER, allowed_locations=("s3://bucket",))
    await complete_new_store(lake.store, lake.clock)
    await locate(lake, "s3://bucket/a")
    first = await read_profiles(lake)
    spy.calls.clear()

    await profile_of(lake, "file:///x")
    without = list(spy.calls)
    again = await read_profiles(lake)

    assert without == []
    assert [call.name for call in spy.calls] == ["get_if_changed"]
    assert again is first
