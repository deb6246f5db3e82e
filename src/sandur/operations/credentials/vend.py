"""Storage credentials for clients: issued for exactly the locations of one table, and cached while they are young."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.catalog.credentials.access_policies import access_scope
from sandur.catalog.credentials.profiles import AccessScope, Cloud, StorageCredential, StorageProfile
from sandur.clock import Clock
from sandur.errors import SandurError, ServiceRefused, Unavailable, Unfit, Unsupported
from sandur.operations.audit.notes import note_credentials
from sandur.operations.caches import LruCache
from sandur.operations.counters import CREDENTIALS, Counters
from sandur.operations.credentials.profiles import Profiles, needs_credentials, read_profiles
from sandur.operations.lake import Lake
from sandur.storage.credentials import azure, gcs, s3
from sandur.storage.retry import retried

CREDENTIALS_MAX: Final = 4_096
"""Credentials that one workspace keeps in memory. A session token has up to a few kilobytes."""

ISSUES_AT_ONCE: Final = 16
ISSUE_SECONDS_MAX: Final = 10.0
"""How long a request waits for the issuer, with all tries."""

PAUSE_MS: Final = 5_000
"""How long nothing is requested of an issuer that failed: loads must not wait for it one after the other."""

Issue = Callable[[StorageProfile, AccessScope, Clock], Awaitable[StorageCredential]]
ISSUERS: Final[Mapping[Cloud, Issue]] = {"s3": s3.issue, "gcs": gcs.issue, "azure": azure.issue}


class IssuerPaused(Unavailable):
    """The issuer failed a moment ago, and is not called again for some seconds."""


async def vend(lake: Lake, locations: Sequence[str], *, writes: bool) -> StorageCredential | None:
    """A credential for everything below the locations, for a caller that has been authorized already.

    None if clients get no credential for them: they need none, or their profile says so, or requests are signed
    instead. Raises Unavailable if the issuer fails, and Unsupported if a credential cannot be confined to them.
    """
    profile = await shared_profile(lake, locations)
    if profile is None or profile.access in {"none", "sign"}:
        return None
    credential = await cached_credential(lake, profile, access_scope(locations, writes=writes))
    note_vended(credential)
    return credential


async def cached_credential(lake: Lake, profile: StorageProfile, scope: AccessScope) -> StorageCredential:
    """A credential of the cache, or a new one. The caller notes it once the client gets it."""
    return await lake.feature(CredentialCache).credential(profile, scope)


def note_vended(credential: StorageCredential) -> None:
    """Note for the audit trail that the client of the request gets the credential."""
    scope = credential.scope
    note_credentials(
        scope.locations,
        "write" if scope.writes else "read",
        access=credential.profile.access,
        expires_ms=credential.expires_ms,
    )


async def shared_profile(lake: Lake, locations: Sequence[str], known: Profiles | None = None) -> StorageProfile | None:
    """The profile of all these locations, of the known ones if given. Unsupported if they have different ones."""
    if known is None and not any(map(needs_credentials, locations)):
        return None
    profiles = known or await read_profiles(lake)
    found = [profiles.of(location) for location in locations]
    if any(profile != found[0] for profile in found):
        raise Unsupported("No credential for a table whose locations lie in storage with different credentials")
    return found[0] if found else None


async def probe_access(lake: Lake, profile: StorageProfile) -> bool:
    """Whether credentials are issued for the server's own store; False if its clients get none.

    Issues one that reads an empty folder. Raises Unfit if that fails.
    """
    if profile.access != "vend":
        return False
    scope = access_scope([f"{lake.area}/_probe"], writes=False)
    try:
        await ISSUERS[profile.cloud](profile, scope, lake.clock)
    except (Unavailable, Unsupported) as error:
        raise Unfit(f"credentials for clients cannot be issued: {error}") from error
    return True


class _Issued(NamedTuple):
    credential: StorageCredential
    half_ms: int
    """When half of its life is over."""


class CredentialCache:
    """The credentials of one workspace. For each profile and scope at most one is being issued.

    The profile contains the secrets that a credential is issued with: new secrets never get an old credential.
    """

    def __init__(self, lake: Lake) -> None:
        self._clock = lake.clock
        self._retries = lake.settings.retry
        self._counters = lake.feature(Counters)
        self._issued: LruCache[tuple[StorageProfile, AccessScope], _Issued] = LruCache(CREDENTIALS_MAX)
        self._in_flight: dict[tuple[StorageProfile, AccessScope], asyncio.Task[StorageCredential]] = {}
        self._failed_ms: LruCache[StorageProfile, int] = LruCache(CREDENTIALS_MAX)
        self._at_once = asyncio.Semaphore(ISSUES_AT_ONCE)
        lake.on_close(self._close)

    async def credential(self, profile: StorageProfile, scope: AccessScope) -> StorageCredential:
        """A credential that has at least half of its life left."""
        found = self._issued.get((profile, scope))
        if found and (self._clock.now_ms() <= found.half_ms or not found.credential.expires_ms):
            self._counters.add(CREDENTIALS, f"{profile.cloud} cached")
            return found.credential
        task = self._in_flight.get((profile, scope))
        if task is None:
            self._check_pause(profile)
            task = self._in_flight[profile, scope] = asyncio.create_task(self._issue(profile, scope))
            task.add_done_callback(lambda done: self._forget(profile, scope, done))
        # A client that leaves must not take the credential from others that wait for it.
        return await asyncio.shield(task)

    def _check_pause(self, profile: StorageProfile) -> None:
        failed_ms = self._failed_ms.get(profile)
        if failed_ms is not None and self._clock.now_ms() < failed_ms + PAUSE_MS:
            raise IssuerPaused("The issuer of storage credentials failed a moment ago; try again in some seconds")

    async def _issue(self, profile: StorageProfile, scope: AccessScope) -> StorageCredential:
        began_ms = self._clock.now_ms()
        issue = ISSUERS[profile.cloud]
        try:
            async with asyncio.timeout(ISSUE_SECONDS_MAX), self._at_once:
                credential = await retried(lambda: issue(profile, scope, self._clock), self._clock, self._retries)
        except TimeoutError:
            raise self._failed(profile, Unavailable("the issuer did not answer in time")) from None
        except Unavailable as error:
            raise self._failed(profile, error) from error
        except SandurError:
            self._counters.add(CREDENTIALS, f"{profile.cloud} refused")
            raise
        self._counters.add(CREDENTIALS, f"{profile.cloud} issued")
        half_ms = began_ms + (credential.expires_ms - began_ms) // 2
        self._issued[profile, scope] = _Issued(credential, half_ms)
        return credential

    def _failed(self, profile: StorageProfile, error: Unavailable) -> Unavailable:
        self._failed_ms[profile] = self._clock.now_ms()
        self._counters.add(CREDENTIALS, f"{profile.cloud} failed")
        kind = ServiceRefused if isinstance(error, ServiceRefused) else Unavailable
        return kind(f"No storage credentials: {error}")

    def _forget(self, profile: StorageProfile, scope: AccessScope, done: asyncio.Task[StorageCredential]) -> None:
        self._in_flight.pop((profile, scope), None)
        if not done.cancelled():
            done.exception()  # Every client that waited for it may have left.

    async def _close(self) -> None:
        await asyncio.gather(*self._in_flight.values(), return_exceptions=True)
