"""Handlers for principals, their secrets and API keys, and the caller itself."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from sandur.errors import BadRequest
from sandur.operations.identity import principals as operations
from sandur.server.context import Call
from sandur.server.http import NO_CONTENT, NO_STORE, Answer, json_answer

_CREATED: Final = 201


class NewPrincipal(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["user", "service"] = "service"
    groups: tuple[str, ...] = ()
    pipeline: bool = False


class PrincipalChange(msgspec.Struct, frozen=True):
    disabled: bool | None = None
    pipeline: bool | None = None


class GroupNames(msgspec.Struct, frozen=True):
    groups: tuple[str, ...]


class NewCredentialRequest(msgspec.Struct, frozen=True):
    expires_in: int | None = None


async def create_principal(call: Call) -> Answer:
    body = call.body(NewPrincipal, "principal")
    made = await operations.create_principal(
        call.lake, body.name, body.kind, body.groups, call.request(), is_pipeline=body.pipeline
    )
    return answer_with(made, status=_CREATED)


async def list_principals(call: Call) -> Answer:
    return answer_with({"principals": await operations.list_principals(call.lake)})


async def load_principal(call: Call) -> Answer:
    return answer_with(await operations.load_principal(call.lake, call.value("name")))


async def drop_principal(call: Call) -> Answer:
    await operations.drop_principal(call.lake, call.value("name"), call.request())
    return NO_CONTENT


async def update_principal(call: Call) -> Answer:
    body = call.body(PrincipalChange, "principal")
    name, request = call.value("name"), call.request()
    if body.disabled is None and body.pipeline is None:
        raise BadRequest("Malformed principal: expected disabled, pipeline, or both")
    return answer_with(
        await operations.update_principal(
            call.lake, name, request, is_disabled=body.disabled, is_pipeline=body.pipeline
        )
    )


async def set_groups(call: Call) -> Answer:
    """Accepts `{"groups": […]}` and a bare list."""
    groups = call.body_or_list(GroupNames, "groups")
    names = groups.groups if isinstance(groups, GroupNames) else groups
    return answer_with(await operations.set_groups(call.lake, call.value("name"), names, call.request()))


async def revoke_tokens(call: Call) -> Answer:
    return answer_with(await operations.revoke_tokens(call.lake, call.value("name"), call.request()))


async def create_secret(call: Call) -> Answer:
    lifetime = _lifetime(call)
    made = await operations.add_secret(call.lake, call.value("name"), call.request(), lifetime_seconds=lifetime)
    return _credential_answer(made, client_id=call.value("name"), client_secret=made.secret)


async def create_api_key(call: Call) -> Answer:
    if not call.authenticator.is_on:
        raise BadRequest("API keys need authentication: set authentication = 'on'")
    lifetime, keys = _lifetime(call), call.authenticator.keys.current
    made = await operations.add_api_key(call.lake, call.value("name"), call.request(), keys, lifetime_seconds=lifetime)
    return _credential_answer(made, api_key=made.secret)


async def list_api_keys(call: Call) -> Answer:
    return answer_with({"api_keys": (await operations.load_principal(call.lake, call.value("name"))).api_keys})


async def list_secrets(call: Call) -> Answer:
    return answer_with({"secrets": (await operations.load_principal(call.lake, call.value("name"))).secrets})


async def remove_secret(call: Call) -> Answer:
    await operations.remove_credential(call.lake, call.value("name"), "secret", call.value("id"), call.request())
    return NO_CONTENT


async def remove_api_key(call: Call) -> Answer:
    await operations.remove_credential(call.lake, call.value("name"), "API key", call.value("id"), call.request())
    return NO_CONTENT


async def load_self(call: Call) -> Answer:
    """Who the caller is: its principal, its groups and roles, its workspace, and when its token ends."""
    principal, groups = await operations.describe_caller(call.lake)
    identity = call.identity
    return answer_with(
        {
            "id": principal.id if principal else identity.caller.id,
            "name": identity.principal,
            "kind": principal.kind if principal else ("user" if identity.caller.is_external else "anonymous"),
            "groups": groups,
            "tenant": identity.tenant,
            "workspace": identity.workspace,
            "issuer": identity.issuer,
            "expires_at": identity.expires_ms or None,
            "authentication": call.settings.authentication,
        }
    )


async def describe_login(call: Call) -> Answer:
    """How people and programs log in: whether they must, and at which identity providers. It contains no secrets."""
    is_on = call.authenticator.is_on
    issuers = [
        {
            "issuer": one.issuer,
            "audience": one.audience,
            "client_id": one.cli_client_id or None,
            "scopes": one.cli_scopes,
        }
        for one in call.settings.oidc
    ]
    return answer_with({"authentication": call.settings.authentication, "issuers": issuers if is_on else []})


async def publish_keys(call: Call) -> Answer:
    """The public keys that verify the tokens of this server (a JSON Web Key Set)."""
    return json_answer(call.authenticator.published_keys())


def _lifetime(call: Call) -> int | None:
    return call.body(NewCredentialRequest, "lifetime").expires_in if call.http.body else None


def _credential_answer(made: operations.NewCredential, **secret: str | None) -> Answer:
    known = {name: value for name, value in secret.items() if value is not None}
    return answer_with({**msgspec.to_builtins(made.info), **known}, status=_CREATED)


def answer_with(value: msgspec.Struct | Mapping[str, object], *, status: int = 200) -> Answer:
    # An answer may contain a secret: no cache may keep it.
    return json_answer(msgspec.json.encode(value), NO_STORE, status=status)
