"""The contract of a store: objects with versions, changed only by compare-and-swap."""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, NewType, Protocol

Version = NewType("Version", str)
"""What a swap compares. A version never comes back, not even for equal bytes or after a delete."""


class _Sentinel(Enum):
    ABSENT = "absent"
    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = _Sentinel.ABSENT
"""As an expectation: the object must not exist."""

UNCHANGED: Final = _Sentinel.UNCHANGED
"""As the answer to a conditional get: the object is still at the version the caller has seen."""

Absent = Literal[_Sentinel.ABSENT]
Unchanged = Literal[_Sentinel.UNCHANGED]
Expected = Version | Absent


class Stored(NamedTuple):
    """An object as it was at one moment."""

    data: bytes
    version: Version


class Listed(NamedTuple):
    """An object as a listing or a head shows it."""

    key: str
    version: Version
    size_bytes: int
    modified_ms: int


class Folders(Protocol):
    """Folders that are there without an object in them, which only a file system has. They take no waiting."""

    def make_folder(self, key: str) -> None:
        """The folder is there, with those above it; not synced, as it holds nothing.

        Raises BadRequest when an object is in the way, and Unavailable when it cannot be made.
        """
        ...

    def remove_empty_folder(self, key: str) -> bool:
        """Take the folder away, and those above it, as far as they are empty; whether it is gone."""
        ...


class Looks(Protocol):
    """Looks at versions that take no waiting at all: a folder's are calls of the system."""

    def version_now(self, key: str) -> Version | None:
        """The version of an object; None when there is none. Raises Unavailable."""
        ...


LIST_LIMIT_MAX: Final = 1_000
GETS_AT_ONCE_MAX: Final = 64


class ObjectStore(Protocol):
    """Objects under keys: segments joined by `/`, none of them empty, `.` or `..`.

    Each call is atomic and linearizable by itself. Every write states what it expects to find. A failed call raises

    * `SwapLost` when the object is not as expected (and nothing was written),
    * `Unavailable` when nothing was written and the same call may be made again,
    * `OutcomeUnknown` when a write may or may not have been applied, or may still be,
    * `BadRequest` when the key is not a key.
    """

    async def get(self, key: str) -> Stored | None:
        """The object; None when there is none."""
        ...

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        """UNCHANGED while the object is still at `seen`; otherwise as `get`."""
        ...

    async def head(self, key: str) -> Listed | None:
        """The object without its bytes; None when there is none."""
        ...

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        """Write the whole object if it is as expected, and return its new version.

        Bodies that may be swapped must be unique (`Cell` sees to it): some stores derive versions from the bytes.
        """
        ...

    async def delete(self, key: str, *, expected: Version) -> None:
        """Remove the object if it is at that version."""
        ...

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        """At most `limit` objects below the folder `prefix`, in the byte order of their keys, beginning behind `after`.

        `prefix` is empty or ends in `/`; `after` is a whole key. Fewer than `limit` objects mean: there are no more.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads; the store is not used any more."""
        ...


def folders_of(store: ObjectStore) -> Folders | None:
    """The store's folders; None where there are only keys. What wraps a store passes them on."""
    folders: Folders | None = getattr(store, "folders", None)
    return folders


def looks_of(store: ObjectStore) -> Looks | None:
    """The store's looks without waiting, which stores over a network cannot have; what wraps a store passes them on."""
    looks: Looks | None = getattr(store, "looks", None)
    return looks


async def get_many(store: ObjectStore, keys: Sequence[str]) -> Sequence[Stored | None]:
    """The objects of all keys, in the order of the keys, read at the same time and a bounded number at once."""
    places = asyncio.Semaphore(GETS_AT_ONCE_MAX)

    async def one(key: str) -> Stored | None:
        async with places:
            return await store.get(key)

    return await asyncio.gather(*(one(key) for key in keys))


async def list_all(store: ObjectStore, prefix: str) -> "list[Listed]":
    """Every object below the folder, page by page; not a snapshot: what changes meanwhile may or may not be seen."""
    found: list[Listed] = []
    while True:
        page = await store.list(prefix, after=found[-1].key if found else None)
        found += page
        if len(page) < LIST_LIMIT_MAX:
            return found
