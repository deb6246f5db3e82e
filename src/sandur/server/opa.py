"""A veto by Open Policy Agent: it can refuse a request that the grants would allow, and never allows one by itself.

The policy gets the caller, the operation, the parameters of the path and query, and the body. It answers `true`, or an
object with `allow` and perhaps `reason`. Without a valid answer in time, no request is served.
"""

from collections.abc import Mapping
from typing import Final

import httpx
import msgspec

from sandur.catalog.security.privileges import Needs
from sandur.errors import Forbidden, Unavailable
from sandur.server.context import Call
from sandur.settings import OpaSettings, seconds_of
from sandur.splicing import NOT_JSON
from sandur.trace_context import WITH_TRACE

_BODY_BYTES_MAX: Final = 64 << 10
_ANSWER_BYTES_MAX: Final = 64 << 10
_REASON_CHARS_MAX: Final = 200
_OK: Final = 200
_WITH_SECRETS: Final = frozenset({"createCredential", "updateCredential"})


class _Decision(msgspec.Struct, frozen=True):
    allow: bool
    reason: str = ""


class _Result(msgspec.Struct, frozen=True):
    result: bool | _Decision = False


class OpaVeto:
    """Asks one policy about every request that needs a token."""

    def __init__(self, settings: OpaSettings) -> None:
        self._url = settings.url
        self._client = httpx.AsyncClient(
            timeout=seconds_of(settings.timeout), follow_redirects=False, trust_env=False, event_hooks=WITH_TRACE
        )

    async def check(self, call: Call, needs: Needs) -> None:
        """Raise Forbidden if the policy refuses the request, Unavailable if it gives no valid answer."""
        try:
            answer = await self._client.post(self._url, json={"input": _input_of(call, needs)})
            if answer.status_code != _OK or len(answer.content) > _ANSWER_BYTES_MAX:
                raise Unavailable(f"The policy service answered with status {answer.status_code}")
            result = msgspec.json.decode(answer.content, type=_Result).result
        except (httpx.HTTPError, *NOT_JSON) as error:
            raise Unavailable(f"The policy service gave no valid answer: {type(error).__name__}") from error
        decision = result if isinstance(result, _Decision) else _Decision(allow=result)
        if not decision.allow:
            reason = decision.reason[:_REASON_CHARS_MAX] or "no reason given"
            raise Forbidden(f"{call.identity.principal} may not do this: the policy refuses it: {reason}")

    async def close(self) -> None:
        await self._client.aclose()


def _input_of(call: Call, needs: Needs) -> Mapping[str, object]:
    identity = call.identity
    return {
        "tenant": identity.tenant,
        "workspace": identity.workspace,
        "principal": identity.principal,
        "groups": identity.caller.groups,
        "operation": call.operation,
        "securable_type": needs.on,
        "privileges": [*needs.rule.any_of, *needs.rule.all_of],
        "parameters": call.values,
        "query": dict(call.query),
        "body": _body_of(call),
        "request_id": call.http.request_id,
    }


def _body_of(call: Call) -> object:
    """The body as JSON; None if it is large, is not JSON, or may contain a secret."""
    if not call.http.body or len(call.http.body) > _BODY_BYTES_MAX or call.operation in _WITH_SECRETS:
        return None
    try:
        found: object = msgspec.json.decode(call.http.body)
    except NOT_JSON:
        return None
    return found
