"""Credentials for Azure: shared access signatures of one directory, signed with the key of the account."""

import base64
import binascii
import datetime as dt
import hashlib
import hmac
from email.utils import formatdate
from typing import Final, Literal
from urllib.parse import urlencode, urlsplit

import msgspec

from sandur.catalog.credentials.access_boundaries import Directory, azure_directory
from sandur.catalog.credentials.profiles import AccessScope, StorageCredential, StorageProfile
from sandur.clock import Clock
from sandur.errors import ServiceRefused, Unsupported
from sandur.settings import AzureSettings, seconds_of
from sandur.storage.cloud_requests import azure_account, shared_key
from sandur.storage.credentials.issuers import send_to_issuer

VERSION: Final = "2023-11-03"
READS: Final = "rl"
WRITES: Final = "racwdlm"
"""Read, add, create, write, delete, list, move: Delta's log store on Azure renames. Azure requires this order."""

_FIELDS_SIGNED_LAST: Final = 7  # Snapshot time, encryption scope, and five headers of answers: all empty.
_FLAT: Final = (
    "No credential: a shared access signature of an Azure account without a hierarchical namespace opens the whole "
    "container, not one table"
)


class SharedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What a service shared access signature allows; `kind` is that of the resource: directory, container or blob."""

    account: str
    directory: Directory
    permissions: str
    expires_ms: int
    protocols: Literal["https", "https,http"] = "https"
    kind: Literal["d", "c", "b"] = "d"


def own_profile(settings: AzureSettings) -> StorageProfile:
    """The profile of the server's own container."""
    return StorageProfile(
        cloud="azure",
        access=settings.access,
        endpoint=settings.endpoint,
        account_name=settings.account_name,
        account_key=settings.account_key,
        hierarchical=settings.hierarchical,
        lifetime_seconds=seconds_of(settings.credential_lifetime),
    )


async def issue(profile: StorageProfile, scope: AccessScope, clock: Clock) -> StorageCredential:
    """A signature for the one directory of the scope.

    Raises Unavailable if the account does not answer, ServiceRefused if it refuses, and Unsupported if the account or
    the locations allow no signature that is confined.
    """
    settings = AzureSettings(account_name=profile.account_name, account_key=profile.account_key)
    account, account_key = azure_account(settings)
    if not profile.hierarchical:
        raise Unsupported(f"{_FLAT}; if {account or 'the account'} has one, set azure.hierarchical")
    directory = azure_directory(scope, account)
    key = _decoded(account_key)
    endpoint = (profile.endpoint or f"https://{account}.blob.core.windows.net").rstrip("/")
    await _check_hierarchical(endpoint, account, key, clock)
    access = SharedAccess(
        account=account,
        directory=directory,
        permissions=WRITES if scope.writes else READS,
        # Whole seconds: the signature has no others.
        expires_ms=clock.now_ms() // 1_000 * 1_000 + profile.lifetime_seconds * 1_000,
        protocols="https,http" if endpoint.startswith("http:") else "https",
    )
    # The name may come from the environment, and clients need it.
    named = msgspec.structs.replace(profile, account_name=account)
    return StorageCredential(
        profile=named, scope=scope, expires_ms=access.expires_ms, sas_token=signed_access(access, key)
    )


def signed_access(access: SharedAccess, key: bytes) -> str:
    """The query that is the shared access signature. It has no start: a clock that is ahead does not delay it."""
    expires = dt.datetime.fromtimestamp(access.expires_ms / 1_000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = hmac.digest(key, text_to_sign(access, expires).encode(), hashlib.sha256)
    query = {"sv": VERSION, "spr": access.protocols, "se": expires, "sr": access.kind, "sp": access.permissions}
    if access.kind == "d":
        query["sdd"] = str(access.directory.depth)
    return urlencode(query | {"sig": base64.b64encode(digest).decode()})


def text_to_sign(access: SharedAccess, expires: str) -> str:
    """The text that Azure signs for a service shared access signature, since version 2020-12-06."""
    path = "" if access.kind == "c" else f"/{access.directory.path}"
    resource = f"/blob/{access.account}/{access.directory.container}{path}"
    start = stored_policy = address = ""
    fields = [access.permissions, start, expires, resource, stored_policy, address, access.protocols, VERSION]
    return "\n".join([*fields, access.kind, *[""] * _FIELDS_SIGNED_LAST])


async def _check_hierarchical(endpoint: str, account: str, key: bytes, clock: Clock) -> None:
    """Raise Unsupported unless the account itself says that it has a hierarchical namespace."""
    date = formatdate(clock.now_ms() / 1_000, usegmt=True)
    url = f"{endpoint}/?restype=account&comp=properties"
    resource = f"/{account}{urlsplit(url).path}\ncomp:properties\nrestype:account"
    headers = shared_key("GET", account, key, resource, date=date)
    answer = await send_to_issuer(f"storage account {account}", "GET", url, headers=headers, form={})
    if answer.status != 200:  # noqa: PLR2004 - OK
        problem = f"storage account {account} answered {answer.status}"
        raise ServiceRefused(f"{problem}; check its name and its key (azure.account_key), and the server's clock")
    if answer.headers.get("x-ms-is-hns-enabled") != "true":
        raise Unsupported(f"{_FLAT}; the account {account} says that it has none")


def _decoded(account_key: str) -> bytes:
    if not account_key:
        problem = "only the key of the account (azure.account_key) can sign one; an identity or a SAS token cannot"
        raise Unsupported(f"No credential: {problem}")
    try:
        return base64.b64decode(account_key, validate=True)
    except (binascii.Error, ValueError):
        raise ServiceRefused("the key of the storage account is not base64; check azure.account_key") from None
