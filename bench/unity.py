"""Measure the Unity Catalog API under load: lists, loads and creations, and their CPU time as schemas grow.

The reference server, measured once on a machine like this, needs 96–470 ms of CPU for a page of 100 tables, 18–25 s
for a list of 10,000, 14–18 ms for a creation and 8–27 ms for a load.
"""

from typing import Final

import httpx

from bench.beside_reference import Reference, Server, run

SIZES: Final = (100, 1_000, 10_000)
AT_ONCE: Final = 8
REFERENCES: Final = {
    "create": Reference(14.0, 18.0, times=5),
    "create, one at a time": Reference(14.0, 18.0, times=5),
    "load": Reference(8.0, 27.0, times=10),
    "page of 100": Reference(96.0, 470.0, times=50),
    "whole list": Reference(18_000.0, 25_000.0, times=50, size=SIZES[-1]),
}
_COLUMNS: Final = [
    {
        "name": f"c{number}",
        "type_text": "bigint",
        "type_name": "LONG",
        "type_json": f'{{"name":"c{number}","type":"long","nullable":true,"metadata":{{}}}}',
        "position": number,
        "nullable": True,
    }
    for number in range(10)
]


def main() -> None:
    run("unity", "The Unity Catalog API", __doc__, REFERENCES, _measure)


async def _measure(server: Server) -> None:
    made = 0
    catalog = (await server.client.get("/catalogs/main")).raise_for_status().json()
    for size in SIZES[:2] if server.is_quick else SIZES:
        creations = _Creations(server.client, catalog["storage_location"], made)
        alone = (size - made) // 10
        await server.measure("create, one at a time", size, alone, creations.make)
        await server.measure("create", size, size - made - alone, creations.make, at_once=AT_ONCE)
        made = size
        await _read(server, size)


class _Creations:
    """Creates tables with consecutive numbers."""

    def __init__(self, client: httpx.AsyncClient, root: str, made: int) -> None:
        self._client = client
        self._root = root
        self._made = made

    async def make(self, _: int) -> httpx.Response:
        number, self._made = self._made, self._made + 1
        body = {
            "catalog_name": "main",
            "schema_name": "s",
            "name": f"t{number:06d}",
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": _COLUMNS,
            "storage_location": f"{self._root}/t{number}",
            "properties": {"owner": "bench"},
        }
        return await self._client.post("/tables", json=body)


async def _read(server: Server, size: int) -> None:
    client = server.client
    where = {"catalog_name": "main", "schema_name": "s"}
    slim = {"omit_columns": "true", "omit_properties": "true"}
    few = max(5, min(100, 20_000 // size))
    await server.measure("load", size, 400, lambda call: client.get(f"/tables/main.s.t{call * 37 % size:06d}"))
    await server.measure("page of 100", size, 200, lambda _: client.get("/tables", params=where | {"max_results": 100}))
    await server.measure("whole list", size, few, lambda _: client.get("/tables", params=where))
    await server.measure("whole list, slim", size, few, lambda _: client.get("/tables", params=where | slim))
