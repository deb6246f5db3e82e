"""The keys that sign tokens: one cell for the whole store, made at first need and rotated with an overlap."""

import os
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sandur.catalog.security.tokens import ANNOUNCED_MS, KeyRing, RingKeys, SigningKey, needs_rotation, rotated
from sandur.clock import Clock
from sandur.errors import Unavailable
from sandur.operations.incidents import LOGGED, Incidents
from sandur.storage.cell import Cell
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import signing_keys

REFRESH_SECONDS: Final = 60.0
"""How often every server reads the keys again. A new key signs only after ten times as long."""

_API_KEY_SECRET_BYTES: Final = 32


class SigningKeys:
    """The keys of one store, as this process read them last. Verifying a token reads nothing."""

    def __init__(self, store: ObjectStore, clock: Clock, incidents: Incidents = LOGGED) -> None:
        self._clock = clock
        self._cell = Cell(store, signing_keys(), KeyRing, clock)
        self._read: RingKeys | None = None
        self._incidents = incidents

    @property
    def current(self) -> RingKeys:
        if self._read is None:
            raise Unavailable("the keys that sign tokens have not been read yet")
        return self._read

    async def refresh(self) -> RingKeys:
        """Read the keys; make them if the store has none, and rotate them if that is due."""
        found = await self._cell.update(self._next_ring, is_idempotent=True, subject="the keys that sign tokens")
        if found is None:
            raise Unavailable("the keys that sign tokens do not exist")
        if self._read is None or self._read.ring != found.value:
            self._read = RingKeys(found.value)
        return self._read

    async def refresh_periodically(self) -> None:
        """Read the keys again and again; a store that does not answer leaves those that were read last."""
        while True:
            await self._clock.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - the loop must go on: without new keys every token ends
                self._incidents.work_failed("refresh the signing keys", error)

    def _next_ring(self, found: KeyRing | None) -> KeyRing | None:
        """The first ring, or the rotated one; None if the ring stays as it is."""
        now_ms = self._clock.now_ms()
        if found is None:
            secret = os.urandom(_API_KEY_SECRET_BYTES).hex()
            return KeyRing(id=self._clock.new_uuid(), keys=(self._new_key(now_ms),), api_key_secret=secret)
        return rotated(found, self._new_key(now_ms + ANNOUNCED_MS), now_ms) if needs_rotation(found, now_ms) else None

    def _new_key(self, signs_from_ms: int) -> SigningKey:
        private = generate_private_key(SECP256R1())
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return SigningKey(id=self._clock.new_uuid(), private_pem=pem.decode(), signs_from_ms=signs_from_ms)
