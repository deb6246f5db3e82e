"""The storage profile of a location: how its storage is reached, and how clients get access to it."""

from collections.abc import Callable, Mapping
from typing import Final

from sandur.catalog.credentials.profiles import StorageProfile
from sandur.catalog.credentials.registry import Credential, ExternalLocation, StorageRegistry, credential_of
from sandur.catalog.credentials.storage_access import azure_profile, gcs_profile, s3_profile
from sandur.catalog.locations import is_within, normalize_location
from sandur.errors import ServiceRefused, Unavailable, Unfit
from sandur.operations.credentials.sealed_secrets import Sealing
from sandur.operations.lake import Lake
from sandur.setting_sources import environment_variable
from sandur.storage.credentials import azure, gcs, s3

LOCATIONS_MAX: Final = 10_000
"""Locations whose profile is remembered."""

RECENT_MS: Final = 5_000
"""How old the profiles may be by which a load of a table gives access to its files."""


def needs_credentials(location: str) -> bool:
    """Whether a client needs credentials for the location: it does unless it is a folder, or memory."""
    return not normalize_location(location).startswith(("file://", "memory://"))


async def read_profiles(lake: Lake) -> "Profiles":
    """The profiles of all locations, by a read of the registry that begins now."""
    return await lake.feature(_LastProfiles).read()


def recent_profiles(lake: Lake) -> "Profiles | None":
    """The profiles as this process read them in the last seconds; None if it has not.

    A load of a table needs no read more for them: what they are used for lives much longer.
    """
    return lake.feature(_LastProfiles).recent


def own_store_profile(lake: Lake) -> StorageProfile | None:
    """The profile that the settings give the server's own store; None for a folder."""
    own = _OWN.get(lake.area.partition("://")[0])
    return lake.feature(own) if own else None


async def check_own_access(lake: Lake) -> None:
    """Raise Unfit if the settings let clients into the server's own bucket, and the server has no keys for that."""
    profile = (await read_profiles(lake)).of(lake.area) if needs_credentials(lake.area) else None
    if profile is None or profile.access == "none" or profile.cloud != "s3":
        return
    try:
        await s3.profile_keys(profile)
    except ServiceRefused as error:
        raise Unfit(f"setting s3.access is {profile.access!r}: {error}") from error
    except Unavailable:  # A machine's role may be reachable later; until then only credentials are unavailable.
        return


class Profiles:
    """The profiles of all locations, by one state of the registry of credentials and external locations.

    The credential of the external location that covers a location is its profile, if it has a role or storage fields.
    Otherwise, below the server's own root and the roots that its settings allow, it is the profile of the settings.
    """

    def __init__(self, lake: Lake, registry: StorageRegistry, version: str) -> None:
        self.version = version
        self._lake = lake
        self._registry = registry
        self._locations = {one.url: one for one in registry.locations.values()}
        self._profiles: dict[str, StorageProfile] = {}
        self._found: dict[str, StorageProfile | None] = {}

    def of(self, location: str) -> StorageProfile | None:
        """The profile of a location; None if the server knows nothing of its storage.

        Raises ServiceRefused if the secrets of its credential cannot be opened.
        """
        if location in self._found:
            return self._found[location]
        if len(self._found) >= LOCATIONS_MAX:
            self._found.clear()
        found = self._found[location] = self._find(normalize_location(location))
        return found

    def _find(self, plain: str) -> StorageProfile | None:
        covering = self._covering(plain)
        if covering and (profile := self._of_external(covering)):
            return profile
        if not any(is_within(plain, root) for root in (self._lake.locations.own, *self._lake.locations.others)):
            return None
        return self._of_settings(plain.partition("://")[0])

    def reason(self, location: str) -> str:
        """Why clients get no credential for a location whose access is `none`; it says what to change."""
        covering = self._covering(normalize_location(location))
        credential = credential_of(self._registry, covering) if covering else None
        if covering and credential is None:
            return f"the external location {covering.name} has no credential; set its credential_name"
        if credential and credential.storage and credential.storage.access == "none":
            return f'the credential {credential.name} has "none" as its storage.access; set it to "vend"'
        own = self._of_settings(normalize_location(location).partition("://")[0])
        section = own.cloud if own else "s3"
        variable = environment_variable(f"{section}.access")
        return f'the setting {section}.access ({variable}) is "none"; set it to "vend", or give clients their own keys'

    def _covering(self, plain: str) -> ExternalLocation | None:
        """The external location that the location is at or below. They never overlap."""
        found = self._locations.get(plain)
        while found is None and "/" in plain.partition("://")[2]:
            plain = plain.rpartition("/")[0]
            found = self._locations.get(plain)
        return found

    def _of_external(self, location: ExternalLocation) -> StorageProfile | None:
        credential = credential_of(self._registry, location)
        if credential is None:  # It was dropped by force: nothing says how to reach the location.
            return StorageProfile(cloud="s3", access="none", id=location.credential_id)
        if credential.aws_iam_role is None and credential.storage is None:
            return None
        profile = self._profiles.get(credential.id)
        if profile is None:
            profile = self._profiles[credential.id] = self._made(credential)
        return profile

    def _made(self, credential: Credential) -> StorageProfile:
        try:
            secrets = self._lake.feature(Sealing).open(credential)
        except Unfit as error:
            raise ServiceRefused(str(error)) from error
        fields, role = credential.storage, credential.aws_iam_role
        if fields and credential.cloud == "azure":
            return azure_profile(fields, secrets, self._lake.feature(_own_azure_profile), id_=credential.id)
        if fields and credential.cloud == "gcs":
            return gcs_profile(fields, secrets, self._lake.feature(_own_gcs_profile), id_=credential.id)
        return s3_profile(
            fields,
            secrets,
            self._lake.feature(_own_s3_profile),
            id_=credential.id,
            role_arn=role.role_arn if role else "",
            external_id=(role.external_id or credential.id) if role else "",
        )

    def _of_settings(self, scheme: str) -> StorageProfile | None:
        own = _OWN.get(scheme)
        return self._lake.feature(own) if own else None


class _LastProfiles:
    """The profiles of one workspace, as this process read them last."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._last = Profiles(lake, StorageRegistry(), "")
        self._read_ms: int | None = None

    @property
    def recent(self) -> Profiles | None:
        is_recent = self._read_ms is not None and self._lake.clock.now_ms() < self._read_ms + RECENT_MS
        return self._last if is_recent else None

    async def read(self) -> Profiles:
        began_ms = self._lake.clock.now_ms()
        cell = self._lake.storage_registry()
        found = await cell.read()
        version = found.version if found else ""
        if self._last.version != version:
            self._last = Profiles(self._lake, found.value if found else StorageRegistry(), version)
        self._read_ms = began_ms
        return self._last


def _own_s3_profile(lake: Lake) -> StorageProfile:
    return s3.own_profile(lake.settings.s3)


def _own_gcs_profile(lake: Lake) -> StorageProfile:
    return gcs.own_profile(lake.settings.gcs)


def _own_azure_profile(lake: Lake) -> StorageProfile:
    return azure.own_profile(lake.settings.azure)


_OWN: Final[Mapping[str, Callable[[Lake], StorageProfile]]] = {
    "s3": _own_s3_profile,
    "gs": _own_gcs_profile,
    **dict.fromkeys(("az", "abfs", "azure"), _own_azure_profile),
}
"""The profile of the settings, by the scheme of a location."""
