"""A store that runs a hook right before a chosen call."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandur.storage.contract import ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")


class HookedStore(WrappingStore):
    """Each hook runs once, before the first call that matches it, in the order in which they were added."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.hooks: list[tuple[str, str, Callable[[], Awaitable[object]]]] = []

    def before(self, name: str, key: str, happens: Callable[[], Awaitable[object]]) -> None:
        """Run a hook before the next call of that method on that key."""
        self.hooks.append((name, key, happens))

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.hooks:
            name, key, happens = self.hooks[0]
            if call.name.startswith(name) and call.key == key:
                del self.hooks[0]
                await happens()
        return await perform()
