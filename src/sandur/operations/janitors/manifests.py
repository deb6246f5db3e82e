"""The file paths in manifest lists and manifests, read from their Avro in batches and beside the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any, Final

from sandur.avro.container import open_container
from sandur.avro.records import read_records
from sandur.errors import Invalid

BATCH: Final = 500

_DELETED: Final = 2


async def manifest_paths(data: bytes, *, location: str) -> AsyncIterator[list[str]]:
    """The manifests that a manifest list names; Invalid when it is none."""
    async for batch in _batches(data, _manifest_path, location=location):
        yield batch


async def content_paths(data: bytes, *, location: str) -> AsyncIterator[list[str]]:
    """The data and delete files that a manifest adds or keeps; Invalid when it is none.

    Those it says are deleted are left out: they were another snapshot's, and are gone, or in that one's manifests.
    """
    async for batch in _batches(data, _content_path, location=location):
        yield batch


async def _batches(
    data: bytes, read: Callable[[dict[str, Any]], str | None], *, location: str
) -> AsyncIterator[list[str]]:
    paths = _paths(data, read, location)
    while batch := await asyncio.to_thread(lambda: list(islice(paths, BATCH))):
        yield batch


def _paths(data: bytes, read: Callable[[dict[str, Any]], str | None], location: str) -> Iterator[str]:
    try:
        for record in read_records(open_container(data)):
            if path := read(record):
                yield path
    except Exception as error:  # Anything at all is raised over bytes that are not Avro.
        raise Invalid(f"file {location}: cannot be read as a manifest: {type(error).__name__}: {error}") from error


def _manifest_path(record: dict[str, Any]) -> str | None:
    return _text(record, "manifest_path")


def _content_path(record: dict[str, Any]) -> str | None:
    return None if record["status"] == _DELETED else _text(record["data_file"], "file_path")


def _text(record: object, field: str) -> str:
    path = record[field] if isinstance(record, dict) else None
    if not isinstance(path, str):
        raise TypeError(f"{field} is no text")
    return path
