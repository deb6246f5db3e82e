"""A store around a store, with one place through which every call goes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from sandur.storage.contract import LIST_LIMIT_MAX, Expected, Listed, ObjectStore, Stored, Unchanged, Version

T = TypeVar("T")


class Call(NamedTuple):
    """One call: the method, the key (of a list: the prefix) and the bytes to write."""

    name: str
    key: str
    data: bytes = b""

    @property
    def is_write(self) -> bool:
        return self.name in {"put", "delete"}


class WrappingStore:
    """Passes every call on; a fake overrides `_around` to do something before, after or instead."""

    has_instant_reads = False

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - for subclasses
        return await perform()

    def version_now(self, key: str) -> Version | None:
        raise NotImplementedError(f"object {key}: a fake may wait in any call")

    async def get(self, key: str) -> Stored | None:
        return await self._around(Call("get", key), lambda: self._inner.get(key))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        return await self._around(Call("get_if_changed", key), lambda: self._inner.get_if_changed(key, seen=seen))

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        key = versions[0][0] if versions else ""
        return await self._around(Call("are_current", key), lambda: self._inner.are_current(versions))

    async def head(self, key: str) -> Listed | None:
        return await self._around(Call("head", key), lambda: self._inner.head(key))

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        return await self._around(Call("put", key, data), lambda: self._inner.put(key, data, expected=expected))

    async def delete(self, key: str, *, expected: Version) -> None:
        return await self._around(Call("delete", key), lambda: self._inner.delete(key, expected=expected))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        return await self._around(Call("list", prefix), lambda: self._inner.list(prefix, after=after, limit=limit))

    async def close(self) -> None:
        await self._inner.close()
