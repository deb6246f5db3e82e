"""What the token of an identity provider says about its bearer, by the claims that the settings name."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from sandur.catalog.security.manifest import EVERYONE, Caller, folded
from sandur.catalog.security.tokens import Times, check_times
from sandur.errors import Unauthenticated
from sandur.settings import OidcSettings, seconds_of
from sandur.splicing import NOT_JSON

_GROUPS_MAX: Final = 1_000
_NAME_CHARS_MAX: Final = 255
_RESERVED: Final = frozenset({EVERYONE, "admin", "anonymous"})
_NAME: Final = re.compile(r"[^\x00-\x20\x7f~]([^\x00-\x1f\x7f~]*[^\x00-\x20\x7f~])?\Z")
_SCOPE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_MS: Final = 1_000


class _Registered(msgspec.Struct, frozen=True):
    """The claims that every token must have."""

    iss: str
    aud: str | tuple[str, ...]
    sub: str
    exp: float
    iat: float
    nbf: float = 0
    jti: str = ""
    email_verified: bool | str = True


class ProviderClaims(NamedTuple):
    """The bearer of a provider's token: who it is, in which tenant, and until when."""

    caller: Caller
    tenant: str
    token_id: str
    expires_ms: int


def bearer_claims(payload: bytes, settings: OidcSettings, *, now_ms: int) -> ProviderClaims:
    """The bearer of a token whose signature is valid. Raises Unauthenticated if its claims are not."""
    try:
        known = msgspec.json.decode(payload, type=_Registered)
        claims = msgspec.json.decode(payload, type=dict[str, object])
    except NOT_JSON:
        raise Unauthenticated("it lacks one of the claims iss, aud, sub, exp and iat, or one is malformed") from None
    audiences = (known.aud,) if isinstance(known.aud, str) else known.aud
    if known.iss != settings.issuer or settings.audience not in audiences:
        raise Unauthenticated(f"its audience is not {settings.audience}")
    if not known.sub.strip() or len(known.sub) > _NAME_CHARS_MAX:
        raise Unauthenticated("its subject is empty or too long")
    lifetime = seconds_of(settings.token_lifetime_max)
    check_times(Times(known.exp, known.iat, known.nbf), now_ms=now_ms, lifetime_seconds_max=lifetime)
    caller = Caller(
        external_id(known.iss, known.sub),
        _name(known, claims, settings),
        _groups(claims, settings.groups_claim),
        is_external=True,
        issued_ms=int(known.iat) * _MS,
    )
    token_id = known.jti or hashlib.sha256(payload).hexdigest()[:32]
    return ProviderClaims(caller, _tenant(claims, settings), token_id, int(known.exp) * _MS)


def external_id(issuer: str, subject: str) -> str:
    """The id of a subject of a provider, stable over its names."""
    return "external:" + hashlib.sha256(f"{issuer}\x00{subject}".encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _name(known: _Registered, claims: Mapping[str, object], settings: OidcSettings) -> str:
    """The configured claim, if it is a name that a user may have; otherwise the provider and the subject."""
    chosen = _claim(claims, settings.name_claim) if settings.name_claim else None
    is_unverified = settings.name_claim == "email" and known.email_verified not in {True, "true"}
    if (
        isinstance(chosen, str)
        and len(chosen) <= _NAME_CHARS_MAX
        and _NAME.match(chosen)
        and folded(chosen) not in _RESERVED
        and not is_unverified
    ):
        return chosen
    provider = settings.name or urlsplit(settings.issuer).hostname or settings.issuer
    return f"{provider}~{known.sub}"


def _groups(claims: Mapping[str, object], name: str) -> tuple[str, ...]:
    found = _claim(claims, name) if name else None
    listed = found if isinstance(found, list) else [found]
    return tuple(one for one in listed[:_GROUPS_MAX] if isinstance(one, str) and 0 < len(one) <= _NAME_CHARS_MAX)


def _tenant(claims: Mapping[str, object], settings: OidcSettings) -> str:
    """The claimed tenant; without the claim the tenant of the issuer, never one that the request chooses."""
    found = _claim(claims, settings.tenant_claim) if settings.tenant_claim else None
    if found is None:
        return settings.tenant
    if not isinstance(found, str) or not _SCOPE_NAME.match(found):
        raise Unauthenticated(f"its claim {settings.tenant_claim} is not the name of a tenant")
    return found


def _claim(claims: Mapping[str, object], name: str) -> object:
    """A claim by its name, or by the path to a nested one, such as `realm_access.roles`; None if it is absent."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
