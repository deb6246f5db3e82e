"""A store that holds one chosen call until the test releases it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandur.storage.contract import ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")


class GatedStore(WrappingStore):
    """Holds the first chosen call before it takes effect; `is_held` is set when the call has arrived."""

    def __init__(self, inner: ObjectStore, *, holds: Callable[[Call], bool]) -> None:
        super().__init__(inner)
        self._holds = holds
        self.is_held = asyncio.Event()
        self._gate = asyncio.Event()

    def release(self) -> None:
        self._gate.set()

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if not self.is_held.is_set() and self._holds(call):
            self.is_held.set()
            await self._gate.wait()
        return await perform()


def writes_to(folder: str, holding: bytes = b"") -> Callable[[Call], bool]:
    """Chooses a put below a folder of the catalog whose bytes contain a text."""
    return lambda call: call.name == "put" and f"/_catalog/{folder}" in call.key and holding in call.data
