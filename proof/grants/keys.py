"""Requests with an idempotency key, and their replays (A8–A10)."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from proof.answers import BUSY, FORBIDDEN, OK, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.describe import describe_value
from proof.grants.manifest import MANIFEST, RULES, Allow, Grant, Revoke, allow, revoke
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, get, put, read, read_together
from proof.store import kept


class Claim(NamedTuple):
    """The status is "open" or the answer."""

    status: str
    body: str


class Keyed(NamedTuple):
    """A change of table a under one key, which is the same for all requests."""

    principal: str
    body: str
    tag: str = "keyed"


Request: TypeAlias = Keyed | Allow | Revoke
CONTENT: Final = Cell[tuple[tuple[str, str], ...]]("content")


def claim_of(principal: str, rules: Rules) -> Cell[Claim]:
    return Cell(f"claim:{principal}:K" if "A8" in rules else "claim:K")


def change(principal: str, body: str, rules: Rules) -> Step[str]:
    """Authorize, then read the claim."""
    cell = claim_of(principal, rules)
    if "A9" not in rules:
        _, claim = yield from get(cell)
        if claim and claim.status != "open":
            return claim.status
    (_, manifest), content = yield from read_together(MANIFEST, CONTENT)
    if Grant(principal, "a") not in manifest:
        if "A10" not in rules:
            yield from put(cell, Claim(FORBIDDEN, body), ABSENT)
        return FORBIDDEN
    return (yield from apply(cell, principal, body, content))


def apply(cell: Cell[Claim], principal: str, body: str, content: tuple[int, tuple[tuple[str, str], ...]]) -> Step[str]:
    """Claim the key, swap, complete the claim."""
    version, claim = yield from get(cell)
    if claim is not None and claim.status != "open":
        return claim.status
    claimed = yield from put(cell, claim or Claim("open", body), version)
    if claimed.outcome != "ok":
        return BUSY
    if claim is not None:
        content = yield from read(CONTENT)  # C8: the content is read after the claim was taken over.
    if (principal, body) not in content[1]:
        written = yield from put(CONTENT, (*content[1], (principal, body)), content[0])
        if written.outcome != "ok":
            return BUSY
    yield from put(cell, Claim(OK, body), claimed.version)
    return OK


def actor(number: int, request: Request, after: tuple[int, ...], rules: Rules) -> Actor:
    name = f"{number}: {describe_value(request)}"
    match request:
        case Keyed(principal, body):
            return Actor(name, change, (principal, body, rules), after)
        case Allow(grant):
            return Actor(name, allow, (grant,), after)
        case Revoke(grant):
            return Actor(name, revoke, (grant,), after)


def replays(requests: Sequence[tuple[Request, tuple[int, ...]]], rules: Rules = RULES) -> System:
    actors = [actor(number, request, after, rules) for number, (request, after) in enumerate(requests)]
    plain = [request for request, _ in requests]

    def judge(moment: Moment) -> None:
        content = kept(moment.store, CONTENT)
        if len(set(content)) < len(content):
            raise Violation("applied twice")
        for request, result, mask in zip(plain, moment.results, moment.masks, strict=True):
            if not isinstance(request, Keyed) or result is None:
                continue
            if result == OK and (request.principal, request.body) not in content:
                raise Violation("answered with what another principal did under the same key")
            last = last_change(plain, mask or 0, request.principal)
            if isinstance(last, Revoke) and result not in {FORBIDDEN, *UNSURE}:
                raise Violation(f"a replay is answered {result} after the right was revoked")
            if isinstance(last, Allow) and result == FORBIDDEN:
                raise Violation("refused after the right was granted again")

    store = {MANIFEST.key: (1, (Grant("p", "a"), Grant("q", "a"))), CONTENT.key: (1, ())}
    return System(store, actors, judge, keeps_order=True)


def last_change(requests: Sequence[Request], mask: int, principal: str) -> Allow | Revoke | None:
    """The last change of the principal's right before a request began; None if another change may come between."""
    earlier = [request for index, request in enumerate(requests) if mask >> index & 1]
    later = [request for index, request in enumerate(requests) if not mask >> index & 1]
    if any(not isinstance(request, Keyed) for request in later):
        return None
    changes = [one for one in earlier if not isinstance(one, Keyed) and one.grant == Grant(principal, "a")]
    return changes[-1] if changes else None
