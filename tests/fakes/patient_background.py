"""Work behind the answers that waits for the test, never for the time of the machine."""

import asyncio

from sandur.operations.lake import Background


class PatientBackground(Background):
    """A pause ends when what it waits for has come, or when somebody waits for all to end: never by itself.

    What is to happen a moment later would otherwise happen in the middle of a test that is slow, or begins late in a
    second.
    """

    async def pause(self, seconds: float, awake: asyncio.Event) -> None:  # noqa: ARG002 - the same call for both
        if self._drains:
            return
        self._pausing.add(awake)
        try:
            await awake.wait()
        finally:
            self._pausing.discard(awake)
