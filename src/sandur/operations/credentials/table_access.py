"""Access of clients to the files of an Iceberg table: which locations, to read or to write, by which credential."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.credentials.access_policies import access_scope
from sandur.catalog.credentials.profiles import AccessScope, ClientAccess, StorageCredential, StorageProfile
from sandur.catalog.credentials.properties import credential_tag
from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import MANAGED_FOLDER, canonical_address, is_within, normalize_location, paths_of
from sandur.catalog.records import BoundRecord, head_of
from sandur.errors import Forbidden, Invalid, NotFound, SandurError, Unavailable, Unsupported
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.access import data_rights
from sandur.operations.caches import LruCache
from sandur.operations.credentials.profiles import Profiles, needs_credentials, read_profiles, recent_profiles
from sandur.operations.credentials.vend import cached_credential, note_vended, shared_profile
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import locations_of
from sandur.operations.tables.documents import (
    ETAG_LENGTH,
    TABLES,
    CurrentTable,
    LoadedTable,
    NotModified,
    Snapshots,
    current_table,
    etag_of,
    load_document,
    loaded_table,
)
from sandur.operations.tables.names import resolve_name
from sandur.operations.transactions.resolution import effective_record
from sandur.storage.cell import Versioned, gather_all

SITUATION: Final = "credentials"
"""The situation in which routes that create a table declare what its credentials need."""


Accepts = frozenset[ClientAccess]
"""The kinds of access that a client can use."""


class FileAccess(NamedTuple):
    """How a client gets access to the files of a table: by a credential or, without one, by signed requests."""

    profile: StorageProfile
    scope: AccessScope
    credential: StorageCredential | None = None


class Delegated(NamedTuple):
    """The access that a request gives to its client; None without the right, or if clients get none.

    `failure` is why it is missing although the caller has the right to it.
    """

    access: FileAccess | None = None
    failure: SandurError | None = None


NO_ACCESS: Final = Delegated()
EVERY_ACCESS: Final[Accepts] = frozenset({"vend", "static", "sign"})


async def load_with_access(
    lake: Lake,
    identifier: Identifier,
    accepts: Accepts,
    *,
    snapshots: Snapshots = "all",
    if_none_match: str | None = None,
) -> tuple[LoadedTable | NotModified, Delegated]:
    """A table as it is now, with the access that the caller has to its files. Its metadata never waits for an issuer.

    The ETag depends on the caller and on the credential, so that no client keeps one that is replaced by now.
    """
    table, profiles = await table_and_profiles(lake, identifier)
    delegated = await _table_access(lake, table, accepts, profiles)
    etag = etag_of(table.document.location, snapshots)
    if delegated.access:
        etag = etag_with_access(lake, etag, delegated.access)
    if if_none_match is not None and if_none_match == etag:
        return NotModified(etag), delegated
    _note(delegated)
    return loaded_table(lake, table.document, snapshots=snapshots, etag=etag), delegated


async def load_access(lake: Lake, identifier: Identifier) -> FileAccess | None:
    """The access to the files of a table, for a caller that may read them; None if clients get none.

    Raises Unavailable if the issuer fails, and Unsupported if the access cannot be confined to the table.
    """
    table, profiles = await table_and_profiles(lake, identifier)
    delegated = await _table_access(lake, table, EVERY_ACCESS, profiles)
    if delegated.failure:
        raise delegated.failure
    _note(delegated)
    return delegated.access


async def scan_access(lake: Lake, identifier: Identifier, accepts: Accepts) -> Delegated:
    """The access that a scan of the table needs: to read. None if the caller has no right to its files."""
    try:
        table, profiles = await table_and_profiles(lake, identifier, SITUATION)
    except (Forbidden, NotFound):
        return NO_ACCESS
    return _note(await _table_access(lake, table, accepts, profiles, reads_only=True))


async def access_to_created(lake: Lake, identifier: Identifier, loaded: LoadedTable, accepts: Accepts) -> Delegated:
    """The access to a table that the request created, registered or staged, or that an earlier attempt of it did.

    The caller's right is decided on the table as it is now: since that attempt it may have another owner.
    """
    if not needs_credentials(loaded.metadata_location or lake.area):
        return NO_ACCESS
    try:
        if loaded.metadata_location is None and not await _is_named(lake, identifier):
            scope = await _staged_scope(lake, identifier, loaded.table_uuid)
            return _note(await _access(lake, scope, accepts))
        table, profiles = await table_and_profiles(lake, identifier, SITUATION)
    except (Forbidden, NotFound):
        return NO_ACCESS
    except Unsupported as error:
        return Delegated(failure=error)
    if loaded.table_uuid.lower() not in {table.uuid.lower(), (table.document.metadata.table_uuid or "").lower()}:
        return NO_ACCESS
    return _note(await _table_access(lake, table, accepts, profiles))


async def table_and_profiles(
    lake: Lake, identifier: Identifier, situation: str = ""
) -> tuple[CurrentTable, Profiles | None]:
    """The table, and the profiles if they are known: in the same round, unless they were read a moment ago."""
    recent = recent_profiles(lake)
    if recent or lake.store.has_instant_reads:
        return await current_table(lake, identifier, situation=situation), recent
    return await gather_all((current_table(lake, identifier, situation=situation), read_profiles(lake)))


async def table_of_record(lake: Lake, record: Versioned[BoundRecord], missing: NotFound) -> CurrentTable:
    """The table of a record for which the caller has been authorized."""
    effective = (await effective_record(lake, record)).value
    head = head_of(effective)
    if head is None or effective.kind != "table":
        raise missing
    document = await load_document(lake, TABLES, head.metadata_location)
    return CurrentTable(document, effective.uuid, effective.places, None, ())


async def _table_access(
    lake: Lake, table: CurrentTable, accepts: Accepts, profiles: Profiles | None, *, reads_only: bool = False
) -> Delegated:
    try:
        scope = _scope_of(lake, table, reads_only=reads_only)
    except (Invalid, Unsupported) as error:  # A table of an older release, at a place that would be refused today.
        return Delegated(failure=Unsupported(str(error)))
    return await _access(lake, scope, accepts, profiles)


async def _access(
    lake: Lake, scope: AccessScope | None, accepts: Accepts, profiles: Profiles | None = None
) -> Delegated:
    if scope is None:
        return NO_ACCESS
    try:
        profile = await shared_profile(lake, scope.locations, profiles)
        if profile is None or profile.access not in accepts:
            return NO_ACCESS
        if profile.access == "sign":
            return Delegated(FileAccess(profile, scope))
        return Delegated(FileAccess(profile, scope, await cached_credential(lake, profile, scope)))
    except (Unavailable, Unsupported) as error:
        return Delegated(failure=error)


def _note(delegated: Delegated) -> Delegated:
    """Note the credential for the audit trail, once it is certain that the client gets it."""
    if delegated.access and delegated.access.credential:
        note_vended(delegated.access.credential)
    return delegated


def etag_with_access(lake: Lake, etag: str, access: FileAccess) -> str:
    """The ETag of an answer that also gives access: it depends on the caller and on the credential."""
    caller = lake.access.caller.id if lake.access else ""
    text = f"{etag}\n{caller}\n{access.profile.access}\n{access.scope.writes}"
    return credential_tag(text, access.credential)[:ETAG_LENGTH]


async def _is_named(lake: Lake, identifier: Identifier) -> bool:
    return await resolve_name(lake, identifier) is not None


class _StagedPlaces(msgspec.Struct, frozen=True):
    location: str
    properties: dict[str, str] = {}


async def _staged_scope(lake: Lake, identifier: Identifier, uuid: str) -> AccessScope | None:
    """The places of a stage that has neither been committed nor expired; the caller has just been authorized (A9)."""
    stage = await lake.stage(identifier, uuid).read()
    if stage is None or stage.value.expires_ms <= lake.clock.now_ms():
        return None
    if lake.access and stage.value.principal_id != lake.access.caller.id:
        return None
    places = msgspec.json.decode(stage.value.metadata, type=_StagedPlaces)
    scope = access_scope((places.location, *paths_of(places.properties)), writes=True)
    check_outside_state(lake, scope.locations)
    return scope


def _scopes(lake: Lake) -> LruCache[tuple[str, tuple[str, ...], bool], AccessScope]:
    """The scopes of metadata files, which never change, with the places of the record."""
    return LruCache(lake.settings.cache_records_max)


def _scope_of(lake: Lake, table: CurrentTable, *, reads_only: bool) -> AccessScope | None:
    """What the caller may do with the files of the table; None if nothing."""
    rights = data_rights(lake, table.authority, table.chain)
    if rights == "none":
        return None
    writes = rights == "write" and not reads_only
    scopes, key = lake.feature(_scopes), (table.document.location, table.places, writes)
    scope = scopes.get(key)
    if scope is None:
        scope = access_scope(table_places(table), writes=writes)
        check_outside_state(lake, scope.locations)
        scopes[key] = scope
    return scope


def table_places(table: CurrentTable) -> Iterator[str]:
    """All places that a table has or had: its files may still lie there.

    The record has an address for each that was not generated for the table. A generated place is that of the metadata,
    or of an older file.
    """
    metadata = table.document.metadata
    current = locations_of(metadata)
    yield from current
    known = [canonical_address(location) for location in current]
    yield from (place for place in table.places if not any(canonical_address(place).is_within(one) for one in known))
    if any(address.generated_for == table.uuid.lower() for address in known):
        return
    yield from {place for file in _older_files(metadata) if (place := _generated_place(file, table.uuid.lower()))}


def _older_files(metadata: TableMetadata) -> Iterator[str]:
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list)


def _generated_place(file: str, uuid: str) -> str | None:
    """The place that was generated for the uuid, if the file lies in it; as the file spells it."""
    segments = normalize_location(file).split("/")
    if MANAGED_FOLDER not in segments:
        return None
    place = "/".join(segments[: segments.index(MANAGED_FOLDER) + 3])
    return place if canonical_address(place).generated_for == uuid else None


def check_outside_state(lake: Lake, locations: Iterable[str]) -> None:
    """Raise Unsupported for a place that contains the catalog's own state; no table of this release has one."""
    own = normalize_location(lake.locations.own)
    for location in map(normalize_location, locations):
        if is_within(own, location) or "/_catalog/" in f"{location}/":
            raise Unsupported(f"No credential for {location}: the catalog keeps its own state there")
