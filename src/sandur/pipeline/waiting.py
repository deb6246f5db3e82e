"""A place for asynchronous work inside code that is not: the driver of a job, and each task of an executor."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest
from sandur.operations.lake import Lake
from sandur.operations.lakes import Lakes
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.open import connect

T = TypeVar("T")


class OpenStore:
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
