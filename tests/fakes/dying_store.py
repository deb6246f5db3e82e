"""A store that simulates the death of its process at a chosen call."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandur.storage.contract import ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")


class Died(BaseException):
    """The process died. Not an Exception, so that no error handler runs."""


class DyingStore(WrappingStore):
    """Dies at the `dies_at`th call (the first is 1), before or after it takes effect; every later call dies too."""

    def __init__(self, inner: ObjectStore, *, dies_at: int, after: bool) -> None:
        super().__init__(inner)
        self._dies_at = dies_at
        self._after = after
        self._begun = 0
        self.has_died = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        self._begun += 1
        is_last = self._begun == self._dies_at
        if self.has_died or (is_last and not self._after):
            self._die(call)
        try:
            return await perform()
        finally:
            if is_last:
                self._die(call)

    def _die(self, call: Call) -> None:
        self.has_died = True
        raise Died(f"at {call.name} {call.key}")
