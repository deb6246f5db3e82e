"""A process that writes to a local store until it is killed, and prints every acknowledged write."""

import asyncio
import os
import random  # noqa: TID251 - seeded, so that a run can be repeated
import sys

from sandur.errors import SwapLost
from sandur.storage.contract import ABSENT, Version
from sandur.storage.local import Fsync, LocalStore
from tests.crash.bodies import body_of, number_in

PAYLOAD_BYTES_MAX = 200_000
ITERATIONS_MAX = 1_000_000


class Writer:
    """Counts in its own object and in a shared one, and creates and deletes a third."""

    def __init__(self, store: LocalStore, name: str, seed: int) -> None:
        self._store = store
        self._name = name
        self._chance = random.Random(seed)

    async def count(self, key: str) -> None:
        stored = await self._store.get(key)
        number = number_in(stored.data) + 1 if stored else 0
        body = body_of(number, self._payload())
        try:
            version = await self._store.put(key, body, expected=stored.version if stored else ABSENT)
        except SwapLost:
            return
        _acknowledged("count", key, number, version)

    async def come_and_go(self) -> None:
        key = f"folder-{self._name}/comes/and/goes"
        if stored := await self._store.get(key):
            number_in(stored.data)
            await self._store.delete(key, expected=stored.version)
            _acknowledged("delete", key, 0, stored.version)
        else:
            version = await self._store.put(key, body_of(0, self._payload()), expected=ABSENT)
            _acknowledged("create", key, 0, version)

    def _payload(self) -> bytes:
        return self._chance.randbytes(self._chance.randint(0, PAYLOAD_BYTES_MAX))


def _acknowledged(event: str, key: str, number: int, version: Version) -> None:
    # One write to a pipe, shorter than its buffer, so a kill cannot split it.
    os.write(1, f"{event} {key} {number} {version}\n".encode())


async def write_until_killed(root: str, fsync: Fsync, name: str, seed: int) -> None:
    writer = Writer(LocalStore(root, fsync=fsync), name, seed)
    for _ in range(ITERATIONS_MAX):
        await writer.count(f"own/{name}")
        await writer.count("shared")
        await writer.come_and_go()


if __name__ == "__main__":
    folder, mode, who, number_of_chance = sys.argv[1:]
    asyncio.run(write_until_killed(folder, "always" if mode == "always" else "never", who, int(number_of_chance)))
