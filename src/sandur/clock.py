"""Time, fresh ids and chance, in one object that is passed to whoever acts."""

import asyncio
import os
import random
import time
from typing import Protocol

_RANDOM_BITS = 74
_VERSION_4 = 0x4 << 76 | 0b10 << 62
_FREE_IN_V4 = ((1 << 128) - 1) & ~(0xF << 76 | 0b11 << 62)


class Clock(Protocol):
    """Where the program asks for the time, for a new id, for chance, or to wait."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def new_id(self) -> str:
        """An id that was never given before, in UUIDv7 form: ids of one process sort roughly by time."""
        ...

    def new_uuid(self) -> str:
        """A random UUID (version 4) that says nothing about when it was made."""
        ...

    def chance(self) -> float:
        """A number from 0 up to but not including 1."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait, and let others run."""
        ...


class SystemClock:
    """The real thing."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        return uuid_v7(self.now_ms(), int.from_bytes(os.urandom(10)))

    def new_uuid(self) -> str:
        value = int.from_bytes(os.urandom(16)) & _FREE_IN_V4 | _VERSION_4
        return _spelled(value)

    def chance(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def uuid_v7(now_ms: int, entropy: int) -> str:
    """The UUIDv7 (RFC 9562) of a time and 74 bits of entropy."""
    bits = entropy & ((1 << _RANDOM_BITS) - 1)
    high, low = bits >> 62, bits & ((1 << 62) - 1)
    value = (now_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low
    return _spelled(value)


def _spelled(value: int) -> str:
    """As `uuid.UUID` would spell it, at half the cost: several ids are made for every commit."""
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
