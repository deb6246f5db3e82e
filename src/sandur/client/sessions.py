"""Requests to a server as the person or program of a profile, whose token is renewed in time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import httpx
import msgspec

from sandur import __version__
from sandur.client.openid import Issuer, Tokens, discover
from sandur.client.profiles import Credentials, Profile, Profiles, check_name, require_profile, user_profiles
from sandur.clock import Clock, SystemClock
from sandur.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    SandurError,
    Unauthenticated,
    Unavailable,
    Unsupported,
)

TOKENS: Final = "/v1/oauth/tokens"
API: Final = "/api/sandur/v1"

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_EARLY_MS: Final = 300_000
"""How long before its end a token is renewed."""
_SECONDS_MAX: Final = 60.0
_BUSY: Final = frozenset({429, 502, 503, 504})
_FAILED: Final = 500
_CONFLICTS: Final = ("ALREADY_EXISTS", "FAILED_PRECONDITION")
"""Endings of codes in Unity Catalog's API, which answers 400: a name is taken, or a container is not empty."""
_ERRORS: Final[Mapping[int, type[SandurError]]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    405: Unsupported,
    409: Conflict,
    501: Unsupported,
}


class Target(NamedTuple):
    """The server of a command, and the profile that it belongs to. `token` is one that the environment gives."""

    name: str
    profile: Profile
    token: str = ""

    @property
    def server(self) -> str:
        return self.profile.server

    @property
    def headers(self) -> dict[str, str]:
        """The headers that choose tenant and workspace."""
        chosen = {"X-Sandur-Tenant": self.profile.tenant, "X-Sandur-Workspace": self.profile.workspace}
        return {name: value for name, value in chosen.items() if value}


class LoginDescription(msgspec.Struct, frozen=True):
    """How to log in to a server."""

    authentication: str
    issuers: tuple[Issuer, ...] = ()


class _Granted(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: int = 0


class _ProblemBody(msgspec.Struct, frozen=True):
    message: str = ""
    type: str = ""


class _Problem(msgspec.Struct, frozen=True):
    """An error of one of the server's APIs, or of its token endpoint. Unity Catalog's has a code and a message."""

    error: _ProblemBody | str = ""
    error_description: str = ""
    error_code: str = ""
    message: str = ""


def find_target(
    profiles: Profiles, *, profile: str | None, server: str | None, environment: Mapping[str, str]
) -> Target:
    """The server that a command names: by a flag, by the environment (`SANDUR_PROFILE`, `SANDUR_SERVER`), or as the
    current profile. Raises BadRequest if none of them does, and NotFound for a profile that does not exist.
    """
    config = profiles.read()
    named = profile or environment.get("SANDUR_PROFILE") or ""
    address = server or environment.get("SANDUR_SERVER") or ""
    name = named or config.current
    check_name(name)
    if named and not address:
        require_profile(config, name)
    known = config.profiles.get(name)
    if address and (known is None or known.server != checked_server(address)):
        # Another server than that of the profile gets nothing of the profile.
        known = Profile(server=checked_server(address))
    if known is None:
        raise BadRequest("no server is known: log in with sandur login --server URL, or pass --server URL")
    return Target(name, known, environment.get("SANDUR_TOKEN", ""))


def checked_server(url: str) -> str:
    """The address of a server without a slash at its end; raises BadRequest if it is not one."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadRequest(f"server {url!r}: not an address: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.host or parts.userinfo or parts.query or parts.fragment:
        raise BadRequest(f"server {url!r}: expected an address such as https://catalog.example.org")
    return url.rstrip("/")


class Session:
    """A connection to the server of a target. `label` is what messages call it: its address, or the store."""

    def __init__(
        self, http: httpx.AsyncClient, target: Target, profiles: Profiles, clock: Clock, *, label: str = ""
    ) -> None:
        self.http = http
        self.target = target
        self.label = label or target.server
        self._profiles = profiles
        self._clock = clock

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        key: str = "",
    ) -> bytes:
        """The answer to a request as the target's person or program; raises the error that the answer means.

        `key` is the idempotency key of a change: the same request may be sent again with it.
        """
        token = await self.token()
        headers = {**self.target.headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        if key:
            headers["Idempotency-Key"] = key
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body)
        try:
            answer = await self.http.request(
                method, self.target.server + path, params=query, content=content, headers=headers
            )
        except httpx.HTTPError as error:
            raise _failed(self.label, method, error) from error
        if not answer.is_success:
            raise self._error(answer, has_token=bool(token), method=method)
        return answer.content

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of an answer as they arrive; raises the error that it means, and Unavailable if it breaks."""
        token = await self.token()
        sent = {**self.target.headers, **headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            async with self.http.stream(
                "GET", self.target.server + path, params=query, headers=sent, timeout=_SECONDS_MAX
            ) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise self._error(answer, has_token=bool(token))
                yield answer.aiter_lines()
        except httpx.HTTPError as error:
            raise _failed(self.target.server, "GET", error) from error

    async def token(self) -> str:
        """The token for the server, renewed if it ends soon; empty without a login.

        Raises Unauthenticated if it has expired and cannot be renewed.
        """
        if self.target.token:
            return self.target.token
        held = self._held()
        if held is None or not self._ends_soon(held):
            return held.access_token if held else ""
        with self._profiles.locked():
            held = self._held()  # Another command may have renewed it.
            if held is None or not self._ends_soon(held):
                return held.access_token if held else ""
            renewed = await self._renewed(held)
            self._profiles.store_credentials(self.target.name, renewed)
        return renewed.access_token

    def _held(self) -> Credentials | None:
        held = self._profiles.credentials(self.target.name)
        return held if held and held.server == self.target.server else None

    def _ends_soon(self, held: Credentials) -> bool:
        return bool(held.expires_ms) and held.expires_ms - _EARLY_MS <= self._clock.now_ms()

    async def _renewed(self, held: Credentials) -> Credentials:
        """New credentials; the same ones if they are still valid and nothing renews them."""
        has_expired = held.expires_ms <= self._clock.now_ms()
        try:
            if held.refresh_token:
                issuer = Issuer(held.issuer, held.audience)
                tokens = await (await discover(self.http, issuer, held.client_id)).refresh(held.refresh_token)
                return await self.exchange_tokens(tokens, issuer, held.client_id)
            if not held.issuer and not has_expired:
                return await self._grant(held, grant_type=_EXCHANGE, subject_token=held.access_token)
        except (Unauthenticated, Unavailable) as error:
            if has_expired:
                raise type(error)(f"the login has expired and cannot be renewed: {error}{self._hint()}") from error
        if has_expired:
            raise Unauthenticated(f"the login at {self.target.server} has expired{self._hint()}")
        return held

    async def describe_login(self) -> LoginDescription:
        """How to log in; asks without a token."""
        url = f"{self.target.server}{API}/login"
        try:
            answer = await self.http.get(url)
        except httpx.HTTPError as error:
            raise _failed(self.target.server, "GET", error) from error
        if not answer.is_success:
            raise self._error(answer, has_token=False)
        try:
            return msgspec.json.decode(answer.content, type=LoginDescription)
        except msgspec.DecodeError as error:
            raise BadRequest(f"{url}: not a Sandur server: {error}") from error

    async def login_with_secret(self, client_id: str, secret: str) -> Credentials:
        """The credentials of a program. The secret is not kept."""
        plain = Credentials(server=self.target.server, access_token="", client_id=client_id)
        return await self._grant(plain, grant_type="client_credentials", client_id=client_id, client_secret=secret)

    async def exchange_tokens(self, tokens: Tokens, issuer: Issuer, client_id: str) -> Credentials:
        """The credentials of a person: a token of the server for that of the provider."""
        plain = Credentials(
            server=self.target.server,
            access_token="",
            issuer=issuer.issuer,
            client_id=client_id,
            audience=issuer.audience,
            refresh_token=tokens.refresh_token,
        )
        return await self._grant(plain, grant_type=_EXCHANGE, subject_token=tokens.for_audience(issuer))

    async def _grant(self, plain: Credentials, **form: str) -> Credentials:
        server = self.target.server
        now_ms = self._clock.now_ms()
        try:
            answer = await self.http.post(f"{server}{TOKENS}", data=form, headers=self.target.headers)
        except httpx.HTTPError as error:
            raise _failed(server, "GET", error) from error  # A login changes nothing.
        if not answer.is_success:
            problem = self._error(answer, has_token=True)
            if isinstance(problem, Unauthenticated | BadRequest):
                raise Unauthenticated(f"{server} refused the login: {_message(answer)}")
            raise problem
        granted = msgspec.json.decode(answer.content, type=_Granted)
        ends_ms = now_ms + granted.expires_in * 1_000 if granted.expires_in else 0
        return msgspec.structs.replace(plain, access_token=granted.access_token, expires_ms=ends_ms)

    def _error(self, answer: httpx.Response, *, has_token: bool, method: str = "GET") -> SandurError:
        message, status = _message(answer), answer.status_code
        if status == httpx.codes.UNAUTHORIZED:
            reason = message if has_token else f"{self.label} needs a login"
            return Unauthenticated(f"{reason}{self._hint()}")
        if status == httpx.codes.NOT_FOUND:
            return NotFound(message, subject="object")
        if status in _BUSY:
            return Unavailable(f"{self.label} is not available: {message}")
        if status >= _FAILED and status not in _ERRORS:
            if method == "GET":
                return Unavailable(f"{self.label} failed: {message}")
            return OutcomeUnknown(f"{self.label} failed: {message}; look whether the change was made")
        is_conflict = _problem(answer).error_code.endswith(_CONFLICTS)
        return Conflict(message) if is_conflict else _ERRORS.get(status, BadRequest)(message)

    def _hint(self) -> str:
        if self.target.token:
            return "; the token is that of SANDUR_TOKEN"
        return f"; log in with: sandur login --profile {self.target.name} --server {self.target.server}"


@contextlib.asynccontextmanager
async def connected(target: Target, profiles: Profiles, clock: Clock) -> AsyncIterator[Session]:
    """A session that is closed at the end. Redirects are not followed: a token is for one server."""
    headers = {"User-Agent": f"sandur/{__version__}"}
    async with httpx.AsyncClient(timeout=_SECONDS_MAX, headers=headers, follow_redirects=False) as http:
        yield Session(http, target, profiles, clock)


class Login(NamedTuple):
    """The server of a profile and a token for it, for another program; empty if the server needs none."""

    server: str
    token: str

    def __repr__(self) -> str:
        return f"Login(server={self.server!r})"


def load_login(profile: str | None, environment: Mapping[str, str], *, server: str | None = None) -> Login:
    """The login of a profile, renewed if it ends soon. It may be called where an event loop runs, as in a notebook."""
    profiles = user_profiles(environment)
    target = find_target(profiles, profile=profile, server=server, environment=environment)

    async def load() -> Login:
        async with connected(target, profiles, SystemClock()) as session:
            return Login(target.server, await session.token())

    with ThreadPoolExecutor(max_workers=1) as threads:
        return threads.submit(lambda: asyncio.run(load())).result()


def _failed(server: str, method: str, error: httpx.HTTPError) -> SandurError:
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) or method == "GET":
        return Unavailable(f"server {server}: no answer: {reason}; check the address and that the server runs")
    return OutcomeUnknown(f"server {server}: no answer to the change: {reason}; look whether it was made")


def _problem(answer: httpx.Response) -> "_Problem":
    try:
        return msgspec.json.decode(answer.content, type=_Problem)
    except msgspec.DecodeError:
        return _Problem()


def _message(answer: httpx.Response) -> str:
    """What the server says about an error; the status if it says nothing."""
    problem = _problem(answer)
    if isinstance(problem.error, _ProblemBody):
        return problem.error.message or answer.reason_phrase
    text = problem.message or problem.error_description or problem.error
    return text or f"status {answer.status_code} {answer.reason_phrase}"
