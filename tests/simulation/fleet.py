"""Simulated servers on one bucket: they are killed, restarted, cut off and skewed while clients send requests."""

import asyncio
import random  # noqa: TID251 - seeded, so that a run can be repeated
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from sandur.errors import Damaged, SandurError, SwapLost
from sandur.operations.background import Background
from sandur.operations.index.hints import read_ahead
from sandur.operations.janitors.schedule import Janitors
from sandur.operations.lake import Lake
from sandur.settings import RetrySettings, Settings
from sandur.storage.layout import Layout
from sandur.storage.locations import Locations
from sandur.storage.pace import PacedStore
from sandur.storage.record_form import RecordForm
from sandur.storage.retry import RetryingStore
from sandur.storage.shared_reads import SharingStore
from tests.fakes.dying_store import Died
from tests.operations.lakes import OWN_ADDRESS
from tests.simulation.bucket import CALLS, Bucket, Link, SimulatedClock, Weather
from tests.simulation.loop import WORLD, SimulatedLoop, context_of
from tests.simulation.plan import Plan

T = TypeVar("T")

PATIENCE_SECONDS: Final = (0.3, 3.0, 12.0, 30.0, 30.0)
"""How long clients wait for an answer. The server goes on with the request."""

REQUEST_SECONDS_MAX: Final = 1_200.0
CALLS_MAX: Final = 2_000
_SKEW_MS_MAX: Final = 20_000
UNKNOWN: Final = "OutcomeUnknown"
DIED: Final = "died"

_FRAMES_SHOWN: Final = 6
_AIMED: Final = 0.07
_CUT_SECONDS_MAX: Final = 35.0
_AIMED_SECONDS: Final = (0.05, 0.2, 1.0)

SETTINGS: Final = {
    "store": "memory:",
    # Takeovers and aborts happen while the first attempt may still be running.
    "claim_timeout_ms": 8_000,
    "transaction_timeout_ms": 4_000,
    "janitor_interval": "PT30M",
    "delta_unpublished_max": 1_000,
}


class Server:
    """One process from its start to its death: a lake with empty caches at first, and janitors."""

    def __init__(self, fleet: "Fleet", number: int, life: int) -> None:
        self.number = number
        self.process = f"server {number}.{life}"
        self.link = Link(fleet.bucket, self.process)
        self.context = context_of(self.process)
        chance = fleet.chance
        skew_ms = chance.randint(-_SKEW_MS_MAX, _SKEW_MS_MAX) if fleet.plan.has("skew") else 0
        self.clock = SimulatedClock(fleet.loop, f"{fleet.plan.seed} {self.process}", skew_ms=skew_ms)
        store = SharingStore(RetryingStore(PacedStore(self.link, RetrySettings()), self.clock))
        self.lake = fleet.open_lake(store, self.clock)
        self._fleet = fleet
        self.janitors = Janitors(
            self.lake.settings,
            self.clock,
            self.lake.store,
            lambda _layout: fleet.open_lake(self.lake.store, self.clock),
            on_run=lambda _layout, _counts: fleet.counts.update(["janitor rounds"]),
            on_failure=lambda _layout, what, error: fleet.expect(error, f"janitor {what}"),
        )

    @property
    def is_dead(self) -> bool:
        return self.link.is_dead

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return self._fleet.loop.start(self.context, work)

    async def live(self) -> None:
        self.janitors.start()
        await read_ahead(self.lake)  # Clients do not wait for it: nothing may depend on it.
        await asyncio.Event().wait()


@dataclass
class Fleet:
    """The servers of one run, and the problems that were found."""

    plan: Plan
    loop: SimulatedLoop
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    calls_max: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.plan.seed} fleet")
        self.weather = Weather()
        self.bucket = Bucket(self.loop, self.plan.seed, self.weather)
        self.form = RecordForm()
        self.servers: list[Server] = []
        self._lives = 0

    def open_lake(self, store: Any, clock: SimulatedClock) -> Lake:
        retention = "PT4H" if self.plan.forgets else "P30D"
        settings = msgspec.convert(
            {**SETTINGS, "name_retention": retention, "orphan_retention": "PT2H", "janitors": True}, Settings
        )
        return Lake(
            store=store,
            layout=Layout(),
            clock=clock,
            settings=settings,
            locations=Locations(OWN_ADDRESS, store, open_store=lambda _url: store),
            background=Background(self),
            incidents=self,
        )

    def quiet_lake(self) -> Lake:
        """A lake that reaches the store without a network."""
        return self.open_lake(self.bucket.memory, SimulatedClock(self.loop, f"{self.plan.seed} quiet {self._lives}"))

    def start(self) -> None:
        for number in range(self.plan.servers):
            self.servers.append(self._begin(number))

    def _begin(self, number: int) -> Server:
        self._lives += 1
        server = Server(self, number, self._lives)
        server.start(server.live())
        self.counts["starts"] += 1
        return server

    def kill(self, server: Server) -> None:
        """The process ends at once; what it has sent may still arrive."""
        self.bucket.note("kill", server.process)
        self.counts["kills"] += 1
        server.link.is_dead = True
        self.loop.kill(server.process)

    def _aim(self, server: Server, chance: random.Random) -> None:
        """Sometimes kill the server of a request, or cut it off, in the middle of its work."""
        fate = chance.random()
        seconds = chance.random() * chance.choice(_AIMED_SECONDS)

        def die() -> None:
            if not server.is_dead and not self.weather.is_calm:
                self.kill(server)
                self.loop.call_later(self.chance.random(), self.restart, server)

        def cut() -> None:
            self.counts["partitions"] += 1
            server.link.partition("both", chance.random() * _CUT_SECONDS_MAX)

        if fate < _AIMED and self.plan.has("kill"):
            self.loop.call_later(seconds, die, context=context_of(WORLD))
        elif fate > 1 - _AIMED and self.plan.has("partition"):
            self.loop.call_later(seconds, cut, context=context_of(WORLD))

    def restart(self, server: Server) -> None:
        if self.servers[server.number] is server:
            self.servers[server.number] = self._begin(server.number)

    def pick(self, chance: random.Random) -> Server:
        living = [server for server in self.servers if not server.is_dead]
        return chance.choice(living or self.servers)

    def work_failed(self, work: str, error: Exception) -> None:
        self.expect(error, work)

    def object_damaged(self, key: str, reason: str) -> None:
        self.problem(f"object {key} is damaged: {reason}")

    def expect(self, error: BaseException, where: str) -> None:
        """Note an error that no program may raise."""
        if not isinstance(error, SandurError) or isinstance(error, Damaged):
            self.problem(f"{where}: {type(error).__name__}: {error}", error)

    def problem(self, text: str, error: BaseException | None = None) -> None:
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_SHOWN:]
            places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames]
            text += f" [{' '.join(places)}]"
        self.problems.append(f"at {self.loop.time():.3f} s: {text}")

    async def send(
        self, chance: random.Random, what: str, work: Callable[[Lake], Awaitable[T]], *, to: Server | None = None
    ) -> "Answer[T]":
        """Send a request to a server. The task of the server may outlive the patience of the client."""
        server = to or self.pick(chance)
        calls = [0]
        self.counts["requests"] += 1

        async def handled() -> T:
            CALLS.set(calls)
            return await work(server.lake)

        if server.is_dead:
            return Answer(what, DIED, None, None)
        task = server.start(handled())
        self._aim(server, chance)
        await asyncio.wait([task], timeout=chance.choice(PATIENCE_SECONDS))
        answer = self._answer(what, task)
        self.calls_max = max(self.calls_max, calls[0])
        if calls[0] > CALLS_MAX:
            self.problem(f"{what} made {calls[0]} store calls")
        return answer

    def _answer(self, what: str, task: "asyncio.Task[T]") -> "Answer[T]":
        result, value = "ok", None
        if not task.done():
            result = UNKNOWN
        elif task.cancelled():
            result = DIED
        elif error := task.exception():
            result = DIED if isinstance(error, Died) else type(error).__name__
            if result != DIED:
                self.expect(error, what)
            if isinstance(error, SwapLost):
                self.problem(f"{what} was answered with SwapLost: {error}")
            if result == "Unavailable":
                result = UNKNOWN
        else:
            value = task.result()
        self.counts[result] += 1
        self.bucket.note("answer", what, result)
        return Answer(what, result, value, task)

    async def finished(self, what: str, *answers: "Answer[Any]") -> None:
        """Wait until the servers have ended the work of these requests."""
        tasks = [answer.task for answer in answers if answer.task and not answer.task.done()]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=REQUEST_SECONDS_MAX)
            for _ in left:
                self.problem(f"{what}: a request did not end in {REQUEST_SECONDS_MAX:g} s")

    async def disturb(self) -> None:
        """Kill, cut off, throttle and shift clocks, until the task is cancelled."""
        plan, chance, weather = self.plan, self.chance, self.weather
        weather.lost_answers = 0.02 if plan.has("loss") else 0.0
        weather.lost_requests = 0.004 if plan.has("loss") else 0.0
        weather.late = 0.008 if plan.has("late") else 0.0
        weather.throttled = 0.002 if plan.has("throttle") else 0.0
        while True:
            await asyncio.sleep(chance.expovariate(1 / plan.calm_seconds))
            if not plan.faults:
                continue
            server = self.pick(chance)
            match chance.choice(plan.faults):
                case "kill" if not server.is_dead:
                    self.kill(server)
                    self.loop.call_later(chance.random() * 20, self.restart, server, context=context_of(WORLD))
                case "partition":
                    self.counts["partitions"] += 1
                    server.link.partition(
                        chance.choice(("both", "requests", "answers")), chance.random() * _CUT_SECONDS_MAX
                    )
                case "throttle":
                    self.counts["storms"] += 1
                    weather.storm = chance.choice((0.2, 0.5, 0.9))
                    weather.storm_until = self.loop.time() + chance.random() * 15
                case "skew":
                    server.clock.skew_ms = chance.randint(-_SKEW_MS_MAX, _SKEW_MS_MAX)
                case _:
                    pass

    async def settle(self) -> None:
        """End all faults, replace every server, and wait until background work has ended."""
        self.weather.is_calm = True
        for server in self.servers:
            if not server.is_dead:
                background = server.lake.background
                await server.start(background.drain(within_seconds=REQUEST_SECONDS_MAX))
                self.kill(server)


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The answer as its client sees it. `task` is the work of the server, which may still be running."""

    what: str
    result: str
    value: T | None
    task: "asyncio.Task[T] | None"
