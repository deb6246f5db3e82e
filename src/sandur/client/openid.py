"""Logins of people at an identity provider (OpenID Connect): by browser with PKCE, or by a code on another device."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets  # noqa: TID251 - what an attacker must not guess
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from sandur.client.callback import listening
from sandur.clock import Clock
from sandur.errors import BadRequest, Unauthenticated, Unavailable
from sandur.splicing import NOT_JSON

_DISCOVERY: Final = "/.well-known/openid-configuration"
_DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_OFFLINE: Final = "offline_access"
_JWT_PARTS: Final = 3
_SLOWER_SECONDS: Final = 5  # RFC 8628, 3.5
_POLLS_MAX: Final = 1_000
_TEXT_CHARS_MAX: Final = 300
LOGIN_SECONDS_MAX: Final = 300.0

T = TypeVar("T", bound=msgspec.Struct)
Say = Callable[[str], None]
"""Prints a line for the person who logs in."""


class Issuer(msgspec.Struct, frozen=True):
    """An identity provider as a server describes it. `client_id` is that of the command line at the provider."""

    issuer: str
    audience: str
    client_id: str | None = None
    scopes: str = "openid"


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of a login. A provider that renews nothing sends no refresh token."""

    access_token: str = ""
    id_token: str = ""
    refresh_token: str = ""

    def __repr__(self) -> str:
        return "Tokens()"

    def for_audience(self, issuer: Issuer) -> str:
        """The token that names the audience; raises Unauthenticated if neither does."""
        for token in (self.access_token, self.id_token):
            if issuer.audience in _audiences(token):
                return token
        raise Unauthenticated(
            f"the tokens of {issuer.issuer} are not for {issuer.audience}: the setting cli_scopes of the server must "
            "request a scope of that audience"
        )


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes_supported: tuple[str, ...] | None = None


class _Device(msgspec.Struct, frozen=True):
    device_code: str
    user_code: str
    verification_uri: str
    expires_in: int
    verification_uri_complete: str = ""
    interval: int = 5


class _OAuthError(msgspec.Struct, frozen=True):
    error: str = ""
    error_description: str = ""


class _Pending(Exception):
    """The person has not answered yet; `slower` if the client polls too often."""

    def __init__(self, *, slower: bool) -> None:
        super().__init__()
        self.slower = slower


class BrowserLogin(msgspec.Struct, frozen=True):
    """A login that has begun: what the provider sends back, and what proves that this program began it (PKCE)."""

    state: str
    verifier: str

    @classmethod
    def new(cls) -> "BrowserLogin":
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(48))


class Provider(NamedTuple):
    """A provider and the client id of this program there, with its secret unless it is a public client."""

    http: httpx.AsyncClient
    issuer: Issuer
    client_id: str
    found: _Discovery
    client_secret: str = ""

    async def login_by_browser(self, open_page: Callable[[str], None], *, port: int) -> Tokens:
        """The tokens of the person who logs in at the page that `open_page` shows."""
        if not self.found.authorization_endpoint:
            raise BadRequest(f"issuer {self.issuer.issuer} has no login by browser; try --device")
        started = BrowserLogin.new()
        async with listening(port) as callback:
            open_page(self.login_page(started, callback.redirect_uri))
            found = await callback.parameters(seconds_max=LOGIN_SECONDS_MAX)
        return await self.redeem(started, found, callback.redirect_uri)

    def login_page(self, login: "BrowserLogin", redirect_uri: str) -> str:
        """The address at the provider where a person logs in."""
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._scopes,
            "state": login.state,
            "code_challenge": _challenge(login.verifier),
            "code_challenge_method": "S256",
        }
        return str(httpx.URL(self.found.authorization_endpoint).copy_merge_params(query))

    async def redeem(self, login: "BrowserLogin", found: Mapping[str, str], redirect_uri: str) -> Tokens:
        """The tokens for the parameters with which the provider sent the browser back."""
        self._check_callback(found, login.state)
        return await self._tokens(
            grant_type="authorization_code",
            code=found["code"],
            redirect_uri=redirect_uri,
            code_verifier=login.verifier,
        )

    def _check_callback(self, found: Mapping[str, str], state: str) -> None:
        if not hmac.compare_digest(found.get("state", "").encode(), state.encode()):
            raise Unauthenticated("the answer in the browser does not belong to this login; try again")
        if found.get("iss", self.issuer.issuer) != self.issuer.issuer:  # RFC 9207
            raise Unauthenticated(f"the answer in the browser is not from {self.issuer.issuer}")
        if "code" not in found:
            raise Unauthenticated(_refusal(self.issuer.issuer, _OAuthError(**_error_of(found))))

    async def login_by_device(self, say: Say, clock: Clock) -> Tokens:
        """The tokens of the person who enters a code in any browser."""
        if not self.found.device_authorization_endpoint:
            raise BadRequest(f"issuer {self.issuer.issuer} has no login by device code; leave out --device")
        started = await self._post(
            self.found.device_authorization_endpoint, {"client_id": self.client_id, "scope": self._scopes}
        )
        device = _decode(started, _Device, self.issuer.issuer)
        say(f"Open {device.verification_uri} and enter the code {device.user_code}")
        if device.verification_uri_complete:
            say(f"or open {device.verification_uri_complete}")
        return await self._poll(device, clock)

    async def _poll(self, device: _Device, clock: Clock) -> Tokens:
        ends_ms = clock.now_ms() + device.expires_in * 1_000
        interval = max(device.interval, 1)
        for _ in range(_POLLS_MAX):
            await clock.sleep(interval)
            try:
                return await self._tokens(grant_type=_DEVICE_CODE, device_code=device.device_code)
            except _Pending as pending:
                interval += _SLOWER_SECONDS if pending.slower else 0
            if clock.now_ms() >= ends_ms:
                break
        raise Unauthenticated("the code has expired before somebody entered it; try again")

    async def refresh(self, refresh_token: str) -> Tokens:
        """New tokens for a refresh token, which the provider may replace."""
        found = await self._tokens(grant_type="refresh_token", refresh_token=refresh_token)
        return found if found.refresh_token else msgspec.structs.replace(found, refresh_token=refresh_token)

    async def revoke(self, refresh_token: str) -> None:
        """Make the provider forget a refresh token, if it can."""
        if self.found.revocation_endpoint:
            form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": self.client_id}
            await self._post(self.found.revocation_endpoint, form)

    @property
    def _scopes(self) -> str:
        """The scopes of the server, without `offline_access` where the provider would refuse it."""
        known = self.found.scopes_supported
        wanted = self.issuer.scopes.split()
        return " ".join(one for one in wanted if one != _OFFLINE or known is None or one in known)

    async def _tokens(self, **form: str) -> Tokens:
        client = {"client_id": self.client_id}
        if self.client_secret:
            client["client_secret"] = self.client_secret
        answer = await self._post(self.found.token_endpoint, {**form, **client})
        return _decode(answer, Tokens, self.issuer.issuer)

    async def _post(self, url: str, form: Mapping[str, str]) -> bytes:
        """Raises _Pending or Unauthenticated with the provider's reason, Unavailable if it does not answer."""
        try:
            answer = await self.http.post(url, data=form, headers={"Accept": "application/json"})
        except httpx.HTTPError as error:
            raise Unavailable(f"identity provider {self.issuer.issuer}: no answer: {error}") from error
        if answer.is_success:
            return answer.content
        if answer.is_server_error:
            raise Unavailable(f"identity provider {self.issuer.issuer}: status {answer.status_code}; try again later")
        try:
            problem = msgspec.json.decode(answer.content, type=_OAuthError)
        except NOT_JSON:
            problem = _OAuthError(f"status {answer.status_code}")
        if problem.error in {"authorization_pending", "slow_down"}:
            raise _Pending(slower=problem.error == "slow_down")
        raise Unauthenticated(_refusal(self.issuer.issuer, problem))


async def discover(http: httpx.AsyncClient, issuer: Issuer, client_id: str, client_secret: str = "") -> Provider:
    """The provider with the endpoints that it publishes; BadRequest if it is another one or an endpoint is not safe."""
    url = issuer.issuer.rstrip("/") + _DISCOVERY
    _check_address(issuer.issuer)
    try:
        answer = await http.get(url)
    except httpx.HTTPError as error:
        raise Unavailable(f"identity provider {issuer.issuer}: no answer: {error}") from error
    if not answer.is_success:
        raise Unavailable(f"identity provider {issuer.issuer}: {url} answers with status {answer.status_code}")
    found = _decode(answer.content, _Discovery, issuer.issuer)
    if found.issuer != issuer.issuer:
        raise BadRequest(f"issuer {issuer.issuer}: {url} is the configuration of {found.issuer[:_TEXT_CHARS_MAX]}")
    for endpoint in (
        found.token_endpoint,
        found.authorization_endpoint,
        found.device_authorization_endpoint,
        found.revocation_endpoint,
    ):
        if endpoint:
            _check_address(endpoint)
    return Provider(http, issuer, client_id, found, client_secret)


def is_private(url: str) -> bool:
    """Whether secrets may be sent to the address: by https, or to this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    try:
        is_local = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        is_local = False
    return parts.scheme == "http" and is_local


def _check_address(url: str) -> None:
    if not is_private(url):
        raise BadRequest(f"identity provider at {url[:_TEXT_CHARS_MAX]}: a login needs https")


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _audiences(token: str) -> tuple[str, ...]:
    """The audiences that a token names; the server verifies it. None for a text that is not a JWT."""
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return ()
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        found = msgspec.json.decode(payload, type=dict[str, object]).get("aud")
    except (binascii.Error, *NOT_JSON):
        return ()
    listed = found if isinstance(found, list) else [found]
    return tuple(one for one in listed if isinstance(one, str))


def _error_of(found: Mapping[str, str]) -> dict[str, str]:
    return {key: found.get(key, "") for key in ("error", "error_description")}


def _refusal(issuer: str, problem: _OAuthError) -> str:
    text = f"{problem.error} {problem.error_description}".strip() or "no reason"
    return f"{issuer} refused the login: {text[:_TEXT_CHARS_MAX]}"


def _decode(data: bytes, wanted: type[T], issuer: str) -> T:
    try:
        return msgspec.json.decode(data, type=wanted)
    except NOT_JSON as error:
        raise Unavailable(f"identity provider {issuer}: an answer that is not valid: {error}") from error
