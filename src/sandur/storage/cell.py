"""A typed value that changes only by swap."""

from collections.abc import MutableMapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from sandur.clock import Clock
from sandur.errors import Unavailable
from sandur.storage.contract import ABSENT, UNCHANGED, Expected, ObjectStore, Unchanged, Version

T = TypeVar("T", bound=msgspec.Struct)


class Versioned(NamedTuple, Generic[T]):
    """A value as it was at one moment."""

    value: T
    version: Version


class Cell(Generic[T]):
    """One object of type `kind`, a struct with a field `event_id`, under `key`.

    Every written body carries a fresh `event_id` (G1): on S3 a version is a hash of the bytes, so that two equal bodies
    would have equal versions and a swap could succeed twice.

    With `seen`, what was read or written last is kept there by key. It spares reading and decoding what has not
    changed; it is never believed without asking the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        kind: type[T],
        clock: Clock,
        *,
        seen: MutableMapping[str, Versioned[T]] | None = None,
    ) -> None:
        self._store = store
        self.kind = kind
        self._clock = clock
        self._seen = seen
        self.key = key

    @property
    def last_seen(self) -> Versioned[T] | None:
        """What was read or written last; by now it may be something else."""
        return self._seen.get(self.key) if self._seen is not None else None

    async def read(self) -> Versioned[T] | None:
        """The value and its version; None when the cell is empty."""
        if before := self.last_seen:
            found = await self.read_if_changed(seen=before.version)
            return before if found is UNCHANGED else found
        found_now = await self._store.get(self.key)
        return self._noted(Versioned(self._decoded(found_now.data), found_now.version) if found_now else None)

    async def read_if_changed(self, *, seen: Version) -> Versioned[T] | Unchanged | None:
        """UNCHANGED while the cell is still at `seen`; otherwise as `read`."""
        found = await self._store.get_if_changed(self.key, seen=seen)
        if found is UNCHANGED:
            return found
        return self._noted(Versioned(self._decoded(found.data), found.version) if found else None)

    async def create(self, value: T) -> Versioned[T]:
        """Fill the empty cell; SwapLost when it is not empty."""
        return await self.swap(value, expected=ABSENT)

    async def swap(self, value: T, *, expected: Expected) -> Versioned[T]:
        """Replace what is there at the expected version; what was written comes back with its new version.

        Swapping to the value that is already there is a bump: its only effect is that slower swaps lose.
        """
        written = msgspec.structs.replace(value, event_id=self._clock.new_id())
        version = await self._store.put(self.key, msgspec.json.encode(written), expected=expected)
        held = Versioned(written, version)
        self._noted(held)
        return held

    async def empty(self, *, expected: Version) -> None:
        """Take the value away if it is at the expected version."""
        await self._store.delete(self.key, expected=expected)
        self._noted(None)

    def _noted(self, held: Versioned[T] | None) -> Versioned[T] | None:
        if self._seen is not None:
            if held is None:
                self._seen.pop(self.key, None)
            else:
                self._seen[self.key] = held
        return held

    def _decoded(self, data: bytes) -> T:
        try:
            return msgspec.json.decode(data, type=self.kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"object {self.key}: is not a {self.kind.__name__}: {error}") from error
