"""Requests for Delta tables as clients make them, for tests of the operations."""

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable
from sandur.delta.columns import columns_from_api, encode_columns
from sandur.delta.properties import stored_properties
from sandur.delta.protocol import REQUIRED_READER_FEATURES, REQUIRED_WRITER_FEATURES, Protocol, required_properties
from sandur.delta.requests import CommitFile, DeltaChange
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.publishing import published_location, staged_location
from sandur.operations.delta.tables import NewTable, create_from_staging, stage_table
from sandur.operations.lake import Lake
from tests.operations.requests import TIMESTAMP_MS, identifier_of, request

D = identifier_of("d")

PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=REQUIRED_READER_FEATURES,
    writer_features=REQUIRED_WRITER_FEATURES,
)
COLUMNS: dict[str, object] = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}],
}


def new_delta_table(location: str, uuid: str, identifier: Identifier = D) -> NewTable:
    return NewTable(
        identifier=identifier,
        table_type="MANAGED",
        location=location,
        columns=encode_columns(columns_from_api(COLUMNS, None)),
        properties=stored_properties(required_properties(uuid), PROTOCOL, None, TIMESTAMP_MS),
        last_commit_ms=TIMESTAMP_MS,
    )


async def create_managed(lake: Lake, identifier: Identifier = D) -> DeltaTable:
    stage = await stage_table(lake, identifier)
    label = request(f"finalize {stage.uuid}")
    return await create_from_staging(lake, new_delta_table(stage.location, stage.uuid, identifier), request=label)


def commit_file(version: int, name: str = "") -> CommitFile:
    return CommitFile(
        version=version,
        timestamp=TIMESTAMP_MS + version,
        file_name=name or f"{version:020d}.one.json",
        file_size=100 + version,
        file_modification_timestamp=TIMESTAMP_MS + version,
    )


def add_change(table: DeltaTable, version: int, name: str = "", *, published: int | None = None) -> DeltaChange:
    return DeltaChange(asserted_uuid=table.uuid, commit=commit_file(version, name), published=published)


async def add(
    lake: Lake,
    table: DeltaTable,
    version: int,
    name: str = "",
    *,
    published: int | None = None,
    identifier: Identifier = D,
) -> DeltaTable:
    return await update_table(
        lake, identifier, add_change(table, version, name, published=published), request("commit")
    )


async def publish(lake: Lake, table: DeltaTable, version: int, content: bytes = b"{}") -> None:
    await lake.locations.create(published_location(table, version), content)


async def write_staged(lake: Lake, table: DeltaTable, name: str, content: bytes = b"{}") -> None:
    await lake.locations.create(staged_location(table, name), content)


def names_in(raw: msgspec.Raw) -> list[str]:
    return [column["name"] for column in msgspec.json.decode(raw)]
