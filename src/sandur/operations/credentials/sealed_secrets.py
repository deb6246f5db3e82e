"""Sealed secrets: what storage credentials keep in the store, encrypted with the keys of the setting `sealing_keys`."""

from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec.structs import replace

from sandur.catalog.credentials.registry import Credential, StorageRegistry
from sandur.catalog.credentials.storage_access import StorageSecrets
from sandur.errors import BadRequest, Invalid, Unfit
from sandur.operations.lake import Lake

SETTING: Final = "the setting sealing_keys (SANDUR_SEALING_KEYS)"


def new_sealing_key() -> str:
    return Fernet.generate_key().decode()


def sealing_keys(keys: Sequence[str]) -> MultiFernet | None:
    """The keys of the setting; None if it has none. Raises BadRequest for a text that is not a key."""
    try:
        fernets = [Fernet(key) for key in keys]
    except ValueError as error:
        raise BadRequest(f"{SETTING}: a key is not valid; create one with: sandur admin sealing-key") from error
    return MultiFernet(fernets) if fernets else None


class Sealing:
    """Seals and opens the secrets of one lake. The first key seals, every key opens."""

    def __init__(self, lake: Lake) -> None:
        self._clock = lake.clock
        self._keys = sealing_keys(lake.settings.sealing_keys)

    def seal(self, secrets: StorageSecrets) -> str:
        """The sealed form of secrets; raises Invalid without a key, because a secret is never stored in the clear."""
        return self.seal_bytes(msgspec.json.encode(secrets))

    def seal_bytes(self, secret: bytes) -> str:
        """As `seal`, for any secret."""
        if self._keys is None:
            raise Invalid(f"The server cannot keep a secret: {SETTING} is empty; it needs a key that seals secrets")
        return self._keys.encrypt_at_time(secret, self._clock.now_ms() // 1_000).decode()

    def open_bytes(self, sealed: str, *, subject: str) -> bytes:
        """The secret that `seal_bytes` sealed; Unfit if no key opens it. `subject` names its owner."""
        try:
            if self._keys is not None:
                return self._keys.decrypt(sealed.encode())
        except InvalidToken:
            pass
        raise Unfit(f"{subject}: no key of {SETTING} opens its secret; make a new one")

    def reseal_bytes(self, sealed: str, *, subject: str) -> str:
        """The same secret, sealed by the first key; Unfit if no key opens it."""
        self.open_bytes(sealed, subject=subject)
        return self._keys.rotate(sealed).decode() if self._keys else sealed

    def open(self, credential: Credential) -> StorageSecrets:
        """The secrets of a credential, empty if it has none; Unfit if no key opens them."""
        sealed = credential.storage.sealed if credential.storage else ""
        if not sealed:
            return StorageSecrets()
        cannot = Unfit(f"Credential {credential.name}: no key of {SETTING} opens its secrets; set them again")
        if self._keys is None:
            raise cannot
        try:
            secrets = msgspec.json.decode(self._keys.decrypt(sealed.encode()), type=StorageSecrets)
        except (InvalidToken, msgspec.DecodeError):
            raise cannot from None
        if secrets.credential_id != credential.id:
            raise cannot
        return secrets

    def resealed(self, credential: Credential) -> Credential:
        """The credential with its secrets sealed by the first key; Unfit if no key opens them."""
        self.open(credential)
        if self._keys is None or credential.storage is None or not credential.storage.sealed:
            return credential
        sealed = self._keys.rotate(credential.storage.sealed).decode()
        return replace(credential, storage=replace(credential.storage, sealed=sealed))


async def reseal(lake: Lake) -> tuple[int, Sequence[str]]:
    """Seal all secrets of a workspace with the first key. Returns how many, and the credentials that no key opens."""
    sealing = lake.feature(Sealing)
    done: set[str] = set()
    failed: set[str] = set()

    def decide(registry: StorageRegistry | None) -> StorageRegistry | None:
        done.clear()
        failed.clear()
        changed: dict[str, Credential] = {}
        for name, credential in registry.credentials.items() if registry else ():
            if credential.storage is None or not credential.storage.sealed:
                continue
            try:
                changed[name] = sealing.resealed(credential)
                done.add(name)
            except Unfit:
                failed.add(name)
        if registry is None or not changed:
            return None
        return replace(registry, credentials={**registry.credentials, **changed})

    await lake.storage_registry().update(decide, is_idempotent=True, subject="the storage credentials")
    return len(done), sorted(failed)
