"""Storage credentials as clients get them: properties of Iceberg, fields of Unity Catalog and Delta."""

import hashlib
from collections.abc import Mapping
from typing import Final, assert_never

from sandur.catalog.credentials.profiles import DEFAULT_REGION, Cloud, StorageCredential, StorageProfile

REFRESH_ENDPOINTS: Final[Mapping[Cloud, str]] = {
    "s3": "client.refresh-credentials-endpoint",
    "gcs": "gcs.oauth2.refresh-credentials-endpoint",
    "azure": "adls.refresh-credentials-endpoint",
}
"""The property that names where a client of Iceberg gets new credentials."""


def iceberg_properties(credential: StorageCredential) -> Mapping[str, str]:
    """The properties by which Iceberg's clients use a credential."""
    match credential.profile.cloud:
        case "s3":
            return {**s3_client_properties(credential.profile), **_s3_keys(credential)}
        case "gcs":
            return _gcs_token(credential)
        case "azure":
            return _azure_signature(credential)
        case cloud:
            assert_never(cloud)


def s3_client_properties(profile: StorageProfile) -> Mapping[str, str]:
    """How a client reaches S3, without keys. PyIceberg reads another name of the region than Java."""
    properties = {"s3.path-style-access": "true"} if profile.path_style and profile.endpoint else {}
    if profile.region:
        properties |= {"client.region": profile.region, "s3.region": profile.region}
    if profile.endpoint:
        # ClickHouse 26.9 finds no file if the slash at the end is missing; the other clients ignore it.
        properties["s3.endpoint"] = profile.endpoint.rstrip("/") + "/"
    return properties


def signing_properties(profile: StorageProfile, endpoint: str) -> Mapping[str, str]:
    """The properties by which Iceberg's clients have their requests to S3 signed.

    `endpoint` is relative to the address of the catalog, which each client knows; the server may not know its own.
    PyIceberg can have them signed only with s3fs, and would choose another library.
    """
    region = profile.region or DEFAULT_REGION
    return {
        **s3_client_properties(profile),
        "client.region": region,
        "s3.region": region,
        "s3.remote-signing-enabled": "true",
        "s3.signer": "S3V4RestSigner",
        "s3.signer.endpoint": endpoint,
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }


def _s3_keys(credential: StorageCredential) -> Mapping[str, str]:
    properties = {
        "s3.access-key-id": credential.access_key_id,
        "s3.secret-access-key": credential.secret_access_key,
    }
    if credential.session_token:
        properties["s3.session-token"] = credential.session_token
    if credential.expires_ms:
        properties["s3.session-token-expires-at-ms"] = str(credential.expires_ms)
    return properties


def _gcs_token(credential: StorageCredential) -> Mapping[str, str]:
    properties = {
        "gcs.oauth2.token": credential.oauth_token,
        "gcs.oauth2.token-expires-at": str(credential.expires_ms),
    }
    if credential.profile.endpoint:
        properties["gcs.service.host"] = credential.profile.endpoint
    return properties


def _azure_signature(credential: StorageCredential) -> Mapping[str, str]:
    """Java looks a signature up by the host of a path, older versions by the account; PyIceberg reads neither."""
    account = credential.profile.account_name
    hosts = {account, f"{account}.dfs.core.windows.net"}
    hosts |= {host for location in credential.scope.locations if (host := _azure_host(location))}
    properties = {"adls.account-name": account, "adls.sas-token": credential.sas_token}
    for host in sorted(hosts):
        properties[f"adls.sas-token.{host}"] = credential.sas_token
        properties[f"adls.sas-token-expires-at-ms.{host}"] = str(credential.expires_ms)
    return properties


def _azure_host(location: str) -> str:
    """The host in `abfs://container@host/path`; empty if the location names none."""
    return location.partition("://")[2].partition("/")[0].partition("@")[2]


def credential_prefix(credential: StorageCredential) -> str:
    """The prefix of a table's one entry in `storage-credentials`: clients use the entry for the paths that begin so.

    Tables with several locations get the part that all of them begin with: Java refreshes only a single entry. The
    credential itself is confined to the locations.
    """
    locations = credential.scope.locations
    if len(locations) == 1:
        return locations[0]
    roots = {
        location.partition("://")[0] + "://" + location.partition("://")[2].split("/")[0] for location in locations
    }
    return f"{roots.pop()}/" if len(roots) == 1 else locations[0].partition("://")[0]


def unity_fields(credential: StorageCredential) -> Mapping[str, Mapping[str, str]]:
    """The fields of a credential in an answer of Unity Catalog. Keys that do not expire have an empty session token."""
    match credential.profile.cloud:
        case "s3":
            keys = {
                "access_key_id": credential.access_key_id,
                "secret_access_key": credential.secret_access_key,
                "session_token": credential.session_token,
            }
            return {"aws_temp_credentials": keys}
        case "azure":
            return {"azure_user_delegation_sas": {"sas_token": credential.sas_token}}
        case "gcs":
            return {"gcp_oauth_token": {"oauth_token": credential.oauth_token}}
        case cloud:
            assert_never(cloud)


def delta_config(credential: StorageCredential) -> Mapping[str, str]:
    """The configuration of a credential in an answer of the Delta API, with the keys of exactly one cloud."""
    match credential.profile.cloud:
        case "s3":
            return {
                "s3.access-key-id": credential.access_key_id,
                "s3.secret-access-key": credential.secret_access_key,
                "s3.session-token": credential.session_token,
            }
        case "azure":
            return {"azure.sas-token": credential.sas_token}
        case "gcs":
            return {"gcs.oauth-token": credential.oauth_token}
        case cloud:
            assert_never(cloud)


def credential_tag(text: str, credential: StorageCredential | None) -> str:
    """A hash of the text that changes with every new credential, and reveals nothing about it."""
    hashed = hashlib.sha256(text.encode())
    if credential:
        keys = f"\n{credential.access_key_id}\n{credential.secret_access_key}\n{credential.expires_ms}\n"
        hashed.update(f"{keys}{credential.oauth_token}{credential.sas_token}".encode())
    return hashed.hexdigest()
