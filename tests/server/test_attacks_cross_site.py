"""Requests that a page of another site makes through a browser: refused before anything is read or done."""

import httpx
import pytest

from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs

UNITY = "/api/2.1/unity-catalog"
NAMESPACE = b'{"namespace": ["ns"]}'
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Host": "evil.example"},
        {"Host": "evil.example:8181"},
        {"Host": "localhost.evil.example:8181"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "text/plain;charset=UTF-8"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ],
)
async def test_a_change_from_another_site_is_refused(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    refused = await client.post("/v1/namespaces", content=NAMESPACE, headers={**JSON, **headers})

    assert refused.status_code == 403
    assert refused.json()["error"]["type"] == "ForbiddenException"
    assert (await client.get("/v1/namespaces")).json()["namespaces"] == []


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
@pytest.mark.parametrize("path", ["/v1/config", f"{UNITY}/catalogs", "/metrics", "/readyz"])
async def test_on_loopback_another_site_reads_nothing(
    client: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    refused = await client.get(path, headers=headers)

    assert refused.status_code == 403
    assert "another site" in refused.text or "allowed_hosts" in refused.text


async def test_a_refusal_has_the_form_of_the_api(client: httpx.AsyncClient) -> None:
    refused = await client.get(f"{UNITY}/catalogs", headers={"Host": "evil.example"})

    assert refused.json()["error_code"] == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8181",
        "LOCALHOST:8181",
        "localhost.",
        "127.0.0.1:8181",
        "127.0.0.2",
        "[::1]:8181",
        "[::1]",
    ],
)
async def test_every_name_of_loopback_is_accepted(client: httpx.AsyncClient, host: str) -> None:
    made = await client.post("/v1/namespaces", content=NAMESPACE, headers={**JSON, "Host": host})

    assert made.status_code == 200
    assert (await client.get("/v1/namespaces", headers={"Host": host})).status_code == 200


async def test_a_page_of_the_server_itself_is_accepted(client: httpx.AsyncClient) -> None:
    own = {"Host": "localhost:8181", "Origin": "http://localhost:8181", "Sec-Fetch-Site": "same-origin"}

    assert (await client.post("/v1/namespaces", content=NAMESPACE, headers={**JSON, **own})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"User-Agent": "curl/8.5.0", "Content-Type": "application/x-www-form-urlencoded"},
        {"Authorization": "Bearer x", "Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=utf-8"},
        {"Content-Type": ""},
    ],
)
async def test_programs_that_label_json_loosely_are_accepted(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    assert (await client.post("/v1/namespaces", content=NAMESPACE, headers=headers)).status_code == 200


async def test_the_setting_allows_further_hosts_and_their_pages(catalogs: Catalogs) -> None:
    client = await catalogs.open(allowed_hosts=("catalog.example",))
    page = {"Host": "127.0.0.1:8181", "Origin": "https://catalog.example"}

    assert (await client.get("/v1/config", headers={"Host": "catalog.example:443"})).status_code == 200
    assert (await client.post("/v1/namespaces", content=NAMESPACE, headers={**JSON, **page})).status_code == 200
    assert (await client.get("/v1/config", headers={"Host": "evil.example"})).status_code == 403


async def test_a_server_for_other_machines_takes_any_host_until_the_setting_names_some(catalogs: Catalogs) -> None:
    open_to_all = await catalogs.open(host="0.0.0.0", allow_unauthenticated=True)  # noqa: S104 - nothing is bound
    named = await catalogs.open(host="0.0.0.0", allow_unauthenticated=True, allowed_hosts=("catalog.example",))  # noqa: S104 - nothing is bound
    foreign = {"Host": "catalog.example:8181", "Origin": "http://evil.example"}

    assert (await open_to_all.get("/v1/config", headers={"Host": "any.example"})).status_code == 200
    assert (await open_to_all.post("/v1/namespaces", content=NAMESPACE, headers={**JSON, **foreign})).status_code == 403
    assert (await named.get("/v1/config", headers={"Host": "catalog.example"})).status_code == 200
    assert (await named.get("/v1/config", headers={"Host": "any.example"})).status_code == 403


async def test_a_foreign_page_gets_no_token(catalogs: Catalogs) -> None:
    client = await catalogs.open(MemoryStore())

    refused = await client.post(
        "/v1/oauth/tokens", data={"grant_type": "client_credentials"}, headers={"Origin": "http://evil.example"}
    )

    assert refused.status_code == 403
    assert "access_token" not in refused.text
