"""One round: calls made at the same time, all of them awaited whatever becomes of the others."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results in order. When calls fail, the first failure is raised, but only after all calls have ended.

    Nothing is left running behind the caller's back: a write that is still under way would be an unknown outcome.
    """
    calls = list(work)
    # The first call runs in this very task: a task costs more than many a call.
    beside = [asyncio.ensure_future(call) for call in calls[1:]]
    try:
        ended = [await _ended(call) for call in (*calls[:1], *beside)]
    except BaseException:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        raise
    values: list[T] = []
    for result in ended:
        if isinstance(result, _Failed):
            raise result.error
        values.append(result)
    return values


async def both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """Two reads in one round. When the first fails the second is given up."""
    beside = asyncio.ensure_future(second)
    try:
        return await first, await beside
    except BaseException:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
        raise


class _Failed:
    """What a call raised, kept until the others have ended."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _ended(call: Awaitable[T]) -> T | _Failed:
    try:
        return await call
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - raised again, when all calls have ended
        return _Failed(error)
