"""A clock that moves only when the test moves it; ids and randomness come from a seed."""

import asyncio
import random  # noqa: TID251 - seeded, so that a run can be repeated
import uuid

from sandur.clock import uuid_v7


class FixedClock:
    """Time passes only by `advance`, by setting `time_ms`, or by sleeping, which takes no real time."""

    def __init__(self, time_ms: int = 1_767_225_600_000, *, seed: int = 0) -> None:
        self.time_ms = time_ms
        self.slept_seconds: list[float] = []
        self._chance = random.Random(seed)

    def advance(self, milliseconds: int) -> None:
        self.time_ms += milliseconds

    def now_ms(self) -> int:
        return self.time_ms

    def new_id(self) -> str:
        return uuid_v7(self.time_ms, self._chance.getrandbits(74))

    def new_uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def chance(self) -> float:
        return self._chance.random()

    async def sleep(self, seconds: float) -> None:
        self.slept_seconds.append(seconds)
        self.advance(round(seconds * 1_000))
        await asyncio.sleep(0)
