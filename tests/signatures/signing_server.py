"""A server that signs requests to S3, with a table of an owner, and principals with various rights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from sandur.settings import S3Settings, Settings
from tests.server.logins import ADMIN_SECRET, bearer, make_principal
from tests.server.requests import create_table

UNITY: Final = "/api/2.1/unity-catalog"
NS: Final = "/v1/main/namespaces/sales"
OLD_ROUTE: Final = "/v1/aws/s3/sign"
REGION: Final = "us-east-1"
S3: Final = S3Settings(
    endpoint="http://127.0.0.1:8333",
    region=REGION,
    access_key_id="the-key",
    secret_access_key="the-secret",  # noqa: S106 - of no service
    access="sign",
)
SIGNING: Final = Settings(
    store="s3://bucket/lake", log_level="error", authentication="on", admin_secret=ADMIN_SECRET, s3=S3
)
RIGHTS: Final[Mapping[str, tuple[str, ...]]] = {
    "reader": ("USE CATALOG", "USE SCHEMA", "SELECT"),
    "writer": ("USE CATALOG", "USE SCHEMA", "SELECT", "MODIFY"),
    "modifier": ("USE CATALOG", "USE SCHEMA", "MODIFY"),
    "creator": ("USE CATALOG", "USE SCHEMA", "CREATE TABLE"),
    "stranger": (),
}


@dataclass
class SigningServer:
    """A client of the server, the headers of its principals, and the locations of two tables."""

    client: httpx.AsyncClient
    callers: dict[str, dict[str, str]]
    table: str
    neighbour: str
    endpoint: str

    async def caller(self, name: str) -> dict[str, str]:
        """The headers of a principal of `RIGHTS`, which is created when it is needed first."""
        if name not in self.callers:
            self.callers[name] = await make_principal(self.client, self.callers["admin"], name)
            if RIGHTS[name]:
                await self.grant(name, add=RIGHTS[name])
        return self.callers[name]

    async def sign(
        self, caller: str, method: str, uri: str, *, path: str = f"{NS}/tables/orders/sign", **fields: object
    ) -> httpx.Response:
        body = {"method": method, "uri": uri, "region": REGION, "headers": {}, **fields}
        # In ASCII: halves of characters reach the server.
        return await self.client.post(path, content=json.dumps(body), headers=await self.caller(caller))

    async def signed(self, caller: str, method: str, uri: str, **fields: Any) -> dict[str, str]:
        """The headers of a request that must be signed."""
        answer = await self.sign(caller, method, uri, **fields)
        assert answer.status_code == 200, answer.text
        assert answer.json()["uri"] == uri
        return {name: ", ".join(values) for name, values in answer.json()["headers"].items()}

    async def status(self, caller: str, method: str, uri: str, **fields: Any) -> int:
        return (await self.sign(caller, method, uri, **fields)).status_code

    async def administer(self, method: str, path: str, body: object = None) -> Any:
        """Send a request as the administrator, and return what it answers."""
        answer = await self.client.request(method, path, json=body, headers=self.callers["admin"])
        assert answer.is_success, answer.text
        return answer.json() if answer.content else {}

    async def grant(self, caller: str, *, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> None:
        changes = {"changes": [{"principal": caller, "add": add, "remove": remove}]}
        await self.administer("PATCH", f"{UNITY}/permissions/catalog/main", changes)

    def uri(self, location: str) -> str:
        """The URI of an object, in path style; locations of these tests need no encoding but for `=`."""
        return f"{self.endpoint}/{location.removeprefix('s3://').replace('=', '%3D')}"


async def set_up(client: httpx.AsyncClient, endpoint: str = S3.endpoint) -> SigningServer:
    """Two tables of the administrator in one namespace."""
    server = SigningServer(client, {"admin": await bearer(client)}, "", "", endpoint)
    await server.administer("POST", "/v1/main/namespaces", {"namespace": ["sales"]})
    for name, field in (("orders", "table"), ("secrets", "neighbour")):
        made = await server.administer("POST", f"{NS}/tables", create_table(name))
        setattr(server, field, made["metadata"]["location"])
    return server
