"""Opens the store that an address and the settings describe."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sandur.clock import Clock
from sandur.errors import BadRequest
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import PREFIX_BYTES_MAX, validate_key
from sandur.storage.local import LocalStore
from sandur.storage.memory import MemoryStore
from sandur.storage.retry import RetryingStore

if TYPE_CHECKING:
    from sandur.storage.cloud import CloudStore


# obstore and httpx are imported only if the address needs them: the command line must start fast.


def connect(settings: Settings, clock: Clock) -> ObjectStore:
    """The store of the settings, with retries."""
    return RetryingStore(open_store(settings.store, settings), clock, settings.retry)


def open_store(url: str, settings: Settings) -> ObjectStore:
    """The store at an address, without retries.

    The address is a folder, `file://…`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    `memory:`.
    """
    if url == "memory:":
        return MemoryStore()
    if "://" not in url and not url.startswith("file:"):
        return LocalStore(Path(url).expanduser(), fsync=settings.fsync)
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    match parts.scheme:
        case "file":
            if parts.netloc not in {"", "localhost"}:
                raise BadRequest(f"store {url}: a file address must not name a host, found {parts.netloc!r}")
            return LocalStore(unquote(parts.path), fsync=settings.fsync)
        case "s3" | "s3a":
            return _open_s3(_bucket(url), prefix, settings)
        case "gs" | "gcs":
            return _open_gcs(_bucket(url), prefix, settings)
        case "az" | "abfs" | "abfss" | "azure":
            return _open_azure(_bucket(url), prefix, settings)
        case scheme:
            raise BadRequest(
                f"store {url}: expected a folder, file://, s3://, gs://, az:// or memory:, found {scheme}://"
            )


def _bucket(url: str) -> str:
    parts = urlsplit(url)
    if not parts.netloc:
        raise BadRequest(f"store {url}: the bucket is missing")
    if prefix := parts.path.strip("/"):
        validate_key(prefix)
    if len(prefix.encode()) > PREFIX_BYTES_MAX:
        raise BadRequest(f"store {url}: the prefix has more than {PREFIX_BYTES_MAX} bytes")
    return parts.netloc.partition("@")[0]


def _given(**options: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _client_options(endpoint: str) -> Mapping[str, object]:
    return {"timeout": "60s", "connect_timeout": "5s", "allow_http": endpoint.startswith("http://")}


def _open_s3(bucket: str, prefix: str, settings: Settings) -> "CloudStore":
    from obstore.store import S3Store  # noqa: PLC0415 - see above

    from sandur.storage.cloud import NO_RETRIES, CloudStore  # noqa: PLC0415 - see above

    s3 = settings.s3
    config = _given(
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        session_token=s3.session_token,
    )
    remote = S3Store(
        bucket,
        prefix=prefix or None,
        config=config,  # type: ignore[arg-type]  # a TypedDict with these keys
        virtual_hosted_style_request=not s3.path_style,
        client_options=_client_options(s3.endpoint),  # type: ignore[arg-type]  # likewise
        retry_config=NO_RETRIES,  # type: ignore[arg-type]  # likewise
    )
    return CloudStore(remote)


def _open_azure(container: str, prefix: str, settings: Settings) -> "CloudStore":
    from obstore.store import AzureStore  # noqa: PLC0415 - see above

    from sandur.storage.cloud import (  # noqa: PLC0415 - see above
        NO_RETRIES,
        CloudStore,
        azure_deletes,
    )

    azure = settings.azure
    config = _given(
        endpoint=azure.endpoint,
        account_name=azure.account_name,
        account_key=azure.account_key,
        sas_key=azure.sas_token,
    )
    remote = AzureStore(
        container,
        prefix=prefix or None,
        config=config,  # type: ignore[arg-type]  # a TypedDict with these keys
        client_options=_client_options(azure.endpoint),  # type: ignore[arg-type]  # likewise
        retry_config=NO_RETRIES,  # type: ignore[arg-type]  # likewise
    )
    return CloudStore(remote, delete_request=azure_deletes(container, prefix, azure))


def _open_gcs(bucket: str, prefix: str, settings: Settings) -> "CloudStore":
    from obstore.store import GCSStore  # noqa: PLC0415 - see above

    from sandur.storage.cloud import NO_RETRIES, CloudStore, GcsRequests, gcs_credentials  # noqa: PLC0415 - see above  # noqa: PLC0415 - see above

    gcs = settings.gcs
    endpoint = gcs.endpoint or "https://storage.googleapis.com"
    source = gcs_credentials(gcs)
    config = _given(base_url=gcs.endpoint)
    remote = GCSStore(
        bucket,
        prefix=prefix or None,
        config=config,  # type: ignore[arg-type]  # a TypedDict with these keys
        client_options=_client_options(endpoint),  # type: ignore[arg-type]  # likewise
        retry_config=NO_RETRIES,  # type: ignore[arg-type]  # likewise
        credential_provider=source,
    )
    return CloudStore(remote, generations=GcsRequests(endpoint, bucket, prefix, source))
