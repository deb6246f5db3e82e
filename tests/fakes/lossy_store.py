"""A store that loses the answer to one chosen write."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar, assert_never

from sandur.errors import OutcomeUnknown, SwapLost
from sandur.storage.contract import ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore

Fate = Literal["applied", "dropped", "late"]
T = TypeVar("T")


class LossyStore(WrappingStore):
    """The `loses_at`th write (the first is 1) ends in OutcomeUnknown.

    Its fate: `applied` at once, `dropped` forever, or `late`: held back until `deliver`.
    """

    def __init__(self, inner: ObjectStore, *, loses_at: int, fate: Fate) -> None:
        super().__init__(inner)
        self._loses_at = loses_at
        self._fate = fate
        self._writes = 0
        self._in_flight: Callable[[], Awaitable[object]] | None = None

    async def deliver(self) -> bool:
        """Let the late write reach the store. Returns whether it was applied; False if no write is late."""
        perform, self._in_flight = self._in_flight, None
        if perform is None:
            return False
        try:
            await perform()
        except SwapLost:
            return False
        return True

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if not call.is_write:
            return await perform()
        self._writes += 1
        if self._writes != self._loses_at:
            return await perform()
        match self._fate:
            case "applied":
                with contextlib.suppress(SwapLost):  # The lost answer would have reported this.
                    await perform()
            case "late":
                self._in_flight = perform
            case "dropped":
                pass
            case _:
                assert_never(self._fate)
        raise OutcomeUnknown(f"object {call.key}: the answer to {call.name} was lost on purpose")
