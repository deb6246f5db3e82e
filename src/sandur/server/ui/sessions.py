"""Sessions of browsers: a sealed cookie that holds a token of this server, and counts for pages only.

The cookie is sealed by a key of the store, so that every server opens it and no one else can make one. A session begins
with a new secret for its forms, and its token is renewed before it expires.
"""

import asyncio
import base64
import hmac
import os
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final, Literal, TypeVar
from weakref import WeakKeyDictionary

import httpx
import msgspec
from cryptography.fernet import Fernet, InvalidToken

from sandur.client import openid
from sandur.errors import BadRequest, SandurError, Unauthenticated
from sandur.operations.caches import LruCache
from sandur.server.addresses import is_loopback
from sandur.server.app import SignedIn
from sandur.server.authentication.authenticator import Authenticator, OwnToken
from sandur.server.cross_site import host_of
from sandur.server.http import Headers, HttpRequest, Refused, header_name
from sandur.settings import OidcSettings
from sandur.trace_context import WITH_TRACE

SESSION_MS_MAX: Final = 12 * 3_600_000
"""The longest session; then its person logs in again."""
LOGIN_MS_MAX: Final = 600_000
"""The longest time between the beginning of a login and its end."""
COOKIE_BYTES_MAX: Final = 3_900
"""Browsers keep cookies of up to 4,096 bytes with name and attributes."""

_SET_COOKIE: Final = header_name("Set-Cookie")
_SECRET_BYTES: Final = 24
_RENEWED_MAX: Final = 1_000
_PROVIDER_SECONDS_MAX: Final = 10.0

Purpose = Literal["session", "login", "form"]
S = TypeVar("S", bound=msgspec.Struct)


class Session(msgspec.Struct, frozen=True, array_like=True):
    """Who is logged in. `form` is the secret of its forms; `renew_ms` is when its token gets a successor.

    With `refresh_token`, the provider `issuer` renews the token after it has expired, too.
    """

    token: str
    form: str
    began_ms: int
    renew_ms: int
    expires_ms: int
    issuer: str = ""
    refresh_token: str = ""

    def __repr__(self) -> str:
        return "Session()"


class StartedLogin(msgspec.Struct, frozen=True, array_like=True):
    """A login that has begun in this browser. `form` is the secret of its form."""

    form: str
    began_ms: int
    next: str
    issuer: str = ""
    login: openid.BrowserLogin | None = None


def new_secret() -> str:
    return os.urandom(_SECRET_BYTES).hex()


def new_session(
    token: OwnToken, now_ms: int, *, began_ms: int = 0, form: str = "", issuer: str = "", refresh_token: str = ""
) -> Session:
    """The session of a new token: one that begins now, unless `began_ms` and `form` are those of an older one."""
    life_ms = token.seconds * 1_000
    times = (began_ms or now_ms, now_ms + life_ms // 2, now_ms + life_ms)
    return Session(token.text, form or new_secret(), *times, issuer, refresh_token)


async def signed_in(authenticator: Authenticator, request: HttpRequest) -> SignedIn:
    """The request with the token of its session. Without a session, the request is as it was sent."""
    if not authenticator.is_on:
        return _with_form_cookie(request)
    if b"authorization" in request.headers:
        return SignedIn(request)
    session = session_of(authenticator, request)
    now_ms = authenticator.clock.now_ms()
    if session is None or session.began_ms + SESSION_MS_MAX <= now_ms:
        return SignedIn(msgspec.structs.replace(request, form_token=""))
    cookies: Headers = ()
    if session.renew_ms <= now_ms:
        renewed = await _renewals(authenticator).renew(session, request)
        if renewed is not session:
            session, cookies = renewed, set_session(authenticator, request, renewed)
    headers = {**request.headers, b"authorization": f"Bearer {session.token}".encode("latin-1", "replace")}
    return SignedIn(msgspec.structs.replace(request, headers=headers, form_token=session.form), cookies)


def session_of(authenticator: Authenticator, request: HttpRequest) -> Session | None:
    """The session of a browser, also if its token has expired; None without a cookie that this store sealed."""
    return _opened(authenticator, request, "session", Session)


def started_login(authenticator: Authenticator, request: HttpRequest) -> StartedLogin | None:
    found = _opened(authenticator, request, "login", StartedLogin)
    return found if found and authenticator.clock.now_ms() < found.began_ms + LOGIN_MS_MAX else None


def set_session(authenticator: Authenticator, request: HttpRequest, session: Session) -> Headers:
    """The cookie of a session. One that would be too large for browsers goes without the refresh token."""
    sealed = _sealed(authenticator, "session", session)
    if len(sealed) > COOKIE_BYTES_MAX:
        sealed = _sealed(authenticator, "session", msgspec.structs.replace(session, refresh_token=""))
    if len(sealed) > COOKIE_BYTES_MAX:
        raise BadRequest("Your token is too large for a session: it has too many groups; log in with an API key")
    return (_cookie(request, "session", sealed, SESSION_MS_MAX // 1_000),)


def set_login(authenticator: Authenticator, request: HttpRequest, started: StartedLogin) -> Headers:
    return (_cookie(request, "login", _sealed(authenticator, "login", started), LOGIN_MS_MAX // 1_000),)


def removed_cookies(request: HttpRequest) -> Headers:
    """What ends the session and the login of a browser."""
    return tuple(_cookie(request, purpose, "", 0) for purpose in ("session", "login"))


def check_form(request: HttpRequest, form: Mapping[str, str]) -> None:
    """Raise Refused unless a page of this browser's session sent the form."""
    if request.form_token is None:
        return  # A client that sends its token itself: no other site can make it do that.
    is_own = b"origin" in request.headers or request.headers.get(b"sec-fetch-site") == b"same-origin"
    sent = form.get("form_token", "")
    if not is_own or not request.form_token or not hmac.compare_digest(sent.encode(), request.form_token.encode()):
        raise Refused(403, "The form does not belong to this session of your browser; open the page again")


async def provider_of(http: httpx.AsyncClient, settings: OidcSettings) -> openid.Provider:
    issuer = openid.Issuer(settings.issuer, settings.audience, settings.ui_client_id, settings.ui_scopes)
    return await openid.discover(http, issuer, settings.ui_client_id, settings.ui_client_secret)


def provider_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=_PROVIDER_SECONDS_MAX, follow_redirects=False, event_hooks=WITH_TRACE)


class _Renewals:
    """The renewals of one process. Requests of one page renew a session once: a provider may refuse a second time."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._locks: LruCache[str, asyncio.Lock] = LruCache(_RENEWED_MAX)
        self._renewed: LruCache[str, Session] = LruCache(_RENEWED_MAX)

    async def renew(self, session: Session, request: HttpRequest) -> Session:
        """The session with a new token; the session itself if it cannot be renewed, so that it ends with its token."""
        async with self._locks.setdefault(session.token, asyncio.Lock()):
            if known := self._renewed.get(session.token):
                return known
            try:
                renewed = await self._renew(session, request)
            except (SandurError, Refused):
                return session
            self._renewed[session.token] = renewed
            return renewed

    async def _renew(self, session: Session, request: HttpRequest) -> Session:
        now_ms = self._authenticator.clock.now_ms()
        if not session.refresh_token:
            own = await self._authenticator.reissue(session.token, request)
            return new_session(own, now_ms, began_ms=session.began_ms, form=session.form)
        settings = next((one for one in self._authenticator.settings.oidc if one.issuer == session.issuer), None)
        if settings is None:
            raise Unauthenticated("the provider of the session is not configured any more")
        async with provider_client() as http:
            provider = await provider_of(http, settings)
            tokens = await provider.refresh(session.refresh_token)
        own = await self._authenticator.reissue(tokens.for_audience(provider.issuer), request)
        return new_session(
            own,
            now_ms,
            began_ms=session.began_ms,
            form=session.form,
            issuer=session.issuer,
            refresh_token=tokens.refresh_token,
        )


_known_renewals: WeakKeyDictionary[Authenticator, _Renewals] = WeakKeyDictionary()


def _renewals(authenticator: Authenticator) -> _Renewals:
    found = _known_renewals.get(authenticator)
    if found is None:
        found = _known_renewals[authenticator] = _Renewals(authenticator)
    return found


def _with_form_cookie(request: HttpRequest) -> SignedIn:
    """Without authentication there is no session: a cookie with a secret shows that a form is from this browser."""
    sent = _cookies(request).get(_name(request, "form"), "")
    if len(sent) == 2 * _SECRET_BYTES and sent.isalnum():
        return SignedIn(msgspec.structs.replace(request, form_token=sent))
    secret = new_secret()
    cookie = _cookie(request, "form", secret, SESSION_MS_MAX // 1_000)
    return SignedIn(msgspec.structs.replace(request, form_token=secret), (cookie,))


def _opened(authenticator: Authenticator, request: HttpRequest, purpose: Purpose, kind: type[S]) -> S | None:
    sealed = _cookies(request).get(_name(request, purpose), "")
    if not sealed:
        return None
    try:
        return msgspec.msgpack.decode(_seal(authenticator, purpose).decrypt(sealed.encode()), type=kind)
    except (InvalidToken, msgspec.DecodeError, UnicodeEncodeError):
        return None


def _sealed(authenticator: Authenticator, purpose: Purpose, value: msgspec.Struct) -> str:
    seconds = authenticator.clock.now_ms() // 1_000
    return _seal(authenticator, purpose).encrypt_at_time(msgspec.msgpack.encode(value), seconds).decode()


def _seal(authenticator: Authenticator, purpose: Purpose) -> Fernet:
    key = authenticator.keys.current.derived_key(f"{purpose} of the web UI")
    return Fernet(base64.urlsafe_b64encode(key))


def _cookies(request: HttpRequest) -> Mapping[str, str]:
    try:
        parsed = SimpleCookie(request.header(b"cookie") or "")
    except CookieError:
        return {}
    return {name: one.value for name, one in parsed.items()}


def _name(request: HttpRequest, purpose: Purpose) -> str:
    """Browsers accept the prefix only by https, for this host alone. On plain loopback the name has none."""
    name = "sandur" if purpose == "session" else f"sandur-{purpose}"
    return name if _is_plain(request) else f"__Host-{name}"


def is_private(request: HttpRequest) -> bool:
    """Whether browsers keep the cookie of a session: by https, or on this machine."""
    return _is_plain(request) or request.header(b"x-forwarded-proto") == "https"


def _is_plain(request: HttpRequest) -> bool:
    is_https = request.header(b"x-forwarded-proto") == "https"
    return not is_https and is_loopback(host_of(request.headers.get(b"host", b"")))


def _cookie(request: HttpRequest, purpose: Purpose, value: str, seconds: int) -> tuple[bytes, bytes]:
    secure = "" if _is_plain(request) else "; Secure"
    text = f"{_name(request, purpose)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    return _SET_COOKIE, text.encode("ascii")
