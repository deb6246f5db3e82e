"""Stores in the cloud: S3, Google Cloud Storage and Azure through obstore, with conditional writes and deletes."""

import asyncio
import datetime as dt
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import lt
from typing import Any, Final, Literal, TypeVar

import httpx
import obstore
from msgspec.structs import asdict
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotModifiedError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from sandur.errors import BadRequest, OutcomeUnknown, SandurError, SwapLost, Unavailable
from sandur.settings import Settings
from sandur.storage.cloud_requests import GcsRequests, Request, azure_deletes, gcs_credentials
from sandur.storage.contract import (
    ABSENT,
    GETS_AT_ONCE_MAX,
    LIST_LIMIT_MAX,
    UNCHANGED,
    Expected,
    Listed,
    Stored,
    Unchanged,
    Version,
    check_size,
    portions,
)
from sandur.storage.failures import Cloud, explain, explain_answer, is_throttled, names_no_bucket
from sandur.storage.keys import validate_key, validate_prefix

Remote = S3Store | GCSStore | AzureStore

T = TypeVar("T")

# obstore must not retry: the second try of a conditional write that was applied would look lost.
_NO_RETRIES: Final = {"max_retries": 0, "retry_timeout": dt.timedelta(seconds=60)}

_ETAG: Final = re.compile(r'(W/)?"[!#-~]+"')
_GENERATION: Final = re.compile(r'[1-9][0-9]{0,18}\|"[!#-~]+"')
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENDPOINT: Final = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[!-~]*)?")
_AWS_VARIABLES: Final = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"})
_SIGNED_FOR: Final = dt.timedelta(minutes=5)
_REFUSED: Final = (PermissionDeniedError, UnauthenticatedError, NotSupportedError, InvalidPathError)
_OK: Final = {200, 202, 204}
_LOST: Final = {404, 412}
_CLIENT_ERRORS: Final = range(400, 500)
_THROTTLED: Final = {429, 503}


def open_bucket(cloud: Cloud, bucket: str, prefix: str, settings: Settings) -> "CloudStore":
    """The store in a bucket or container, below the prefix. Raises BadRequest if the settings do not describe one."""
    if not _BUCKET.fullmatch(bucket):
        raise BadRequest(f"bucket {bucket!r}: expected letters, digits, dots, dashes and underscores")
    _check_printable(cloud, settings)
    try:
        return _open_bucket(cloud, bucket, prefix, settings)
    except (BaseError, ValueError) as error:
        raise BadRequest(f"store {cloud}://{bucket} cannot be opened: {explain(error, cloud)}") from error


def _open_bucket(cloud: Cloud, bucket: str, prefix: str, settings: Settings) -> "CloudStore":
    s3, gcs, azure = settings.s3, settings.gcs, settings.azure
    match cloud:
        case "s3":
            endpoint = _checked_endpoint("s3.endpoint", s3.endpoint, "AWS_ENDPOINT", "AWS_ENDPOINT_URL")
            config = {
                "endpoint": endpoint,
                "region": s3.region,
                "access_key_id": s3.access_key_id,
                "secret_access_key": s3.secret_access_key,
                "session_token": s3.session_token,
            }
            options = _options(prefix, endpoint, config)
            return CloudStore(S3Store(bucket, virtual_hosted_style_request=not s3.path_style, **options), cloud)
        case "gs":
            endpoint = _checked_endpoint("gcs.endpoint", gcs.endpoint) or "https://storage.googleapis.com"
            source = gcs_credentials(gcs)
            options = _options(prefix, endpoint, {"base_url": gcs.endpoint})
            remote = GCSStore(bucket, credential_provider=source, **options)
            return CloudStore(remote, cloud, generations=GcsRequests(endpoint, bucket, prefix, source))
        case "az":
            config = {
                "endpoint": azure.endpoint,
                "account_name": azure.account_name,
                "account_key": azure.account_key,
                "sas_key": azure.sas_token,
            }
            endpoint = _checked_endpoint("azure.endpoint", azure.endpoint)
            container = AzureStore(bucket, **_options(prefix, endpoint, config))
            return CloudStore(container, cloud, delete_request=azure_deletes(bucket, prefix, azure))


def _check_printable(cloud: Cloud, settings: Settings) -> None:
    """Raise BadRequest for a key with a line break, or another character that a header cannot hold: obstore panics."""
    section = {"s3": "s3", "gs": "gcs", "az": "azure"}[cloud]
    values = {f"setting {section}.{name}": value for name, value in asdict(getattr(settings, section)).items()}
    values |= {name: value for name, value in os.environ.items() if cloud == "s3" and name in _AWS_VARIABLES}
    for name, value in values.items():
        if isinstance(value, str) and not (value.isascii() and value.isprintable()):
            raise BadRequest(f"{name}: it contains a line break or another character that is not printable")


def _checked_endpoint(setting: str, endpoint: str, *variables: str) -> str:
    """The endpoint of the setting, or else of a variable; BadRequest unless it is a URL: obstore would panic."""
    named = [(setting, endpoint), *((variable, os.environ.get(variable, "")) for variable in variables)]
    name, value = next((found for found in named if found[1]), (setting, ""))
    if value and not _ENDPOINT.fullmatch(value):
        hint = (
            "expected http://HOST:PORT or https://HOST"
            if "://" in value
            else f"write http://{value} or https://{value}"
        )
        raise BadRequest(f"setting {name}: {value!r} is not a URL: {hint}")
    return value


def _options(prefix: str, endpoint: str, config: Mapping[str, str]) -> dict[str, Any]:
    """The options that obstore takes for every cloud; it looks up what the config leaves out in the environment."""
    return {
        "prefix": prefix or None,
        "config": {name: value for name, value in config.items() if value},
        "client_options": {"timeout": "60s", "connect_timeout": "5s", "allow_http": endpoint.startswith("http://")},
        "retry_config": _NO_RETRIES,
    }


class CloudStore:
    """One bucket, or a folder in it.

    A version is the ETag (S3, Azure), or the generation and the ETag (GCS, which swaps by generation and compares by
    ETag). On S3 an ETag is a hash of the bytes, so a version never returns only if all bodies are unique.
    """

    has_instant_reads = False

    def __init__(
        self,
        remote: Remote,
        cloud: Cloud,
        *,
        delete_request: Callable[[str, Version], Awaitable[Request]] | None = None,
        generations: GcsRequests | None = None,
    ) -> None:
        self._remote = remote
        self._cloud = cloud
        self._generations = generations
        self._delete_request = generations.delete if generations else delete_request or self._signed_delete
        self._lists_in_order = True
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(30, connect=5))

    def version_now(self, key: str) -> Version | None:
        raise NotImplementedError(f"object {key}: reads of this store wait")

    async def get(self, key: str) -> Stored | None:
        return await self._read(key, self._download(validate_key(key), {}))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        if not self._is_version(seen):
            return await self.get(key)
        try:
            return await self._read(key, self._download(validate_key(key), {"if_none_match": self._etag(seen)}))
        except NotModifiedError:
            return UNCHANGED

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        found = await asyncio.gather(*(self.get_if_changed(key, seen=version) for key, version in versions))
        return all(one is UNCHANGED for one in found)

    async def head(self, key: str) -> Listed | None:
        meta = await self._read(key, obstore.head_async(self._remote, validate_key(key)))
        return self._listed(meta) if meta else None

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        mode: Literal["create"] | Mapping[str, str] = "create"
        if expected is not ABSENT:
            mode = self._update(self._validate_version(key, expected))
        try:
            result = await obstore.put_async(
                self._remote,
                validate_key(key),
                data,
                mode=mode,  # type: ignore[arg-type]  # obstore's UpdateVersion is a dict with these keys
                use_multipart=False,
            )
        except (AlreadyExistsError, PreconditionError) as error:
            raise SwapLost(f"object {key}: not at the expected version {expected}") from error
        except FileNotFoundError as error:
            if expected is ABSENT or names_no_bucket(error):
                raise Unavailable(f"object {key}: cannot be written: {self._explain(error)}") from error
            raise SwapLost(f"object {key}: expected version {expected}, found ABSENT") from error
        except _REFUSED as error:
            raise Unavailable(f"object {key}: the store refused the write: {self._explain(error)}") from error
        except BaseError as error:
            # Also when it is throttled: some servers answer "slow down" to a write that may have been applied.
            message = f"object {key}: no answer to the write: {self._explain(error)}"
            raise OutcomeUnknown(message, is_throttled=is_throttled(error)) from error
        return self._version(result["e_tag"], result["version"])

    async def delete(self, key: str, *, expected: Version) -> None:
        try:
            url, headers = await self._delete_request(validate_key(key), self._validate_version(key, expected))
        except BaseError as error:
            raise Unavailable(f"object {key}: the delete cannot be signed: {self._explain(error)}") from error
        try:
            response = await self._send("DELETE", url, headers)
        except httpx.ConnectError as error:
            raise Unavailable(f"object {key}: the store cannot be reached: {error}") from error
        except httpx.HTTPError as error:
            raise OutcomeUnknown(f"object {key}: no answer to the delete: {error}") from error
        if response.status_code not in _OK:
            raise self._delete_failure(key, expected, response)

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        validate_prefix(prefix)
        if limit < 1:
            return []
        if self._generations:
            return await self._list_generations(self._generations, prefix, after, limit)
        try:
            found = await self._list_from(prefix, after, limit) if self._lists_in_order else ()
            self._lists_in_order = self._lists_in_order and _are_in_order(found, after)
            if not self._lists_in_order:
                found = await self._list_everything(prefix, after)
        except (BaseError, FileNotFoundError) as error:
            message = f"folder {prefix}: cannot be listed: {self._explain(error)}"
            raise Unavailable(message, is_throttled=is_throttled(error)) from error
        return found[:limit]

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(self, method: str, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """Send the request in its own task: the timeouts below httpx count from the start of the task."""
        return await asyncio.create_task(self._http.request(method, url, headers=dict(headers)))

    async def _list_from(self, prefix: str, after: str | None, limit: int) -> Sequence[Listed]:
        """At least `limit` objects, if there are that many, in the order of the store."""
        found: list[Listed] = []
        async for page in obstore.list(self._remote, prefix[:-1] or None, offset=after, chunk_size=LIST_LIMIT_MAX):
            found += await self._without_markers(prefix, [self._listed(meta) for meta in page])
            if len(found) >= limit:
                break
        return found

    async def _without_markers(self, prefix: str, page: Sequence[Listed]) -> Sequence[Listed]:
        """Leave out the markers of folders: empty objects `a/`, as Hadoop writes them.

        obstore lists one as `a`, under which there is nothing to read or to delete.
        """
        inside = [listed for listed in page if listed.key and listed.key.startswith(prefix)]
        markers: set[str] = set()
        for some in portions([listed.key for listed in inside if not listed.size_bytes], GETS_AT_ONCE_MAX):
            heads = await asyncio.gather(*(self._read(key, obstore.head_async(self._remote, key)) for key in some))
            markers |= {key for key, head in zip(some, heads, strict=True) if head is None}
        return [listed for listed in inside if listed.key not in markers]

    async def _list_everything(self, prefix: str, after: str | None) -> Sequence[Listed]:
        """For stores that list folder by folder, such as SeaweedFS: a key listed before `after` may sort behind it."""
        found = await self._list_from(prefix, None, sys.maxsize)
        return sorted(listed for listed in found if after is None or listed.key > after)

    async def _list_generations(
        self, requests: GcsRequests, prefix: str, after: str | None, limit: int
    ) -> Sequence[Listed]:
        found: list[Listed] = []
        while len(found) < limit:
            wanted = min(limit - len(found), LIST_LIMIT_MAX)
            url, headers = await requests.page(prefix, after, wanted)
            try:
                response = await self._send("GET", url, headers)
            except httpx.HTTPError as error:
                raise Unavailable(f"folder {prefix}: cannot be listed: {error}") from error
            if not response.is_success:
                message = f"folder {prefix}: cannot be listed: {explain_answer(response, self._cloud)}"
                raise Unavailable(message, is_throttled=response.status_code in _THROTTLED)
            page = requests.listed(response.content)
            found += [
                listed for listed in page if listed.key and not listed.key.endswith("/")
            ]  # No markers of folders.
            if len(page) < wanted:
                break
            after = page[-1].key
        return found

    async def _download(self, key: str, options: Mapping[str, str]) -> Stored:
        result = await obstore.get_async(self._remote, key, options=options)  # type: ignore[arg-type]  # a TypedDict with these keys
        check_size(key, result.meta["size"])
        data = await result.bytes_async()
        return Stored(data.to_bytes(), self._version(result.meta["e_tag"], result.meta["version"]))

    async def _read(self, key: str, download: Awaitable[T]) -> T | None:
        try:
            return await download
        except FileNotFoundError as error:
            if names_no_bucket(error):  # Not an empty store.
                raise Unavailable(f"object {key}: cannot be read: {self._explain(error)}") from error
            return None
        except NotModifiedError:
            raise
        except BaseError as error:
            message = f"object {key}: cannot be read: {self._explain(error)}"
            raise Unavailable(message, is_throttled=is_throttled(error)) from error

    def _explain(self, error: Exception) -> str:
        return explain(error, self._cloud)

    def _delete_failure(self, key: str, expected: Version, response: httpx.Response) -> SandurError:
        if response.status_code in _LOST:
            return SwapLost(f"object {key}: not at the expected version {expected}")
        reason = explain_answer(response, self._cloud)
        is_slow_down = response.status_code in _THROTTLED
        if response.status_code in _CLIENT_ERRORS:
            return Unavailable(f"object {key}: the store refused the delete: {reason}", is_throttled=is_slow_down)
        return OutcomeUnknown(f"object {key}: no definite answer to the delete: {reason}", is_throttled=is_slow_down)

    async def _signed_delete(self, key: str, expected: Version) -> Request:
        """A DELETE with a signed URL; the condition is a header that needs no signature."""
        url = await obstore.sign_async(self._remote, "DELETE", key, _SIGNED_FOR)
        return url, {"If-Match": self._etag(expected)}

    def _listed(self, meta: "obstore.ObjectMeta") -> Listed:
        modified_ms = int(meta["last_modified"].timestamp() * 1_000)
        return Listed(meta["path"], self._version(meta["e_tag"], meta["version"]), meta["size"], modified_ms)

    def _version(self, etag: str | None, generation: str | None) -> Version:
        # Azure puts quotes around an ETag in a header, but not in a listing.
        quoted = etag if etag and etag.endswith('"') else f'"{etag}"'
        return Version(f"{generation}|{quoted}" if self._generations else quoted)

    def _is_version(self, version: Version) -> bool:
        return bool((_GENERATION if self._generations else _ETAG).fullmatch(version))

    def _validate_version(self, key: str, expected: Version) -> Version:
        """Return the version. Raises SwapLost if it has no valid form: `If-Match: *` would match everything."""
        if not self._is_version(expected):
            raise SwapLost(f"object {validate_key(key)}: {expected!r} is not a version")
        return expected

    def _etag(self, version: Version) -> str:
        return version.partition("|")[2] if self._generations else version

    def _update(self, version: Version) -> Mapping[str, str]:
        return {"version": version.partition("|")[0]} if self._generations else {"e_tag": version}


def _are_in_order(found: Sequence[Listed], after: str | None) -> bool:
    keys = [listed.key for listed in found]
    return (after is None or not keys or keys[0] > after) and all(map(lt, keys, keys[1:]))
