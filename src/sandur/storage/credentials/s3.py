"""Temporary credentials for S3, issued by STS with a session policy."""

import asyncio
import datetime as dt
import functools
import os
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import httpx

from sandur.catalog.credentials.access_policies import s3_policy
from sandur.catalog.credentials.profiles import DEFAULT_REGION, AccessScope, Keys, StorageCredential, StorageProfile
from sandur.clock import Clock
from sandur.errors import ServiceRefused, Unavailable
from sandur.settings import S3Settings, seconds_of
from sandur.trace_context import WITH_TRACE

_TIMEOUT: Final = httpx.Timeout(5, connect=3)
_ANSWER_BYTES_MAX: Final = 1 << 20
_SESSION_NAME: Final = "sandur"
_API_VERSION: Final = "2011-06-15"
_SERVER_ERRORS: Final = 500
_TOO_MANY: Final = 429
_OK: Final = 200
# A client error that another try may not have.
_TRANSIENT_CODES: Final = frozenset({"Throttling", "ThrottlingException", "RequestThrottled", "IDPCommunicationError"})


def own_profile(settings: S3Settings) -> StorageProfile:
    """The profile of the server's own bucket. What the settings leave out comes from the environment."""
    region = settings.region or os.environ.get("AWS_REGION") or os.environ.get("AWSDEFAULT_REGION") or ""
    endpoint = settings.endpoint or os.environ.get("AWS_ENDPOINT") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return StorageProfile(
        cloud="s3",
        access=settings.access,
        path_style=settings.path_style,
        endpoint=endpoint,
        region=region,
        access_key_id=settings.access_key_id,
        secret_access_key=settings.secret_access_key,
        session_token=settings.session_token,
        role_arn=settings.role_arn,
        sts_endpoint=settings.sts_endpoint,
        lifetime_seconds=seconds_of(settings.credential_lifetime),
    )


async def issue(profile: StorageProfile, scope: AccessScope, clock: Clock) -> StorageCredential:
    """A credential for the scope, by AssumeRole; for access `static`, the keys of the profile.

    Raises Unavailable if STS does not answer, ServiceRefused if it refuses, and Unsupported if the scope cannot be
    confined.
    """
    if profile.access == "static":
        keys = await profile_keys(profile)
        return _credential(profile, scope, keys, expires_ms=0)
    partition = profile.role_arn.split(":")[1] if profile.role_arn.startswith("arn:") else "aws"
    policy = s3_policy(scope, partition=partition, with_keys=not profile.endpoint)
    form = {
        "Action": "AssumeRole",
        "Version": _API_VERSION,
        "RoleArn": profile.role_arn,
        "RoleSessionName": _SESSION_NAME,
        "DurationSeconds": str(profile.lifetime_seconds),
        "Policy": policy,
        **({"ExternalId": profile.external_id} if profile.external_id else {}),
    }
    url = _sts_url(profile, partition)
    answer = await _post(url, form, await profile_keys(profile), profile.region or DEFAULT_REGION)
    keys, expires_ms = _issued(answer, url)
    if expires_ms <= clock.now_ms():
        raise Unavailable(f"STS at {url} issued a credential that has expired already; compare the clocks")
    return _credential(profile, scope, keys, expires_ms=expires_ms)


def _credential(profile: StorageProfile, scope: AccessScope, keys: Keys, *, expires_ms: int) -> StorageCredential:
    return StorageCredential(
        profile=profile,
        scope=scope,
        expires_ms=expires_ms,
        access_key_id=keys.access_key_id,
        secret_access_key=keys.secret_access_key,
        session_token=keys.session_token,
    )


async def profile_keys(profile: StorageProfile) -> Keys:
    """The keys that the server itself uses: those of the profile or, if it has none, those of the environment.

    The environment has variables, shared files, a web identity, or the role of a container or machine. Raises
    ServiceRefused if it has no keys either.
    """
    if profile.access_key_id:
        return Keys(profile.access_key_id, profile.secret_access_key, profile.session_token)
    found = await asyncio.to_thread(_environment_keys)
    if found is None:
        raise ServiceRefused(
            "the server has no keys for S3: set s3.access_key_id and s3.secret_access_key, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or run it with a role"
        )
    return found


def _environment_keys() -> Keys | None:
    """The keys of the environment, as botocore finds and refreshes them; None without keys."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - large

    try:
        credentials = _environment_credentials()
        if credentials is None:
            _environment_credentials.cache_clear()  # The role of a machine may come later.
            return None
        frozen = credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise Unavailable(f"the keys for S3 cannot be read from the environment: {type(error).__name__}") from None
    return Keys(frozen.access_key, frozen.secret_key, frozen.token or "")


@functools.cache
def _environment_credentials():  # type: ignore[no-untyped-def]  # noqa: ANN202 - botocore has no types
    """The credentials that botocore finds, which refresh themselves."""
    from botocore.session import Session  # noqa: PLC0415 - large

    return Session().get_credentials()


def _sts_url(profile: StorageProfile, partition: str) -> str:
    if endpoint := profile.sts_endpoint or profile.endpoint:
        return endpoint.rstrip("/") + "/"
    suffix = ".cn" if partition == "aws-cn" else ""
    return f"https://sts.{profile.region or DEFAULT_REGION}.amazonaws.com{suffix}/"


async def _post(url: str, form: Mapping[str, str], keys: Keys, region: str) -> bytes:
    """The answer of STS to a signed form. Raises Unavailable or ServiceRefused, without anything secret in the text."""
    body = urlencode(form).encode()
    headers = _signed_headers(url, body, keys, region)
    try:
        # The signature covers the headers that it names: `traceparent`, added later, is not one of them.
        async with httpx.AsyncClient(
            timeout=_TIMEOUT, verify=_tls(), trust_env=False, event_hooks=WITH_TRACE
        ) as client:
            response = await client.post(url, content=body, headers=headers)
    except httpx.HTTPError as error:
        raise Unavailable(f"STS at {url} does not answer: {type(error).__name__}") from None
    if response.status_code != _OK:
        code = _error_code(response.content)
        text = f"STS at {url} answered {response.status_code} {code}".rstrip()
        is_transient = response.status_code >= _SERVER_ERRORS or response.status_code == _TOO_MANY
        raise Unavailable(text) if is_transient or code in _TRANSIENT_CODES else ServiceRefused(text)
    return response.content


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _signed_headers(url: str, body: bytes, keys: Keys, region: str) -> Mapping[str, str]:
    from botocore.auth import SigV4Auth  # noqa: PLC0415 - large, and only here
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - likewise
    from botocore.credentials import Credentials  # noqa: PLC0415 - likewise

    content_type = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    request = AWSRequest(method="POST", url=url, data=body, headers=content_type)
    credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token or None)
    SigV4Auth(credentials, "sts", region).add_auth(request)
    return dict(request.headers.items())


def _issued(answer: bytes, url: str) -> tuple[Keys, int]:
    """The keys in an answer of STS, and when they expire."""
    fields = _fields(answer, "Credentials")
    try:
        expires = dt.datetime.fromisoformat(fields["Expiration"])
        if expires.tzinfo is None:
            expires = expires.replace(tzinfo=dt.UTC)
        keys = Keys(fields["AccessKeyId"], fields["SecretAccessKey"], fields["SessionToken"])
    except (KeyError, ValueError):
        raise Unavailable(f"STS at {url} answered without a complete credential") from None
    if not all(keys):
        raise Unavailable(f"STS at {url} answered without a complete credential")
    return keys, int(expires.timestamp() * 1_000)


def _error_code(answer: bytes) -> str:
    """The code of an error; empty unless it is harmless to quote."""
    code = _fields(answer, "Error").get("Code", "")
    return code if code.isascii() and code.replace(".", "").isalnum() and len(code) <= 100 else ""  # noqa: PLR2004


def _fields(answer: bytes, element: str) -> Mapping[str, str]:
    """The texts inside the first element of that name; empty if it is absent or the answer is not plain XML.

    An answer with a document type is refused: only there could entities be defined.
    """
    if len(answer) > _ANSWER_BYTES_MAX or b"<!" in answer:
        return {}
    try:
        root = ET.fromstring(answer)  # noqa: S314 - bounded, and without a document type
    except ET.ParseError:
        return {}
    found = root if root.tag.rpartition("}")[2] == element else root.find(f".//{{*}}{element}")
    return {child.tag.rpartition("}")[2]: child.text or "" for child in found} if found is not None else {}
