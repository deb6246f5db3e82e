"""Temporary credentials over HTTP: files on a file system need none, and are told so in the form clients expect."""

from typing import Final, Literal

import msgspec

from sandur.catalog.identifiers import identifier_from_parts
from sandur.catalog.locations import checked_location, normalize_location
from sandur.catalog.storage_registry import checked_url
from sandur.errors import BadRequest, NotFound, Unsupported
from sandur.operations.lake import Lake
from sandur.operations.unity.model_versions import load_version
from sandur.operations.unity.tables import location_of
from sandur.server.messages import Answer
from sandur.server.unity_rest.bodies import shown
from sandur.server.unity_rest.call import Call

_LIFETIME_MS: Final = 3_600_000
_LOCAL: Final = ("file://", "memory://")


class ForTable(msgspec.Struct, frozen=True):
    table_id: str
    operation: Literal["UNKNOWN_TABLE_OPERATION", "READ", "READ_WRITE"]


class ForVolume(msgspec.Struct, frozen=True):
    volume_id: str
    operation: Literal["UNKNOWN_VOLUME_OPERATION", "READ_VOLUME", "WRITE_VOLUME"]


class ForModelVersion(msgspec.Struct, frozen=True):
    catalog_name: str
    schema_name: str
    model_name: str
    version: int
    operation: Literal["UNKNOWN_MODEL_VERSION_OPERATION", "READ_MODEL_VERSION", "READ_WRITE_MODEL_VERSION"]


class ForPath(msgspec.Struct, frozen=True):
    url: str
    operation: Literal["UNKNOWN_PATH_OPERATION", "PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"]


class TemporaryCredentials(msgspec.Struct, frozen=True):
    expiration_time: int
    url: str


async def for_table(call: Call) -> Answer:
    body = call.body(ForTable, "temporary table credentials request")
    _check_known(body.operation)
    return _credentials(call, await location_of(call.lake, body.table_id))


async def for_volume(call: Call) -> Answer:
    body = call.body(ForVolume, "temporary volume credentials request")
    _check_known(body.operation)
    found = await call.lake.securable(body.volume_id).read()
    if found is None or found.value.kind != "volume" or found.value.state in {"dropped", "killed"}:
        raise NotFound(f"Volume does not exist: {body.volume_id}", subject="volume")
    return _credentials(call, found.value.location)


async def for_model_version(call: Call) -> Answer:
    body = call.body(ForModelVersion, "temporary model version credentials request")
    _check_known(body.operation)
    if body.version < 0:
        raise BadRequest(f"Invalid version: {body.version}")
    model = identifier_from_parts(body.catalog_name, body.schema_name, body.model_name)
    return _credentials(call, (await load_version(call.lake, model, body.version)).location)


async def for_path(call: Call) -> Answer:
    body = call.body(ForPath, "temporary path credentials request")
    _check_known(body.operation)
    place = checked_url(body.url)
    checked_location(place, _roots(call.lake))
    return _credentials(call, place)


def _roots(lake: Lake) -> list[str]:
    return [normalize_location(lake.area), *lake.locations.others]


def _check_known(operation: str) -> None:
    if operation.startswith("UNKNOWN"):
        raise BadRequest(f"Invalid operation: {operation}")


def _credentials(call: Call, location: str) -> Answer:
    place = normalize_location(location)
    if not place.startswith(_LOCAL):
        raise Unsupported(
            f"No temporary credentials for {place}: this server gives out none for cloud storage; "
            "give the engine credentials of its own"
        )
    return shown(TemporaryCredentials(call.lake.clock.now_ms() + _LIFETIME_MS, place))
