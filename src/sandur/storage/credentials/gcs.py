"""Credentials for Google Cloud Storage: downscoped tokens, from an exchange at Google's Security Token Service."""

import asyncio
import re
from typing import TYPE_CHECKING, Final

import msgspec

from sandur.catalog.credentials.access_boundaries import access_boundary
from sandur.catalog.credentials.profiles import AccessScope, StorageCredential, StorageProfile
from sandur.clock import Clock
from sandur.errors import ServiceRefused, Unavailable
from sandur.settings import GcsSettings
from sandur.splicing import NOT_JSON
from sandur.storage.cloud_requests import gcs_credentials
from sandur.storage.credentials.issuers import IssuerAnswer, send_to_issuer

if TYPE_CHECKING:
    from obstore.store import GCSCredential

STS_ENDPOINT: Final = "https://sts.googleapis.com/v1/token"
LIFETIME_SECONDS_MAX: Final = 12 * 3_600
"""No access token of Google is valid for longer."""

_ISSUER: Final = "Google's Security Token Service"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a type
# The scope that Google documents for tokens that are exchanged. What the new token may do is up to its boundary.
_EXCHANGE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")
_TOKEN: Final = re.compile(r"[!-~]{1,16384}")


class _Exchanged(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: int | None = None
    token_type: str = "Bearer"  # noqa: S105 - the name of a type


class _Refused(msgspec.Struct, frozen=True):
    error: str = ""


def own_profile(settings: GcsSettings) -> StorageProfile:
    """The profile of the server's own bucket."""
    return StorageProfile(
        cloud="gcs",
        access=settings.access,
        endpoint=settings.endpoint,
        bearer_token=settings.bearer_token,
        service_account=settings.service_account,
        sts_endpoint=settings.sts_endpoint,
    )


async def issue(profile: StorageProfile, scope: AccessScope, clock: Clock) -> StorageCredential:
    """A token that opens the locations of the scope and nothing else.

    It is valid for as long as the server's own token, from which it is made: that is Google's rule. Raises Unavailable
    if Google does not answer, ServiceRefused if it refuses, and Unsupported if the scope cannot be confined.
    """
    boundary = access_boundary(scope)
    started_ms = clock.now_ms()
    settings = GcsSettings(bearer_token=profile.bearer_token, service_account=profile.service_account)
    source = await asyncio.to_thread(_own_token, settings)
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": _ACCESS_TOKEN,
        "subject_token": source["token"],
        "subject_token_type": _ACCESS_TOKEN,
        "options": boundary,
    }
    url = profile.sts_endpoint or STS_ENDPOINT
    answer = await send_to_issuer(_ISSUER, "POST", url, headers={"Accept": "application/json"}, form=form)
    exchanged = _exchanged(answer, source["token"])
    expiries_ms = [started_ms + exchanged.expires_in * 1_000] if exchanged.expires_in else []
    if expires_at := source["expires_at"]:
        expiries_ms.append(int(expires_at.timestamp() * 1_000))
    if not expiries_ms or min(expiries_ms) <= clock.now_ms():
        raise _unusable("it is expired, or does not say when it expires")
    return StorageCredential(
        profile=profile, scope=scope, expires_ms=min(expiries_ms), oauth_token=exchanged.access_token
    )


def _own_token(settings: GcsSettings) -> "GCSCredential":
    """A new token of the server itself, for an exchange. Blocks. Raises Unavailable if Google gives none."""
    try:
        return gcs_credentials(settings, _EXCHANGE_SCOPE)()
    except Exception as error:  # noqa: BLE001 - google-auth is optional, so its errors have no name here
        # Without its text: that may quote the answer of Google, or the path of the key file.
        reason = f"{type(error).__name__}; check gcs.service_account, or Google's default credentials"
        raise Unavailable(f"Google Cloud Storage: the server itself has no token: {reason}") from None


def _exchanged(answer: IssuerAnswer, source: str) -> _Exchanged:
    """The token in the answer. Raises Unavailable or ServiceRefused without a confined token."""
    if answer.status != 200:  # noqa: PLR2004 - OK
        raise ServiceRefused(f"{_ISSUER} refuses: {_reason(answer)}; check the account of the server")
    try:
        found = msgspec.json.decode(answer.body, type=_Exchanged)
    except NOT_JSON:
        raise _unusable("the answer is not the JSON of a token") from None
    if not _TOKEN.fullmatch(found.access_token) or found.token_type.lower() != "bearer":
        raise _unusable("the answer contains no bearer token")
    if found.access_token == source:
        raise _unusable("it is the server's own token, which opens everything")
    if found.expires_in is not None and not 0 < found.expires_in <= LIFETIME_SECONDS_MAX:
        raise _unusable(f"a lifetime of {found.expires_in} seconds is not plausible")
    return found


def _reason(answer: IssuerAnswer) -> str:
    """The status and Google's code of the error. The description is left out: it may quote the request."""
    try:
        code = msgspec.json.decode(answer.body, type=_Refused).error
    except NOT_JSON:
        code = ""
    return f"{answer.status} {code}" if _ERROR_CODE.fullmatch(code) else str(answer.status)


def _unusable(problem: str) -> Unavailable:
    return Unavailable(f"{_ISSUER} issued a token that cannot be given out: {problem}")
