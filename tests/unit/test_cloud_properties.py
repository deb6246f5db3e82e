"""The properties by which clients use credentials of Google and Azure."""

from sandur.catalog.credentials.profiles import AccessScope, StorageCredential, StorageProfile
from sandur.catalog.credentials.properties import iceberg_properties

TOKEN = "confined"  # noqa: S105 - not a secret


def gcs_credential(*, endpoint: str = "") -> StorageCredential:
    return StorageCredential(
        profile=StorageProfile(cloud="gcs", access="vend", endpoint=endpoint),
        scope=AccessScope(locations=("gs://lake/t",), writes=False),
        expires_ms=1_767_229_200_000,
        oauth_token=TOKEN,
    )


def azure_credential(location: str) -> StorageCredential:
    return StorageCredential(
        profile=StorageProfile(cloud="azure", access="vend", account_name="acct"),
        scope=AccessScope(locations=(location,), writes=False),
        expires_ms=1_767_229_200_000,
        sas_token="sv=1&sig=2",  # noqa: S106 - not a secret
    )


def test_a_token_of_google_has_its_expiry() -> None:
    assert iceberg_properties(gcs_credential()) == {
        "gcs.oauth2.token": TOKEN,
        "gcs.oauth2.token-expires-at": "1767229200000",
    }


def test_clients_are_sent_to_the_endpoint_of_the_settings() -> None:
    assert iceberg_properties(gcs_credential(endpoint="http://gcs"))["gcs.service.host"] == "http://gcs"


def test_a_signature_of_azure_is_found_by_account_by_host_and_without_either() -> None:
    """By host in Java, by account in Java before 1.8, without either in PyIceberg."""
    found = iceberg_properties(azure_credential("abfs://data@acct.dfs.core.windows.net/t"))

    assert found == {
        "adls.account-name": "acct",
        "adls.sas-token": "sv=1&sig=2",
        "adls.sas-token.acct": "sv=1&sig=2",
        "adls.sas-token.acct.dfs.core.windows.net": "sv=1&sig=2",
        "adls.sas-token-expires-at-ms.acct": "1767229200000",
        "adls.sas-token-expires-at-ms.acct.dfs.core.windows.net": "1767229200000",
    }


def test_a_signature_is_also_found_by_the_host_of_another_cloud_of_azure() -> None:
    host = "acct.dfs.core.chinacloudapi.cn"

    found = iceberg_properties(azure_credential(f"abfs://data@{host}/t"))

    assert found[f"adls.sas-token.{host}"] == "sv=1&sig=2"
    assert found[f"adls.sas-token-expires-at-ms.{host}"] == "1767229200000"
