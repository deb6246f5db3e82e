"""Run asynchronous operations on a lake from synchronous code: the Spark driver and each executor task."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest
from sandur.operations.lake import Lake
from sandur.operations.lakes import Lakes
from sandur.settings import Settings, load_settings, setting_keys
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.open import connect

T = TypeVar("T")


class BlockingLake:
    """A store, opened in an event loop of its own, for as long as the `with` lasts.

    `wait` runs one piece of work to its end; between two of them nothing runs. `memory:` is refused: what an executor
    opens would be another store than the driver's.
    """

    def __init__(
        self, settings: Settings, layout: Layout, *, clock: Clock | None = None, store: ObjectStore | None = None
    ) -> None:
        if settings.store == "memory:":
            raise BadRequest("store memory:: the pipeline works in several processes and needs a folder or a bucket")
        self.settings = settings
        self.layout = layout
        self.clock = clock or SystemClock()
        self.store = store or connect(settings, self.clock)
        self._loop = asyncio.new_event_loop()
        self._lakes = Lakes(settings, self.clock, self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def lake(self) -> Lake:
        """What operations act on, with caches that live as long as this store is open."""
        return self._lakes.lake(self.layout.tenant, self.layout.workspace)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work; what it raises is raised."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Finish what was begun behind answers, and let go of the store."""
        if self._loop.is_closed():
            return
        try:
            self.wait(self._lakes.close())
            self.wait(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


_DEFAULTS: Final = Settings()


def lake_options(settings: Settings, layout: Layout) -> dict[str, str]:
    """The settings that differ from the defaults, as options: named as the settings are, so that secrets are redacted
    by Spark like everybody's.
    """
    told = {key: value for key in setting_keys() if (value := _of(settings, key)) != _of(_DEFAULTS, key)}
    told |= {"store": settings.store, "tenant": layout.tenant, "workspace": layout.workspace}
    return {key: value if isinstance(value, str) else _text(value) for key, value in told.items()}


def open_lake(options: Mapping[str, str]) -> BlockingLake:
    """The store that the options name; what they leave out comes from the environment. BadRequest without `store`."""
    known = setting_keys()
    flags = {key: value for key, value in options.items() if key in known}
    settings = load_settings(environment=os.environ, flags=flags)
    if "store" not in flags and "SANDUR_STORE" not in os.environ:
        raise BadRequest("option store: a folder, file://, s3://, gs:// or az:// is expected, none was given")
    return BlockingLake(settings, Layout(settings.tenant or "default", settings.workspace or "default"))


def _of(settings: Settings, key: str) -> object:
    section, _, name = key.rpartition(".")
    return getattr(getattr(settings, section) if section else settings, name)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return msgspec.json.encode(value).decode()
