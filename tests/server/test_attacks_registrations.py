"""Attacks by registrations: a file that the caller wrote names the places of its table."""

import json
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from msgspec.structs import replace

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table, create_view
from tests.server.unity.client import UNITY

SALES: Final = "/v1/main/namespaces/sales"


class Place:
    """A server with a folder for all, and `ann`, who may create tables and read the files of the catalog."""

    def __init__(self, http: httpx.AsyncClient, admin: dict[str, str], ann: dict[str, str], shared: Path) -> None:
        self.http, self.admin, self.ann = http, admin, ann
        self.shared = shared
        self.wanted = f"file://{shared}/wanted"

    async def grant(self, on: str, *privileges: str) -> None:
        change = {"changes": [{"principal": "ann", "add": list(privileges), "remove": []}]}
        answer = await self.http.patch(f"{UNITY}/permissions/{on}", json=change, headers=self.admin)
        assert answer.is_success, answer.text

    async def table(self, name: str) -> dict[str, Any]:
        made = await self.http.post(f"{SALES}/tables", json=create_table(name), headers=self.ann)
        assert made.status_code == 200, made.text
        return dict(made.json())

    async def register(self, name: str, file: Path, *, of: str = "register", **fields: object) -> httpx.Response:
        body = {"name": name, "metadata-location": f"file://{file}", **fields}
        return await self.http.post(f"{SALES}/{of}", json=body, headers=self.ann)


@pytest.fixture
async def place(catalogs: Catalogs, tmp_path: Path) -> Place:
    shared = tmp_path / "shared"
    shared.mkdir()
    settings = replace(SECURED, store=str(tmp_path / "store"), fsync="never", allowed_locations=(f"file://{shared}",))
    http = await catalogs.open_with(settings)
    admin = await bearer(http)
    found = Place(http, admin, await make_principal(http, admin, "ann"), shared)
    answer = await http.post("/v1/main/namespaces", json={"namespace": ["sales"]}, headers=admin)
    assert answer.is_success
    await found.grant("catalog/main", "USE CATALOG", "READ FILES")
    await found.grant("schema/main.sales", "USE SCHEMA", "CREATE TABLE")
    return found


def written(folder: Path, metadata: dict[str, Any]) -> Path:
    """A metadata file that the attacker wrote into a folder that it may write."""
    file = folder / "metadata" / "00009-own.metadata.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(metadata), encoding="utf-8")
    return file


def folder_of(made: dict[str, Any]) -> Path:
    return Path("/" + made["metadata"]["location"].removeprefix("file:").lstrip("/"))


@pytest.mark.parametrize("field", ["location", "write.data.path"])
async def test_a_registration_moves_no_table_to_a_place_that_the_caller_may_not_take(place: Place, field: str) -> None:
    """The credentials of a table are for all of its places: the caller would read and write what is there."""
    made = await place.table("orders")
    metadata = made["metadata"]
    moved = (
        {**metadata, "location": place.wanted}
        if field == "location"
        else {**metadata, "properties": {**metadata.get("properties", {}), field: place.wanted}}
    )
    file = written(folder_of(made), moved)

    refused = await place.register("orders", file, overwrite=True)
    still = await place.http.get(f"{SALES}/tables/orders", headers=place.ann)
    await place.grant("metastore/metastore", "CREATE EXTERNAL TABLE")
    allowed = await place.register("orders", file, overwrite=True)

    assert refused.status_code == 403, refused.text
    assert "CREATE EXTERNAL TABLE" in refused.text
    assert still.json()["metadata-location"] == made["metadata-location"]
    assert allowed.status_code == 200, allowed.text


async def test_an_own_table_is_registered_again_without_further_rights(place: Place) -> None:
    made = await place.table("orders")
    file = written(folder_of(made), made["metadata"])

    again = await place.register("orders", file, overwrite=True)

    assert again.status_code == 200, again.text


@pytest.mark.parametrize("kind", ["table", "view"])
async def test_a_new_registration_takes_no_place_that_the_caller_may_not_take(place: Place, kind: str) -> None:
    """The right to read files lets the caller register them, but not get their folder, which it could then write."""
    if kind == "table":
        made = await place.table("orders")
    else:
        answer = await place.http.post(f"{SALES}/views", json=create_view("shown"), headers=place.ann)
        assert answer.status_code == 200, answer.text
        made = answer.json()
    uuid = "11111111-1111-4111-8111-111111111111"
    metadata = {**made["metadata"], "location": place.wanted, f"{kind}-uuid": uuid}
    file = written(place.shared / "wanted", metadata)
    of = "register" if kind == "table" else "register-view"
    await place.grant("metastore/metastore", "READ FILES")

    refused = await place.register("mine", file, of=of)
    await place.grant("metastore/metastore", "CREATE EXTERNAL TABLE")
    allowed = await place.register("mine", file, of=of)

    assert refused.status_code == 403, refused.text
    assert "CREATE EXTERNAL TABLE" in refused.text
    assert allowed.status_code == 200, allowed.text


async def victims_dropped_table(place: Place) -> dict[str, Any]:
    """A table of the administrator, who dropped it and may still undrop it."""
    made = await place.http.post(f"{SALES}/tables", json=create_table("victim"), headers=place.admin)
    assert (await place.http.delete(f"{SALES}/tables/victim", headers=place.admin)).is_success
    return dict(made.json()["metadata"])


async def may_create_only(place: Place) -> None:
    change = {"changes": [{"principal": "ann", "add": [], "remove": ["READ FILES"]}]}
    answer = await place.http.patch(f"{UNITY}/permissions/catalog/main", json=change, headers=place.admin)
    assert answer.is_success, answer.text


async def is_undropped(place: Place) -> bool:
    answer = await place.http.post("/api/sandur/v1/undrop/table/main.sales.victim", headers=place.admin)
    return answer.is_success


@pytest.mark.parametrize("is_transaction", [False, True])
async def test_a_commit_that_creates_does_not_take_the_files_of_a_dropped_table(
    place: Place, *, is_transaction: bool
) -> None:
    """Whoever creates a table gets its files: the right to create tables does not suffice for those of others."""
    dropped = await victims_dropped_table(place)
    creation = creation_of(dropped["table-uuid"], dropped["location"], dropped["schemas"][0])
    change = {"identifier": {"namespace": ["sales"], "name": "mine"}, **creation}
    path = "/v1/main/transactions/commit" if is_transaction else f"{SALES}/tables/mine"
    body = {"table-changes": [change]} if is_transaction else creation
    await may_create_only(place)

    refused = await place.http.post(path, json=body, headers=place.ann)

    assert refused.status_code == 403, refused.text
    assert "READ FILES on catalog main" in refused.text
    assert await is_undropped(place)


def creation_of(uuid: str, location: str, schema: dict[str, Any]) -> dict[str, Any]:
    updates = [
        {"action": "assign-uuid", "uuid": uuid},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": location},
    ]
    return {"requirements": [{"type": "assert-create"}], "updates": updates}


@pytest.mark.parametrize("names", ["location", "metadata-log"])
async def test_the_right_to_read_a_metadata_file_does_not_include_the_files_that_it_names(
    place: Place, names: str
) -> None:
    dropped = await victims_dropped_table(place)
    credential = {"name": "key", "purpose": "STORAGE", "aws_iam_role": {"role_arn": "arn:aws:iam::1:role/r"}}
    made = await place.http.post(f"{UNITY}/credentials", json=credential, headers=place.admin)
    assert made.is_success, made.text
    location = {"name": "mine", "url": f"file://{place.shared}/mine", "credential_name": "key"}
    made = await place.http.post(f"{UNITY}/external-locations", json=location, headers=place.admin)
    assert made.is_success, made.text
    await place.grant("external_location/mine", "READ FILES", "CREATE EXTERNAL TABLE")
    await may_create_only(place)
    own = f"file://{place.shared}/mine/table"
    log = [{"metadata-file": f"{dropped['location']}/metadata/00000-x.metadata.json", "timestamp-ms": 1}]
    forged = dropped if names == "location" else {**dropped, "location": own, "metadata-log": log}
    file = written(place.shared / "mine" / "table", forged)

    refused = await place.register("mine", file)

    assert refused.status_code == 403, refused.text
    assert "READ FILES on catalog main" in refused.text
    assert await is_undropped(place)
