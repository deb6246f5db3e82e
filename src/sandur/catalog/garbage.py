"""Which metadata files are garbage, and which pointers must be bumped before their deletion (GC1)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import Pointer

OWN_FILE: Final = (
    r"(?:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}|[0-9a-f]{32})-[0-9a-f]{12}(?:\.gz)?\.metadata\.json"
)
"""What follows the version in the name of our own files: a UUID of version 8 made of the request and the attempt.

Others use random UUIDs, of version 4. Files of earlier releases have the hash of the request and a nonce.
"""

_NAME = re.compile(rf"([0-9]{{5,9}})-{OWN_FILE}\Z")


class MetadataFile(NamedTuple):
    """A metadata file in a table's folder; `version` is the number in its name."""

    location: str
    version: int
    modified_ms: int
    size_bytes: int


class Owner(NamedTuple):
    """A live table or view as its pointer was read: the version of its head, and the files that it needs (normalized).

    It needs its head, the files in the log of the head, the pending head of a transaction, and every file in the claim
    of a pending request.
    """

    uuid: str
    head_version: int
    needed: frozenset[str]


def written_version(location: str) -> int | None:
    """The version in the name of a metadata file that the catalog wrote; None for a file of another program."""
    match = _NAME.match(location.rpartition("/")[2])
    return int(match[1]) if match else None


class Folder(NamedTuple):
    """A folder with metadata files of live tables and views: its location as first found, and their uuids."""

    location: str
    uuids: tuple[str, ...]


def folders_in_use(pointers: Iterable[Pointer], *, roots: Sequence[str]) -> Mapping[str, Folder]:
    """The folders below the roots (normalized) in which a pointer that may be live has a file, by normalized location.

    A folder can belong to several tables: a table can be registered under two names.
    """
    folders: dict[str, Folder] = {}
    for pointer in pointers:
        for location in metadata_locations(pointer):
            folder = location.rpartition("/")[0]
            plain = normalize_location(folder)
            if not any(is_within(plain, root) for root in roots):
                continue
            known = folders.get(plain, Folder(folder, ()))
            if pointer.uuid not in known.uuids:
                folders[plain] = known._replace(uuids=(*known.uuids, pointer.uuid))
    return folders


def metadata_locations(pointer: Pointer) -> list[str]:
    """The metadata files in a pointer; empty for one that is dropped or killed."""
    if pointer.state in {"dropped", "purging", "killed"}:
        return []
    heads = [pointer.head, *pointer.passed, pointer.pending.head if pointer.pending else None]
    return [head.metadata_location for head in heads if head]


def deletable_files(
    files: Iterable[MetadataFile], owners: Iterable[Owner], *, before_ms: int
) -> tuple[MetadataFile, ...]:
    """The files that no owner needs and that were written before `before_ms`.

    The caller lists the files before it reads the owners: a file that is written later may belong to a later head.
    """
    needed = frozenset[str]().union(*(owner.needed for owner in owners))
    return tuple(
        file for file in files if file.modified_ms <= before_ms and normalize_location(file.location) not in needed
    )


def needs_bump(owner: Owner, files: Iterable[MetadataFile]) -> bool:
    """Whether the swap of an attempt that wrote one of the files could still succeed.

    An attempt writes the version after the head that it was decided on. Once the head has reached that version, the
    swap can only lose.
    """
    return any(file.version > owner.head_version for file in files)
