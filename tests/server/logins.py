"""Servers with authentication, and clients that are logged in."""

from typing import Final

import httpx
import msgspec

from sandur.settings import Settings

ADMIN_SECRET: Final = "the secret of the administrator"  # noqa: S105 - of servers of tests
SECURED: Final = Settings(store="memory:", log_level="error", authentication="on", admin_secret=ADMIN_SECRET)
TOKENS: Final = "/v1/oauth/tokens"
PRINCIPALS: Final = "/api/sandur/v1/principals"


def quiet(settings: Settings) -> Settings:
    """The same, for a server whose storage calls are counted: it does nothing by the clock beside its requests."""
    return msgspec.structs.replace(settings, audit="off", janitors=False, deliveries=False)


async def token_of(client: httpx.AsyncClient, name: str = "admin", secret: str = ADMIN_SECRET) -> str:
    """A token for a principal, by its client secret."""
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
    answer = await client.post(TOKENS, data=form)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


async def bearer(client: httpx.AsyncClient, name: str = "admin", secret: str = ADMIN_SECRET) -> dict[str, str]:
    """The header of requests that a principal makes."""
    return {"Authorization": f"Bearer {await token_of(client, name, secret)}"}


async def make_principal(client: httpx.AsyncClient, admin: dict[str, str], name: str, *groups: str) -> dict[str, str]:
    """Create a service principal; the header of requests that it makes."""
    answer = await client.post(PRINCIPALS, json={"name": name, "groups": groups}, headers=admin)
    assert answer.status_code == 201, answer.text
    return await bearer(client, name, answer.json()["client_secret"])


def created_api_key(url: str, name: str = "admin", **scope: str) -> str:
    """An API key of the administrator of a server process, or of a new principal that it creates."""
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": ADMIN_SECRET}
    with httpx.Client(base_url=url, headers=scope, timeout=60) as client:
        client.headers["Authorization"] = f"Bearer {client.post(TOKENS, data=form).json()['access_token']}"
        if name != "admin":
            client.post(PRINCIPALS, json={"name": name}).raise_for_status()
        return str(client.post(f"{PRINCIPALS}/{name}/api-keys").raise_for_status().json()["api_key"])
