"""The control API: users after SCIM, and tokens after OAuth 2."""

import base64
import binascii
import datetime as dt
from collections.abc import Sequence
from typing import Final

import msgspec

from sandur.catalog.users import Email, User, UserResource, filter_users, resource_of, user_id
from sandur.errors import BadRequest, NotFound
from sandur.operations.unity import access as operations
from sandur.server.http import (
    CACHE_CONTROL,
    JSON,
    WWW_AUTHENTICATE,
    Answer,
    Refused,
    decoded_query,
    header_name,
    json_answer,
)
from sandur.server.identity import ANONYMOUS, is_valid_token
from sandur.server.unity_rest.call import Call, shown, whole

_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name, not a secret
_CLIENT_CREDENTIALS: Final = "client_credentials"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name, not a secret
_TOKEN_TYPES: Final = (
    _ACCESS_TOKEN,
    "urn:ietf:params:oauth:token-type:id_token",
    "urn:ietf:params:oauth:token-type:jwt",
)
_LIFETIME_SECONDS: Final = 3600
_COOKIE: Final = "UC_TOKEN"
_SET_COOKIE: Final = header_name("Set-Cookie")
_BASIC: Final = "basic "
_PAGE_MAX: Final = 1_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class UserList(msgspec.Struct, frozen=True, rename={"resources": "Resources"}):
    totalResults: int  # noqa: N815 - spelled so on the wire
    itemsPerPage: int  # noqa: N815 - likewise
    startIndex: int  # noqa: N815 - likewise
    resources: list[UserResource]


class TokenInfo(msgspec.Struct, frozen=True):
    access_token: str
    issued_token_type: str
    token_type: str
    expires_in: int


async def create_user(call: Call) -> Answer:
    body = call.body(UserResource, "user")
    return shown(_resource(await operations.create_user(call.lake, body, call.request())))


async def list_users(call: Call) -> Answer:
    start, count = _number(call, "startIndex", 1), _number(call, "count", _PAGE_MAX)
    users = filter_users(await operations.list_users(call.lake), call.query.get("filter"))
    first = max(start, 1)
    page: Sequence[User] = users[first - 1 : first - 1 + min(max(count, 0), _PAGE_MAX)]
    return shown(UserList(len(users), len(page), first, [_resource(user) for user in page]))


async def load_user(call: Call) -> Answer:
    return shown(_resource(await operations.load_user(call.lake, call.value("id"))))


async def update_user(call: Call) -> Answer:
    body = call.body(UserResource, "user")
    changed = await operations.update_user(call.lake, call.value("id"), body, call.request())
    return shown(_resource(changed))


async def delete_user(call: Call) -> Answer:
    await operations.drop_user(call.lake, call.value("id"), call.request())
    return json_answer(b"{}")


async def load_self(call: Call) -> Answer:
    """Whoever asks; somebody whom no user record describes is told what the token says."""
    principal = call.identity.principal
    try:
        return shown(_resource(await operations.load_user(call.lake, user_id(principal))))
    except NotFound:
        known = UserResource(
            id=user_id(principal), display_name=principal, emails=(Email(principal, primary=True),), active=True
        )
        return shown(known)


async def token(call: Call) -> Answer:
    """A token for whoever shows one that is good here: what was shown is given back, never a wider one.

    Beside the exchange of tokens, client credentials are taken, in the form or as HTTP Basic, as Spark sends them.
    """
    form = decoded_query(call.http.body)
    match form.get("grant_type"):
        case "urn:ietf:params:oauth:grant-type:token-exchange":
            secret = _exchanged(form.get("subject_token"), form.get("subject_token_type"))
        case "client_credentials":
            secret = form.get("client_secret") or _basic_secret(call)
        case other:
            raise BadRequest(
                f"Unsupported grant_type {(other or '')[:80]!r}: expected {_TOKEN_EXCHANGE} or {_CLIENT_CREDENTIALS}"
            )
    if not is_valid_token(secret, call.settings):
        raise Refused(401, "The token or secret is not good here", (WWW_AUTHENTICATE, b"Bearer"))
    granted = TokenInfo(secret or ANONYMOUS, _ACCESS_TOKEN, "Bearer", _LIFETIME_SECONDS)
    headers = [JSON, (CACHE_CONTROL, b"no-store")]
    if _extension(call):
        headers.append((_SET_COOKIE, _cookie(granted.access_token, _LIFETIME_SECONDS)))
    return Answer(200, msgspec.json.encode(granted), tuple(headers))


async def logout(call: Call) -> Answer:
    """The cookie is taken away; tokens are kept by nobody here, and end by themselves."""
    del call
    return Answer(200, b"{}", (JSON, (_SET_COOKIE, _cookie("", 0))))


def _exchanged(subject_token: str | None, subject_type: str | None) -> str:
    if not subject_token:
        raise BadRequest("subject_token is missing")
    if subject_type not in _TOKEN_TYPES:
        raise BadRequest(f"Unsupported subject_token_type {(subject_type or '')[:80]!r}")
    return subject_token


def _basic_secret(call: Call) -> str:
    value = call.http.header(b"authorization") or ""
    if value[: len(_BASIC)].lower() != _BASIC:
        return ""
    try:
        decoded = base64.b64decode(value[len(_BASIC) :].strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise BadRequest("Invalid Authorization header: it is not HTTP Basic") from None
    return decoded.partition(":")[2]


def _extension(call: Call) -> bool:
    extension = call.query.get("ext")
    if extension not in {None, "", "cookie"}:
        raise BadRequest(f"Unsupported ext {extension[:40]!r}: expected cookie" if extension else "")
    return extension == "cookie"


def _cookie(value: str, seconds: int) -> bytes:
    if not (value.isascii() and value.isprintable()) or any(mark in value for mark in ';," '):
        raise BadRequest("The token cannot be kept in a cookie")
    return f"{_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict".encode("ascii")


def _resource(user: User) -> UserResource:
    return resource_of(user, _time(user.created_ms), _time(user.changed_ms))


def _time(milliseconds: int) -> str:
    return (_EPOCH + dt.timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


def _number(call: Call, parameter: str, default: int) -> int:
    text = call.query.get(parameter)
    return default if not text else whole(text, parameter)
