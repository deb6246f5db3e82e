"""What storage credentials say about their storage: fields, secrets, and what is refused."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandur.catalog.credentials.storage_access import ServiceAccount, StorageRequest, StorageSecrets
from sandur.operations.credentials.sealed_secrets import new_sealing_key
from sandur.settings import S3Settings
from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.server.unity.client import Json, Unity, code

SECRET: Final = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - an example
KEY: Final = "0190b6a0-0000-7000-8000-000000000006"
ROLE: Final = {"role_arn": "arn:aws:iam::role/lake"}
KEYS: Final = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": SECRET}
MINIO: Final = {"endpoint": "http://minio:9000", "region": "us-east-1", "path_style": True, **KEYS}
AZURE: Final = {"account_name": "lake", "account_key": "c2VjcmV0LWtleQ=="}
ACCOUNT: Final = {
    "type": "service_account",
    "client_email": "lake@project.iam.gserviceaccount.com",
    "private_key": "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n",
    "token_uri": "https://oauth2.googleapis.com/token",
    "universe_domain": "googleapis.com",
}


@pytest.fixture
async def sealed(catalogs: Catalogs) -> Unity:
    return Unity(await catalogs.open(sealing_keys=(new_sealing_key(),)))


def secrets_in(text: str) -> list[str]:
    return [secret for secret in (SECRET, AZURE["account_key"], "BEGIN PRIVATE") if secret in text]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"aws_iam_role": ROLE, "storage": MINIO}, {**MINIO, "access": "vend"}),
        ({"aws_iam_role": ROLE, "storage": {"region": "eu-west-1"}}, {"access": "vend", "region": "eu-west-1"}),
        ({"storage": {**KEYS, "access": "static"}}, {**KEYS, "access": "static"}),
        ({"storage": {**KEYS, "access": "sign", "path_style": False}}, {**KEYS, "access": "sign", "path_style": False}),
        ({"storage": {"access": "none"}}, {"access": "none"}),
        ({"storage": AZURE}, {"access": "vend", **AZURE}),
        (
            {"storage": {"service_account": ACCOUNT}},
            {"access": "vend", "service_account_email": ACCOUNT["client_email"]},
        ),
    ],
)
async def test_answers_contain_all_fields_but_the_secrets(sealed: Unity, body: Json, expected: Json) -> None:
    made = await sealed.made("/credentials", {"name": "k", **body})
    answers = [await sealed.get("/credentials/k"), await sealed.get("/credentials")]

    hidden = {"secret_access_key", "account_key"}
    assert made["storage"] == {name: value for name, value in expected.items() if name not in hidden}
    assert answers[0].json() == made
    assert not secrets_in("".join(answer.text for answer in answers) + json.dumps(made))


async def test_a_credential_of_unity_catalog_has_no_further_fields(sealed: Unity) -> None:
    made = await sealed.made("/credentials", {"name": "k", "aws_iam_role": {"role_arn": "arn:aws:iam::1:role/r"}})
    same = (await sealed.patch("/credentials/k", {"storage": {}, "comment": "c"})).json()

    assert "storage" not in made
    assert same["storage"] == {"access": "vend"}  # The update names the default.


async def test_no_secret_is_in_the_store_in_the_clear(catalogs: Catalogs) -> None:
    store = MemoryStore()
    unity = Unity(await catalogs.open(store, sealing_keys=(new_sealing_key(),)))
    body = {"name": "k", "aws_iam_role": ROLE, "storage": MINIO}

    first = await unity.post("/credentials", body, Idempotency_Key=KEY)
    again = await unity.post("/credentials", body, Idempotency_Key=KEY)
    owned = await unity.patch("/credentials/k", {"owner": "me"}, Idempotency_Key=KEY[:-1] + "7")

    assert first.status_code == 200, first.text
    assert first.json() == again.json()
    assert owned.json()["owner"] == "me"
    objects = [await store.get(listed.key) for listed in await store.list("", limit=1_000)]
    stored = b"".join(one.data for one in objects if one)
    assert SECRET.encode() not in stored
    assert stored.count(b"sealed") == 1  # Not in the claims of requests.


@pytest.mark.parametrize(
    "storage", [{**KEYS, "access": "static"}, AZURE, {"service_account": ACCOUNT}], ids=["s3", "azure", "gcs"]
)
async def test_without_a_sealing_key_a_secret_is_refused(unity: Unity, storage: Json) -> None:
    answer = await unity.post("/credentials", {"name": "k", "storage": storage})

    assert code(answer) == (400, "INVALID_ARGUMENT")
    assert "sealing_keys (SANDUR_SEALING_KEYS)" in answer.json()["message"]
    assert not secrets_in(answer.text)
    assert (await unity.get("/credentials")).json() == {"credentials": []}


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ({"access": "share"}, "access"),
        ({"acces_key_id": "x"}, "unknown field"),
        ({"access": "vend", **KEYS}, "aws_iam_role"),
        ({**KEYS}, "storage.access is missing"),
        ({"access": "static"}, "storage.access_key_id"),
        ({"access": "sign", "region": "r"}, "storage.access_key_id"),
        ({"access": "none", "access_key_id": "x"}, "storage.secret_access_key is missing"),
        ({"access": "none", "secret_access_key": SECRET}, "storage.access_key_id is missing"),
        ({"access": "static", **KEYS, "secret_access_key": f"{SECRET} {SECRET}"}, "storage.secret_access_key"),
        ({"access": "static", **KEYS, "secret_access_key": SECRET * 10}, "storage.secret_access_key"),
        ({"account_name": "lake"}, "storage.account_key is missing"),
        ({**AZURE, "account_name": "La ke"}, "storage.account_name"),
        ({**AZURE, "account_key": f"{SECRET}!"}, "storage.account_key"),
        ({**AZURE, "access": "static"}, "S3 only"),
        ({**AZURE, **KEYS}, "one cloud"),
        ({"service_account": {"type": "authorized_user"}}, "service_account"),
        ({"service_account": {**ACCOUNT, "private_key": SECRET}}, "private_key"),
        ({"service_account": {**ACCOUNT, "token_uri": "file:///etc/passwd"}}, "token_uri"),
        ({"service_account": SECRET}, "service_account"),
        ({**MINIO, "access": "static", "endpoint": "minio:9000"}, "storage.endpoint"),
        ({**MINIO, "access": "static", "endpoint": "http://user:pass@minio"}, "storage.endpoint"),
        ({**MINIO, "access": "static", "endpoint": "http://minio/?x=y"}, "storage.endpoint"),
        ({**MINIO, "access": "static", "endpoint": "http://[::1"}, "storage.endpoint"),
        ({**MINIO, "access": "static", "endpoint": "http://minio:99999999"}, "storage.endpoint"),
        ({**MINIO, "access": "static", "sts_endpoint": "gopher://minio"}, "storage.sts_endpoint"),
        ({**MINIO, "access": "static", "region": "a b"}, "storage.region"),
        ({"access": 5}, "access"),
        ([], "storage"),
    ],
)
async def test_what_cannot_work_is_refused_with_the_field_and_without_secrets(
    sealed: Unity, storage: Json, reason: str
) -> None:
    answer = await sealed.post("/credentials", {"name": "k", "storage": storage})

    assert code(answer) == (400, "INVALID_ARGUMENT")
    assert reason in answer.json()["message"]
    assert not secrets_in(answer.text)


async def test_the_own_keys_of_the_server_are_used_at_known_endpoints_only(catalogs: Catalogs) -> None:
    s3: Any = {"endpoint": "http://own:8333", "sts_endpoint": "http://sts:8111"}
    unity = Unity(await catalogs.open(s3=S3Settings(**s3), sealing_keys=(new_sealing_key(),)))
    known = {"endpoint": "http://own:8333/", "sts_endpoint": "https://sts.eu-west-1.amazonaws.com"}

    made = await unity.made("/credentials", {"name": "k", "aws_iam_role": ROLE, "storage": known})

    assert made["storage"]["endpoint"] == known["endpoint"]
    for name, url in (
        ("endpoint", "http://elsewhere:8333"),
        ("sts_endpoint", "https://sts.amazonaws.com.evil.example"),
        ("sts_endpoint", "http://sts.amazonaws.com"),
    ):
        refused = await unity.post("/credentials", {"name": "l", "aws_iam_role": ROLE, "storage": {name: url}})
        assert code(refused) == (400, "INVALID_ARGUMENT")
        assert "needs storage.access_key_id" in refused.json()["message"]
        with_keys = {name: url, **KEYS}
        assert (await unity.patch("/credentials/k", {"storage": with_keys})).status_code == 200


async def test_an_update_replaces_all_that_was_said_about_the_storage(sealed: Unity) -> None:
    await sealed.made("/credentials", {"name": "k", "aws_iam_role": ROLE, "storage": MINIO})

    kept = (await sealed.patch("/credentials/k", {"comment": "c"})).json()
    changed = (await sealed.patch("/credentials/k", {"storage": {"access": "none"}})).json()
    fits_not = await sealed.patch("/credentials/k", {"storage": AZURE})

    assert kept["storage"]["access_key_id"] == KEYS["access_key_id"]
    assert changed["storage"] == {"access": "none"}
    assert code(fits_not) == (400, "INVALID_ARGUMENT")


async def test_the_same_update_again_changes_nothing(sealed: Unity) -> None:
    await sealed.made("/credentials", {"name": "k", "aws_iam_role": ROLE, "storage": MINIO})

    first = (await sealed.patch("/credentials/k", {"storage": MINIO})).json()
    other = (await sealed.patch("/credentials/k", {"storage": {**MINIO, "secret_access_key": "another"}})).json()

    assert first["updated_at"] == first["created_at"]
    assert other["updated_at"] >= first["updated_at"]


@pytest.mark.parametrize(
    ("url", "fits"), [("s3://b/x", "s3"), ("gs://b/x", "gcs"), ("abfs://c@lake.dfs.core.windows.net/x", "azure")]
)
async def test_a_location_needs_a_credential_of_its_cloud(sealed: Unity, url: str, fits: str) -> None:
    for name, storage in (
        ("s3", {**KEYS, "access": "sign"}),
        ("azure", AZURE),
        ("gcs", {"service_account": ACCOUNT}),
        ("any", {"access": "none"}),
    ):
        await sealed.made("/credentials", {"name": name, "storage": storage})

    answers = {
        name: await sealed.post("/external-locations", {"name": f"on-{name}", "url": url, "credential_name": name})
        for name in sorted({"s3", "azure", "gcs"} - {fits})
    }

    assert {code(answer) for answer in answers.values()} == {(400, "INVALID_ARGUMENT")}
    await sealed.made("/external-locations", {"name": "l", "url": url, "credential_name": fits})
    moved = await sealed.patch("/credentials/any", {"storage": AZURE})
    assert moved.status_code == 200
    other = AZURE if fits != "azure" else {**KEYS, "access": "sign"}
    refused = await sealed.patch(f"/credentials/{fits}", {"storage": other})
    assert code(refused) == (400, "INVALID_ARGUMENT")
    assert "cannot reach" in refused.json()["message"]


async def test_a_file_system_takes_any_credential(sealed: Unity, tmp_path: Path) -> None:
    await sealed.made("/credentials", {"name": "k", "storage": AZURE})

    await sealed.made("/external-locations", {"name": "l", "url": f"file://{tmp_path}/x", "credential_name": "k"})


_TEXTS: Final = st.one_of(
    st.sampled_from(
        ["", SECRET, "vend", "http://[", "http://a:b@c", "https://s3.amazonaws.com", "\u0000", "x" * 3_000]
    ),
    st.text(max_size=20),
)
_VALUES: Final = st.one_of(_TEXTS, st.none(), st.booleans(), st.integers(), st.just({}), st.just(ACCOUNT), st.just([]))
_BODIES: Final = st.dictionaries(
    st.one_of(st.sampled_from([field.name for field in msgspec.structs.fields(StorageRequest)]), st.text(max_size=5)),
    _VALUES,
    max_size=6,
)


async def test_no_body_breaks_the_server_or_comes_back_with_a_secret(sealed: Unity) -> None:
    bodies: list[Json] = []

    @settings(max_examples=300, database=None)
    @given(_BODIES, st.booleans())
    def collect(storage: Json, has_role: bool) -> None:  # noqa: FBT001 - given by Hypothesis
        bodies.append({"storage": storage, **({"aws_iam_role": ROLE} if has_role else {})})

    collect()
    for number, body in enumerate(bodies):
        answer = await sealed.post("/credentials", {"name": f"k{number}", **body})

        assert answer.status_code in {200, 400}, (body, answer.text)
        is_public = body["storage"].get("access_key_id") == SECRET
        assert is_public or not secrets_in(answer.text), (body, answer.text)
        if answer.status_code == 400:
            assert code(answer) == (400, "INVALID_ARGUMENT")
        else:
            assert (await sealed.get(f"/credentials/k{number}")).json() == answer.json()


def test_secrets_are_not_in_the_text_of_values() -> None:
    request = StorageRequest(secret_access_key=SECRET, service_account=_account())
    values = (request, StorageSecrets(secret_access_key=SECRET, account_key=AZURE["account_key"]), _account())

    assert not secrets_in(" ".join(f"{value} {value!r}" for value in values))


def _account() -> ServiceAccount:
    return ServiceAccount(**{name: value for name, value in ACCOUNT.items() if name != "universe_domain"})  # type: ignore[arg-type] # Given by name.
