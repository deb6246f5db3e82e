"""The storage profile of a location: how its storage is reached, and how clients get access to it."""

from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.storage_profiles import StorageProfile
from sandur.operations.lake import Lake
from sandur.storage.credentials import azure, gcs
from sandur.storage.credentials.s3 import own_profile


async def profile_of(lake: Lake, location: str) -> StorageProfile | None:
    """The profile of the storage that holds a location; None if the location needs no credential, as a folder.

    Below the server's own root and the roots that its settings allow, it is the profile of the settings.
    """
    plain = normalize_location(location)
    if not any(is_within(plain, root) for root in (lake.locations.own, *lake.locations.others)):
        return None
    return _profile_of_settings(lake, plain.partition("://")[0])


def _profile_of_settings(lake: Lake, scheme: str) -> StorageProfile | None:
    match scheme:
        case "s3":
            return lake.feature(_s3_profile)
        case "gs":
            return lake.feature(_gcs_profile)
        case "az" | "abfs" | "azure":
            return lake.feature(_azure_profile)
        case _:
            return None


def _s3_profile(lake: Lake) -> StorageProfile:
    return own_profile(lake.settings.s3)


def _gcs_profile(lake: Lake) -> StorageProfile:
    return gcs.own_profile(lake.settings.gcs)


def _azure_profile(lake: Lake) -> StorageProfile:
    return azure.own_profile(lake.settings.azure)
