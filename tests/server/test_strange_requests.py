"""Unknown routes and malformed requests: always an error in the form of the API, never a failure of the server."""

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import Catalogs
from tests.server.requests import create_table


def is_problem(answer: httpx.Response, code: int) -> bool:
    return bool(answer.status_code == code and answer.json()["error"]["code"] == code)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nowhere",
        "/v1/",
        "/v1//namespaces",
        "/v1/namespaces/",
        "/v1/namespaces/a/nowhere",
        "/v1/main/namespaces/a/tables/t/plans",
        "/v1/main/extra/namespaces",
        "/v1/name%73paces",
        "/iceberg/v1/nowhere",
        "/v1/config/more",
        "/v1/a/b/c/d/e/f/g/h",
    ],
)
async def test_an_unknown_route_is_400(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)

    assert is_problem(answer, 400)
    assert "No route for request: GET" in answer.text


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/namespaces", "GET, POST"),
        ("DELETE", "/v1/config", "GET"),
        ("PATCH", "/v1/namespaces/a/tables/t", "GET, POST, DELETE, HEAD"),
        ("GET", "/v1/tables/rename", "POST"),
        ("OPTIONS", "/v1/transactions/commit", "POST"),
    ],
)
async def test_another_method_is_405(client: httpx.AsyncClient, method: str, path: str, allowed: str) -> None:
    answer = await client.request(method, path)

    assert is_problem(answer, 405)
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/", "/nope", "/iceberg", "/v1", "/v2/config", "/healthz/x"])
async def test_an_unknown_page_outside_the_apis_is_404(client: httpx.AsyncClient, path: str) -> None:
    assert is_problem(await client.get(path), 404)


@pytest.mark.parametrize("path", ["/v1/namespaces/%FF", "/v1/namespaces/%", "/v1/namespaces/a%2", "/v1/%ff/namespaces"])
async def test_a_broken_path_is_400(client: httpx.AsyncClient, path: str) -> None:
    # httpx would normalize the path; the server must receive it unchanged.
    request = client.build_request("GET", "/v1/config")
    request.url = _Raw(path)

    assert is_problem(await client.send(request), 400)


class _Raw(httpx.URL):
    """A URL whose path is sent unchanged."""

    def __init__(self, path: str) -> None:
        super().__init__("http://localhost/x")
        self._raw_path_bytes = path.encode("latin-1")

    @property
    def raw_path(self) -> bytes:
        return self._raw_path_bytes

    @property
    def path(self) -> str:
        return self._raw_path_bytes.decode("latin-1")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", "/v1/namespaces/ns/tables"),
        (b"null", "/v1/namespaces/ns/tables"),
        (b'{"name": "t"', "/v1/namespaces/ns/tables"),
        (b'{"name": "\xff", "schema": {}}', "/v1/namespaces/ns/tables"),
        (b'{"name": "t", "schema": {"type": "struct", "fields": 1}}', "/v1/namespaces/ns/tables"),
        (b"[" * 100_000, "/v1/namespaces/ns/tables"),
        (b'{"updates": [{"action": "no-such"}], "requirements": []}', "/v1/namespaces/ns/tables/t"),
        (b'{"updates": [], "requirements": [{"type": "no-such"}]}', "/v1/namespaces/ns/tables/t"),
        (b'{"updates": null}', "/v1/namespaces/ns/tables/t"),
        (b'{"removals": 1}', "/v1/namespaces/ns/properties"),
        (b'{"source": {}}', "/v1/tables/rename"),
        (b'{"name": "r"}', "/v1/namespaces/ns/register"),
        (b'{"name": "v"}', "/v1/namespaces/ns/views"),
        (b"{}", "/v1/namespaces/ns/views/v"),
    ],
)
async def test_a_malformed_body_is_400(client: httpx.AsyncClient, body: bytes, path: str) -> None:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
    await client.post("/v1/namespaces/ns/views", json=create_table("v"))

    assert is_problem(await client.post(path, content=body), 400)


async def test_unknown_updates_and_requirements_are_listed(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))

    answer = await client.post(
        "/v1/namespaces/ns/tables/t",
        json={"updates": [{"action": "dance"}], "requirements": [{"type": "assert-mood"}]},
    )

    assert is_problem(answer, 400)
    assert "dance" in answer.text
    assert "assert-mood" in answer.text


async def test_a_body_beyond_the_limit_is_413(catalogs: Catalogs) -> None:
    client = await catalogs.open(request_bytes_max=1000)

    answer = await client.post("/v1/namespaces", json={"namespace": ["ns"], "properties": {"k": "v" * 1000}})

    assert is_problem(answer, 413)
    assert (await client.get("/v1/namespaces/ns")).status_code == 404


async def test_a_body_nested_beyond_the_limit_is_400(catalogs: Catalogs) -> None:
    client = await catalogs.open(request_depth_max=5)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})

    answer = await client.post("/v1/namespaces/ns/tables", json=create_table("t", unknown=[[[[[[]]]]]]))

    assert is_problem(answer, 400)
    assert "nested more than 5 levels" in answer.text


async def test_a_name_that_is_too_long_is_a_client_error(client: httpx.AsyncClient) -> None:
    name = "n" * 5000
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})

    for answer in (
        await client.get(f"/v1/namespaces/{name}"),
        await client.get(f"/v1/namespaces/ns/tables/{name}"),
        await client.get("/v1/namespaces/" + "%1F".join(["a"] * 500)),
        await client.post("/v1/namespaces", json={"namespace": [name]}),
        await client.post("/v1/namespaces/ns/tables", json=create_table(name)),
        await client.get(f"/v1/{name}/namespaces"),
        await client.get(f"/v1/config?warehouse={name}"),
        await client.delete(f"/v1/namespaces/ns/views/{name}"),
    ):
        assert answer.status_code in {400, 404}, answer.text


SEGMENTS = st.sampled_from(
    [
        "v1",
        "iceberg",
        "main",
        "namespaces",
        "tables",
        "views",
        "t",
        "rename",
        "%1F",
        "%00",
        "a%1Fb",
        "",
        "..",
        "%2F",
        "+",
    ]
) | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"), max_size=5)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT"]),
    segments=st.lists(SEGMENTS, max_size=8),
    body=st.sampled_from([b"", b"{}", b"[]", b"1", b'{"namespace":["a"]}', b'{"name":"t"}', b"\xff"]),
)
async def test_no_path_breaks_the_server(
    client: httpx.AsyncClient, method: str, segments: list[str], body: bytes
) -> None:
    request = client.build_request(method, "/v1/config", content=body)
    request.url = _Raw("/" + "/".join(["v1", *segments]))

    answer = await client.send(request)

    assert answer.status_code < 500, (method, segments, answer.text)


@pytest.mark.parametrize("mount", ["/v1", "/iceberg/v1"])
async def test_a_client_whose_uri_ends_in_v1_gets_a_hint(client: httpx.AsyncClient, mount: str) -> None:
    answer = await client.get(f"{mount}/v1/config")

    assert answer.status_code == 400
    assert "clients add /v1 themselves: remove it from the end of the client's URI" in answer.text


async def test_a_catalog_may_be_called_v1(catalogs: Catalogs) -> None:
    client = await catalogs.open(default_catalog="v1")

    assert (await client.get("/v1/v1/namespaces")).status_code == 200
