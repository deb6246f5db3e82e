"""Storage credentials, external locations and temporary credentials over Unity Catalog's API."""

import uuid
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.requests import create_table
from tests.server.unity.client import Json, Unity, code

KEY = "0190b6a0-0000-7000-8000-000000000005"
NO_ID = "0190b6a0-0000-7000-8000-00000000ffff"
ROLE = {"role_arn": "arn:aws:iam::123456789012:role/reader"}
WHERE = {"catalog_name": "main", "schema_name": "s"}


@pytest.fixture
async def credential(unity: Unity) -> Json:
    return await unity.made("/credentials", {"name": "k", "aws_iam_role": ROLE, "comment": "words"})


async def test_a_credential_is_created_loaded_listed_changed_and_deleted(unity: Unity, credential: Json) -> None:
    assert (credential["name"], credential["purpose"]) == ("k", "STORAGE")
    assert credential["aws_iam_role"]["role_arn"] == ROLE["role_arn"]
    assert (await unity.get("/credentials/k")).json() == credential
    assert (await unity.get("/credentials")).json() == {"credentials": [credential]}
    assert code(await unity.post("/credentials", {"name": "k"})) == (400, "STORAGE_CREDENTIAL_ALREADY_EXISTS")

    changed = (await unity.patch("/credentials/k", {"new_name": "l", "comment": "other", "owner": "me"})).json()

    assert (changed["name"], changed["comment"], changed["owner"], changed["id"]) == (
        "l",
        "other",
        "me",
        credential["id"],
    )
    assert code(await unity.get("/credentials/k")) == (404, "NOT_FOUND")
    assert (await unity.delete("/credentials/l")).status_code == 200
    assert code(await unity.delete("/credentials/l")) == (404, "NOT_FOUND")


async def test_a_role_has_an_external_id_until_it_is_another_role(unity: Unity, credential: Json) -> None:
    first = credential["aws_iam_role"]["external_id"]
    given = {"aws_iam_role": {**ROLE, "external_id": "chosen by the client"}}

    same = (await unity.patch("/credentials/k", given)).json()
    other = (await unity.patch("/credentials/k", {"aws_iam_role": {"role_arn": f"{ROLE['role_arn']}2"}})).json()

    assert str(uuid.UUID(first)) == first
    assert same["aws_iam_role"] == {**ROLE, "external_id": first}
    assert uuid.UUID(other["aws_iam_role"]["external_id"]) != uuid.UUID(first)
    assert (await unity.get("/credentials")).json()["credentials"] == [other]


@pytest.mark.parametrize(
    "body",
    [{"name": "a b"}, {"name": "k", "aws_iam_role": {"role_arn": "nonsense"}}, {"name": "k", "purpose": "SERVICE"}, {}],
)
async def test_invalid_credentials_are_refused(unity: Unity, body: Json) -> None:
    assert code(await unity.post("/credentials", body)) == (400, "INVALID_ARGUMENT")


async def test_the_account_of_a_role_may_have_any_number_of_digits(unity: Unity) -> None:
    role = {"role_arn": "arn:aws:iam::987654321:role/reader"}  # As in the examples of Unity Catalog.

    made = await unity.made("/credentials", {"name": "k", "purpose": "STORAGE", "aws_iam_role": role})

    assert made["aws_iam_role"]["role_arn"] == role["role_arn"]


async def test_a_location_is_created_loaded_listed_changed_and_deleted(unity: Unity, credential: Json) -> None:
    made = await unity.made("/external-locations", {"name": "l", "url": "s3a://bucket/a/", "credential_name": "k"})
    await unity.made("/credentials", {"name": "other"})

    assert (made["url"], made["credential_name"], made["credential_id"]) == ("s3://bucket/a", "k", credential["id"])
    assert (await unity.get("/external-locations/l")).json() == made
    assert (await unity.get("/external-locations")).json() == {"external_locations": [made]}
    change = {"new_name": "m", "url": "s3://bucket/b", "credential_name": "other", "comment": "c"}
    changed = (await unity.patch("/external-locations/l", change)).json()
    assert (changed["name"], changed["url"], changed["credential_name"]) == ("m", "s3://bucket/b", "other")
    assert code(await unity.get("/external-locations/l")) == (404, "NOT_FOUND")
    assert (await unity.delete("/external-locations/m", force="true")).status_code == 200
    assert (await unity.get("/external-locations")).json() == {"external_locations": []}


@pytest.mark.parametrize("url", ["s3://bucket/a", "s3://bucket/a/b", "s3://bucket", "s3a://bucket/a/"])
@pytest.mark.usefixtures("credential")
async def test_overlapping_locations_are_refused(unity: Unity, url: str) -> None:
    await unity.made("/external-locations", {"name": "l", "url": "s3://bucket/a", "credential_name": "k"})
    await unity.made("/external-locations", {"name": "n", "url": "s3://bucket/ab", "credential_name": "k"})

    made = await unity.post("/external-locations", {"name": "m", "url": url, "credential_name": "k"})
    moved = await unity.patch("/external-locations/n", {"url": url})

    assert code(made) == (400, "INVALID_ARGUMENT")
    assert code(moved) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("url", ["", "http://host/x", "s3://", "s3://b/../c", "nonsense:x"])
@pytest.mark.usefixtures("credential")
async def test_locations_of_an_unknown_scheme_are_refused(unity: Unity, url: str) -> None:
    body = {"name": "l", "url": url, "credential_name": "k"}

    assert code(await unity.post("/external-locations", body)) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("what", ["volume", "table", "iceberg table in a nested namespace"])
async def test_a_location_in_use_is_deleted_only_by_force(catalogs: Catalogs, tmp_path: Path, what: str) -> None:
    http = await catalogs.open(store=None, allowed_locations=(f"file://{tmp_path}/allowed",))
    unity = Unity(http)
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    await unity.made("/credentials", {"name": "k"})
    url = f"file://{tmp_path}/allowed/in/use"
    for name, place in (("l", url), ("free", f"{url}-not")):
        await unity.made("/external-locations", {"name": name, "url": place, "credential_name": "k"})
    if what == "volume":
        volume = {**WHERE, "name": "v", "volume_type": "EXTERNAL", "storage_location": url}
        await unity.made("/volumes", volume)
    elif what == "table":
        table = {**WHERE, "name": "t", "table_type": "EXTERNAL", "data_source_format": "CSV", "columns": []}
        await unity.made("/tables", {**table, "storage_location": f"{url}/t"})
    else:
        await http.post("/v1/namespaces", json={"namespace": ["s", "deep"]})
        body = {**create_table("i"), "location": f"{url}/i"}
        assert (await http.post("/v1/namespaces/s%1Fdeep/tables", json=body)).status_code == 200

    refused = await unity.delete("/external-locations/l")

    assert code(refused) == (400, "INVALID_ARGUMENT")
    assert "still used by" in refused.json()["message"]
    assert await unity.names("/external-locations", "external_locations") == ["free", "l"]
    assert (await unity.delete("/external-locations/free")).status_code == 200
    assert (await unity.delete("/external-locations/l", force="true")).status_code == 200


@pytest.mark.usefixtures("credential")
async def test_a_credential_used_by_a_location_is_deleted_only_by_force(unity: Unity) -> None:
    unknown = {"name": "l", "url": "s3://b/x", "credential_name": "none"}
    assert code(await unity.post("/external-locations", unknown)) == (404, "NOT_FOUND")
    await unity.made("/external-locations", {**unknown, "credential_name": "k"})

    assert code(await unity.delete("/credentials/k")) == (400, "INVALID_ARGUMENT")
    assert (await unity.delete("/credentials/k", force="true")).status_code == 200

    assert code(await unity.get("/credentials/k")) == (404, "NOT_FOUND")
    assert await unity.names("/external-locations", "external_locations") == ["l"]


async def test_a_location_without_its_credential_is_listed_changed_and_deleted(unity: Unity, credential: Json) -> None:
    body = {"name": "l", "url": "s3://b/x", "credential_name": credential["name"]}
    made = await unity.made("/external-locations", body)
    await unity.delete(f"/credentials/{credential['name']}", force="true")

    orphan = {field: value for field, value in made.items() if field != "credential_name"}
    assert (await unity.get("/external-locations/l")).json() == orphan
    assert (await unity.get("/external-locations")).json() == {"external_locations": [orphan]}
    again = await unity.made("/credentials", {"name": credential["name"]})
    assert (await unity.get("/external-locations/l")).json() == orphan
    commented = (await unity.patch("/external-locations/l", {"comment": "c"})).json()
    assert (commented["comment"], "credential_name" in commented) == ("c", False)
    unknown = await unity.patch("/external-locations/l", {"credential_name": "none"})
    assert code(unknown) == (404, "NOT_FOUND")
    changed = (await unity.patch("/external-locations/l", {"credential_name": again["name"]})).json()
    assert (changed["credential_name"], changed["credential_id"]) == (again["name"], again["id"])
    await unity.delete(f"/credentials/{again['name']}", force="true")
    assert (await unity.delete("/external-locations/l")).status_code == 200
    assert (await unity.get("/external-locations")).json() == {"external_locations": []}


async def test_credentials_are_listed_in_pages(unity: Unity) -> None:
    for number in range(7):
        await unity.made("/credentials", {"name": f"k{number}"})

    assert await unity.names("/credentials", "credentials", max_results=3) == [f"k{number}" for number in range(7)]


async def test_a_location_with_a_key_is_created_once(unity: Unity, credential: Json) -> None:
    body = {"name": "l", "url": "s3://b/x", "credential_name": credential["name"]}

    first = await unity.post("/external-locations", body, Idempotency_Key=KEY)
    await unity.delete("/external-locations/l")
    again = await unity.post("/external-locations", body, Idempotency_Key=KEY)

    assert again.json() == first.json()
    assert code(await unity.get("/external-locations/l")) == (404, "NOT_FOUND")


async def test_files_on_a_file_system_need_no_credentials(catalogs: Catalogs, tmp_path: Path) -> None:
    http = await catalogs.open(store=None, allowed_locations=(f"file://{tmp_path}/allowed",))
    unity = Unity(http)
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    table = {**WHERE, "name": "t", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": []}
    made = await unity.made("/tables", {**table, "storage_location": f"file:{tmp_path}/allowed/t"})
    volume = await unity.made("/volumes", {**WHERE, "name": "v", "volume_type": "MANAGED"})
    staged = await unity.made("/staging-tables", {**WHERE, "name": "m"})
    await unity.made("/models", {**WHERE, "name": "o"})
    await unity.made("/models/versions", {**WHERE, "model_name": "o", "source": "x"})

    for path, body, url in (
        ("table", {"table_id": made["table_id"], "operation": "READ_WRITE"}, made["storage_location"]),
        ("table", {"table_id": staged["id"], "operation": "READ_WRITE"}, staged["staging_location"]),
        ("volume", {"volume_id": volume["volume_id"], "operation": "READ_VOLUME"}, volume["storage_location"]),
        ("path", {"url": f"{tmp_path}/allowed/x", "operation": "PATH_CREATE_TABLE"}, f"file://{tmp_path}/allowed/x"),
        ("model-version", {**WHERE, "model_name": "o", "version": 1, "operation": "READ_MODEL_VERSION"}, None),
    ):
        answer = await unity.post(f"/temporary-{path}-credentials", body)
        assert answer.status_code == 200, answer.text
        given = answer.json()
        assert set(given) == {"expiration_time", "url"}
        assert url in {None, given["url"]}
        assert made["storage_location"] == f"file://{tmp_path}/allowed/t"


@pytest.mark.usefixtures("schema")
async def test_an_iceberg_table_is_found_by_its_id(unity: Unity, client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/namespaces/s/tables", json=create_table("t"))).json()["metadata"]

    body = {"table_id": made["table-uuid"], "operation": "READ"}
    answer = (await unity.post("/temporary-table-credentials", body)).json()

    assert answer["url"] == made["location"]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("table", {"table_id": NO_ID, "operation": "READ"}, 404),
        ("table", {"table_id": "none", "operation": "READ"}, 400),
        ("table", {"table_id": "none", "operation": "NONSENSE"}, 400),
        ("table", {"table_id": "none", "operation": "UNKNOWN_TABLE_OPERATION"}, 400),
        ("table", {"table_id": "../x", "operation": "READ"}, 400),
        ("volume", {"volume_id": NO_ID, "operation": "READ_VOLUME"}, 404),
        ("volume", {"volume_id": "none", "operation": "READ_VOLUME"}, 400),
        ("path", {"url": "s3://elsewhere/x", "operation": "PATH_READ"}, 400),
        ("path", {"url": "/etc/passwd", "operation": "PATH_READ"}, 400),
        ("model-version", {**WHERE, "model_name": "o", "version": 1, "operation": "READ_MODEL_VERSION"}, 404),
    ],
)
async def test_credentials_for_a_missing_object_are_not_found(
    unity: Unity, path: str, body: Json, expected: int
) -> None:
    assert code(await unity.post(f"/temporary-{path}-credentials", body))[0] == expected


async def test_there_are_no_credentials_for_cloud_storage_unless_the_settings_say_so(catalogs: Catalogs) -> None:
    unity = Unity(await catalogs.open(store=None, allowed_locations=("s3://bucket/x",)))

    answer = await unity.post("/temporary-path-credentials", {"url": "s3://bucket/x/y", "operation": "PATH_READ"})

    assert code(answer) == (400, "INVALID_ARGUMENT")
    assert "s3.access (SANDUR_S3_ACCESS)" in answer.json()["message"]
