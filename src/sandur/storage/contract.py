"""The contract of a store: objects with versions, changed only by compare-and-swap."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, NewType, Protocol, TypeVar

from sandur.errors import Invalid

T = TypeVar("T")

Version = NewType("Version", str)
"""What a swap compares. A version never returns, not even for equal bytes or after a delete."""


class _Sentinel(Enum):
    ABSENT = "absent"
    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = _Sentinel.ABSENT
"""As an expectation: the object must not exist."""

UNCHANGED: Final = _Sentinel.UNCHANGED
"""As the result of a conditional get: the object is still at the caller's version."""

Absent = Literal[_Sentinel.ABSENT]
Unchanged = Literal[_Sentinel.UNCHANGED]
Expected = Version | Absent


class Stored(NamedTuple):
    """The bytes of an object and their version."""

    data: bytes
    version: Version


class Listed(NamedTuple):
    """An object in a listing, or the result of a head."""

    key: str
    version: Version
    size_bytes: int
    modified_ms: int


class Folders(Protocol):
    """Folders that exist without an object in them. Only a file system has them. Calls do not block for long."""

    def make_folder(self, key: str) -> None:
        """Create the folder and its parents if they are missing. They are not synced, as they hold nothing.

        Raises BadRequest if an object has that key, and Unavailable if the folder cannot be created.
        """

    def remove_empty_folder(self, key: str) -> bool:
        """Remove the folder and its parents while they are empty. Returns whether the folder is gone."""


LIST_LIMIT_MAX: Final = 1_000
GROWN_LIST_MAX: Final = 32_000
GETS_AT_ONCE_MAX: Final = 64
OBJECT_BYTES_MAX: Final = 1 << 30
"""Larger objects are not read. Engines write files beside their tables, and a read holds a whole file in memory."""


class ObjectStore(Protocol):
    """Objects under keys: segments joined by `/`, none of them empty, `.` or `..`.

    Each call is atomic and linearizable by itself. Every write states what it expects to find. A failed call raises

    * `SwapLost` if the object is not as expected (nothing was written),
    * `Unavailable` if nothing was written and the same call may be repeated,
    * `OutcomeUnknown` if a write may or may not have been applied, or may still be,
    * `BadRequest` if the key is not valid.
    """

    @property
    def has_instant_reads(self) -> bool:
        """Whether small reads finish without waiting: then concurrent reads gain nothing, and a task costs more."""

    def version_now(self, key: str) -> Version | None:
        """The version of an object, read synchronously; None if it does not exist. Only with instant reads."""

    async def get(self, key: str) -> Stored | None:
        """The object; None if it does not exist. Raises Invalid if it has more than `OBJECT_BYTES_MAX` bytes."""

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        """UNCHANGED while the object is still at `seen`; otherwise the same as `get`."""

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        """Whether each object is still at the given version. Costs one round of concurrent reads."""

    async def head(self, key: str) -> Listed | None:
        """The object without its bytes; None if it does not exist."""

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        """Write the whole object if it is as expected, and return its new version.

        Bodies of objects that are swapped must be unique (`Cell` ensures this): some stores derive versions from bytes.
        """

    async def delete(self, key: str, *, expected: Version) -> None:
        """Remove the object if it is at that version."""

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        """At most `limit` objects below the folder `prefix`, in the byte order of their keys, starting behind `after`.

        `prefix` is empty or ends in `/`; `after` is a whole key. Fewer than `limit` objects are the last page.
        """

    async def close(self) -> None:
        """Release connections and threads. The store cannot be used afterwards."""


def check_size(key: str, size_bytes: int) -> None:
    """Raise Invalid for an object that is too large to be read, before any of its bytes are."""
    if size_bytes > OBJECT_BYTES_MAX:
        raise Invalid(f"object {key}: it has {size_bytes} bytes, at most {OBJECT_BYTES_MAX} are read")


def folders_of(store: ObjectStore) -> Folders | None:
    """The store's folders; None if the store has only keys. Stores that wrap a store pass them on."""
    folders: Folders | None = getattr(store, "folders", None)
    return folders


def portions(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The values in slices of at most `size`."""
    return (values[start : start + size] for start in range(0, len(values), size))


async def get_many(store: ObjectStore, keys: Sequence[str]) -> Sequence[Stored | None]:
    """The objects of all keys, in the order of the keys; a bounded number is read at the same time."""
    slots = asyncio.Semaphore(GETS_AT_ONCE_MAX)

    async def one(key: str) -> Stored | None:
        async with slots:
            return await store.get(key)

    return await asyncio.gather(*(one(key) for key in keys))


async def list_all(store: ObjectStore, prefix: str) -> "list[Listed]":
    """Every object below the folder, page by page. Not a snapshot: a concurrent change may be seen or missed."""
    return [listed async for page in list_pages(store, prefix) for listed in page]


async def list_pages(
    store: ObjectStore, prefix: str, *, after: str | None = None, limit: int | None = None
) -> "AsyncIterator[Sequence[Listed]]":
    """As `list_all`, one page of at most `limit` objects at a time, from the key `after` on.

    Without a limit the pages grow: a file system reads a whole folder for each of its pages.
    """
    size = limit or LIST_LIMIT_MAX
    while True:
        page = await store.list(prefix, after=after, limit=size)
        yield page
        if len(page) < size:
            return
        after = page[-1].key
        size = limit or min(2 * size, GROWN_LIST_MAX)
