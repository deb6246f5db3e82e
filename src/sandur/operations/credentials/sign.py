"""Sign requests to S3 for clients that have no keys: authorize, find the locations of the table, judge, sign."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from sandur.catalog.credentials.profiles import Keys, StorageProfile
from sandur.catalog.credentials.signed_requests import Home, StorageRequest, home_of, judge, possible_locations
from sandur.catalog.identifiers import Identifier
from sandur.catalog.location_claims import LocationClaim
from sandur.catalog.locations import canonical_address, normalize_location
from sandur.catalog.records import Stage
from sandur.errors import Forbidden, Hidden, Invalid, NotFound, Unsupported
from sandur.iceberg.table_metadata import TableMetadata, decode_table_metadata
from sandur.operations.access import authorize_namespace
from sandur.operations.audit.notes import note_credentials
from sandur.operations.caches import LruCache
from sandur.operations.credentials.profiles import Profiles, needs_credentials, read_profiles
from sandur.operations.credentials.table_access import table_and_profiles, table_of_record, table_places
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import locations_of
from sandur.operations.name_access import read_allowed
from sandur.operations.tables.documents import CurrentTable
from sandur.operations.tables.names import name_not_found
from sandur.storage.contract import get_many
from sandur.storage.credentials.delete_checks import compares_bodies
from sandur.storage.credentials.s3 import profile_keys
from sandur.storage.credentials.signatures import LIFETIME_MS, signed_headers
from sandur.storage.layout import location_claim
from sandur.storage.record_form import decode_record

WRITE: Final = "write"
"""The situation of a request that changes files."""

STAGED: Final = "staged"
"""The situation of a request for files of a table that is staged and does not exist yet."""

_KEYS_LIVE_MS: Final = 60_000
_PROFILES_MAX: Final = 1_000
_PLACES_NOTED_MAX: Final = 20


class SignedRequest(NamedTuple):
    """The headers that the client sends its request with. A read may be sent again while the signature is valid."""

    uri: str
    headers: Mapping[str, str]
    is_read: bool


async def sign_request(lake: Lake, identifier: Identifier, request: StorageRequest) -> SignedRequest:
    """Sign a request for files of a table, or of a staged table that the caller creates.

    Raises Forbidden if the request does more than the caller may do, or reaches beyond the table.
    """
    missing = name_not_found(identifier, "table")
    try:
        table, recent = await table_and_profiles(lake, identifier, _situation(request))
    except Hidden:
        raise
    except NotFound:
        staged = await _staged_locations(lake, identifier, request, missing)
        return await _sign(lake, request, _homes(staged, await read_profiles(lake)))
    return await _sign(lake, request, _homes_of(lake, table, recent or await read_profiles(lake)))


async def sign_located_request(lake: Lake, request: StorageRequest) -> SignedRequest:
    """Sign a request that names no table: its table is found by the location of the files.

    Raises NotFound if there is no table, or none that the caller may know of.
    """
    missing = NotFound("No table has the location of the request", subject="table")
    for location in possible_locations(request):
        for uuid in await _owners_at(lake, location):
            with contextlib.suppress(NotFound):
                record = await read_allowed(lake, lake.pointer(uuid), missing=missing, situation=_situation(request))
                table = await table_of_record(lake, record, missing)
                return await _sign(lake, request, _homes_of(lake, table, await read_profiles(lake)))
    raise missing


def _situation(request: StorageRequest) -> str:
    return "" if request.is_read else WRITE


def _homes_of(lake: Lake, table: CurrentTable, profiles: Profiles) -> Sequence[Home]:
    """The folders of a table: those that it names, and those that it had."""
    known, key = lake.feature(_known_homes), (table.document.location, table.places)
    cached = known.get(key)
    if cached and cached[0] is profiles:
        return cached[1]
    homes = _homes(tuple(table_places(table)), profiles)
    known[key] = (profiles, homes)
    return homes


def _known_homes(lake: Lake) -> LruCache[tuple[str, tuple[str, ...]], tuple[Profiles, Sequence[Home]]]:
    """The folders by metadata file and places, with the profiles that they were made with: both never change."""
    return LruCache(lake.settings.cache_records_max)


async def _staged_locations(
    lake: Lake, identifier: Identifier, request: StorageRequest, missing: NotFound
) -> Sequence[str]:
    """The folders of a staged table, for the caller that staged it; otherwise raises `missing`."""
    try:
        locations = possible_locations(request)
    except Forbidden:  # The answer must not depend on whether a table is missing or hidden.
        raise missing from None
    for location in locations:
        for uuid in await _owners_at(lake, location):
            stage = await lake.stage(identifier, uuid).read()
            if stage is None or not _is_callers(lake, stage.value):
                continue
            try:
                await authorize_namespace(lake, identifier.namespace, missing=missing, situation=STAGED)
            except Forbidden:
                raise Hidden(str(missing), subject=missing.subject) from None
            return locations_of(_staged_metadata(stage.value))
    raise missing


def _is_callers(lake: Lake, stage: Stage) -> bool:
    is_valid = stage.expires_ms > lake.clock.now_ms()
    return is_valid and (lake.access is None or stage.principal_id == lake.access.caller.id)


def _staged_metadata(stage: Stage) -> TableMetadata:
    return decode_table_metadata(bytes(stage.metadata), metadata_location="")


async def _owners_at(lake: Lake, location: str) -> Sequence[str]:
    """The uuids of Iceberg tables of this workspace that may have a location: the record of each decides."""
    try:
        address = canonical_address(location)
    except Invalid:
        return ()
    if generated := address.generated_place:
        return (generated.generated_for,) if generated.generated_for else ()
    keys = [location_claim(one) for one in (*address.above, address)]
    stored = await get_many(lake.store, keys)
    claims = [decode_record(key, one.data, LocationClaim) for key, one in zip(keys, stored, strict=True) if one]
    own = (lake.layout.tenant, lake.layout.workspace)
    return tuple(
        holder.owner.uuid
        for claim in claims
        for holder in claim.holders
        if holder.kind == "place" and holder.owner.record == "iceberg" and holder.workspace == own
    )


async def _sign(lake: Lake, request: StorageRequest, homes: Sequence[Home]) -> SignedRequest:
    judged = judge(request, homes)
    signer = lake.feature(Signer)
    if judged.is_delete_list:
        await signer.check_deletes(judged.profile, homes[0])
    keys = await signer.keys(judged.profile)
    now_ms = lake.clock.now_ms()
    noted = judged.places[:_PLACES_NOTED_MAX]
    mode: Literal["read", "write"] = "read" if request.is_read else "write"
    note_credentials(noted, mode, access="sign", expires_ms=now_ms + LIFETIME_MS)
    return SignedRequest(request.uri, signed_headers(judged, keys, now_ms), request.is_read)


def _homes(locations: Sequence[str], profiles: Profiles) -> Sequence[Home]:
    distinct = dict.fromkeys(map(normalize_location, locations))
    found = [(profiles.of(location), location) for location in distinct if needs_credentials(location)]
    homes = [home_of(one, location) for one, location in found if one and one.cloud == "s3" and one.access == "sign"]
    if not homes:
        raise Unsupported(
            "Requests for this table are not signed: neither the setting s3.access nor the credential of an external "
            "location says 'sign' for its storage"
        )
    return homes


class Signer:
    """What signatures need besides the request: the keys of profiles, and what is known about their services."""

    def __init__(self, lake: Lake) -> None:
        self._clock = lake.clock
        self._keys: LruCache[StorageProfile, tuple[Keys, int]] = LruCache(_PROFILES_MAX)
        self._compares_bodies: LruCache[StorageProfile, bool] = LruCache(_PROFILES_MAX)

    async def keys(self, profile: StorageProfile) -> Keys:
        """The keys of a profile. Those of the environment are read again after a minute: they change."""
        found = self._keys.get(profile)
        now_ms = self._clock.now_ms()
        if found is None or now_ms >= found[1]:
            found = self._keys[profile] = (await profile_keys(profile), now_ms + _KEYS_LIVE_MS)
        return found[0]

    async def check_deletes(self, profile: StorageProfile, home: Home) -> None:
        """Forbidden unless the service compares the body of a request with the hash that is signed.

        Without that, a client could get a signature for its own objects, and delete those of others with it.
        """
        if profile not in self._compares_bodies:
            keys = await self.keys(profile)
            nonce = self._clock.new_uuid()
            self._compares_bodies[profile] = await compares_bodies(home, keys, nonce, self._clock.now_ms())
        if not self._compares_bodies[profile]:
            raise Forbidden(
                "The request is not signed: the storage service does not compare the list of objects to delete with "
                "the hash that is signed; delete the objects one by one"
            )
