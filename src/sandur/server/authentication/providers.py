"""Identity providers (OpenID Connect): their keys, fetched with bounds, and the checks of their tokens."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from sandur.catalog.security.provider_claims import bearer_claims
from sandur.catalog.security.tokens import read_header, verified_payload
from sandur.clock import Clock
from sandur.errors import BadRequest, Unauthenticated, Unavailable
from sandur.server.identity import Bearer
from sandur.settings import OidcSettings
from sandur.splicing import NOT_JSON
from sandur.trace_context import WITH_TRACE

KEYS_FRESH_MS: Final = 600_000
"""How long keys are used without a look at the provider."""
REFETCH_MS: Final = 30_000
"""The shortest time between two requests for the keys of a provider, whatever tokens arrive."""
OUTAGE_MS: Final = 4 * 3_600_000
"""How long keys are used while the provider does not answer."""

_FETCH_SECONDS_MAX: Final = 5.0
_BODY_BYTES_MAX: Final = 1 << 20
_KEYS_MAX: Final = 100
_RSA_BITS_MIN: Final = 2_048
_DISCOVERY: Final = "/.well-known/openid-configuration"
_FAMILIES: Final[Mapping[tuple[str, str], Sequence[str]]] = {
    ("RSA", ""): ("RS256", "PS256"),
    ("EC", "P-256"): ("ES256",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms that a kind of key can verify. A symmetric key verifies nothing."""


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


class _Jwk(msgspec.Struct, frozen=True):
    kty: str
    kid: str = ""
    alg: str = ""
    use: str = "sig"
    crv: str = ""


class _KeySet(msgspec.Struct, frozen=True):
    keys: tuple[msgspec.Raw, ...]


class _Keys(NamedTuple):
    """The keys of a provider by id and algorithm, and when they were fetched."""

    by_id: Mapping[tuple[str, str], jwt.PyJWK]
    fetched_ms: int

    def find(self, key_id: str, algorithm: str) -> jwt.PyJWK | None:
        """The key that must have signed; a token without a key id fits only a single key."""
        if key_id:
            return self.by_id.get((key_id, algorithm))
        fitting = [key for (_, known), key in self.by_id.items() if known == algorithm]
        return fitting[0] if len(fitting) == 1 else None


_NO_KEYS: Final = _Keys({}, 0)


class Provider:
    """One configured issuer. Raises BadRequest if its settings are not safe."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        _check_address(settings.issuer, settings.issuer)
        if not settings.audience:
            raise BadRequest(f"setting oidc: issuer {settings.issuer} needs an audience")
        self._settings = settings
        self._clock = clock
        self._keys = _NO_KEYS
        self._tried_ms = -REFETCH_MS
        self._lock = asyncio.Lock()
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()

    async def verify(self, token: str) -> Bearer:
        """The bearer of a token of this provider.

        Raises Unauthenticated if it is not valid, Unavailable if the provider's keys cannot be fetched.
        """
        header = read_header(token)
        algorithm = next((one for one in self._settings.algorithms if one == header.alg), None)
        if algorithm is None:
            raise Unauthenticated("its algorithm is not accepted")
        key = await self._key(header.kid, algorithm)
        payload = verified_payload(token, key, algorithm)
        claims = bearer_claims(payload, self._settings, now_ms=self._clock.now_ms())
        return Bearer(
            claims.caller,
            claims.tenant,
            self._settings.workspace or None,
            self._settings.issuer,
            claims.token_id,
            claims.expires_ms,
        )

    async def _key(self, key_id: str, algorithm: str) -> jwt.PyJWK:
        """The key of the id. An unknown one fetches the keys again, at most once per REFETCH_MS."""
        now_ms = self._clock.now_ms()
        key = self._keys.find(key_id, algorithm)
        if key is None or self._keys.fetched_ms + KEYS_FRESH_MS <= now_ms:
            await self._refetch(now_ms)
            key = self._keys.find(key_id, algorithm)
        if self._keys.fetched_ms + OUTAGE_MS <= self._clock.now_ms():
            raise Unavailable(f"the keys of issuer {self._settings.issuer} cannot be fetched")
        if key is None:
            raise Unauthenticated("its key is unknown to its issuer")
        return key

    async def _refetch(self, now_ms: int) -> None:
        """Fetch the keys, unless that was tried a moment ago. A failure keeps those that were fetched last."""
        async with self._lock:
            if self._tried_ms + REFETCH_MS > now_ms:
                return
            self._tried_ms = now_ms
            try:
                async with asyncio.timeout(_FETCH_SECONDS_MAX):
                    found = await self._fetch()
            except (httpx.HTTPError, TimeoutError, ValueError, BadRequest, *NOT_JSON):
                return
            if found:
                self._keys = _Keys(found, now_ms)

    async def _fetch(self) -> Mapping[tuple[str, str], jwt.PyJWK]:
        issuer = self._settings.issuer
        discovered = msgspec.json.decode(await self._get(issuer.rstrip("/") + _DISCOVERY), type=_Discovery)
        if discovered.issuer != issuer:
            raise BadRequest(f"issuer {issuer}: its configuration names another issuer")
        _check_address(discovered.jwks_uri, issuer)
        key_set = msgspec.json.decode(await self._get(discovered.jwks_uri), type=_KeySet)
        found: dict[tuple[str, str], jwt.PyJWK] = {}
        for raw in key_set.keys[:_KEYS_MAX]:
            found.update(_usable_keys(raw))
        return found

    async def _get(self, url: str) -> bytes:
        """A small document at exactly this address: redirects are not followed."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=_FETCH_SECONDS_MAX, follow_redirects=False, event_hooks=WITH_TRACE)
        async with self._client.stream("GET", url, headers={"Accept": "application/json"}) as answer:
            if answer.status_code != httpx.codes.OK:
                raise BadRequest(f"{url}: status {answer.status_code}")
            parts: list[bytes] = []
            async for part in answer.aiter_bytes():
                parts.append(part)
                if sum(map(len, parts)) > _BODY_BYTES_MAX:
                    raise BadRequest(f"{url}: larger than {_BODY_BYTES_MAX} bytes")
        return b"".join(parts)


def _usable_keys(raw: msgspec.Raw) -> Mapping[tuple[str, str], jwt.PyJWK]:
    """A key by id and algorithm; nothing for one that cannot verify signatures."""
    try:
        known = msgspec.json.decode(raw, type=_Jwk)
        data = msgspec.json.decode(raw, type=dict[str, object])
        algorithms = _FAMILIES.get((known.kty, "" if known.kty == "RSA" else known.crv), ())
        if known.use != "sig":
            return {}
        keys = {name: jwt.PyJWK(data, algorithm=name) for name in algorithms if known.alg in {"", name}}
    except (*NOT_JSON, jwt.PyJWTError, ValueError, TypeError):
        return {}
    return {(known.kid, name): key for name, key in keys.items() if _is_strong(key)}


def _is_strong(key: jwt.PyJWK) -> bool:
    return not isinstance(key.key, RSAPublicKey) or key.key.key_size >= _RSA_BITS_MIN


def _check_address(url: str, issuer: str) -> None:
    """Raise BadRequest unless the address is https, or http on loopback for an issuer on loopback."""
    if _is_https(url) or (_is_loopback_http(url) and _is_loopback_http(issuer)):
        return
    raise BadRequest(f"setting oidc: {url[:200]!r} needs https; http is allowed only for an issuer on loopback")


def _is_https(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and bool(parts.hostname) and parts.username is None


def _is_loopback_http(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.username is not None:
        return False
    try:
        return parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


class Providers:
    """All configured issuers, by the exact `iss` of their tokens."""

    def __init__(self, settings: Sequence[OidcSettings], clock: Clock) -> None:
        self._providers = {one.issuer: Provider(one, clock) for one in settings}
        if len(self._providers) < len(settings):
            raise BadRequest("setting oidc: two tables have the same issuer")

    async def verify(self, token: str, issuer: str) -> Bearer:
        """The bearer of a token. Nothing is fetched for an issuer that is not configured."""
        provider = self._providers.get(issuer)
        if provider is None:
            raise Unauthenticated("its issuer is not configured")
        return await provider.verify(token)

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()
