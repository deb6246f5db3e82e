"""Run asynchronous operations on a lake from synchronous code: the Spark driver and each executor task."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from operator import attrgetter
from typing import Final, Self, TypeVar

import msgspec

from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest
from sandur.operations.access import by_current_names
from sandur.operations.lake import Lakes
from sandur.setting_sources import load_settings, setting_keys
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect

T = TypeVar("T")

_DEFAULTS: Final = Settings()


class BlockingLake:
    """A lake with an event loop of its own, open until the `with` block ends.

    `wait` runs one awaitable to its end; nothing runs between two calls. Raises BadRequest for the store `memory:`.
    """

    def __init__(self, settings: Settings, *, clock: Clock | None = None, store: ObjectStore | None = None) -> None:
        check_shared_store(settings)
        clock = clock or SystemClock()
        self._lakes = Lakes(settings, clock, store or connect(settings, clock))
        self._loop = asyncio.new_event_loop()
        self.lake = self._lakes.lake(settings.tenant or "default", settings.workspace or "default")
        try:
            self.lake = self.wait(by_current_names(self.lake))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait(self, work: Awaitable[T]) -> T:
        return self._loop.run_until_complete(work)

    def iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Yield the values of an asynchronous iterator; none of them may be None."""
        while (value := self.wait(anext(values, None))) is not None:
            yield value

    def close(self) -> None:
        """Finish background work and close the store."""
        if self._loop.is_closed():
            return
        try:
            self.wait(self._lakes.close())
            self.wait(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


def check_shared_store(settings: Settings) -> None:
    """Raise BadRequest for `memory:`, of which every process has another one."""
    if settings.store == "memory:":
        raise BadRequest("store memory:: the pipeline works in several processes and needs a folder or a bucket")


def lake_options(settings: Settings) -> dict[str, str]:
    """The store, and the settings that differ from the defaults, as options of a data source.

    The keys are those of the settings, so Spark redacts secrets by its usual pattern.
    """
    values = {key: attrgetter(key)(settings) for key in setting_keys()}
    changed = {key: _text(value) for key, value in values.items() if value != attrgetter(key)(_DEFAULTS)}
    where = {"tenant": settings.tenant or "default", "workspace": settings.workspace or "default"}
    return {**changed, "store": settings.store, **where}


def open_lake(options: Mapping[str, str]) -> BlockingLake:
    """Open the lake that the options name; the environment supplies the rest. Raises BadRequest without `store`."""
    known = setting_keys()
    flags = {key: value for key, value in options.items() if key in known}
    settings = load_settings(environment=os.environ, flags=flags)
    if "store" not in flags and "SANDUR_STORE" not in os.environ:
        raise BadRequest("option store: expected a folder, file://, s3://, gs:// or az://, but the option is missing")
    return BlockingLake(settings)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
