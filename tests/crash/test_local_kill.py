"""The local store under SIGKILL and under contention, with real processes."""

import asyncio
import os
import random  # noqa: TID251 - seeded, and the seed is printed
import signal
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from sandur.storage.contract import ABSENT, Expected, Version
from sandur.storage.local import Fsync, LocalStore
from tests.crash.bodies import body_of, number_in
from tests.crash.counter_process import Counter, counter_in

PROJECT = Path(__file__).parents[2]
WRITERS = 2
ROUNDS = 50
KILLED_WRITES_MIN = 4
BUSY_FACTOR_MAX = 10
"""On a busy machine fewer kills hit a write, so there are more of them."""
ALIVE_SECONDS_MAX = 0.04
SYNCING: list[Fsync] = ["always", "never"]


class Acknowledged(NamedTuple):
    """The answers that a writer received before it died."""

    event: str
    key: str
    number: int
    version: Version


def start(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)], cwd=PROJECT, stdout=subprocess.PIPE, bufsize=0
    )


def written_before_the_kill(writer: subprocess.Popen[bytes], alive_seconds: float) -> list[Acknowledged]:
    """Let the writer work for a time after its first output, kill it, and parse its output."""
    if writer.stdout is None:
        raise AssertionError("the writer has no output")
    with writer:
        said = writer.stdout.readline()
        threading.Event().wait(alive_seconds)
        os.kill(writer.pid, signal.SIGKILL)
        said += writer.stdout.read()
        assert writer.wait() == -signal.SIGKILL
    assert said.endswith(b"\n")
    return [_acknowledged(line) for line in said.decode().splitlines()]


def _acknowledged(line: str) -> Acknowledged:
    event, key, number, version = line.split()
    return Acknowledged(event, key, int(number), Version(version))


class Ledger:
    """Everything that was ever acknowledged; the store is compared with it after every kill."""

    def __init__(self) -> None:
        self.counted: dict[str, dict[int, Version]] = {}
        self.versions: dict[str, set[Version]] = {}

    def add(self, acknowledged: Acknowledged) -> None:
        key, number, version = acknowledged.key, acknowledged.number, acknowledged.version
        if acknowledged.event == "delete":
            return
        versions = self.versions.setdefault(key, set())
        assert version not in versions, f"{key}: version {version} was given twice"
        versions.add(version)
        if acknowledged.event == "count":
            numbers = self.counted.setdefault(key, {})
            assert number not in numbers, f"{key}: two writers wrote number {number}"
            numbers[number] = version

    async def check_counter(self, store: LocalStore, key: str, *, unheard_max: int) -> None:
        """The object is complete, and ahead of the acknowledged number by at most one per killed writer."""
        stored = await store.get(key)
        assert stored, f"{key}: lost"
        number, numbers = number_in(stored.data), self.counted.setdefault(key, {})
        last = max(numbers, default=-1)
        assert last <= number <= last + unheard_max, f"{key}: {last} was acknowledged, {number} found"
        if number == last:
            assert stored.version == numbers[last], f"{key}: another version than was acknowledged"
        for unheard in range(last + 1, number):
            numbers[unheard] = Version(f"unheard {unheard}")
        if number > last:
            self.add(Acknowledged("count", key, number, stored.version))

    async def check_come_and_gone(self, store: LocalStore, key: str, said: list[Acknowledged]) -> None:
        """The object is in the last acknowledged state, or one step further."""
        heard = [acknowledged for acknowledged in said if acknowledged.key == key]
        stored = await store.get(key)
        if stored is None:
            return
        number_in(stored.data)
        if not heard or heard[-1].event == "delete":
            assert not heard or stored.version != heard[-1].version, f"{key}: deleted, and there again"
            self.versions.setdefault(key, set()).add(stored.version)
        else:
            assert stored.version == heard[-1].version, f"{key}: another version than was acknowledged"


async def check_listing(store: LocalStore) -> None:
    """The listing has the current objects and no leftovers of killed writers."""
    for entry in await store.list(""):
        assert entry.key.startswith(("own/", "folder-")) or entry.key == "shared", f"{entry.key}: no writer wrote it"
        stored = await store.get(entry.key)
        assert stored
        assert (entry.version, entry.size_bytes) == (stored.version, len(stored.data))


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("fsync", SYNCING)
async def test_a_killed_writer_leaves_the_complete_old_or_new_object(fsync: Fsync, tmp_path: Path) -> None:
    """100 kills in each mode: two competing writers at a time, each killed at its own moment."""
    seed = int.from_bytes(os.urandom(4))
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    ledger, names = Ledger(), [str(number) for number in range(WRITERS)]
    # Created first, because the first writers may die before they create it.
    store = LocalStore(tmp_path, fsync=fsync)
    await use(store, ledger)
    await store.close()

    for number in range(ROUNDS * BUSY_FACTOR_MAX):
        if number >= ROUNDS and _killed_writes(tmp_path) >= KILLED_WRITES_MIN:
            break
        writers = [start("tests.crash.local_writer", tmp_path, fsync, name, chance.getrandbits(32)) for name in names]
        moments = [chance.uniform(0, ALIVE_SECONDS_MAX) for _ in writers]
        said = await asyncio.gather(
            *(asyncio.to_thread(written_before_the_kill, *pair) for pair in zip(writers, moments, strict=True))
        )
        for acknowledged in sorted(chain.from_iterable(said), key=lambda one: int(one.version)):
            ledger.add(acknowledged)

        store = LocalStore(tmp_path, fsync=fsync)
        await ledger.check_counter(store, "shared", unheard_max=WRITERS)
        for name, heard in zip(names, said, strict=True):
            await ledger.check_counter(store, f"own/{name}", unheard_max=1)
            await ledger.check_come_and_gone(store, f"folder-{name}/comes/and/goes", heard)
        await check_listing(store)
        await use(store, ledger)
        await store.close()

    assert _killed_writes(tmp_path) >= KILLED_WRITES_MIN, "too few kills hit a write"


def _killed_writes(folder: Path) -> int:
    """How many kills hit a write, by the files that they left."""
    return len(list((folder / ".sandur" / "writing").iterdir()))


async def use(store: LocalStore, ledger: Ledger) -> None:
    """The objects of dead writers can be swapped at once, without repair."""
    stored = await store.get("shared")
    number = number_in(stored.data) + 1 if stored else 0
    expected: Expected = stored.version if stored else ABSENT
    version = await store.put("shared", body_of(number, b"by the survivor"), expected=expected)
    ledger.add(Acknowledged("count", "shared", number, version))


@pytest.mark.parametrize("fsync", SYNCING)
async def test_eight_processes_increment_one_cell_and_no_increment_is_lost(fsync: Fsync, tmp_path: Path) -> None:
    processes, times = 8, 1_000
    store = LocalStore(tmp_path, fsync=fsync)
    cell = counter_in(store)
    await cell.create(Counter())

    counting = [start("tests.crash.counter_process", tmp_path, fsync, times) for _ in range(processes)]
    for process in counting:
        with process:
            assert await asyncio.to_thread(process.wait, 240) == 0

    held = await cell.read()
    assert held
    assert held.value.count == processes * times
    await store.close()


async def test_a_lock_held_by_a_killed_process_is_free(tmp_path: Path) -> None:
    """The system releases a lock when its holder dies."""
    store = LocalStore(tmp_path, fsync="never")
    with start("tests.crash.lock_holder", tmp_path, "a") as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        waiting = asyncio.create_task(store.put("a", b"1", expected=ABSENT))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
        os.kill(holder.pid, signal.SIGKILL)

    assert await asyncio.wait_for(waiting, 60)
    await store.close()
