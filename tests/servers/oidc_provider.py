"""oidc-provider, a real OpenID Connect provider; npm installs it; without it the tests are skipped with a reason."""

import base64
import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import msgspec

from tests.servers.browser import sign_in
from tests.servers.processes import LOOPBACK, free_ports, running

AUDIENCE: Final = "sandur"
SCOPE: Final = "catalog"

_MODULES: Final = Path(__file__).parents[2] / ".tools" / "oidc-provider" / "node_modules"
_SERVER: Final = Path(__file__).parent / "oidc_provider" / "server.mjs"
# Any port of loopback fits: the provider compares the rest of the address only.
_REDIRECT_URIS: Final = (f"http://{LOOPBACK}/callback", "http://localhost/callback")
_VERIFIER: Final = "a verifier that is known only to its client".replace(" ", "-")
_SECONDS_MAX: Final = 60

Algorithm = Literal["RS256", "PS256", "ES256", "EdDSA"]
Outage = Literal["error", "garbage", "deep", "empty", "disconnect", "hang"]
"""How an endpoint fails: status 503, no JSON, no keys, a closed connection, or no answer at all."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that logs in with its secret or, if the secret is empty, a tool that people log in with.

    `claims` are added to tokens of the program, such as groups and tenant; tokens of people have the person's claims.
    `changed_claims` replace any claim in the signed token, and null removes one. An empty audience is the provider's.
    """

    secret: str = "the secret of a program"  # noqa: S105 - of the test server
    claims: Mapping[str, object] = {}
    audience: str = ""
    algorithm: Algorithm = "RS256"
    lifetime_seconds: int = 600
    clock_offset_seconds: int = 0
    changed_claims: Mapping[str, object] = {}
    redirect_uris: tuple[str, ...] = _REDIRECT_URIS


class Fetches(msgspec.Struct, frozen=True):
    """How often each endpoint was requested."""

    discovery: int
    jwks: int
    token: int


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of a person who logged in."""

    access_token: str
    id_token: str
    refresh_token: str


CLIENTS: Final[Mapping[str, Client]] = {"etl": Client(), "cli": Client(secret="")}
PEOPLE: Final[Mapping[str, Mapping[str, object]]] = {
    "ann": {"name": "Ann", "groups": ["analysts"]},
    "bob": {"name": "Bob", "groups": []},
}


class OidcProvider:
    """A running provider. Its issuer is its address."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.audience = AUDIENCE
        self._clients: Mapping[str, Client] = CLIENTS
        self._http = httpx.Client(timeout=_SECONDS_MAX)

    def close(self) -> None:
        self._http.close()

    @property
    def token_endpoint(self) -> str:
        return f"{self.issuer}/token"

    def secret(self, client: str) -> str:
        return self._clients[client].secret

    def token(self, client: str = "etl") -> str:
        """A new access token of a program, by client credentials."""
        form = {"grant_type": "client_credentials", "scope": SCOPE, "client_id": client}
        answer = self._http.post(self.token_endpoint, data=form | {"client_secret": self.secret(client)})
        return str(answer.raise_for_status().json()["access_token"])

    def login(self, person: str, *, tool: str = "cli") -> Tokens:
        """The tokens of a person who logs in to the tool, by authorization code with PKCE."""
        redirect_uri = self._clients[tool].redirect_uris[0]
        sent_to = httpx.URL(sign_in(self.authorization_address(tool=tool), person))
        form = {"client_id": tool, "redirect_uri": redirect_uri, "code_verifier": _VERIFIER}
        answer = self._http.post(
            self.token_endpoint, data=form | {"grant_type": "authorization_code", "code": sent_to.params["code"]}
        )
        return msgspec.json.decode(answer.raise_for_status().content, type=Tokens)

    def authorization_address(self, *, tool: str = "cli", redirect_uri: str = "") -> str:
        """The address where a login of a person begins; it ends at the redirect address (default: the tool's first)."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(_VERIFIER.encode()).digest()).rstrip(b"=").decode()
        query = {
            "client_id": tool,
            "response_type": "code",
            "redirect_uri": redirect_uri or self._clients[tool].redirect_uris[0],
            "scope": f"openid {SCOPE}",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return str(httpx.URL(f"{self.issuer}/auth", params=query))

    def rotate(self, *, keep_old: bool = True) -> None:
        """Sign with new keys from now on; the old ones stay published if they are kept."""
        self._administer("rotate", {"keep_old": keep_old})

    def break_keys(self, how: Outage = "error") -> None:
        """Let discovery and keys fail until `mend`; programs and people can still log in."""
        self._administer("outage", {"discovery": how, "jwks": how})

    def mend(self) -> None:
        """End the outage; requests that hang are disconnected."""
        self._administer("outage", {})

    def fetches(self) -> Fetches:
        return msgspec.convert(self._administer("counts", {}), Fetches)

    def configure(
        self,
        clients: Mapping[str, Client] = CLIENTS,
        people: Mapping[str, Mapping[str, object]] = PEOPLE,
        *,
        audience: str = AUDIENCE,
    ) -> None:
        """Replace all clients and people, and the audience."""
        self._clients, self.audience = clients, audience
        self._administer("configure", _config(clients, people, audience))

    def reset(self) -> None:
        """Restore the first clients and people, end an outage, forget old keys and counts."""
        self._clients, self.audience = CLIENTS, AUDIENCE
        self._administer("reset", _config(CLIENTS, PEOPLE, AUDIENCE))

    def _administer(self, action: str, body: Mapping[str, object]) -> Any:
        answer = self._http.post(f"{self.issuer}/admin/{action}", content=msgspec.json.encode(body))
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()


def why_oidc_provider_is_missing() -> str | None:
    """The reason why the provider cannot run here; None when it can."""
    if shutil.which("node") is None:
        return "oidc-provider needs Node.js, which is not installed"
    if not _MODULES.exists():
        return "oidc-provider is not installed: run `make .tools/oidc-provider/.ready`, which needs npm"
    return None


@contextlib.contextmanager
def oidc_provider(folder: Path) -> Iterator[OidcProvider]:
    """A fresh provider, which keeps everything in memory, and its log in the folder."""
    [port] = free_ports(1)
    provider = OidcProvider(f"http://{LOOPBACK}:{port}")
    config = {"issuer": provider.issuer, "port": port, **_config(CLIENTS, PEOPLE, AUDIENCE)}
    command: list[str | Path] = ["node", _SERVER, _MODULES, msgspec.json.encode(config).decode()]
    with contextlib.closing(provider), running(command, answers=f"{provider.issuer}/admin/counts", folder=folder):
        yield provider


def _config(
    clients: Mapping[str, Client], people: Mapping[str, Mapping[str, object]], audience: str
) -> dict[str, object]:
    return {"clients": clients, "people": people, "audience": audience}
