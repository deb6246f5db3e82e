"""Encryption keys of a table, as the metadata stores them."""

import msgspec


class EncryptedKey(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A key wrapped by another one; `encrypted_key_metadata` is base64 text and is not looked into."""

    key_id: str
    encrypted_key_metadata: str
    encrypted_by_id: str | None = None
    properties: dict[str, str] | None = None
