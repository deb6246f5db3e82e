"""A typed value that changes only by swap, the one loop that retries a lost swap, and rounds of concurrent calls."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Self, TypeVar, overload

from sandur.catalog.aliases import Aliases, record_by_keys, record_by_names
from sandur.catalog.record_versions import Record
from sandur.clock import Clock
from sandur.errors import Busy, OutcomeUnknown, SwapLost, Unavailable
from sandur.storage.contract import ABSENT, UNCHANGED, Expected, ObjectStore, Stored, Unchanged, Version
from sandur.storage.record_form import RecordForm, decode_record, encode_record, stamp

T = TypeVar("T", bound=Record)
U = TypeVar("U", bound=Record)
T_co = TypeVar("T_co", bound=Record, covariant=True)
X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")
W = TypeVar("W")

TRIES_MAX: Final = 16
_ATTEMPTS_WITHOUT_PAUSE: Final = 3
_BACKOFF_SECONDS: Final = 0.002
_BACKOFF_DOUBLINGS_MAX: Final = 6


class Versioned(NamedTuple, Generic[T_co]):
    """A value and the version at which it was read or written."""

    value: T_co
    version: Version


class Attempts:
    """At most TRIES_MAX attempts with a random, growing pause between them: `async for attempt in Attempts(clock)`.

    The body of the loop returns when it succeeds; the caller raises Busy when the loop ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._number = -1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        """The number of the attempt, from 0. The first ones do not wait: most swaps are lost to one or two writers."""
        self._number += 1
        if self._number == TRIES_MAX:
            raise StopAsyncIteration
        if self._number >= _ATTEMPTS_WITHOUT_PAUSE:
            doublings = self._number - _ATTEMPTS_WITHOUT_PAUSE
            longest_seconds = _BACKOFF_SECONDS * (2 << min(doublings, _BACKOFF_DOUBLINGS_MAX - 1))
            await self._clock.sleep(longest_seconds * self._clock.chance())
        return self._number


@dataclass(slots=True, eq=False)
class Cell(Generic[T]):
    """One record of type `kind` under `key`.

    Every written body carries a fresh `event_id` (G1). On S3 a version is a hash of the bytes: two equal bodies would
    have equal versions, and a swap could succeed twice.

    `seen` caches the last value by key. It saves the transfer and decoding of an unchanged body; every read still gets
    the version from the store. `form` is the version in which records are written (V3); without it, a record keeps its
    own, and a new one has the first.

    With `aliases`, records leave the cell with the names of containers, and are stored with their keys; the cache has
    keys. `workspace` is that of the aliases.
    """

    _store: ObjectStore
    key: str
    kind: type[T]
    _clock: Clock
    seen: MutableMapping[str, Versioned[T]] | None = None
    form: RecordForm | None = None
    aliases: Aliases | None = None
    workspace: tuple[str, str] = ("", "")

    @property
    def last_seen(self) -> Versioned[T] | None:
        """The value that was read or written last; it may be stale."""
        held = self.seen.get(self.key) if self.seen is not None else None
        return self._by_names(held) if held is not None and self.aliases else held

    def recall(self) -> Versioned[T] | None:
        """The last value; None if the store can tell without waiting that it is stale."""
        held = self.last_seen
        return None if held and self._is_known_at(held.version) is False else held

    def confirmed(self) -> Versioned[T] | None:
        """The last value if the store can confirm without waiting that it is current; otherwise None."""
        held = self.last_seen
        return held if held and self._is_known_at(held.version) else None

    @property
    def is_known_absent(self) -> bool:
        """Whether the store can tell without waiting that the cell is empty."""
        return bool(self._is_known_at(None))

    def _is_known_at(self, version: Version | None) -> bool | None:
        """Whether the cell is at that version; None if the store cannot tell without waiting, or is unavailable.

        The result is as good as that of a read, because no version ever returns.
        """
        try:
            return self._store.version_now(self.key) == version if self._store.has_instant_reads else None
        except Unavailable:
            return None

    async def read(self) -> Versioned[T] | None:
        """The value and its version; None if the cell is empty."""
        if before := self.last_seen:
            if self._is_known_at(before.version):
                return before
            found = await self.read_if_changed(seen=before.version)
            return before if found is UNCHANGED else found
        return self._found(await self._store.get(self.key))

    async def read_with(self, related: "Callable[[T], Cell[U]]") -> tuple[Versioned[T] | None, Versioned[U] | None]:
        """Read this cell and the one that its last value leads to, in one round.

        The second is None if it is empty, or if this cell has changed: it may have been read too early.
        """
        own = self.last_seen
        if own is None:
            return await self.read(), None
        other = related(own.value)
        if not self._store.has_instant_reads:
            own_now, others_now = await asyncio.gather(self.read(), other.read())
            return own_now, others_now if own_now is not None and own_now.version == own.version else None
        # Without tasks, which would cost more than these reads.
        others = other.last_seen
        try:
            is_own = self._store.version_now(self.key) == own.version
            is_others = is_own and others is not None and self._store.version_now(other.key) == others.version
        except Unavailable:
            is_own = is_others = False  # The read below retries.
        if not is_own:
            return await self.read(), None
        return own, others if is_others else await other.read()

    async def read_if_changed(self, *, seen: Version) -> Versioned[T] | Unchanged | None:
        """UNCHANGED while the cell is still at `seen`; otherwise as `read`."""
        found = await self._store.get_if_changed(self.key, seen=seen)
        return found if found is UNCHANGED else self._found(found)

    async def create(self, value: T) -> Versioned[T]:
        """Fill the empty cell; SwapLost if it is not empty."""
        return await self.swap(value, expected=ABSENT)

    async def swap(self, value: T, *, expected: Expected) -> Versioned[T]:
        """Replace the value at the expected version; returns what was written with its new version.

        A swap to the current value is a bump: its only effect is that slower swaps are lost.
        """
        return await self._put(await self._stamp(value), expected)

    async def _put(self, written: T, expected: Expected) -> Versioned[T]:
        stored = record_by_keys(written, self.aliases, self.workspace) if self.aliases else written
        version = await self._store.put(self.key, encode_record(stored), expected=expected)
        self._remember(Versioned(stored, version))
        return Versioned(written, version)

    async def try_swap(self, value: T, *, expected: Expected) -> Versioned[T] | None:
        """As `swap`; None if the swap is lost, also if it may have been applied and then replaced."""
        try:
            return await self.swap(value, expected=expected)
        except SwapLost:
            return None

    async def update(
        self,
        decide: Callable[[T | None], T | Awaitable[T | None] | None],
        *,
        is_idempotent: bool,
        found: Versioned[T] | None = None,
        subject: str | None = None,
    ) -> Versioned[T] | None:
        """Read the value, decide, swap; repeat while others change the cell. Busy after TRIES_MAX lost swaps.

        `decide` gets the current value (None: the cell is empty) and returns the new one; None means: leave the cell
        as it is. It may be async, and may raise. `found` is a value read a moment ago, which saves the first read.
        Returns the value that the cell now has; None if it is empty.

        A lost swap that may have been applied, and then replaced (`SwapLost.is_definite` is false), is decided again
        only if `is_idempotent`: `decide` then finds its own effect in the current value, or may repeat it. Otherwise
        OutcomeUnknown is raised.
        """
        unsettled: list[T] = []
        async for attempt in Attempts(self._clock):
            current = found if found and not attempt else await self.read()
            if unsettled:
                if current and current.value in unsettled:
                    return current
                if not is_idempotent:
                    raise OutcomeUnknown(f"object {self.key}: a change may have been applied and then replaced")
            decided = decide(current.value if current else None)
            value = await decided if isinstance(decided, Awaitable) else decided
            if value is None:
                return current
            written = await self._stamp(value)
            try:
                expected: Expected = current.version if current else ABSENT
                return await self._put(written, expected)
            except SwapLost as lost:
                if not lost.is_definite:
                    unsettled.append(written)
        raise Busy(f"{subject or f'object {self.key}'} keeps changing")

    async def empty(self, *, expected: Version) -> None:
        """Delete the value if it is at the expected version; otherwise SwapLost."""
        await self._store.delete(self.key, expected=expected)
        self._forget()

    async def _stamp(self, value: T) -> T:
        event_id, form = self._clock.new_id(), self.form
        if form is None:
            return stamp(value, event_id, value.v)
        if not form.is_read:  # Only the first write of a process that did not read it at its start.
            await form.read()
        return form.stamp(value, event_id)

    def _remember(self, held: Versioned[T]) -> Versioned[T]:
        if self.seen is not None:
            self.seen[self.key] = held
        return held

    def _forget(self) -> None:
        if self.seen is not None:
            self.seen.pop(self.key, None)

    def _found(self, stored: Stored | None) -> Versioned[T] | None:
        if stored is None:
            self._forget()
            return None
        value = decode_record(self.key, stored.data, self.kind)
        if self.form:
            self.form.saw(value.v)
        held = self._remember(Versioned(value, stored.version))
        return self._by_names(held) if self.aliases else held

    def _by_names(self, held: Versioned[T]) -> Versioned[T]:
        return (
            Versioned(record_by_names(held.value, self.aliases, self.workspace), held.version) if self.aliases else held
        )


@overload
async def gather_all(calls: tuple[Awaitable[X], Awaitable[Y]]) -> tuple[X, Y]: ...


@overload
async def gather_all(calls: tuple[Awaitable[X], Awaitable[Y], Awaitable[Z]]) -> tuple[X, Y, Z]: ...


@overload
async def gather_all(
    calls: tuple[Awaitable[X], Awaitable[Y], Awaitable[Z], Awaitable[W]],
) -> tuple[X, Y, Z, W]: ...


@overload
async def gather_all(calls: Iterable[Awaitable[X]]) -> Sequence[X]: ...


async def gather_all(calls: Iterable[Awaitable[object]]) -> Sequence[object]:
    """Make calls at the same time and return their results in order.

    If calls fail, the first failure is raised, but only after every call has ended: a write that is still running has
    an unknown outcome. A TaskGroup would cancel the other writes. The failure has notes about the others.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    first: BaseException | None = None
    for result in results:
        if not isinstance(result, BaseException):
            continue
        if first is None:
            first = result
        elif result is not first:
            first.add_note(f"beside it: {type(result).__name__}: {result}")
    if first:
        raise first
    return tuple(results)


async def gather_in_batches(items: Sequence[X], call: Callable[[X], Awaitable[Y]], *, at_once: int) -> Sequence[Y]:
    """Make one call per item, `at_once` at a time, and return the results in order.

    A failure is raised when the calls that run beside it have ended; later calls are not made.
    """
    results: list[Y] = []
    for start in range(0, len(items), at_once):
        results += await gather_all(call(item) for item in items[start : start + at_once])
    return results
