"""A store whose writes fail as long as a test wants it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")


class FailingStore(WrappingStore):
    """A store whose writes end with an error, as long as there is one."""

    error: Exception | None = None
    is_applied = True

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.error is None or not call.is_write:
            return await perform()
        if self.is_applied:
            await perform()
        raise self.error
