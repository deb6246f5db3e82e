"""One round: calls made at the same time, all of them awaited whatever becomes of the others."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results in order. When calls fail, the first failure is raised, but only after all calls have ended.

    Nothing is left running behind the caller's back: a write that is still under way would be an unknown outcome.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    values: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        values.append(result)
    return values
