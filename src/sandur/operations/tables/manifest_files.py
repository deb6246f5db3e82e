"""The manifest lists and manifests of a table: which files they name."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from sandur.avro.container import open_container, read_records
from sandur.errors import Invalid
from sandur.iceberg.snapshots import Snapshot
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import missing_file

PATHS_AT_ONCE: Final = 500
_STATUS_DELETED: Final = 2


async def read_paths(
    data: bytes, path_of: Callable[[dict[str, Any]], object], *, location: str
) -> AsyncIterator[list[str]]:
    """The paths in a manifest list or a manifest, in batches; Invalid if it is neither."""

    def read() -> Iterator[str]:
        try:
            for record in read_records(open_container(data)):
                path = path_of(record)
                if not isinstance(path, str):
                    raise TypeError(f"a path is not a string: {path!r}")  # noqa: TRY301 - handled as all other damage
                if path:
                    yield path
        except Exception as error:  # The Avro reader raises all kinds of errors for other bytes.
            raise Invalid(f"file {location}: cannot be read as a manifest: {type(error).__name__}: {error}") from error

    paths = read()
    while batch := await asyncio.to_thread(lambda: list(islice(paths, PATHS_AT_ONCE))):
        yield batch


def content_path(record: dict[str, Any]) -> object:
    """Empty for an entry with the status deleted: a manifest of the snapshot that added the file names it."""
    return "" if record["status"] == _STATUS_DELETED else record["data_file"]["file_path"]


async def manifests_of(lake: Lake, snapshot: Snapshot) -> Sequence[str]:
    """The manifests of a snapshot; NotFound or Invalid if its list cannot be read."""
    found = list(snapshot.manifests or ())
    if snapshot.manifest_list:
        data = await _read(lake, snapshot.manifest_list)
        async for batch in read_paths(data, itemgetter("manifest_path"), location=snapshot.manifest_list):
            found += batch
    return found


async def content_of(lake: Lake, manifest: str) -> AsyncIterator[Sequence[str]]:
    """The data files, delete files and deletion vectors that a manifest adds or keeps."""
    data = await _read(lake, manifest)
    async for batch in read_paths(data, content_path, location=manifest):
        yield batch


async def added_manifests(lake: Lake, snapshot: Snapshot, known: Collection[int]) -> Sequence[str]:
    """The manifests of a new snapshot that no known snapshot has added; NotFound or Invalid as above."""

    def path_of(record: dict[str, Any]) -> object:
        return "" if record.get("added_snapshot_id") in known else record["manifest_path"]

    if not snapshot.manifest_list:
        return list(snapshot.manifests or ())
    data = await _read(lake, snapshot.manifest_list)
    return [path async for batch in read_paths(data, path_of, location=snapshot.manifest_list) for path in batch]


async def _read(lake: Lake, location: str) -> bytes:
    data = await lake.locations.read(location)
    if data is None:
        raise missing_file(location)
    return data
