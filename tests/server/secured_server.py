"""A server that requires authentication, and what its administrator does over HTTP."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from tests.server.process import ServerProcess, server_process
from tests.server.unity.client import UNITY

ADMIN_SECRET: Final = "the secret of the first administrator"  # noqa: S105 - of servers that live for seconds
PRINCIPALS: Final = "/api/sandur/v1/principals"
_SECONDS_MAX: Final = 60


class Login(NamedTuple):
    """The name and the secret of a service principal."""

    client_id: str
    client_secret: str


class Issuer(NamedTuple):
    """An identity provider that the server trusts."""

    issuer: str
    audience: str = "sandur"
    groups_claim: str = "groups"
    tenant: str = "default"


class SecuredServer:
    """A running server, with its administrator logged in."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.url = process.url
        self._http = httpx.Client(base_url=process.url, timeout=_SECONDS_MAX)
        self.admin_token = self.token(Login("admin", ADMIN_SECRET))

    def close(self) -> None:
        self._http.close()

    @property
    def token_endpoint(self) -> str:
        return f"{self.url}/v1/oauth/tokens"

    def token(self, login: Login) -> str:
        """A token of the server itself, by client credentials."""
        form = {"grant_type": "client_credentials", "scope": "catalog", **login._asdict()}
        return str(self._http.post("/v1/oauth/tokens", data=form).raise_for_status().json()["access_token"])

    def create_principal(self, name: str, *groups: str) -> Login:
        """A service principal in these groups; a group that does not exist is created."""
        made = self.administer("POST", PRINCIPALS, {"name": name})
        self.administer("PUT", f"{PRINCIPALS}/{name}/groups", {"groups": list(groups)})
        return Login(made["client_id"], made["client_secret"])

    def delete_principal(self, name: str) -> None:
        self.administer("DELETE", f"{PRINCIPALS}/{name}")

    def grant(self, principal: str, privileges: Sequence[str], kind: str, full_name: str) -> None:
        """Let a principal or a group do this to a securable."""
        changes = [{"principal": principal, "add": list(privileges), "remove": []}]
        self.administer("PATCH", f"{UNITY}/permissions/{kind}/{full_name}", {"changes": changes})

    def revoke(self, principal: str, privileges: Sequence[str], kind: str, full_name: str) -> None:
        changes = [{"principal": principal, "add": [], "remove": list(privileges)}]
        self.administer("PATCH", f"{UNITY}/permissions/{kind}/{full_name}", {"changes": changes})

    def administer(self, method: str, path: str, body: object = None) -> Any:
        """Send a request as the administrator, and return what it answers."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.admin_token}", "Content-Type": "application/json"}
        answer = self._http.request(method, path, content=content, headers=headers)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


@contextlib.contextmanager
def secured_server(
    folder: Path, *arguments: str, issuers: Sequence[Issuer] = (), **settings: str
) -> Iterator[SecuredServer]:
    """A server with authentication that trusts the issuers, until the block ends."""
    config = folder / "sandur.toml"
    config.write_text("".join(_table(issuer) for issuer in issuers), encoding="utf-8")
    options = {"authentication": "on", "admin_secret": ADMIN_SECRET, "fsync": "never", **settings}
    with (
        server_process(folder, "--config", str(config), *arguments, **options) as process,
        contextlib.closing(SecuredServer(process)) as server,
    ):
        yield server


def _table(issuer: Issuer) -> str:
    return "[[oidc]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in issuer._asdict().items()) + "\n"
