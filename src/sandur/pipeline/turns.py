"""Whose turn the pipeline is: of several that run on one store, one works, and the one that was overtaken stops."""

import threading
from types import TracebackType
from typing import Final, Self

from sandur.clock import Clock
from sandur.errors import Busy, Conflict, SandurError
from sandur.operations.janitors.lease import LEASE_MS, Lease
from sandur.pipeline.waiting import OpenStore
from sandur.settings import Settings
from sandur.storage.layout import Layout

KIND: Final = "pipeline"
RENEWALS_PER_LEASE: Final = 5


class Turn:
    """A turn, held for as long as the `with` lasts, and kept up beside the work that is done in it.

    Only the publishing swaps decide what counts; the turn keeps two runs from doing the same work twice, and makes one
    that was taken for dead stop before it publishes or deletes anything more. Busy when it is somebody else's turn, or
    when none is due and `if_due` asks for that: the next one is due `pause_ms` after this one began.
    """

    def __init__(
        self, settings: Settings, layout: Layout, *, if_due: bool = False, pause_ms: int = 0, clock: Clock | None = None
    ) -> None:
        self._open_store = OpenStore(settings, layout, clock=clock)
        self._lease = Lease(self._open_store.lake, KIND)
        self._if_due = if_due
        self._pause_ms = pause_ms
        self._began_ms = 0
        self._is_lost = False
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._keeper = threading.Thread(target=self._keep_up, name="turn", daemon=True)

    @property
    def fence(self) -> int:
        return self._lease.fence

    def __enter__(self) -> Self:
        try:
            is_ours = self._open_store.wait(self._lease.take(if_due=self._if_due))
        except BaseException:
            self._open_store.close()
            raise
        if not is_ours:
            self._open_store.close()
            raise Busy("the pipeline: another run is at it, or none is due yet")
        self._began_ms = self._open_store.clock.now_ms()
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._keeper.join()
        try:
            if not self._is_lost:
                self._open_store.wait(self._lease.release({}, due_ms=self._began_ms + self._pause_ms))
        finally:
            self._open_store.close()

    def check(self) -> None:
        """Conflict when the turn was given to another: then whoever asks stops."""
        if not self._kept():
            raise Conflict("the pipeline: another run took over; this one stops")

    def _kept(self) -> bool:
        with self._lock:
            if not self._is_lost:
                self._is_lost = not self._open_store.wait(self._lease.keep({}))
            return not self._is_lost

    def _keep_up(self) -> None:
        while not self._is_over.wait(LEASE_MS / RENEWALS_PER_LEASE / 1_000):
            try:
                if not self._kept():
                    return
            except SandurError:
                continue  # The store does not answer; whoever checks before publishing finds out whether that matters.
