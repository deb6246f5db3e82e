"""What a storage credential says about its storage, beyond Unity Catalog: endpoints, keys and what clients get."""

import base64
import binascii
import re
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import asdict, replace

from sandur.catalog.credentials.profiles import ClientAccess, Cloud, StorageProfile
from sandur.errors import Invalid

TEXT_CHARS_MAX: Final = 2_048
SERVICE_ACCOUNT_CHARS_MAX: Final = 16_384

_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_KEY_ID: Final = re.compile(r"[\x21-\x7e]{1,256}\Z")
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}\Z")
_AWS_HOST: Final = re.compile(r"([a-z0-9-]+\.)+amazonaws\.com(\.cn)?\Z")
_SCHEMES: Final = {"s3": "s3", "gs": "gcs", "abfs": "azure"}
_FIELDS: Final = {
    "s3": frozenset({"region", "path_style", "sts_endpoint", "access_key_id", "secret_access_key"}),
    "azure": frozenset({"account_name", "account_key"}),
    "gcs": frozenset({"service_account"}),
}


_TEXTS: Final = ("endpoint", "region", "sts_endpoint", "access_key_id", "account_name")
"""The fields of a request that a credential keeps as they are."""


class ServiceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a key file of Google Cloud that are used. Other parts are not kept."""

    type: Literal["service_account"]
    client_email: str
    private_key: str
    token_uri: str
    private_key_id: str = ""
    project_id: str = ""

    def __repr__(self) -> str:
        return "ServiceAccount(…)"


class StorageRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The object `storage` in a request. It contains secrets, so errors quote nothing of it."""

    access: str | None = None
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    sts_endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    account_name: str | None = None
    account_key: str | None = None
    service_account: ServiceAccount | None = None

    def __repr__(self) -> str:
        return "StorageRequest(…)"


class StorageSecrets(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The secrets of a credential, which are stored sealed. `credential_id` binds them to it."""

    credential_id: str = ""
    secret_access_key: str = ""
    account_key: str = ""
    service_account: str = ""

    def __repr__(self) -> str:
        return "StorageSecrets(…)"


class StorageFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a credential keeps about its storage. `sealed` are its secrets, sealed; answers leave them out.

    Empty fields, and a `path_style` of None, come from the settings of the server.
    """

    access: ClientAccess
    endpoint: str = ""
    region: str = ""
    path_style: bool | None = None
    sts_endpoint: str = ""
    access_key_id: str = ""
    account_name: str = ""
    service_account_email: str = ""
    sealed: str = ""

    @property
    def cloud(self) -> Cloud | None:
        """The cloud that the fields are for; None if they fit every cloud."""
        if self.account_name:
            return "azure"
        if self.service_account_email:
            return "gcs"
        is_s3 = self.region or self.path_style is not None or self.sts_endpoint or self.access_key_id
        return "s3" if is_s3 else None


def checked_storage(request: StorageRequest, *, has_role: bool) -> StorageFields | None:
    """The fields of a request, without its secrets; None if it says nothing. Raises Invalid for what cannot work."""
    given = frozenset(name for name, value in asdict(request).items() if value not in {None, ""})
    if not given and not has_role:
        return None
    clouds = [cloud for cloud, fields in _FIELDS.items() if fields & given or (has_role and cloud == "s3")]
    if len(clouds) > 1:
        raise Invalid(f"Invalid storage: it has fields of {' and '.join(clouds)}; a credential is for one cloud")
    _check_pairs(given)
    _check_texts(request)
    texts = {name: text for name in _TEXTS if (text := getattr(request, name))}
    fields = replace(StorageFields(access="none", path_style=request.path_style), **texts)
    if request.service_account:
        fields = replace(fields, service_account_email=request.service_account.client_email)
    return replace(fields, access=_checked_access(request.access or "", fields, has_role=has_role))


def secrets_of(request: StorageRequest, credential_id: str) -> StorageSecrets | None:
    """The secrets of a request; None if it has none."""
    account = msgspec.json.encode(request.service_account).decode() if request.service_account else ""
    secrets = StorageSecrets(
        secret_access_key=request.secret_access_key or "",
        account_key=request.account_key or "",
        service_account=account,
    )
    if secrets == StorageSecrets():
        return None
    return replace(secrets, credential_id=credential_id)


def _checked_access(text: str, fields: StorageFields, *, has_role: bool) -> ClientAccess:
    """What clients get: what the request says, if it is possible; otherwise temporary credentials."""
    wanted = next((known for known in get_args(ClientAccess) if known == text), None)
    if text and wanted is None:
        raise Invalid(f"Invalid storage.access: expected one of {', '.join(get_args(ClientAccess))}")
    if fields.account_name or fields.service_account_email:
        if wanted in {"sign", "static"}:
            raise Invalid(f"Invalid storage.access {wanted}: it is for S3 only; expected vend or none")
        return wanted or "vend"
    _check_s3_access(wanted, has_keys=bool(fields.access_key_id), has_role=has_role)
    return wanted or "vend"


def _check_s3_access(wanted: ClientAccess | None, *, has_keys: bool, has_role: bool) -> None:
    if wanted is None and not has_role:
        raise Invalid("storage.access is missing: without aws_iam_role it must be sign, static or none")
    if wanted == "vend" and not has_role:
        raise Invalid("Invalid storage.access vend: temporary credentials of S3 need aws_iam_role")
    if wanted in {"sign", "static"} and not has_keys:
        raise Invalid(f"Invalid storage.access {wanted}: it needs storage.access_key_id and storage.secret_access_key")


def _check_pairs(given: frozenset[str]) -> None:
    for one, other in (("access_key_id", "secret_access_key"), ("account_name", "account_key")):
        if (one in given) != (other in given):
            missing = other if one in given else one
            raise Invalid(f"storage.{missing} is missing: storage.{one} and storage.{other} belong together")


def _check_texts(request: StorageRequest) -> None:
    for name in ("endpoint", "sts_endpoint"):
        if text := getattr(request, name):
            check_url(f"storage.{name}", text)
    for name, pattern, expected in (
        ("region", _REGION, "1 to 64 letters, digits and hyphens"),
        ("access_key_id", _KEY_ID, "1 to 256 printable characters without spaces"),
        ("account_name", _ACCOUNT, "3 to 24 lower case letters and digits"),
    ):
        text = getattr(request, name)
        if text and not pattern.match(text):
            raise Invalid(f"Invalid storage.{name}: expected {expected}")
    if request.secret_access_key and not _KEY_ID.match(request.secret_access_key):
        raise Invalid("Invalid storage.secret_access_key: expected 1 to 256 printable characters without spaces")
    if request.account_key and not _is_base64(request.account_key):
        raise Invalid("Invalid storage.account_key: expected Base64")
    if request.service_account:
        _check_service_account(request.service_account)


def _check_service_account(account: ServiceAccount) -> None:
    if len(msgspec.json.encode(account)) > SERVICE_ACCOUNT_CHARS_MAX:
        raise Invalid(f"Invalid storage.service_account: it has more than {SERVICE_ACCOUNT_CHARS_MAX} bytes")
    if not re.match(r"[\x21-\x7e]{3,320}\Z", account.client_email):
        raise Invalid("Invalid storage.service_account: client_email is not an address")
    if not account.private_key.lstrip().startswith("-----BEGIN "):
        raise Invalid("Invalid storage.service_account: private_key is not a key in PEM form")
    check_url("storage.service_account.token_uri", account.token_uri)


def check_url(what: str, text: str) -> None:
    """Raise Invalid unless the text is the URL of a service: http or https, a host, no user, query or fragment."""
    # Without the text: it may contain a password, or be a secret in the wrong field.
    problem = Invalid(f"Invalid {what}: expected http://HOST or https://HOST, without a user, a query or a fragment")
    if len(text) > TEXT_CHARS_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise problem
    try:
        parts = urlsplit(text)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        raise problem from None
    if parts.scheme not in {"http", "https"} or not has_host or set(text) & set('@?#\\"<>'):
        raise problem


def check_own_keys(fields: StorageFields, server: StorageProfile) -> None:
    """Raise Invalid if the server would use its own keys at an endpoint that neither its settings nor AWS has."""
    if fields.access_key_id or fields.cloud in {"azure", "gcs"}:
        return
    known = {text.rstrip("/") for text in (server.endpoint, server.sts_endpoint)}
    for name, url in (("endpoint", fields.endpoint), ("sts_endpoint", fields.sts_endpoint)):
        if url and url.rstrip("/") not in known and not _is_aws(url):
            raise Invalid(
                f"storage.{name} {url} needs storage.access_key_id: the server uses its own keys only for AWS and for "
                "the endpoints of its settings s3.endpoint and s3.sts_endpoint"
            )


def check_scheme(credential: str, cloud: Cloud | None, url: str) -> None:
    """Raise Invalid if a credential is for another cloud than a location. On a file system any credential will do."""
    wanted = _SCHEMES.get(url.partition("://")[0])
    if cloud and wanted and cloud != wanted:
        raise Invalid(f"Credential {credential} is for {cloud}, which cannot reach {url}")


def s3_profile(
    fields: StorageFields | None,
    secrets: StorageSecrets,
    server: StorageProfile,
    *,
    id_: str,
    role_arn: str,
    external_id: str,
) -> StorageProfile:
    """The profile of a credential of S3. What it does not say is as in the profile of the server, the keys included."""
    own = fields or StorageFields(access="vend")
    profile = replace(
        server,
        access=own.access,
        id=id_,
        path_style=server.path_style if own.path_style is None else own.path_style,
        endpoint=own.endpoint or server.endpoint,
        region=own.region or server.region,
        role_arn=role_arn,
        external_id=external_id,
        sts_endpoint=own.sts_endpoint or ("" if own.endpoint else server.sts_endpoint),
    )
    if not own.access_key_id:
        return profile
    return replace(
        profile, access_key_id=own.access_key_id, secret_access_key=secrets.secret_access_key, session_token=""
    )


def azure_profile(
    fields: StorageFields, secrets: StorageSecrets, server: StorageProfile, *, id_: str
) -> StorageProfile:
    """The profile of a credential of Azure. The account itself says whether it is hierarchical."""
    return replace(
        server,
        access=fields.access,
        id=id_,
        endpoint=fields.endpoint,
        account_name=fields.account_name,
        account_key=secrets.account_key,
        hierarchical=True,
    )


def gcs_profile(fields: StorageFields, secrets: StorageSecrets, server: StorageProfile, *, id_: str) -> StorageProfile:
    """The profile of a credential of Google Cloud."""
    return replace(
        server,
        access=fields.access,
        id=id_,
        endpoint=fields.endpoint or server.endpoint,
        service_account=secrets.service_account,
        bearer_token="",
    )


def _is_base64(text: str) -> bool:
    try:
        return len(text) <= TEXT_CHARS_MAX and bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def _is_aws(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and bool(_AWS_HOST.match(parts.hostname or ""))
