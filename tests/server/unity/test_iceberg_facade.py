"""The Iceberg REST API at the path that servers of Unity Catalog use."""

import httpx

from tests.server.requests import create_table
from tests.server.unity.client import UNITY, Unity, code

FACADE = f"{UNITY}/iceberg/v1"


async def test_an_iceberg_client_of_a_unity_catalog_server_finds_every_route(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    await unity.made("/catalogs", {"name": "c"})
    await unity.made("/schemas", {"catalog_name": "c", "name": "s"})
    config = (await client.get(f"{FACADE}/config", params={"warehouse": "c"})).json()
    base = f"{FACADE}/{config['overrides']['prefix']}/namespaces"

    made = await client.post(f"{base}/s/tables", json=create_table("t"))
    namespaces = (await client.get(base)).json()["namespaces"]
    tables = (await client.get(f"{base}/s/tables")).json()["identifiers"]

    assert made.status_code == 200, made.text
    assert namespaces == [["s"]]
    assert tables == [{"namespace": ["s"], "name": "t"}]
    assert (await unity.get("/tables/c.s.t")).json()["data_source_format"] == "ICEBERG"


async def test_each_api_has_its_own_error_body(unity: Unity, client: httpx.AsyncClient) -> None:
    iceberg = await client.get(f"{FACADE}/main/namespaces/none")

    assert iceberg.json()["error"]["type"] == "NoSuchNamespaceException"
    assert code(await unity.get("/iceberg/v2/config")) == (501, "UNIMPLEMENTED")
