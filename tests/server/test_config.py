"""`config`: it advertises the mounted routes, and a warehouse is a catalog."""

from pathlib import Path

import httpx
import pytest
import yaml  # type: ignore[import-untyped] # No types are published with it.

from sandur.server.iceberg_rest.routes import ROUTES
from tests.server.conftest import Catalogs
from tests.server.requests import create_table

SPECIFICATION = Path(__file__).parents[2].parent / "shared" / "spec" / "rest-catalog-open-api.yaml"

NOT_SERVED: set[str] = set()


async def test_config_advertises_exactly_the_mounted_routes(client: httpx.AsyncClient) -> None:
    config = (await client.get("/v1/config")).json()

    assert config["endpoints"] == [f"{route.method} {route.path}" for route in ROUTES if route.is_advertised]
    for endpoint in config["endpoints"]:
        method, template = endpoint.split(" ")
        path = template.replace("{prefix}", "main").replace("{", "").replace("}", "")
        answer = await client.request(method, path)
        assert answer.status_code != 405, endpoint
        assert "No route" not in answer.text, endpoint


async def test_config_has_the_fields_that_clients_need(client: httpx.AsyncClient) -> None:
    config = (await client.get("/v1/config")).json()

    assert config["defaults"] == {"header.X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
    assert config["overrides"] == {"namespace-separator": "%1F"}
    assert config["idempotency-key-lifetime"] == "PT1H"


def test_the_routes_are_those_of_the_specification() -> None:
    if not SPECIFICATION.exists():
        pytest.skip(f"the specification is not at {SPECIFICATION}")
    paths = yaml.safe_load(SPECIFICATION.read_text(encoding="utf-8"))["paths"]

    specified = {
        (operation["operationId"], method.upper(), path)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if method in {"get", "post", "delete", "head", "put", "patch"}
    }

    served = {(route.operation, route.method, route.path) for route in ROUTES if route.is_advertised}
    assert {operation for operation, _, _ in specified - served} == NOT_SERVED
    assert not served - specified


async def test_a_warehouse_selects_a_catalog_by_prefix(client: httpx.AsyncClient) -> None:
    config = (await client.get("/v1/config", params={"warehouse": "main"})).json()

    assert config["overrides"]["prefix"] == "main"


async def test_an_empty_warehouse_is_the_default(client: httpx.AsyncClient) -> None:
    config = (await client.get("/v1/config", params={"warehouse": ""})).json()

    assert "prefix" not in config["overrides"]


async def test_an_unknown_warehouse_gets_an_error_with_guidance(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/config", params={"warehouse": "nope"})

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NoSuchWarehouseException"
    assert "nope" in answer.text
    assert "main" in answer.text


async def test_both_mounts_with_and_without_prefix_are_one_catalog(client: httpx.AsyncClient) -> None:
    await client.post("/iceberg/v1/main/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))

    bodies = {
        (await client.get(f"{mount}/namespaces/ns/tables/t")).text
        for mount in ("/v1", "/v1/main", "/iceberg/v1", "/iceberg/v1/main")
    }

    assert len(bodies) == 1
    assert "metadata-location" in bodies.pop()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/nope/namespaces"),
        ("GET", "/v1/nope/namespaces/ns"),
        ("HEAD", "/v1/nope/namespaces/ns"),
        ("GET", "/v1/nope/namespaces/ns/tables"),
        ("GET", "/v1/nope/namespaces/ns/tables/t"),
        ("DELETE", "/v1/nope/namespaces/ns"),
    ],
)
async def test_an_unknown_prefix_is_404(client: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await client.request(method, path)

    assert answer.status_code == 404
    if method != "HEAD":
        assert answer.json()["error"]["code"] == 404


async def test_nothing_is_created_in_an_unknown_catalog(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/nope/namespaces", json={"namespace": ["ns"]})

    assert answer.status_code == 404
    assert (await client.get("/v1/nope/namespaces/ns")).status_code == 404


async def test_the_default_catalog_is_a_setting(catalogs: Catalogs) -> None:
    client = await catalogs.open(default_catalog="lake")

    assert (await client.get("/v1/config", params={"warehouse": "lake"})).json()["overrides"]["prefix"] == "lake"
    assert (await client.get("/v1/config", params={"warehouse": "main"})).status_code == 404


async def test_a_catalog_name_with_special_characters_has_an_encoded_prefix(catalogs: Catalogs) -> None:
    client = await catalogs.open(default_catalog="my lake/1")

    prefix = (await client.get("/v1/config", params={"warehouse": "my lake/1"})).json()["overrides"]["prefix"]

    assert prefix == "my%20lake%2F1"
    assert (await client.get(f"/v1/{prefix}/namespaces")).json() == {"namespaces": [], "next-page-token": None}


@pytest.mark.parametrize("warehouse", ["s3://bucket/lake", "file:///tmp/lake", "/srv/lake", "./lake", "memory:"])
async def test_a_warehouse_that_is_a_location_is_explained(client: httpx.AsyncClient, warehouse: str) -> None:
    answer = await client.get("/v1/config", params={"warehouse": warehouse})

    message = answer.json()["error"]["message"]
    assert answer.status_code == 404
    assert "A warehouse is the name of a catalog, not the location of its tables." in message
    assert "main" in message
    assert "catalog create" not in message
