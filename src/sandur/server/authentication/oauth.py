"""The token endpoint (OAuth 2): client credentials by Basic or form, and the exchange of tokens.

Clients differ: Java sends the secret in the form, DuckDB and PyIceberg as Basic. To refresh, Java exchanges its current
token, which is also its bearer; once that has expired, it sends its secret as Basic along with the expired token.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from sandur.catalog.security.manifest import Actor, Authority, Caller, Principal, folded
from sandur.catalog.security.principals import require_principal
from sandur.catalog.security.privileges import IMPERSONATE
from sandur.catalog.security.tokens import read_header, read_issuer, read_subject, verify_own
from sandur.errors import BadRequest, Unauthenticated
from sandur.operations.access import Security
from sandur.operations.audit.notes import note_failed_login
from sandur.operations.caches import LruCache
from sandur.operations.identity.credentials import API_KEY_PREFIX, SECRET_CHARS_MAX, matching_secret
from sandur.operations.lake import Lake
from sandur.server.authentication.authenticator import OwnToken
from sandur.server.context import Call
from sandur.server.http import RETRY_AFTER, WWW_AUTHENTICATE, Headers, decode_query
from sandur.server.identity import Bearer, identity_of

CLIENT_CREDENTIALS: Final = "client_credentials"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name, not a secret
ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name, not a secret
_ID_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a name, not a secret
_JWT_TYPE: Final = "urn:ietf:params:oauth:token-type:jwt"
_TOKEN_TYPES: Final = (ACCESS_TOKEN_TYPE, _ID_TOKEN_TYPE, _JWT_TYPE)

_ANONYMOUS_TOKEN: Final = OwnToken("anonymous", 3_600)
_BASIC: Final = "basic"
_UNSIGNED: Final = "none"

FAILURES_MAX: Final = 10
WINDOW_MS: Final = 60_000
_CLIENTS_MAX: Final = 10_000

Who = tuple[str, str]
"""The id of a client and the address that it connects from: a stranger cannot lock a client out from elsewhere."""


class OAuthProblem(Exception):
    """A token is refused, with the error code of OAuth 2."""

    def __init__(self, status: int, error: str, description: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(description)
        self.status = status
        self.error = error
        self.description = description
        self.headers: Headers = headers


class Grant(NamedTuple):
    """A token for a client, and the scope that it requested."""

    token: OwnToken
    scope: str


class _Client(NamedTuple):
    """The credentials that a client sent."""

    id: str
    secret: str


class FailureLimit:
    """Limits the failed logins of each client of a workspace in this process, in windows of one minute."""

    def __init__(self, lake: Lake) -> None:
        self._clock = lake.clock
        self._windows: LruCache[Who, tuple[int, int]] = LruCache(_CLIENTS_MAX)

    def check(self, who: Who) -> None:
        """Raise OAuthProblem if the client must wait before its next try."""
        ends_ms, count = self._windows.get(who, (0, 0))
        left_ms = ends_ms - self._clock.now_ms()
        if left_ms > 0 and count >= FAILURES_MAX:
            wait = (RETRY_AFTER, b"%d" % -(-left_ms // 1_000))
            raise OAuthProblem(429, "slow_down", "too many failed logins; try again later", wait)

    def note(self, who: Who) -> None:
        """Count a failure."""
        ends_ms, count = self._windows.get(who, (0, 0))
        now_ms = self._clock.now_ms()
        self._windows[who] = (ends_ms, count + 1) if ends_ms > now_ms else (now_ms + WINDOW_MS, 1)


async def grant_token(call: Call, *, requires_user: bool = False) -> Grant:
    """The token that the form of a request asks for; for every client when authentication is off.

    With `requires_user`, a provider's token is exchanged only for a registered user.
    """
    try:
        form = decode_query(call.http.body)
    except BadRequest as error:
        raise OAuthProblem(400, "invalid_request", str(error)) from None
    scope = form.get("scope") or "catalog"
    match form.get("grant_type"):
        case None | "":
            raise OAuthProblem(400, "invalid_request", "grant_type is missing")
        case "client_credentials" if not call.authenticator.is_on:
            return Grant(_ANONYMOUS_TOKEN, scope)
        case "client_credentials":
            return Grant(await _grant_client(call, form), scope)
        case grant_type if grant_type == TOKEN_EXCHANGE:
            subject = _subject_token(form)
            if not call.authenticator.is_on:
                return Grant(OwnToken(subject, _ANONYMOUS_TOKEN.seconds), scope)
            return Grant(await _exchange(call, form, subject, requires_user=requires_user), scope)
        case grant_type:
            described = f"{grant_type[:80]}: use {CLIENT_CREDENTIALS} or {TOKEN_EXCHANGE}"
            raise OAuthProblem(400, "unsupported_grant_type", described)


async def login_token(call: Call, name: str, secret: str) -> OwnToken:
    """A token for a person who logs in: by the name and the secret of a principal, an API key, or a token.

    Raises OAuthProblem, with the reason.
    """
    if name or secret.startswith(API_KEY_PREFIX):
        return await _grant_client(call, {"client_id": name, "client_secret": secret})
    try:
        return await _renewed(call, secret)
    except Unauthenticated as error:
        raise OAuthProblem(401, "invalid_grant", f"the token is not valid: {error}") from None


def _subject_token(form: Mapping[str, str]) -> str:
    subject, kind = form.get("subject_token"), form.get("subject_token_type") or ACCESS_TOKEN_TYPE
    if not subject:
        raise OAuthProblem(400, "invalid_request", "subject_token is missing")
    if kind not in _TOKEN_TYPES:
        raise OAuthProblem(400, "invalid_request", f"Unsupported subject_token_type {kind[:80]!r}")
    return subject


async def _grant_client(call: Call, form: Mapping[str, str]) -> OwnToken:
    client = _client(call, form)
    if client is None:
        raise _invalid_client("the client is unknown or its secret is wrong")
    if client.secret.startswith(API_KEY_PREFIX):
        try:
            return await _renewed(call, client.secret)
        except Unauthenticated as error:
            raise _invalid_client(str(error)) from None
    lake = call.lake_of(call.identity.tenant, call.identity.workspace)
    principal = await _authenticated(call, lake, client)
    return _issue(call, lake, _caller_of(principal))


def _client(call: Call, form: Mapping[str, str]) -> _Client | None:
    """The credentials of the form or of Basic; None without any. Both at once are not allowed (RFC 6749, 2.3)."""
    basic = _basic(call)
    if basic and form.get("client_secret"):
        raise OAuthProblem(400, "invalid_request", "the client sent its secret twice: as Basic and in the form")
    return basic or (_Client(form.get("client_id") or "", form["client_secret"]) if form.get("client_secret") else None)


def _basic(call: Call) -> _Client | None:
    scheme, _, value = (call.http.header(b"authorization") or "").strip().partition(" ")
    if scheme.lower() != _BASIC:
        return None
    try:
        name, colon, secret = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise OAuthProblem(400, "invalid_request", "the Authorization header is not HTTP Basic") from None
    # RFC 6749 has clients encode both parts as in a form. Many do not, and no id or generated secret needs it.
    return _Client(unquote_plus(name), secret) if colon else _Client("", name)


async def _authenticated(call: Call, lake: Lake, client: _Client) -> Principal:
    """The principal of a client; raises OAuthProblem if it is unknown or disabled, or its secret is wrong."""
    failures = lake.feature(FailureLimit)
    sent = (folded(client.id[:SECRET_CHARS_MAX]), call.http.peer)
    failures.check(sent)
    authority = await lake.feature(Security).read()
    principal = authority.principal_named(client.id) or authority.principal(client.id)
    who = (principal.id, call.http.peer) if principal else sent  # Its name and its id are the same client.
    failures.check(who)
    secrets = principal.secrets if principal else ()
    found = await matching_secret(client.secret, secrets, lake.clock.now_ms())
    failures.check(who)  # Others may have failed meanwhile: of guesses that are sent at once, no more get an answer.
    if principal is None or found is None or principal.disabled:
        for one in {sent, who}:
            failures.note(one)
        note_failed_login(principal.name if principal else "")
        raise _invalid_client("the client is unknown or its secret is wrong")
    return principal


async def _exchange(call: Call, form: Mapping[str, str], subject: str, *, requires_user: bool) -> OwnToken:
    """A token of this server for another token."""
    basic = _basic(call)
    try:
        if subject.count(".") and read_header(subject).alg == _UNSIGNED:
            return await _impersonated(call, form, subject, basic)
        if basic:
            return await _renewed_by_secret(call, subject, basic)
        return await _renewed(call, subject, requires_user=requires_user)
    except Unauthenticated as error:
        raise OAuthProblem(401, "invalid_grant", f"the subject token is not valid: {error}") from None


async def _renewed(call: Call, subject: str, *, requires_user: bool = False) -> OwnToken:
    """A new token for the bearer of a token or an API key that still counts, in the same workspace."""
    bearer = await call.authenticator.bearer_of(subject, call.http)
    lake, authority = await _accepting(call, bearer)
    caller, keys = bearer.caller, call.authenticator.keys.current
    if caller.key_id and caller.token_epoch is None:
        principal = require_principal(authority, caller.id)
        return _issue(call, lake, _caller_of(principal, key_id=caller.key_id), until=bearer.expires_ms // 1_000 or None)
    if read_issuer(subject) == keys.ring.issuer:
        claims = verify_own(subject, keys, lake.clock.now_ms())
        return _issue(call, lake, caller, until=claims.until, provider=claims.idp)
    if requires_user and authority.user_of(caller) is None:
        raise Unauthenticated(f"user {caller.name} is not registered")
    # The new token and its successors end with the provider's.
    return _issue(call, lake, caller, until=bearer.expires_ms // 1_000, provider=bearer.issuer)


async def _accepting(call: Call, bearer: Bearer) -> tuple[Lake, Authority]:
    """The lake of a bearer's workspace, and its authority; Unauthenticated if the bearer was revoked there."""
    identity = identity_of(call.http, call.settings, bearer)
    lake = call.lake_of(identity.tenant, identity.workspace)
    authority = await lake.feature(Security).read()
    if not authority.accepts(bearer.caller):
        raise Unauthenticated(f"the tokens of {bearer.caller.name} have been revoked")
    return lake, authority


async def _impersonated(call: Call, form: Mapping[str, str], subject: str, basic: _Client | None) -> OwnToken:
    """A token for the user that an unsigned token names, for an engine that may act for its users (IMPERSONATE).

    Only registered users can be named, never a service principal.
    """
    lake, authority, actor = await _actor(call, form, basic)
    verdict = authority.decide(_caller_of(actor), (authority.metastore,), IMPERSONATE)
    if verdict.outcome != "allowed":
        raise OAuthProblem(
            403, "unauthorized_client", f"{actor.name} may not act for users: it needs {verdict.missing}"
        )
    name = read_subject(subject)
    user = authority.principal_named(name)
    if user is None or user.kind != "user" or user.disabled:
        raise Unauthenticated(f"user {name[:255]} is not registered or is disabled")
    acting = Actor(actor.id, actor.name, actor.token_epoch)
    return _issue(call, lake, _caller_of(user)._replace(actor=acting))


async def _actor(call: Call, form: Mapping[str, str], basic: _Client | None) -> tuple[Lake, Authority, Principal]:
    """The principal that acts for another: by its secret, its actor token or its bearer token."""
    if basic:
        lake = call.lake_of(call.identity.tenant, call.identity.workspace)
        return lake, await lake.feature(Security).read(), await _authenticated(call, lake, basic)
    scheme, _, token = (call.http.header(b"authorization") or "").strip().partition(" ")
    sent = form.get("actor_token") or (token.strip() if scheme.lower() == "bearer" else "")
    if not sent:
        raise Unauthenticated("it is not signed, and no actor token says who acts for its subject")
    bearer = await call.authenticator.bearer_of(sent, call.http)
    lake, authority = await _accepting(call, bearer)
    principal = authority.principal(bearer.caller.id)
    if principal is None or bearer.caller.actor is not None:
        raise Unauthenticated("the actor is not a registered principal that acts for itself")
    return lake, authority, principal


async def _renewed_by_secret(call: Call, subject: str, client: _Client) -> OwnToken:
    """A new token for a principal that sends its secret along with an own token, which may have expired."""
    lake = call.lake_of(call.identity.tenant, call.identity.workspace)
    principal = await _authenticated(call, lake, client)
    claims = verify_own(subject, call.authenticator.keys.current, lake.clock.now_ms(), allows_expired=True)
    if claims.sub != principal.id:
        raise Unauthenticated(f"it is not a token of {principal.name}")
    return _issue(call, lake, _caller_of(principal))


def _caller_of(principal: Principal, *, key_id: str = "") -> Caller:
    return Caller(
        principal.id,
        principal.name,
        token_epoch=principal.token_epoch,
        key_id=key_id,
        is_pipeline=principal.is_pipeline,
    )


def _issue(call: Call, lake: Lake, caller: Caller, *, until: int | None = None, provider: str = "") -> OwnToken:
    layout = lake.layout
    return call.authenticator.issue(caller, layout.tenant, layout.workspace, until_seconds=until, provider=provider)


def _invalid_client(description: str) -> OAuthProblem:
    return OAuthProblem(401, "invalid_client", description, (WWW_AUTHENTICATE, b'Basic realm="sandur"'))
