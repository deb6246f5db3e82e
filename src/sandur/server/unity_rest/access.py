"""Handlers for users (SCIM) and tokens (OAuth 2)."""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from sandur.catalog.security.manifest import Principal
from sandur.catalog.security.users import Email, PatchOperation, UserResource, filter_named, patched_user, resource_of
from sandur.errors import BadRequest
from sandur.operations.unity import access as operations
from sandur.server.authentication.oauth import ACCESS_TOKEN_TYPE, OAuthProblem, grant_token
from sandur.server.context import Call, whole_number
from sandur.server.http import NO_STORE, Answer, Refused, header_name, json_answer
from sandur.server.unity_rest.bodies import answer_with

_COOKIE: Final = "UC_TOKEN"
_SET_COOKIE: Final = header_name("Set-Cookie")
_PAGE_MAX: Final = 1_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Patch(msgspec.Struct, frozen=True):
    """The body of a SCIM patch."""

    operations: tuple[PatchOperation, ...] = msgspec.field(name="Operations")


async def create_user(call: Call) -> Answer:
    body = call.body(UserResource, "user")
    return answer_with(_resource(await operations.create_user(call.lake, body, call.request())))


async def list_users(call: Call) -> Answer:
    users = filter_named(await operations.list_users(call.lake), call.query.get("filter"))
    return answer_page(call, users, _resource)


async def load_user(call: Call) -> Answer:
    return answer_with(_resource(await operations.load_user(call.lake, call.value("id"))))


async def update_user(call: Call) -> Answer:
    body = call.body(UserResource, "user")
    changed = await operations.update_user(call.lake, call.value("id"), body, call.request())
    return answer_with(_resource(changed))


async def patch_user(call: Call) -> Answer:
    body = patched_user(call.body(Patch, "patch").operations)
    changed = await operations.update_user(call.lake, call.value("id"), body, call.request())
    return answer_with(_resource(changed))


async def delete_user(call: Call) -> Answer:
    await operations.drop_user(call.lake, call.value("id"), call.request())
    return json_answer(b"{}")


async def load_self(call: Call) -> Answer:
    """The principal who makes the request; one that is not registered is described by its token."""
    identity = call.identity
    found = await operations.find_own_user(call.lake, identity.principal)
    if found:
        return answer_with(_resource(found))
    email = Email(identity.principal, primary=True)
    me = UserResource(id=identity.caller.id, display_name=identity.principal, emails=(email,), active=True)
    return answer_with(me)


async def get_token(call: Call) -> Answer:
    """A token for client credentials or in exchange for another token; errors have the form of this API."""
    try:
        grant = await grant_token(call, requires_user=True)
    except OAuthProblem as problem:
        raise Refused(problem.status, problem.description, *problem.headers) from problem
    granted = {
        "access_token": grant.token.text,
        "issued_token_type": ACCESS_TOKEN_TYPE,
        "token_type": "Bearer",
        "expires_in": grant.token.seconds,
    }
    headers = [NO_STORE]
    if _wants_cookie(call):
        headers.append((_SET_COOKIE, _cookie(grant.token.text, grant.token.seconds)))
    return json_answer(msgspec.json.encode(granted), *headers)


async def logout(call: Call) -> Answer:
    """Removes the cookie. The server keeps no tokens; they expire."""
    del call
    return json_answer(b"{}", (_SET_COOKIE, _cookie("", 0)))


def _wants_cookie(call: Call) -> bool:
    extension = call.query.get("ext")
    if extension and extension != "cookie":
        raise BadRequest(f"Unsupported ext {extension[:40]!r}: expected cookie")
    return extension == "cookie"


def _cookie(value: str, seconds: int) -> bytes:
    if not (value.isascii() and value.isprintable()) or any(mark in value for mark in ';," '):
        raise BadRequest("The token cannot be stored in a cookie: it contains characters that cookies do not allow")
    return f"{_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict".encode("ascii")


R = TypeVar("R")


def answer_page(call: Call, found: Sequence[R], resource: Callable[[R], msgspec.Struct]) -> Answer:
    """A page of resources, as SCIM counts them: from 1."""
    start = whole_number(call.query.get("startIndex") or "1", "startIndex")
    count = whole_number(call.query.get("count") or str(_PAGE_MAX), "count")
    first = max(start, 1)
    page = found[first - 1 : first - 1 + min(max(count, 0), _PAGE_MAX)]
    counts = {"totalResults": len(found), "itemsPerPage": len(page), "startIndex": first}
    return answer_with({**counts, "Resources": [resource(one) for one in page]})


def _resource(user: Principal) -> UserResource:
    return resource_of(user, scim_time(user.created_ms), scim_time(user.changed_ms))


def scim_time(milliseconds: int) -> str:
    return (_EPOCH + dt.timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
