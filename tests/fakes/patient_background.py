"""Background work that waits for the test, never for the clock of the machine, and fails the test by its mistakes."""

import asyncio

from sandur.errors import SandurError
from sandur.operations.background import Background
from sandur.operations.incidents import LoggedIncidents


class _Kept(LoggedIncidents):
    """Keeps unexpected errors. A failure on purpose is as quiet as the test that causes it."""

    def __init__(self) -> None:
        self.mistakes: list[Exception] = []

    def work_failed(self, work: str, error: Exception) -> None:
        if not isinstance(error, SandurError):
            error.add_note(f"in background work: {work}")
            self.mistakes.append(error)


class PatientBackground(Background):
    """A pause ends when its event happens or when the test drains the background work, never by itself.

    Otherwise delayed work would start in the middle of a slow test. A drain raises an unexpected error of the work.
    """

    def __init__(self) -> None:
        self._kept = _Kept()
        super().__init__(self._kept)

    async def pause(self, seconds: float, awake: asyncio.Event) -> None:  # noqa: ARG002 - the same call for both
        if self._drains:
            return
        self._pausing.add(awake)
        try:
            await awake.wait()
        finally:
            self._pausing.discard(awake)

    async def drain(self, *, within_seconds: float | None = None) -> None:
        await super().drain(within_seconds=within_seconds)
        if self._kept.mistakes:
            raise self._kept.mistakes.pop(0)
