"""What Google Cloud Storage needs beyond obstore: deletes and listings that name generations, and a token for them."""

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

from sandur.errors import Unfit
from sandur.settings import GcsSettings
from sandur.storage.object_store import Listed, Version

if TYPE_CHECKING:
    from obstore.store import GCSCredential

    from sandur.storage.cloud import Request

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


class GcsRequests:
    """What obstore cannot ask for: deletes of one generation, and listings that tell the generations.

    A signed address would not do for a delete: Google refuses conditions that the signature does not cover. And
    obstore drops the generation from a listing, without which its versions could not be swapped.
    """

    def __init__(self, endpoint: str, bucket: str, prefix: str, source: Credentials) -> None:
        self._bucket = f"{endpoint.rstrip('/')}/{bucket}"
        self._prefix = f"{prefix}/" if prefix else ""
        self._source = source
        self._held: GCSCredential | None = None

    async def delete(self, key: str, expected: Version) -> "Request":
        url = f"{self._bucket}/{quote(self._prefix + key, safe='/~')}"
        return url, await self._headers() | {"x-goog-if-generation-match": expected.partition("|")[0]}

    async def page(self, prefix: str, after: str | None, limit: int) -> "Request":
        query = {"list-type": "2", "prefix": self._prefix + prefix, "max-keys": str(limit)}
        if after is not None:
            query["start-after"] = self._prefix + after
        return f"{self._bucket}?{urlencode(query)}", await self._headers()

    def listed(self, page: bytes) -> Sequence[Listed]:
        """The objects of an answer to `page`."""
        contents = ET.fromstring(page).iterfind("{*}Contents")  # noqa: S314 - from Google, over TLS
        return [self._listed(entry) for entry in contents]

    def _listed(self, entry: ET.Element) -> Listed:
        field = {child.tag.rpartition("}")[2]: child.text or "" for child in entry}
        modified_ms = int(dt.datetime.fromisoformat(field["LastModified"]).timestamp() * 1_000)
        version = Version(f"{field['Generation']}|{field['ETag']}")
        return Listed(field["Key"].removeprefix(self._prefix), version, int(field["Size"]), modified_ms)

    async def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {await self._token()}"}

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
