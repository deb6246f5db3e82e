"""Client secrets and API keys: made from random bytes, stored as hashes, and compared in constant time."""

import asyncio
import base64
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from sandur.catalog.security.manifest import StoredSecret
from sandur.catalog.security.tokens import RingKeys
from sandur.clock import Clock
from sandur.storage.layout import Layout

SECRET_CHARS_MAX: Final = 1_024

_SECRET_BYTES: Final = 32
_SALT_BYTES: Final = 16
_COST: Final = {"n": 1 << 14, "r": 8, "p": 1}
_MEMORY_BYTES_MAX: Final = 64 << 20
_KEY_ID_BYTES: Final = 10
_API_KEY: Final = re.compile(r"sdr_([a-z2-7]{26})_([A-Za-z0-9_-]{43})\Z")
API_KEY_PREFIX: Final = "sdr_"

_RECENT_MAX: Final = 10_000
_RECENT_MS: Final = 300_000
"""How long a secret that matched is remembered: some engines log in for each of their operations."""

_recent: Final[dict[bytes, int]] = {}
"""Until when a secret counts as compared, by a keyed hash of it and of the stored hash that it matched.

A secret that is removed, replaced or expired is no longer among the stored ones, which are read with every login."""
_recent_key: Final = os.urandom(32)

# Threads of their own: a flood of logins must not keep the threads of the store busy.
_hashing: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="scrypt")


def new_secret() -> str:
    """A secret that cannot be guessed."""
    return base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).rstrip(b"=").decode()


async def stored_secret(secret: str, clock: Clock, *, expires_ms: int = 0) -> StoredSecret:
    """The hash of a secret, as it is stored. It is slow to compute, because people choose some secrets themselves."""
    salt = os.urandom(_SALT_BYTES)
    digest = await asyncio.get_running_loop().run_in_executor(_hashing, _scrypt, secret, salt)
    hashed = f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    return StoredSecret(id=clock.new_uuid(), hash=hashed, created_ms=clock.now_ms(), expires_ms=expires_ms)


async def matching_secret(secret: str, stored: Sequence[StoredSecret], now_ms: int) -> StoredSecret | None:
    """The stored secret that is this one and has not expired; None otherwise.

    It takes as long for a client that does not exist, which has no secrets.
    """
    live = [one for one in stored if not one.expires_ms or one.expires_ms > now_ms]
    known = next((one for one in live if _recent.get(_fingerprint(secret, one), 0) > now_ms), None)
    if known:
        return known
    loop = asyncio.get_running_loop()
    matches = [await loop.run_in_executor(_hashing, _is_match, secret, one.hash) for one in live or [_NO_SECRET]]
    found = next((one for one, is_match in zip(live, matches, strict=False) if is_match), None)
    if found:
        if len(_recent) >= _RECENT_MAX:
            _recent.clear()
        _recent[_fingerprint(secret, found)] = now_ms + _RECENT_MS
    return found


def _fingerprint(secret: str, stored: StoredSecret) -> bytes:
    text = f"{stored.hash}\n{secret[:SECRET_CHARS_MAX]}"
    return hmac.digest(_recent_key, text.encode("utf-8", "surrogatepass"), "sha256")


def _scrypt(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        secret[:SECRET_CHARS_MAX].encode("utf-8", "surrogatepass"), salt=salt, maxmem=_MEMORY_BYTES_MAX, **_COST
    )


def _is_match(secret: str, hashed: str) -> bool:
    kind, salt, digest = hashed.split("$")
    found = _scrypt(secret, base64.b64decode(salt))
    return kind == "scrypt" and hmac.compare_digest(found, base64.b64decode(digest))


_NO_SECRET: Final = StoredSecret(
    id="", hash="none$" + base64.b64encode(bytes(_SALT_BYTES)).decode() + "$", created_ms=0
)


class ApiKey(NamedTuple):
    """An API key as a client sends it: `sdr_ID_SECRET`."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"{API_KEY_PREFIX}{self.id}_{self.secret}"


def new_api_key(keys: RingKeys, layout: Layout) -> ApiKey:
    entropy = os.urandom(_KEY_ID_BYTES)
    mark = keys.api_key_mark(layout.root, entropy)
    return ApiKey(base64.b32encode(entropy + mark).rstrip(b"=").decode().lower(), new_secret())


def parse_api_key(text: str, keys: RingKeys, layout: Layout) -> ApiKey | None:
    """The API key of a text; None unless this store issued its id, for that workspace."""
    found = _API_KEY.match(text)
    if found is None:
        return None
    raw = base64.b32decode(found[1].upper() + "=" * (-len(found[1]) % 8))
    entropy, mark = raw[:_KEY_ID_BYTES], raw[_KEY_ID_BYTES:]
    is_ours = hmac.compare_digest(mark, keys.api_key_mark(layout.root, entropy))
    return ApiKey(found[1], found[2]) if is_ours else None


def stored_api_key(key: ApiKey, clock: Clock, *, expires_ms: int = 0) -> StoredSecret:
    """The hash of an API key. A fast hash is enough: its secret is random, and it comes with every request."""
    return StoredSecret(id=key.id, hash=_sha256(key.secret), created_ms=clock.now_ms(), expires_ms=expires_ms)


def is_api_key(key: ApiKey, stored: StoredSecret, now_ms: int) -> bool:
    is_live = not stored.expires_ms or stored.expires_ms > now_ms
    return hmac.compare_digest(_sha256(key.secret), stored.hash) and is_live


def _sha256(secret: str) -> str:
    return "sha256$" + hashlib.sha256(secret.encode()).hexdigest()
