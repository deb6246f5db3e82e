"""Log in, by an identity provider or by a secret, and log out."""

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from sandur.client.openid import BrowserLogin
from sandur.errors import BadRequest, SandurError, Unauthenticated
from sandur.server.authentication.oauth import OAuthProblem, login_token
from sandur.server.context import Call
from sandur.server.http import NO_STORE, Answer, Refused, decode_query, header_name
from sandur.server.ui import sessions
from sandur.server.ui.links import ROOT, page_link
from sandur.server.ui.pages.objects import origin_of
from sandur.server.ui.renderer import SAFETY, View, frame_of, html_answer, redirect, render
from sandur.settings import OidcSettings

_CALLBACK: Final = f"{ROOT}/callback"
_LOCATION: Final = header_name("Location")
_TEXT_CHARS_MAX: Final = 300
_PLAIN: Final = re.compile(r"/[!-\[\]-~]{1,1500}\Z")
"""A path of this server: no scheme, no host, no space and no backslash, which browsers take for a slash."""


class ProviderChoice(NamedTuple):
    name: str
    link: str


class LoginView(View, frozen=True, kw_only=True):
    """How people log in. `next` is where they go then; `error` is why the last try failed."""

    providers: tuple[ProviderChoice, ...]
    next: str
    name: str = ""
    error: str = ""
    form_token: str = ""
    is_private: bool = True


def own_path(text: str) -> str:
    """The address of a page of this UI; that of the first page for any other text."""
    if not _PLAIN.match(text):
        return ROOT
    path = text.partition("?")[0].partition("#")[0]
    is_own = path == ROOT or path.startswith(f"{ROOT}/")
    return text if is_own and not path.startswith((f"{ROOT}/login", _CALLBACK)) else ROOT


async def show_login(call: Call) -> Answer:
    """The page of a login, or the way to a provider if the address names one."""
    if not call.authenticator.is_on:
        return redirect(ROOT)
    next_ = own_path(call.query.get("next", ROOT))
    if chosen := call.query.get("provider"):
        return await _begin_at_provider(call, chosen, next_)
    return _login_page(call, next_, error="Your session is over." if call.query.get("over") else "", status=200)


async def log_in(call: Call) -> Answer:
    """A session for a name and a secret, an API key or a token."""
    form = decode_query(call.http.body)
    started = sessions.started_login(call.authenticator, call.http) if call.authenticator.is_on else None
    next_ = own_path(form.get("next", ROOT))
    if started is None:
        return _login_page(call, next_, error="The login has expired. Try again.", status=400)
    sessions.check_form(msgspec.structs.replace(call.http, form_token=started.form), form)
    name, secret = form.get("name", "").strip(), form.get("secret", "").strip()
    if not secret:
        return _login_page(call, next_, name=name, error="The secret is missing.", status=400)
    try:
        token = await login_token(call, name, secret)
    except OAuthProblem as problem:
        reason = problem.description[:_TEXT_CHARS_MAX]
        return _login_page(call, next_, name=name, error=f"The login failed: {reason}", status=problem.status)
    return _logged_in(call, sessions.new_session(token, call.lake.clock.now_ms()), next_)


async def end_provider_login(call: Call) -> Answer:
    """The return from a provider: only the browser that began this login can end it."""
    started = sessions.started_login(call.authenticator, call.http) if call.authenticator.is_on else None
    settings = _provider(call, started.issuer) if started and started.login else None
    if started is None or started.login is None or settings is None:
        raise Refused(400, "No login has begun in this browser, or it took too long; begin again")
    try:
        async with sessions.provider_client() as http:
            provider = await sessions.provider_of(http, settings)
            tokens = await provider.redeem(started.login, call.query, f"{origin_of(call)}{_CALLBACK}")
        token = await login_token(call, "", tokens.for_audience(provider.issuer))
    except (Unauthenticated, BadRequest) as error:
        return _login_page(call, started.next, error=f"The login failed: {str(error)[:_TEXT_CHARS_MAX]}", status=401)
    except OAuthProblem as problem:
        reason = problem.description[:_TEXT_CHARS_MAX]
        return _login_page(call, started.next, error=f"The login failed: {reason}", status=problem.status)
    session = sessions.new_session(
        token, call.lake.clock.now_ms(), issuer=settings.issuer, refresh_token=tokens.refresh_token
    )
    return _logged_in(call, session, started.next)


async def log_out(call: Call) -> Answer:
    """End the session of this browser, and forget its refresh token at the provider if that is possible."""
    if not call.authenticator.is_on:
        return redirect(ROOT)
    session = sessions.session_of(call.authenticator, call.http)
    if session:
        sessions.check_form(msgspec.structs.replace(call.http, form_token=session.form), decode_query(call.http.body))
    settings = _provider(call, session.issuer) if session and session.refresh_token else None
    if session and settings:
        try:
            async with sessions.provider_client() as http:
                await (await sessions.provider_of(http, settings)).revoke(session.refresh_token)
        except SandurError:
            pass  # The session ends here in any case.
    return _with_cookies(redirect(page_link("/login")), *sessions.removed_cookies(call.http))


def _login_page(call: Call, next_: str, *, name: str = "", error: str = "", status: int) -> Answer:
    """The page with a new secret for its form."""
    if not call.authenticator.is_on:
        return redirect(ROOT)
    started = sessions.StartedLogin(sessions.new_secret(), call.lake.clock.now_ms(), next_)
    providers = tuple(
        ProviderChoice(_name_of(one), page_link("/login", provider=one.issuer, next=next_))
        for one in call.settings.oidc
        if one.ui_client_id
    )
    view = LoginView(
        title="Log in",
        section="",
        providers=providers,
        next=next_,
        name=name[:_TEXT_CHARS_MAX],
        error=error,
        form_token=started.form,
        is_private=sessions.is_private(call.http),
    )
    frame = msgspec.structs.replace(frame_of(call), principal="")
    cookies = sessions.set_login(call.authenticator, call.http, started)
    return html_answer(render("login.html", frame, view), *cookies, status=status)


async def _begin_at_provider(call: Call, issuer: str, next_: str) -> Answer:
    settings = _provider(call, issuer)
    if settings is None:
        raise BadRequest(f"The provider {issuer[:_TEXT_CHARS_MAX]!r} is not configured for logins in the browser")
    started = sessions.StartedLogin(
        sessions.new_secret(), call.lake.clock.now_ms(), next_, settings.issuer, BrowserLogin.new()
    )
    async with sessions.provider_client() as http:
        provider = await sessions.provider_of(http, settings)
    if started.login is None or not provider.found.authorization_endpoint:
        raise BadRequest(f"issuer {settings.issuer} has no login by browser")
    address = provider.login_page(started.login, f"{origin_of(call)}{_CALLBACK}")
    headers = ((_LOCATION, address.encode("ascii")), NO_STORE, *SAFETY)
    return Answer(303, b"", (*headers, *sessions.set_login(call.authenticator, call.http, started)))


def _logged_in(call: Call, session: sessions.Session, next_: str) -> Answer:
    """The session replaces every older cookie: no secret from before the login counts after it."""
    ended = sessions.removed_cookies(call.http)[1:]
    return _with_cookies(redirect(next_), *ended, *sessions.set_session(call.authenticator, call.http, session))


def _with_cookies(answer: Answer, *cookies: tuple[bytes, bytes]) -> Answer:
    return msgspec.structs.replace(answer, headers=(*answer.headers, *cookies))


def _provider(call: Call, issuer: str) -> OidcSettings | None:
    return next((one for one in call.settings.oidc if one.issuer == issuer and one.ui_client_id), None)


def _name_of(settings: OidcSettings) -> str:
    return settings.name or urlsplit(settings.issuer).hostname or settings.issuer
