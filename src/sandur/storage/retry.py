"""Retries around a store: bounded, with jitter, and never a guess about the outcome of a write (rule G2)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sandur.clock import Clock
from sandur.errors import OutcomeUnknown, ServiceRefused, SwapLost, Unavailable
from sandur.settings import RetrySettings
from sandur.storage.contract import (
    ABSENT,
    LIST_LIMIT_MAX,
    Expected,
    Listed,
    ObjectStore,
    Stored,
    Unchanged,
    Version,
    folders_of,
)
from sandur.storage.pace import Pace, pace_of

T = TypeVar("T")


class RetryingStore:
    """The inner store, with retries where they are safe.

    Reads are repeated while the store is unavailable. A write is repeated only with the same bytes and the same
    expectation, so at most one try takes effect. If an answer was lost (G2), the object is read again:

    * it holds our bytes: done;
    * it is still as expected: the write may yet land, so the same write is repeated, and after the last try the
      outcome stays unknown: neither a success nor a definite failure;
    * it has changed: our write can no longer land, but it may have been applied and replaced since, so the swap is
      lost, but not definitely.
    """

    def __init__(self, inner: ObjectStore, clock: Clock, settings: RetrySettings | None = None) -> None:
        self._inner = inner
        self._clock = clock
        self._settings = settings or RetrySettings()
        self.folders = folders_of(inner)
        self.pace = pace_of(inner)
        self.has_instant_reads = inner.has_instant_reads
        # Not retried: a caller that gets Unavailable makes an ordinary read.
        self.version_now = inner.version_now

    async def get(self, key: str) -> Stored | None:
        return await self._read(lambda: self._inner.get(key))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        return await self._read(lambda: self._inner.get_if_changed(key, seen=seen))

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        return await retried(lambda: self._inner.are_current(versions), self._clock, self._settings, self.pace)

    async def head(self, key: str) -> Listed | None:
        return await self._read(lambda: self._inner.head(key))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        return await self._read(lambda: self._inner.list(prefix, after=after, limit=limit))

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        is_in_doubt = False
        for tries in range(1, self._settings.tries_max + 1):
            try:
                return await self._inner.put(key, data, expected=expected)
            except Unavailable as error:
                self._check_tries(key, tries, error, is_in_doubt=is_in_doubt)
            except (OutcomeUnknown, SwapLost) as error:
                is_in_doubt = _check_doubt(error, is_in_doubt=is_in_doubt)
                if version := await self._written_version(key, data, expected):
                    return version
                self._check_budget(key)
            await self._wait(tries)
        raise _still_unknown(key)

    async def delete(self, key: str, *, expected: Version) -> None:
        is_in_doubt = False
        for tries in range(1, self._settings.tries_max + 1):
            try:
                return await self._inner.delete(key, expected=expected)
            except Unavailable as error:
                self._check_tries(key, tries, error, is_in_doubt=is_in_doubt)
            except (OutcomeUnknown, SwapLost) as error:
                is_in_doubt = _check_doubt(error, is_in_doubt=is_in_doubt)
                if await self._is_gone(key, expected):
                    return None
                self._check_budget(key)
            await self._wait(tries)
        raise _still_unknown(key)

    async def close(self) -> None:
        await self._inner.close()

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        return await retried(read, self._clock, self._settings, self.pace)

    async def _written_version(self, key: str, data: bytes, expected: Expected) -> Version | None:
        """Read the object after a lost answer (G2): our version; None if the write may still land; else SwapLost."""
        found = await self._read_outcome(key)
        if found and found.data == data:
            return found.version
        if (found.version if found else ABSENT) == expected:
            return None
        raise _replaced(key, expected)

    async def _is_gone(self, key: str, expected: Version) -> bool:
        """Read the object after a lost answer to a delete: true if the version is gone, no matter who removed it."""
        found = await self._read_outcome(key)
        if found is None:
            return True
        if found.version == expected:
            return False
        raise _replaced(key, expected)

    async def _read_outcome(self, key: str) -> Stored | None:
        try:
            return await self.get(key)
        except Unavailable as error:
            message = f"object {key}: no answer to the write, and none to the read after it: {_reason(key, error)}"
            raise OutcomeUnknown(message) from error

    def _check_tries(self, key: str, tries: int, error: Unavailable, *, is_in_doubt: bool) -> None:
        if tries == self._settings.tries_max or not _may_retry(self.pace):
            message = f"object {key}: the store was unavailable in {tries} tries; nothing was written: "
            raise _still_unknown(key) if is_in_doubt else Unavailable(message + _reason(key, error)) from error

    def _check_budget(self, key: str) -> None:
        """The write may still land, and is not repeated if the store fails too often."""
        if not _may_retry(self.pace):
            raise _still_unknown(key)

    async def _wait(self, tries: int) -> None:
        await _wait(tries, self._clock, self._settings)


async def retried(
    call: Callable[[], Awaitable[T]], clock: Clock, settings: RetrySettings, pace: Pace | None = None
) -> T:
    """The result of a call that changes nothing, repeated while its service is unavailable; not after a refusal."""
    for tries in range(1, settings.tries_max):
        try:
            return await call()
        except ServiceRefused:
            raise
        except Unavailable:
            if not _may_retry(pace):
                raise
            await _wait(tries, clock, settings)
    return await call()


def _may_retry(pace: Pace | None) -> bool:
    """Whether the budget of the store allows one more try; a store without a pace has no budget."""
    if pace is None:
        return True
    may = pace.budget.take()
    pace.counts["retried" if may else "not_retried"] += 1
    return may


async def _wait(tries: int, clock: Clock, settings: RetrySettings) -> None:
    longest_ms = min(settings.wait_max_ms, settings.first_wait_ms << (tries - 1))
    await clock.sleep(longest_ms * (0.5 + clock.chance() / 2) / 1_000)


def _check_doubt(error: OutcomeUnknown | SwapLost, *, is_in_doubt: bool) -> bool:
    """True after a lost answer: an earlier try may have changed the object. A lost swap without one is raised."""
    if not is_in_doubt and isinstance(error, SwapLost):
        raise error
    return True


def _reason(key: str, error: Unavailable) -> str:
    return str(error).removeprefix(f"object {key}: ")


def _replaced(key: str, expected: Expected) -> SwapLost:
    message = f"object {key}: changed from version {expected} while the answer to our write was lost"
    return SwapLost(message, is_definite=False)


def _still_unknown(key: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"object {key}: the answer to a write was lost, and the write may still land")
