"""Servers that are killed while they commit and deliver: every acknowledged commit arrives, in order."""

import contextlib
import itertools
import math
import random  # noqa: TID251 - seeded, and the seed is printed
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.events.deliveries import SEALING_KEY
from tests.events.receivers import Behaviour, Got, Receiver, receiver
from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table, set_properties

API = "/api/sandur/v1"
TABLES = "/v1/main/namespaces/ns/tables"
SETTINGS = {
    "sealing_keys": SEALING_KEY,
    "delivery_addresses": "127.0.0.0/8",
    "delivery_lease": "PT2S",
    "fsync": "never",
    "log_level": "error",
}
SECONDS_MAX = 120.0
LONG_SECONDS_MAX = 600.0
"""Less than the limits of the tests themselves, so that a failure says what is missing."""
COMMITS_PER_ROUND = 30
"""The commits of one writer between two kills. Without a limit, a slow machine has more of them: its servers start
slowly, the writers go on meanwhile, and every fiftieth delivery fails and blocks its table for seconds."""


class Fleet:
    """Servers on one store. A killed one is replaced by a new one."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, count: int) -> None:
        self._folder = folder
        self._stack = stack
        self._numbers = itertools.count()
        # One client without TLS: a new one for each request would spend its time on certificates.
        self._client = stack.enter_context(httpx.Client(verify=False, timeout=30))  # noqa: S501 - plain HTTP on loopback
        self.servers = [self._start() for _ in range(count)]

    def _start(self) -> ServerProcess:
        home = self._folder / f"server{next(self._numbers)}"
        home.mkdir()
        store = str(self._folder / "data")
        return self._stack.enter_context(server_process(home, "--store", store, **SETTINGS))

    def kill(self, number: int) -> None:
        """Kill a server at once, as a power cut would, and start another one."""
        self.servers[number].process.kill()
        self.servers[number].process.wait()
        self.servers[number] = self._start()

    def report(self, subscription: Mapping[str, str]) -> str:
        """The state of the deliveries and the output of every server, for a failure."""
        logs = [(path.parent.name, path.read_text(encoding="utf-8")) for path in self._folder.glob("server*/stderr")]
        state = self.send(0, "GET", f"{API}/subscriptions/{subscription['id']}").text
        feed = sorted(str(path) for path in (self._folder / "data").rglob("operational/feed/*"))
        return "\n".join([state, *feed, *(f"{name}: {text}" for name, text in logs)])

    def send(self, number: int, method: str, path: str, body: object = None) -> httpx.Response:
        return self._client.request(method, self.servers[number].url + path, json=body)


class Writer(threading.Thread):
    """Commits to one table on any server; `acknowledged` counts the commits that succeeded."""

    def __init__(self, fleet: Fleet, table: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self._table = table
        self._chance = random.Random(seed)
        self.ending = threading.Event()
        self.acknowledged = 0
        self.allowed: float = math.inf
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for step in itertools.count():
                if self.ending.is_set():
                    return
                if self.acknowledged < self.allowed:
                    self._commit(self._chance.randrange(len(self._fleet.servers)), step)
                time.sleep(0.01)  # noqa: TID251 - real processes take real time
        except Exception as error:  # noqa: BLE001 - raised by `end`
            self.failure = error

    def _commit(self, number: int, step: int) -> None:
        with contextlib.suppress(httpx.HTTPError):
            answer = self._fleet.send(number, "POST", f"{TABLES}/{self._table}", set_properties(step=str(step)))
            self.acknowledged += answer.is_success

    def end(self) -> None:
        """Stop, and commit once more on a server that lives.

        A server that was killed between a swap and its answer leaves a head without a receipt. That commit was not
        acknowledged, and its successor writes the receipt (C5).
        """
        self.ending.set()
        self.join()
        if self.failure:
            raise self.failure
        last = self._fleet.send(0, "POST", f"{TABLES}/{self._table}", set_properties(step="last"))
        last.raise_for_status()
        self.acknowledged += 1


def _versions(got: list[Got], name: str) -> list[int]:
    found = [one.event["data"] for one in got]
    return [one["version"] for one in found if one["type"] == "table.committed" and one["name"] == name]


def _metadata_version(fleet: Fleet, table: str) -> int:
    location = fleet.send(0, "GET", f"{TABLES}/{table}").raise_for_status().json()["metadata-location"]
    return int(location.rpartition("/")[2].partition("-")[0])


@contextlib.contextmanager
def _under_fire(
    folder: Path, hook: Receiver, tables: list[str], *, seed: int, seconds_max: float = SECONDS_MAX
) -> Iterator[tuple[Fleet, list[Writer]]]:
    with contextlib.ExitStack() as stack:
        fleet = Fleet(folder, stack, count=2)
        fleet.send(0, "POST", "/v1/main/namespaces", {"namespace": ["ns"]}).raise_for_status()
        made = fleet.send(0, "POST", f"{API}/subscriptions", {"url": hook.url, "begin": "oldest"})
        assert made.status_code == 201, made.text
        for table in tables:
            fleet.send(0, "POST", TABLES, create_table(table)).raise_for_status()
        writers = [Writer(fleet, table, seed + number) for number, table in enumerate(tables)]
        for writer in writers:
            writer.start()
        yield fleet, writers
        for writer in writers:
            writer.end()
        last = {table: _metadata_version(fleet, table) for table in tables}
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            with hook.lock:
                seen = {table: set(_versions(hook.accepted, table)) for table in tables}
            if all(seen[table] >= set(range(last[table] + 1)) for table in tables):
                break
            time.sleep(0.05)  # noqa: TID251 - real processes take real time
        for table, writer in zip(tables, writers, strict=True):
            arrived = _versions(hook.accepted, table)
            firsts = list(dict.fromkeys(arrived))
            assert firsts == list(range(last[table] + 1)), (
                f"{table}, seed {seed}: {arrived}\n{fleet.report(made.json())}"
            )
            assert last[table] >= writer.acknowledged > 0


FAILURES: Final[tuple[Behaviour, ...]] = (500, 503, "drop", "garbage")
FAILURES_SHARE: Final = 0.02
"""Each failure blocks its table for five seconds or more."""


def _flaky(seed: int) -> Iterator[Behaviour]:
    chance = random.Random(seed)
    while True:
        yield chance.choice(FAILURES) if chance.random() < FAILURES_SHARE else 200


def test_every_acknowledged_commit_arrives_in_order_although_servers_are_killed(tmp_path: Path) -> None:
    with receiver() as hook, _under_fire(tmp_path, hook, ["t", "u"], seed=1) as (fleet, writers):
        for number in (0, 1):
            count = sum(writer.acknowledged for writer in writers)
            _wait_for(lambda count=count: sum(writer.acknowledged for writer in writers) >= count + 20)
            fleet.kill(number)


@pytest.mark.crash
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_for_longer_with_a_receiver_that_fails(tmp_path: Path, seed: int) -> None:
    answers, lock = _flaky(seed), threading.Lock()

    def answer(_got: Got) -> Behaviour:
        with lock:
            return next(answers)

    with (
        receiver(answer) as hook,
        _under_fire(tmp_path, hook, ["t", "u", "v", "w"], seed=seed, seconds_max=LONG_SECONDS_MAX) as (fleet, writers),
    ):
        for number in range(6):
            count = sum(writer.acknowledged for writer in writers)
            for writer in writers:
                writer.allowed = writer.acknowledged + COMMITS_PER_ROUND
            _wait_for(lambda count=count: sum(writer.acknowledged for writer in writers) >= count + 40)
            fleet.kill(number % 2)


def _wait_for(condition: object) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():  # type: ignore[operator] # A function without parameters.
        assert time.monotonic() < deadline
        time.sleep(0.02)  # noqa: TID251 - real processes take real time
