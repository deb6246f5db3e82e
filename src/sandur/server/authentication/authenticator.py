"""Finds out who sends a request. Verifying a token reads nothing; whether it still counts, the manifest says (A1).

Tokens that were verified once are remembered by their hash, bounded in number and until they expire; the header that
the last requests sent is remembered as it is, for a second.
"""

import hashlib
import sys
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.security.manifest import Authority, Caller
from sandur.catalog.security.tokens import (
    AUDIENCE,
    ActorClaims,
    OwnClaims,
    read_issuer,
    verify_own,
)
from sandur.clock import Clock
from sandur.errors import Unauthenticated, Unavailable
from sandur.operations.access import Security
from sandur.operations.audit.notes import note_login
from sandur.operations.caches import LruCache
from sandur.operations.identity.credentials import API_KEY_PREFIX, ApiKey, is_api_key, parse_api_key
from sandur.operations.identity.signing_keys import SigningKeys
from sandur.operations.lake import Lake, Lakes
from sandur.server.authentication.providers import Providers
from sandur.server.http import WWW_AUTHENTICATE, HttpRequest, Refused
from sandur.server.identity import (
    ANONYMOUS_BEARER,
    TENANT_HEADER,
    WORKSPACE_HEADER,
    Bearer,
    Identity,
    identity_of,
)
from sandur.settings import LIFETIME_SECONDS_MAX, Settings, seconds_of
from sandur.storage.layout import Layout

_VERIFIED_MAX: Final = 10_000
_FOREIGN_REMEMBERED_MS: Final = 300_000
"""How long a provider's token is remembered: soon after the provider withdraws a key, its tokens are refused."""
_HEADER_BYTES_MAX: Final = 4_096
"""A longer header is verified by the hash of its token with every request."""
_IDENTITY_REMEMBERED_MS: Final = 1_000
"""How long the identity behind a header is remembered, at most: no token counts that much longer than it should."""
_MISSING_KEYS_MAX: Final = 10_000
_REVALIDATION_MS: Final = 1_000
"""The shortest time between two reads of the manifest for one API key that the last manifest did not have."""


class OwnToken(NamedTuple):
    """A token of this server, and how long it is valid."""

    text: str
    seconds: int


class _KnownIdentity(NamedTuple):
    """The identity of requests with the same `Authorization`, until a time.

    That of an API key counts only as long as this authority, in which it was found, is the last one that was read.
    """

    identity: Identity
    until_ms: int
    lake: Lake
    authority: Authority | None


class Authenticator:
    """Authenticates the requests of one process. `unauthenticated` is the bearer of requests that need no token."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        lakes: Lakes,
        keys: SigningKeys,
        *,
        unauthenticated: Bearer = ANONYMOUS_BEARER,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._lakes = lakes
        self.keys = keys
        self._providers = Providers(settings.oidc, clock)
        self._is_on = settings.authentication == "on"
        self._unauthenticated = unauthenticated
        self._anonymous = identity_of(HttpRequest("GET", b"", b"", {}, b"", ""), settings, unauthenticated)
        self._verified: LruCache[bytes, tuple[Bearer, int]] = LruCache(_VERIFIED_MAX)
        self._identities: dict[bytes, _KnownIdentity] = {}
        self._key_reads_ms: LruCache[tuple[Layout, str], int] = LruCache(_MISSING_KEYS_MAX)

    @property
    def is_on(self) -> bool:
        return self._is_on

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def clock(self) -> Clock:
        return self._clock

    async def identify(self, request: HttpRequest, *, needs_token: bool) -> Identity:
        """The identity of a request.

        Raises Refused when a valid token is missing or is for another workspace, BadRequest for a bad workspace.
        """
        headers = request.headers
        names_scope = TENANT_HEADER in headers or WORKSPACE_HEADER in headers
        if not self._is_on or not needs_token:
            return identity_of(request, self._settings, self._unauthenticated) if names_scope else self._anonymous
        if names_scope:
            return await self._identify(request)
        # Most clients send the same header again and again; a hash of it would cost more than all that follows.
        header = headers.get(b"authorization", b"")
        known = self._identities.get(header)
        if (
            known
            and known.until_ms > self._clock.now_ms()
            # Whether an API key counts, the manifest says that was read last. Tokens do not depend on it.
            and (known.authority is None or known.authority is known.lake.feature(Security).last)
        ):
            return known.identity
        identity = await self._identify(request)
        lake = self._lakes.lake(identity.tenant, identity.workspace)
        authority = lake.feature(Security).last if identity.caller.key_id else None
        until_ms = min(identity.expires_ms or sys.maxsize, self._clock.now_ms() + _IDENTITY_REMEMBERED_MS)
        if len(header) <= _HEADER_BYTES_MAX:
            if len(self._identities) >= _VERIFIED_MAX:
                self._identities.clear()
            self._identities[header] = _KnownIdentity(identity, until_ms, lake, authority)
        return identity

    async def _identify(self, request: HttpRequest) -> Identity:
        scheme, _, token = (request.header(b"authorization") or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            message = "Not authorized: the request has no bearer token; send the header Authorization: Bearer TOKEN"
            raise Refused(401, message, (WWW_AUTHENTICATE, b"Bearer"))
        try:
            bearer = await self.bearer_of(token.strip(), request)
        except Unauthenticated as error:
            challenge = (WWW_AUTHENTICATE, b'Bearer error="invalid_token"')
            raise Refused(401, f"Not authorized: the bearer token is not valid: {error}", challenge) from error
        return identity_of(request, self._settings, bearer)

    async def bearer_of(self, token: str, request: HttpRequest) -> Bearer:
        """The holder of a token or an API key. Raises Unauthenticated, with the reason, if it is not valid."""
        if token.startswith(API_KEY_PREFIX):
            return await self._bearer_of_api_key(token, request)
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        now_ms = self._clock.now_ms()
        found = self._verified.get(digest)
        if found is not None and found[1] > now_ms:
            return found[0]
        issuer = read_issuer(token)
        if issuer == self.keys.current.ring.issuer:
            bearer = own_bearer(verify_own(token, self.keys.current, now_ms))
            remembered_ms = bearer.expires_ms
        else:
            bearer = await self._providers.verify(token, issuer)
            remembered_ms = min(bearer.expires_ms, now_ms + _FOREIGN_REMEMBERED_MS)
        self._verified[digest] = (bearer, remembered_ms)
        return bearer

    async def check_current(self, identity: Identity) -> None:
        """Raise Refused if the caller was revoked, for a page that no operation decides about.

        While the store cannot be read, the grants that were read last decide: such a page is for that time, too.
        """
        if not self._is_on:
            return
        security = self._lakes.lake(identity.tenant, identity.workspace).feature(Security)
        try:
            authority = await security.read()
        except Unavailable:
            if security.last is None:
                raise
            authority = security.last
        if not authority.accepts(identity.caller):
            challenge = (WWW_AUTHENTICATE, b'Bearer error="invalid_token"')
            raise Refused(401, f"The token of {identity.principal} has been revoked; log in again", challenge)

    async def close(self) -> None:
        await self._providers.close()

    async def _bearer_of_api_key(self, text: str, request: HttpRequest) -> Bearer:
        """An API key belongs to the workspace that the headers name. An invented id reads nothing."""
        tenant, workspace = identity_of(request, self._settings, ANONYMOUS_BEARER)[:2]
        lake = self._lakes.lake(tenant, workspace)
        key = parse_api_key(text, self.keys.current, lake.layout)
        bearer = (self._match_api_key(key, lake) or await self._reread_api_key(key, lake)) if key else None
        if bearer is None:
            raise Unauthenticated("the API key is unknown, has expired or was revoked")
        return bearer

    def _match_api_key(self, key: ApiKey, lake: Lake) -> Bearer | None:
        """The holder of the key by the manifest that was read last; the operation reads it again (A1)."""
        authority = lake.feature(Security).last
        principal = authority.principal_with_key(key.id) if authority else None
        stored = next((one for one in principal.api_keys if one.id == key.id), None) if principal else None
        if principal is None or stored is None or not is_api_key(key, stored, self._clock.now_ms()):
            return None
        # Revoked by its removal, not by the epoch.
        caller = Caller(principal.id, principal.name, key_id=key.id, is_pipeline=principal.is_pipeline)
        return Bearer(caller, lake.layout.tenant, lake.layout.workspace, AUDIENCE, key.id, stored.expires_ms)

    async def _reread_api_key(self, key: ApiKey, lake: Lake) -> Bearer | None:
        """The same after one more read of the manifest, at most once per second and key.

        Only keys that this store has made get here: a new key is always found, and a flood of removed ones is bounded.
        """
        now_ms, known = self._clock.now_ms(), (lake.layout, key.id)
        if self._key_reads_ms.get(known, 0) + _REVALIDATION_MS > now_ms:
            return None
        self._key_reads_ms[known] = now_ms
        await lake.feature(Security).read()
        return self._match_api_key(key, lake)

    def issue(
        self, caller: Caller, tenant: str, workspace: str, *, provider: str = "", until_seconds: int | None = None
    ) -> OwnToken:
        """A token of this server for a caller. It ends at `until_seconds` at the latest."""
        note_login(caller)
        now_ms = self._clock.now_ms()
        now = now_ms // 1_000
        ends = now + min(seconds_of(self._settings.token_lifetime), LIFETIME_SECONDS_MAX)
        if until_seconds is not None:
            ends = min(ends, until_seconds)
        actor = caller.actor
        claims = OwnClaims(
            iss=self.keys.current.ring.issuer,
            aud=AUDIENCE,
            sub=caller.id,
            jti=self._clock.new_uuid(),
            iat=now,
            exp=ends,
            tenant=tenant,
            workspace=workspace,
            name=caller.name,
            epoch=caller.token_epoch,
            external=caller.is_external,
            groups=caller.groups,
            idp=provider,
            auth_time=caller.issued_ms // 1_000,
            act=ActorClaims(sub=actor.id, name=actor.name, epoch=actor.token_epoch) if actor else None,
            until=until_seconds,
            key=caller.key_id,
            pipeline=caller.is_pipeline,
        )
        return OwnToken(self.keys.current.sign(claims, now_ms), max(ends - now, 0))

    async def reissue(self, token: str, request: HttpRequest) -> OwnToken:
        """A newer token for the bearer of a token: of this server, or of a provider. It ends when that must end.

        Whether the bearer was revoked, every operation decides by what the new token copies from the old one.
        """
        bearer = await self.bearer_of(token, request)
        identity = identity_of(request, self._settings, bearer)
        if read_issuer(token) == self.keys.current.ring.issuer:
            claims = verify_own(token, self.keys.current, self._clock.now_ms())
            until, provider = claims.until, claims.idp
        else:
            until, provider = bearer.expires_ms // 1_000, bearer.issuer
        return self.issue(bearer.caller, identity.tenant, identity.workspace, provider=provider, until_seconds=until)

    def published_keys(self) -> bytes:
        """The public keys as JSON; none if authentication is off."""
        return msgspec.json.encode(self.keys.current.published() if self.is_on else {"keys": []})


def own_bearer(claims: OwnClaims) -> Bearer:
    return Bearer(
        claims.caller, claims.tenant, claims.workspace, claims.idp or claims.iss, claims.jti, claims.exp * 1_000
    )
