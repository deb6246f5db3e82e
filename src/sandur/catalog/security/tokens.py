"""Signed tokens (JWT): the keys of this store, what its tokens claim, and the checks that every token must pass.

The algorithm comes from our own list, never from the token; the headers `jku`, `x5u` and `jwk` are ignored, and a token
with `crit` is refused. All checks of time get the current time.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import AllowedPublicKeys, ECAlgorithm

from sandur.catalog.record_versions import Record
from sandur.catalog.security.manifest import Actor, Caller
from sandur.errors import Unauthenticated, Unavailable
from sandur.settings import LIFETIME_SECONDS_MAX

ALGORITHM: Final = "ES256"
AUDIENCE: Final = "sandur"
LEEWAY_SECONDS: Final = 60
TOKEN_CHARS_MAX: Final = 16_384

ROTATION_MS: Final = 30 * 24 * 3_600_000
"""The age at which the newest key gets a successor."""
ANNOUNCED_MS: Final = 600_000
"""How long a new key is published before it signs. Every server reads the keys more often than that."""
_RETIRED_MS: Final = (LIFETIME_SECONDS_MAX + LEEWAY_SECONDS) * 1_000

_TYPE: Final = "at+jwt"
_PARTS: Final = 3
_jws: Final = jwt.PyJWS()


class SigningKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key pair. It signs from `signs_from_ms` until a newer key does."""

    id: str
    private_pem: str
    signs_from_ms: int


class KeyRing(Record, frozen=True, kw_only=True):
    """The keys of a store, for the tokens of all its workspaces. `id` names the store in its tokens.

    `api_key_secret` authenticates the ids of API keys, so that an invented id costs no storage call.
    """

    id: str
    keys: tuple[SigningKey, ...]
    api_key_secret: str

    @property
    def issuer(self) -> str:
        return f"urn:sandur:{self.id}"


def needs_rotation(ring: KeyRing, now_ms: int) -> bool:
    """Whether the newest key is old enough for a successor, or a key is no longer needed."""
    return ring.keys[-1].signs_from_ms + ROTATION_MS <= now_ms or len(_live_keys(ring, now_ms)) < len(ring.keys)


def rotated(ring: KeyRing, key: SigningKey, now_ms: int) -> KeyRing:
    """The ring with the new key if the newest is due for a successor, and without the keys that nothing needs."""
    is_due = ring.keys[-1].signs_from_ms + ROTATION_MS <= now_ms
    return msgspec.structs.replace(ring, keys=(*_live_keys(ring, now_ms), *((key,) if is_due else ())))


def _live_keys(ring: KeyRing, now_ms: int) -> Sequence[SigningKey]:
    """The keys that sign now or later, or whose last tokens may still be valid."""
    replaced_ms = [key.signs_from_ms for key in ring.keys[1:]]
    ended = [at_ms + _RETIRED_MS <= now_ms for at_ms in replaced_ms]
    return [key for key, has_ended in zip(ring.keys, [*ended, False], strict=True) if not has_ended]


class RingKeys:
    """A key ring with its keys parsed."""

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring
        self._private = {key.id: _private_key(key) for key in ring.keys}
        self._public = {id_: key.public_key() for id_, key in self._private.items()}

    def public_key(self, key_id: str) -> EllipticCurvePublicKey | None:
        return self._public.get(key_id)

    def sign(self, claims: "OwnClaims", now_ms: int) -> str:
        """The token with these claims, signed by the newest key that may sign."""
        ready = [key for key in self.ring.keys if key.signs_from_ms <= now_ms] or self.ring.keys[:1]
        headers = {"kid": ready[-1].id, "typ": _TYPE}
        payload = msgspec.json.encode(claims)
        return _jws.encode(payload, self._private[ready[-1].id], algorithm=ALGORITHM, headers=headers)

    def published(self) -> dict[str, list[dict[str, str]]]:
        """The public keys as a JSON Web Key Set."""
        keys = []
        for id_, key in self._public.items():
            fields = ECAlgorithm.to_jwk(key, as_dict=True)
            names = {name: str(fields[name]) for name in ("kty", "crv", "x", "y")}
            keys.append({**names, "kid": id_, "alg": ALGORITHM, "use": "sig"})
        return {"keys": keys}

    def derived_key(self, purpose: str) -> bytes:
        """A symmetric key for one purpose, the same on every server of this store."""
        return hmac.digest(bytes.fromhex(self.ring.api_key_secret), b"derived\x00" + purpose.encode(), hashlib.sha256)

    def api_key_mark(self, scope: str, entropy: bytes) -> bytes:
        """The part of an API key's id that only this store can compute."""
        message = scope.encode() + b"\x00" + entropy
        return hmac.digest(bytes.fromhex(self.ring.api_key_secret), message, hashlib.sha256)[:6]


def _private_key(key: SigningKey) -> EllipticCurvePrivateKey:
    loaded = load_pem_private_key(key.private_pem.encode(), password=None)
    if not isinstance(loaded, EllipticCurvePrivateKey):
        raise Unavailable(f"signing key {key.id}: is not a key for {ALGORITHM}")
    return loaded


class ActorClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts for the subject of a token."""

    sub: str
    name: str
    epoch: int


class OwnClaims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a token of this server claims. `sub` is the id of a principal, never its name (A3).

    `external` marks a principal that an identity provider authenticated: `idp` is its issuer, `auth_time` when.
    `key` is the API key that it was issued for. `pipeline` marks a principal that is trusted as a pipeline.
    A token can be exchanged for a newer one that ends at `until` at the latest. None means: until it is revoked.
    """

    iss: str
    aud: str
    sub: str
    jti: str
    iat: int
    exp: int
    tenant: str
    workspace: str
    name: str
    epoch: int | None = None
    external: bool = False
    groups: tuple[str, ...] = ()
    idp: str = ""
    auth_time: int = 0
    until: int | None = None
    key: str = ""
    act: ActorClaims | None = None
    pipeline: bool = False

    @property
    def caller(self) -> Caller:
        actor = Actor(self.act.sub, self.act.name, self.act.epoch) if self.act else None
        return Caller(
            self.sub,
            self.name,
            self.groups,
            self.epoch,
            is_external=self.external,
            key_id=self.key,
            actor=actor,
            issued_ms=self.auth_time * 1_000,
            is_pipeline=self.pipeline,
        )


class TokenHeader(msgspec.Struct, frozen=True):
    """The parts of a token's header that matter. A key that the token names or contains itself never does."""

    alg: str
    kid: str = ""
    crit: object = msgspec.UNSET


class _Parties(msgspec.Struct, frozen=True):
    iss: str = ""
    sub: str = ""


class Times(msgspec.Struct, frozen=True):
    """When a token was issued, and from when until when it is valid; in seconds since 1970."""

    exp: float
    iat: float
    nbf: float = 0


def read_header(token: str) -> TokenHeader:
    """The header, which nothing vouches for. Raises Unauthenticated if it cannot belong to a valid token."""
    header = _part(token, 0, TokenHeader)
    if header.crit is not msgspec.UNSET:
        raise Unauthenticated("the token requires an extension (crit) that this server does not know")
    return header


def read_issuer(token: str) -> str:
    """The issuer that a token claims, before anything is verified; it only selects the key that must have signed."""
    return _part(token, 1, _Parties).iss


def read_subject(token: str) -> str:
    """The subject that a token claims; without a signature, only the word of the client that sends it counts."""
    return _part(token, 1, _Parties).sub


P = TypeVar("P", bound=msgspec.Struct)


def _part(token: str, number: Literal[0, 1], kind: type[P]) -> P:
    parts = token.split(".")
    if len(parts) != _PARTS or len(token) > TOKEN_CHARS_MAX:
        raise Unauthenticated("it is not a signed token (JWT)")
    text = parts[number]
    try:
        return msgspec.json.decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_"), type=kind)
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise Unauthenticated("it is not a signed token (JWT)") from None


def verified_payload(token: str, key: AllowedPublicKeys | jwt.PyJWK, algorithm: str) -> bytes:
    """The claims of a token that this key signed. Raises Unauthenticated if it did not."""
    try:
        payload = _jws.decode(token, key, algorithms=[algorithm])
    except (jwt.InvalidTokenError, ValueError, TypeError):
        raise Unauthenticated("its signature is not valid") from None
    return payload if isinstance(payload, bytes) else msgspec.json.encode(payload)


def check_times(times: Times, *, now_ms: int, lifetime_seconds_max: int, allows_expired: bool = False) -> None:
    """Raise Unauthenticated for a token that has expired, is not valid yet, or is valid for too long."""
    now = now_ms / 1_000
    if not allows_expired and times.exp + LEEWAY_SECONDS <= now:
        raise Unauthenticated("it has expired")
    if max(times.iat, times.nbf) - LEEWAY_SECONDS > now:
        raise Unauthenticated("it is not valid yet")
    if times.exp - times.iat > lifetime_seconds_max or times.exp - now > lifetime_seconds_max + LEEWAY_SECONDS:
        raise Unauthenticated(f"it is valid for longer than {lifetime_seconds_max} seconds")


def verify_own(token: str, keys: RingKeys, now_ms: int, *, allows_expired: bool = False) -> OwnClaims:
    """The claims of a token of this store. Raises Unauthenticated for any other, and for one that has expired."""
    header = read_header(token)
    key = keys.public_key(header.kid)
    if header.alg != ALGORITHM or key is None:
        raise Unauthenticated("its key or algorithm is unknown")
    payload = verified_payload(token, key, ALGORITHM)
    try:
        claims = msgspec.json.decode(payload, type=OwnClaims)
    except msgspec.DecodeError:
        raise Unauthenticated("its claims are not those of a token of this server") from None
    if (claims.iss, claims.aud) != (keys.ring.issuer, AUDIENCE) or not claims.sub:
        raise Unauthenticated("it is not for this server")
    times = Times(claims.exp, claims.iat)
    check_times(times, now_ms=now_ms, lifetime_seconds_max=LIFETIME_SECONDS_MAX, allows_expired=allows_expired)
    return claims
