"""What Google Cloud Storage needs beyond obstore: deletes that name the generation they mean, and a token for them."""

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandur.errors import Unfit
from sandur.settings import GcsSettings
from sandur.storage.object_store import Version

if TYPE_CHECKING:
    from obstore.store import GCSCredential

    from sandur.storage.cloud import DeleteRequest

Credentials = Callable[[], "GCSCredential"]

_REFRESH_BEFORE = dt.timedelta(minutes=4)
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


def credentials(settings: GcsSettings) -> Credentials:
    """Where tokens come from: the settings' own, a service account's key file, or the application's default."""
    if settings.bearer_token:
        return lambda: {"token": settings.bearer_token, "expires_at": None}
    try:
        import google.auth  # noqa: PLC0415 - optional, and only here
        from obstore.auth.google import GoogleCredentialProvider  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise Unfit("gs:// needs a bearer token (gcs.bearer_token) or the extra sandur[gcs]") from error
    if settings.service_account:
        load = google.auth.load_credentials_from_file
        account, _ = load(settings.service_account, scopes=[_SCOPE])  # type: ignore[no-untyped-call]  # google's
        return GoogleCredentialProvider(account)
    return GoogleCredentialProvider()


class GcsDeletes:
    """Builds `DELETE` requests that take effect only on the expected generation.

    A signed address would not do: Google refuses conditions that the signature does not cover.
    """

    def __init__(self, endpoint: str, bucket: str, prefix: str, source: Credentials) -> None:
        self._base = f"{endpoint.rstrip('/')}/{bucket}/{prefix + '/' if prefix else ''}"
        self._source = source
        self._held: GCSCredential | None = None

    async def __call__(self, key: str, expected: Version) -> "DeleteRequest":
        headers = {
            "Authorization": f"Bearer {await self._token()}",
            "x-goog-if-generation-match": expected.partition("|")[0],
        }
        return self._base + quote(key, safe="/~"), headers

    async def _token(self) -> str:
        if self._held is None or _is_stale(self._held):
            self._held = await self._fresh()
        return self._held["token"]

    async def _fresh(self) -> "GCSCredential":
        return await asyncio.to_thread(self._source)


def _is_stale(credential: "GCSCredential") -> bool:
    expires_at = credential["expires_at"]
    if expires_at is None:
        return False
    return expires_at < dt.datetime.now(dt.UTC) + _REFRESH_BEFORE  # noqa: TID251 - the token's own clock
