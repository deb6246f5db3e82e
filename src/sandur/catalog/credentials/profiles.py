"""Storage profiles: how a bucket is reached, and how clients get access to the tables in it."""

from typing import Final, Literal, NamedTuple

import msgspec

DEFAULT_REGION: Final = "us-east-1"
"""The region of S3 that requests are signed for, if a profile names none."""

Cloud = Literal["s3", "gcs", "azure"]
ClientAccess = Literal["none", "vend", "sign", "static"]
"""What clients get: nothing, temporary credentials, signed requests, or the keys of the profile."""


class StorageProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the storage below a location. `id` is that of its credential; empty for the server's own root.

    Empty keys mean those of the environment. `hierarchical` says whether an account of Azure has a hierarchical
    namespace; the account is always asked as well. A profile is never logged and never stored: it contains secrets.
    """

    cloud: Cloud
    access: ClientAccess
    id: str = ""
    path_style: bool = True
    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    role_arn: str = ""
    external_id: str = ""
    sts_endpoint: str = ""
    account_name: str = ""
    account_key: str = ""
    hierarchical: bool = True
    service_account: str = ""
    bearer_token: str = ""
    lifetime_seconds: int = 3_600

    def __repr__(self) -> str:
        return f"StorageProfile({self.cloud}, {self.access}, id={self.id!r})"


class Keys(NamedTuple):
    """Keys of AWS."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return "Keys(…)"


class AccessScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a credential gives access to: everything below these locations, which are normalized and sorted."""

    locations: tuple[str, ...]
    writes: bool


class StorageCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential for clients, with the fields of its cloud. `expires_ms` is 0 for keys that do not expire."""

    profile: StorageProfile
    scope: AccessScope
    expires_ms: int
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    oauth_token: str = ""
    sas_token: str = ""

    def __repr__(self) -> str:
        return f"StorageCredential({self.profile!r}, {self.scope!r}, expires_ms={self.expires_ms})"
