"""Requests to Google Cloud Storage and Azure that obstore cannot make, and the credentials that they are sent with."""

import asyncio
import base64
import datetime as dt
import functools
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

from sandur.errors import Unavailable, Unfit
from sandur.settings import AzureSettings, GcsSettings
from sandur.storage.contract import Listed, Version

if TYPE_CHECKING:
    from obstore.store import GCSCredential

Request = tuple[str, Mapping[str, str]]
"""The URL and the headers of a request."""

GcsCredentials = Callable[[], "GCSCredential"]

_REFRESH_BEFORE = dt.timedelta(minutes=4)
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_TOKEN_SECONDS_MAX = 10


def gcs_credentials(settings: GcsSettings, scope: str = _SCOPE) -> GcsCredentials:
    """The source of tokens: the settings, the key of a service account, or Google's default credentials.

    The key is the path of a file or, for the credentials of the storage registry, its content.
    """
    if settings.bearer_token:
        return lambda: {"token": settings.bearer_token, "expires_at": None}
    try:
        import google.auth.exceptions  # noqa: PLC0415 - optional, and only here
        from google.auth.transport.requests import Request as TokenRequest  # noqa: PLC0415 - likewise
        from google.oauth2.service_account import Credentials  # noqa: PLC0415 - likewise
        from obstore.auth.google import GoogleCredentialProvider  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise Unfit("gs:// needs a bearer token (gcs.bearer_token) or the extra sandur[gcs]") from error
    try:
        if key := settings.service_account:
            account = (
                Credentials.from_service_account_info(json.loads(key), scopes=[scope])  # type: ignore[no-untyped-call]  # google's
                if key.startswith("{")
                else Credentials.from_service_account_file(key, scopes=[scope])  # type: ignore[no-untyped-call]  # google's
            )
        else:
            account = google.auth.default(scopes=[scope])[0]
        # Google's own bound is two minutes, for which the call would hold a thread.
        request = functools.partial(TokenRequest(), timeout=_TOKEN_SECONDS_MAX)
        return GoogleCredentialProvider(account, request=request)  # type: ignore[arg-type]  # it is only called
    except (google.auth.exceptions.GoogleAuthError, OSError, ValueError) as error:
        raise Unfit(f"gs:// has no credentials: {' '.join(str(error).split())}") from error


class GcsRequests:
    """Requests that obstore cannot make: deletes of one generation, and listings with generations.

    A signed URL does not work for a delete: Google refuses conditions that the signature does not cover. And obstore
    drops the generations from listings, and without them a listed version could not be swapped.
    """

    def __init__(self, endpoint: str, bucket: str, prefix: str, source: GcsCredentials) -> None:
        self._bucket = f"{endpoint.rstrip('/')}/{bucket}"
        self._prefix = f"{prefix}/" if prefix else ""
        self._source = source
        self._held: GCSCredential | None = None

    async def delete(self, key: str, expected: Version) -> Request:
        url = f"{self._bucket}/{quote(self._prefix + key, safe='/~')}"
        return url, await self._headers() | {"x-goog-if-generation-match": expected.partition("|")[0]}

    async def page(self, prefix: str, after: str | None, limit: int) -> Request:
        query = {"list-type": "2", "prefix": self._prefix + prefix, "max-keys": str(limit)}
        if after is not None:
            query["start-after"] = self._prefix + after
        return f"{self._bucket}?{urlencode(query)}", await self._headers()

    def listed(self, page: bytes) -> Sequence[Listed]:
        """The objects in the response to `page`."""
        found: list[Listed] = []
        for entry in ET.fromstring(page).iterfind("{*}Contents"):  # noqa: S314 - from Google, over TLS
            field = {child.tag.rpartition("}")[2]: child.text or "" for child in entry}
            modified_ms = int(dt.datetime.fromisoformat(field["LastModified"]).timestamp() * 1_000)
            version = Version(f"{field['Generation']}|{field['ETag']}")
            found.append(Listed(field["Key"].removeprefix(self._prefix), version, int(field["Size"]), modified_ms))
        return found

    async def _headers(self) -> dict[str, str]:
        if self._held is None or _is_stale(self._held):
            self._held = await self._fetch()
        return {"Authorization": f"Bearer {self._held['token']}"}

    async def _fetch(self) -> "GCSCredential":
        try:
            return await asyncio.to_thread(self._source)
        except Exception as error:  # obstore's provider raises what google.auth does, which may not be installed.
            raise Unavailable(f"gs:// has no token: {' '.join(str(error).split())}") from error


def _is_stale(credential: "GCSCredential") -> bool:
    expires_at = credential["expires_at"]
    if expires_at is None:
        return False
    return expires_at < dt.datetime.now(dt.UTC) + _REFRESH_BEFORE  # noqa: TID251 - the token's own clock


_API_VERSION: Final = "2023-11-03"

# obstore reads the same variables.
_KEY_VARIABLES: Final = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_SAS_VARIABLES: Final = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")


def azure_deletes(container: str, prefix: str, settings: AzureSettings) -> "AzureDeletes | None":
    """Deletes with an account key or a SAS token; None if neither the settings nor the environment has one."""
    account, account_key = azure_account(settings)
    sas_token = settings.sas_token or _first(_SAS_VARIABLES)
    endpoint = settings.endpoint or f"https://{account}.blob.core.windows.net"
    if not account_key and not sas_token:
        return None
    base = f"{endpoint.rstrip('/')}/{container}/{quote(prefix, safe='/~') + '/' if prefix else ''}"
    return AzureDeletes(base, account=account, account_key=account_key, sas_token=sas_token)


def azure_account(settings: AzureSettings) -> tuple[str, str]:
    """The name and the key of the account, from the settings or the environment; empty if neither has one."""
    account = settings.account_name or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    return account, settings.account_key or _first(_KEY_VARIABLES)


def shared_key(
    method: str, account: str, account_key: bytes, resource: str, *, date: str, if_match: str = ""
) -> dict[str, str]:
    """The headers of a request without a body, signed with the key of the account."""
    # The method and eleven standard headers; only If-Match, the eighth, is sent.
    standard = [method, *[""] * 7, if_match, *[""] * 3]
    own = [f"x-ms-date:{date}", f"x-ms-version:{_API_VERSION}"]
    text = "\n".join([*standard, *own, resource])
    signature = base64.b64encode(hmac.digest(account_key, text.encode(), hashlib.sha256)).decode()
    return {
        "x-ms-date": date,
        "x-ms-version": _API_VERSION,
        "Authorization": f"SharedKey {account}:{signature}",
    }


class AzureDeletes:
    """Builds `DELETE` requests that take effect only on the expected version.

    A URL signed by obstore does not work: obstore signs the encoded path and Azure checks the decoded one, so Azure
    refuses every key with a `%`.
    """

    def __init__(self, base: str, *, account: str, account_key: str, sas_token: str) -> None:
        self._base = base
        self._account = account
        self._account_key = base64.b64decode(account_key)
        self._sas_token = sas_token.removeprefix("?")

    async def __call__(self, key: str, expected: Version) -> Request:
        url = self._base + quote(key, safe="/~")
        if not self._account_key:
            return f"{url}?{self._sas_token}", {"If-Match": expected, "x-ms-version": _API_VERSION}
        resource = f"/{self._account}{urlsplit(url).path}"
        date = formatdate(usegmt=True)
        headers = shared_key("DELETE", self._account, self._account_key, resource, date=date, if_match=expected)
        return url, headers | {"If-Match": expected}


def _first(variables: tuple[str, ...]) -> str:
    return next((value for variable in variables if (value := os.environ.get(variable))), "")
