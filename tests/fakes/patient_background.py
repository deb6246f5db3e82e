"""Background work that waits for the test, never for the clock of the machine."""

import asyncio

from sandur.operations.lake import Background


class PatientBackground(Background):
    """A pause ends when its event happens or when the test drains the background work, never by itself.

    Otherwise delayed work would start in the middle of a slow test.
    """

    async def pause(self, seconds: float, awake: asyncio.Event) -> None:  # noqa: ARG002 - the same call for both
        if self._drains:
            return
        self._pausing.add(awake)
        try:
            await awake.wait()
        finally:
            self._pausing.discard(awake)
