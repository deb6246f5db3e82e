"""Credentials for a path never open the data of others: stages, other places of a table, restricted tables, roots."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import msgspec
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table
from tests.server.unity.client import UNITY, Json
from tests.server.unity.delta_requests import SCHEMA

FILES: Final = ("READ FILES", "WRITE FILES")


class Landing(NamedTuple):
    """A server with the external location `landing`, whose files `ann` may read and write."""

    client: httpx.AsyncClient
    admin: Mapping[str, str]
    ann: Mapping[str, str]
    place: str

    async def do(self, method: str, path: str, body: object = None) -> Any:
        """A request of the administrator, which must succeed."""
        answer = await self.client.request(method, path, json=body, headers=self.admin)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def grant(self, type_: str, name: str, *privileges: str) -> None:
        change = {"principal": "ann", "add": privileges}
        await self.do("PATCH", f"{UNITY}/permissions/{type_}/{name}", {"changes": [change]})

    async def status(self, url: str, operation: str = "PATH_READ_WRITE") -> int:
        body = {"url": url, "operation": operation}
        answer = await self.client.post(f"{UNITY}/temporary-path-credentials", json=body, headers=self.ann)
        if answer.status_code == 403:
            assert "overlaps data of others" in answer.text, answer.text
        return answer.status_code


@pytest.fixture
async def landing(catalogs: Catalogs, tmp_path: Path) -> Landing:
    allowed = f"{tmp_path.as_uri()}/allowed"
    client = await catalogs.open_with(msgspec.structs.replace(SECURED, allowed_locations=(allowed,)))
    admin = await bearer(client)
    made = Landing(client, admin, await make_principal(client, admin, "ann"), f"{allowed}/landing")
    await made.do("POST", f"{UNITY}/schemas", {"catalog_name": "main", "name": "s"})
    await made.do("POST", f"{UNITY}/credentials", {"name": "k"})
    location = {"name": "landing", "url": made.place, "credential_name": "k"}
    await made.do("POST", f"{UNITY}/external-locations", location)
    await made.grant("external_location", "landing", *FILES)
    return made


def iceberg(name: str, location: str, **properties: str) -> Json:
    return {**create_table(name), "location": location, "properties": properties}


async def test_a_path_where_nothing_is_gets_credentials(landing: Landing) -> None:
    assert await landing.status(f"{landing.place}/free") == 200


@pytest.mark.parametrize("path", ["data", "data/part", ""])
async def test_the_other_places_of_a_table_are_its_data(landing: Landing, path: str) -> None:
    table = iceberg("t", f"{landing.place}/t", **{"write.data.path": f"{landing.place}/data"})
    await landing.do("POST", "/v1/main/namespaces/s/tables", table)
    url = f"{landing.place}/{path}".rstrip("/")

    before = await landing.status(url)
    await landing.grant("catalog", "main", "USE CATALOG", "USE SCHEMA", "SELECT")
    reading = [await landing.status(url, operation) for operation in ("PATH_READ", "PATH_READ_WRITE")]
    await landing.grant("table", "main.s.t", "MODIFY")

    assert (before, reading) == (403, [200, 403])
    assert await landing.status(url) == 200


async def test_a_restricted_table_gives_no_files_to_whom_it_restricts(landing: Landing) -> None:
    await landing.do("POST", "/v1/main/namespaces/s/tables", iceberg("t", f"{landing.place}/t"))
    await landing.grant("catalog", "main", "USE CATALOG", "USE SCHEMA", "SELECT", "MODIFY")
    before = await landing.status(f"{landing.place}/t")
    hidden = {"required-column-projections": [{"field-id": 1, "action": "replace-with-null"}]}

    await landing.do("PUT", "/api/sandur/v1/restrictions/main.s.t", hidden)

    assert before == 200
    for path in ("", "/t", "/t/data"):
        assert [await landing.status(f"{landing.place}{path}", one) for one in ("PATH_READ", "PATH_READ_WRITE")] == [
            403,
            403,
        ]


async def test_the_stages_of_others_and_the_roots_around_them_are_closed(landing: Landing) -> None:
    await landing.do("POST", f"{UNITY}/catalogs", {"name": "c", "storage_root": f"{landing.place}/root"})
    await landing.do("POST", f"{UNITY}/schemas", {"catalog_name": "c", "name": "s"})
    stage = await landing.do("POST", f"{UNITY}{SCHEMA.replace('main', 'c')}/staging-tables", {"name": "t"})
    folder = stage["location"].rpartition("/")[0]

    assert stage["location"].startswith(f"{landing.place}/root/")
    for url in (stage["location"], f"{stage['location']}/_delta_log", folder, f"{landing.place}/root", landing.place):
        assert await landing.status(url, "PATH_READ") == 403, url
    assert await landing.status(f"{landing.place}/root/beside") == 200


async def test_the_folder_of_a_catalog_in_the_own_store_is_closed(landing: Landing) -> None:
    made = await landing.do("POST", "/v1/main/namespaces/s/tables", create_table("t"))
    home = made["metadata"]["location"].partition("/__unitystorage")[0]
    await landing.grant("metastore", "metastore", *FILES)
    await landing.grant("catalog", "main", "USE CATALOG", "USE SCHEMA", "SELECT", "MODIFY")

    assert await landing.status(home, "PATH_READ") in {400, 403}
    assert await landing.status(f"{home}/__unitystorage/s", "PATH_READ") in {400, 403}
