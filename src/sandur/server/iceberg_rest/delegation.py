"""Access delegation: what a client that sends `X-Iceberg-Access-Delegation` gets for the files of a table."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, assert_never

import msgspec
import structlog

from sandur.catalog.credentials.profiles import ClientAccess, StorageCredential, StorageProfile
from sandur.catalog.credentials.properties import (
    REFRESH_ENDPOINTS,
    credential_prefix,
    iceberg_properties,
    signing_properties,
)
from sandur.catalog.identifiers import Identifier
from sandur.operations.credentials.table_access import Delegated
from sandur.operations.credentials.vend import IssuerPaused
from sandur.server.context import Call

log = structlog.get_logger()

_encode: Final = msgspec.json.Encoder().encode
_MODES: Final[Mapping[str, frozenset[ClientAccess]]] = {
    "vended-credentials": frozenset({"vend", "static"}),
    "remote-signing": frozenset({"sign"}),
}
_HEADERS_REMEMBERED_MAX: Final = 64
_ENCODED_MAX: Final = 1_024

NOTHING: Final = (b"", b"")

_SIGNS_BY_LOCATION: Final = "v1/aws/s3/sign"


def accepted(call: Call) -> frozenset[ClientAccess]:
    """The kinds of access that the client accepts; none if it does not delegate."""
    header = call.http.header(b"x-iceberg-access-delegation")
    return _accepted(header) if header else frozenset()


@lru_cache(_HEADERS_REMEMBERED_MAX)
def _accepted(header: str) -> frozenset[ClientAccess]:
    modes = [_MODES.get(mode.strip().lower(), frozenset[ClientAccess]()) for mode in header.split(",")]
    return frozenset[ClientAccess]().union(*modes)


def access_fields(
    call: Call, identifier: Identifier, delegated: Delegated, path: str, *, is_staged: bool = False
) -> tuple[bytes, bytes]:
    """The properties of the client and its storage credentials, both as JSON; empty without access.

    `path` is that of the table: below it the client gets new credentials and signatures. An access that failed is
    logged: its client gets the metadata alone.
    """
    if delegated.failure and not isinstance(delegated.failure, IssuerPaused):
        log.warning(
            "no storage credentials",
            table=str(identifier),
            reason=f"{type(delegated.failure).__name__}: {delegated.failure}",
            request_id=call.http.request_id,
        )
    access = delegated.access
    if access is None:
        return NOTHING
    match access.profile.access:
        case "vend" | "static":
            return _encoded(access.credential, f"{path}/credentials") if access.credential else NOTHING
        case "sign":
            return _encoded_signer(access.profile, _signer(call, path, is_staged=is_staged)), b""
        case "none":
            return NOTHING
        case kind:
            assert_never(kind)


def _signer(call: Call, path: str, *, is_staged: bool) -> str:
    """Where the client has its requests signed.

    PyIceberg uses the signer of the table that it opened last for all tables: s3fs shares one connection among them.
    So it gets the route that finds the table by the location of a file, unless the table is staged.
    """
    is_pyiceberg = (call.http.header(b"user-agent") or "").startswith("PyIceberg")
    return _SIGNS_BY_LOCATION if is_pyiceberg and not is_staged else f"{path}/sign"


@lru_cache(_ENCODED_MAX)
def _encoded_signer(profile: StorageProfile, endpoint: str) -> bytes:
    return _encode(signing_properties(profile, endpoint))


@lru_cache(_ENCODED_MAX)
def _encoded(credential: StorageCredential, endpoint: str) -> tuple[bytes, bytes]:
    """The properties, for older clients, and the one entry of the list, for newer ones. Both contain the credential."""
    properties = dict(iceberg_properties(credential))
    if credential.expires_ms:
        properties[REFRESH_ENDPOINTS[credential.profile.cloud]] = endpoint
    encoded = _encode(properties)
    return encoded, b'[{"prefix":' + _encode(credential_prefix(credential)) + b',"config":' + encoded + b"}]"
