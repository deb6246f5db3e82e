"""What operations answer."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")

Snapshots = Literal["all", "refs"]


class LoadedTable(NamedTuple):
    """A table as a client gets it; `metadata` is JSON, given on as it is. A staged one has no location and no ETag."""

    metadata: bytes
    table_uuid: str
    metadata_location: str | None = None
    etag: str | None = None
    config: Mapping[str, str] = {}


class LoadedView(NamedTuple):
    """A view as a client gets it."""

    metadata: bytes
    view_uuid: str
    metadata_location: str


class NotModified(NamedTuple):
    """The client has the current state already."""

    etag: str


class Page(NamedTuple, Generic[T]):
    """A part of a listing. Without `next_token` there is no more."""

    entries: Sequence[T]
    next_token: str | None = None


ETAG_LENGTH: Final = 32


def etag_of(metadata_location: str, snapshots: Snapshots) -> str:
    """T7: what identifies a table's state and its representation: the effective location, never a pointer's version."""
    return hashlib.sha256(f"{snapshots}\n{metadata_location}".encode()).hexdigest()[:ETAG_LENGTH]
