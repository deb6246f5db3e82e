"""Bearer tokens: the shared secret itself, or a token signed with it that says who its bearer is, and where.

A signed token is a JWT (HS256) with `sub` and `exp`, and, to hold its bearer to one place, `tenant` and `workspace`.
"""

import hmac
from typing import Final, NamedTuple

import jwt

from sandur.settings import Settings

SECRET_HOLDER: Final = "token"  # noqa: S105 - the name of a principal, not a secret
ALGORITHM: Final = "HS256"
SECRET_BYTES_MIN: Final = 32
"""What the algorithm asks of its key: tokens signed with a shorter one are not believed."""


class Bearer(NamedTuple):
    """Who holds a token; None where the token leaves the choice to the headers."""

    principal: str
    tenant: str | None = None
    workspace: str | None = None


def bearer_of(token: str, settings: Settings) -> Bearer | None:
    """Who holds the token; None when it lets nobody in."""
    if hmac.compare_digest(token.encode(), settings.token.encode()):
        return Bearer(SECRET_HOLDER)
    if len(settings.token.encode()) < SECRET_BYTES_MIN:
        return None
    try:
        claims = jwt.decode(token, settings.token, algorithms=[ALGORITHM], options={"require": ["exp", "sub"]})
    except jwt.InvalidTokenError:
        return None
    places = [claims.get(name) for name in ("tenant", "workspace")]
    if not all(place is None or isinstance(place, str) for place in places):
        return None
    return Bearer(str(claims["sub"]), *places)


def signed_token(bearer: Bearer, *, secret: str, expires_at_seconds: int) -> str:
    """A token for the bearer; it is good until then."""
    claims = {
        "sub": bearer.principal,
        "exp": expires_at_seconds,
        "tenant": bearer.tenant,
        "workspace": bearer.workspace,
    }
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, secret, algorithm=ALGORITHM)
