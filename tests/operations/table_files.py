"""Tables with files as engines write them: snapshots, manifest lists, Avro manifests, data, statistics."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import NameRecord
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.names import resolve_name
from tests.operations.requests import (
    NAMESPACE,
    at_snapshot,
    commit,
    content,
    create,
    identifier_of,
    load,
    request,
    set_property,
    snapshot,
)

_MANIFEST_LIST: Final = {
    "type": "record",
    "name": "manifest_file",
    "fields": [{"name": "manifest_path", "type": "string"}, {"name": "manifest_length", "type": "long"}],
}
_MANIFEST: Final = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {"name": "status", "type": "int"},
        {
            "name": "data_file",
            "type": {"type": "record", "name": "r2", "fields": [{"name": "file_path", "type": "string"}]},
        },
    ],
}
ADDED, DELETED = 1, 2


def avro(schema: dict[str, Any], records: Sequence[dict[str, Any]], codec: str = "deflate") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec=codec)
    return out.getvalue()


def manifest_list(*paths: str) -> bytes:
    return avro(_MANIFEST_LIST, [{"manifest_path": path, "manifest_length": 1} for path in paths])


def manifest(*paths: str, status: int = ADDED, codec: str = "deflate") -> bytes:
    return avro(_MANIFEST, [{"status": status, "data_file": {"file_path": path}} for path in paths], codec)


@dataclass
class TableWithFiles:
    """A table, its location, and its files other than metadata files."""

    identifier: Identifier
    uuid: str
    location: str
    files: list[str] = field(default_factory=list)

    def at(self, path: str) -> str:
        return f"{self.location}/{path}"

    async def write(self, lake: Lake, location: str, data: bytes = b"x") -> str:
        await lake.locations.create(location, data)
        self.files.append(location)
        return location


async def older_copy(lake: Lake, name: str, copy: str, location: str | None = None) -> str:
    """A second name of a living table, as an earlier version of the server let it be registered; returns its uuid."""
    found = await resolve_name(lake, identifier_of(name))
    assert found
    assert found.iceberg_pointer
    pointer, uuid = found.iceberg_pointer.value, lake.clock.new_uuid()
    assert pointer.head
    head = replace(pointer.head, metadata_location=location or pointer.head.metadata_location, registration=uuid)
    await lake.pointer(uuid).create(replace(pointer, uuid=uuid, head=head, made_for=identifier_of(copy), places=()))
    await lake.name(identifier_of(copy)).create(NameRecord(state="active", uuid=uuid, kind="table"))
    return uuid


async def create_table_with_files(
    lake: Lake, name: str = "t", *, snapshots: int = 2, **fields: object
) -> TableWithFiles:
    """Each snapshot adds a manifest with two files, keeps the earlier manifests, and has statistics."""
    made = await create(lake, name, NAMESPACE, **fields)
    table = TableWithFiles(identifier_of(name), made.table_uuid, content(made)["location"])
    manifests: list[str] = []
    for number in range(1, snapshots + 1):
        data = [table.at(f"data/{number}-{part}.parquet") for part in "ab"]
        for path in data:
            await table.write(lake, path)
        manifests.append(await table.write(lake, table.at(f"metadata/m{number}.avro"), manifest(*data)))
        listed = table.at(f"metadata/snap-{number}.avro")
        await table.write(lake, listed, manifest_list(*manifests))
        await add_snapshot(lake, table, number, listed)
        await add_statistics(lake, table, number)
    return table


async def add_snapshot(lake: Lake, table: TableWithFiles, number: int, listed: str) -> None:
    parent = number - 1 or None
    fields = {**snapshot(number, parent), "manifest-list": listed}
    del fields["manifests"]
    change = commit(
        {"action": "add-snapshot", "snapshot": fields},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
        require=(at_snapshot(parent),),
    )
    await commit_table(lake, table.identifier, change, request(f"snapshot {table.identifier} {number}"))
    await lake.background.drain()


async def add_statistics(lake: Lake, table: TableWithFiles, number: int) -> None:
    puffin = await table.write(lake, table.at(f"metadata/stats-{number}.puffin"))
    partitions = await table.write(lake, table.at(f"metadata/partition-stats-{number}.parquet"))
    change = commit(
        {
            "action": "set-statistics",
            "statistics": {
                "snapshot-id": number,
                "statistics-path": puffin,
                "file-size-in-bytes": 1,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            },
        },
        {
            "action": "set-partition-statistics",
            "partition-statistics": {
                "snapshot-id": number,
                "statistics-path": partitions,
                "file-size-in-bytes": 1,
            },
        },
    )
    await commit_table(lake, table.identifier, change, request(f"statistics {table.identifier} {number}"))
    await lake.background.drain()


async def set_properties(lake: Lake, table: TableWithFiles, **properties: str) -> None:
    for key, value in properties.items():
        change = commit(set_property(key, value))
        await commit_table(lake, table.identifier, change, request(f"{table.identifier} {key} {value}"))
    await lake.background.drain()


async def files_below(lake: Lake, table: TableWithFiles) -> list[str]:
    """The remaining files of a table, relative to its location."""
    folder = normalize_location(table.location).removeprefix(f"{lake.locations.own}/") + "/"
    return [listed.key.removeprefix(folder) for listed in await lake.store.list(folder)]


async def current_location(lake: Lake, table: TableWithFiles) -> str:
    return (await load(lake, table.identifier)).metadata_location or ""
