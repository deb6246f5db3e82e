"""Four real servers on one store, killed and stalled all the time, and 32 clients that lose every fifth answer."""

import asyncio
import os
import random  # noqa: TID251 - seeded, and the seed is printed
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.clock import SystemClock
from sandur.operations.lake import Lakes
from sandur.setting_sources import load_settings
from sandur.settings import Settings
from sandur.storage.locations import connect
from tests.chaos.clients import Client, Diary, http_client
from tests.chaos.evidence import Evidence, gather_evidence, process_marks, visible_names
from tests.chaos.fleet import Fleet, fleet_of
from tests.chaos.lossy_proxy import lossy_proxies
from tests.chaos.name_work import (
    create_shared,
    drop_shared,
    list_tables,
    load_shared,
    namespace_lifecycle,
    rename_shared,
    table_lifecycle,
)
from tests.chaos.table_work import add_column, add_snapshot, change_pair, commit_last, read_pair, set_last, set_own
from tests.chaos.verdict import judge
from tests.chaos.world import NAMESPACES, make_world

SERVERS: Final = 4
CLIENTS: Final = 32
IMPATIENT_EVERY: Final = 4
SEED: Final = "CHAOS_SEED"
SHOWN: Final = tuple(Namespace("main", (name,)) for name in NAMESPACES)

# Requests of dead servers are taken over soon, so that clients get their answers in time.
HURRIED: Final = {"claim_timeout_ms": "1000", "transaction_timeout_ms": "700", "janitor_interval": "PT1S"}

DEEDS: Final[Mapping[Callable[[Client], Awaitable[None]], int]] = {
    add_snapshot: 6,
    set_last: 4,
    set_own: 3,
    add_column: 2,
    change_pair: 5,
    read_pair: 4,
    create_shared: 3,
    drop_shared: 2,
    rename_shared: 3,
    load_shared: 1,
    list_tables: 1,
    table_lifecycle: 1,
    namespace_lifecycle: 1,
}


class Plan(NamedTuple):
    """The end of a run: all three numbers are reached, or the time is up."""

    seconds_min: float
    rounds_min: int
    requests_min: int
    seconds_max: float

    def is_enough(self, seconds: float, rounds: int, requests: int) -> bool:
        is_reached = seconds >= self.seconds_min and rounds >= self.rounds_min and requests >= self.requests_min
        return is_reached or seconds >= self.seconds_max


SHORT: Final = Plan(seconds_min=6, rounds_min=3, requests_min=500, seconds_max=45)
# Concurrent writers of one object wait for seconds there, so less happens in the same time.
SHORT_ON_S3: Final = Plan(seconds_min=6, rounds_min=2, requests_min=300, seconds_max=30)
LONG: Final = Plan(seconds_min=90, rounds_min=30, requests_min=10_000, seconds_max=300)


class Chaos:
    """One run on one store."""

    def __init__(self, settings: Mapping[str, str], folder: Path, plan: Plan) -> None:
        self.diary = Diary()
        self.lost = 0
        self.kills = 0
        self._settings = {**settings, **HURRIED, "log_level": "warning"}
        self._folder = folder
        self._plan = plan
        seed = int(os.environ.get(SEED) or int.from_bytes(os.urandom(4)))
        sys.stdout.write(f"seed {seed}: repeat with {SEED}={seed}\n")
        self._chance = random.Random(seed)

    async def run(self) -> Evidence:
        async with fleet_of(SERVERS, self._folder, self._settings) as fleet, http_client(CLIENTS) as http:
            calm = self._client([fleet.servers[0].url], http)
            await make_world(calm)
            await self._run_clients(fleet, http)
            fleet.kill_all()
            await self._process_marks()
            await self._settle(fleet, http)
            self._look_for_tracebacks(fleet)
        return await self._evidence()

    def _client(self, urls: list[str], http: httpx.AsyncClient, *, is_patient: bool = True) -> Client:
        return Client(urls, http, self.diary, self._chance.getrandbits(32), is_patient=is_patient)

    async def _run_clients(self, fleet: Fleet, http: httpx.AsyncClient) -> None:
        enough = asyncio.Event()
        began = asyncio.get_running_loop().time()
        async with lossy_proxies([server.port for server in fleet.servers]) as proxies:
            urls = [proxy.url for proxy in proxies]
            async with asyncio.TaskGroup() as tasks:
                for number in range(CLIENTS):
                    is_patient = number % IMPATIENT_EVERY != 0
                    tasks.create_task(_live(self._client(urls, http, is_patient=is_patient), enough))
                try:
                    await fleet.disturb_until(lambda: self._is_enough(began, fleet), self._chance)
                finally:
                    enough.set()
            self.lost = sum(proxy.lost for proxy in proxies)
        self.kills = fleet.kills

    def _is_enough(self, began: float, fleet: Fleet) -> bool:
        seconds = asyncio.get_running_loop().time() - began
        return self._plan.is_enough(seconds, fleet.rounds, len(self.diary.sent))

    async def _settle(self, fleet: Fleet, http: httpx.AsyncClient) -> None:
        """With one undisturbed server, every live table can be loaded and changed, and lists are correct."""
        server = fleet.servers[0]
        server.start()
        await server.wait_until_ready()
        client = self._client([server.url], http)
        names = await self._names()
        for namespace in NAMESPACES:
            _, answer = await client.send("GET", f"/v1/namespaces/{namespace}/tables", kind="list")
            listed = {one["name"] for one in answer["identifiers"]}
            living = {name.name for name in names if name.levels == (namespace,)}
            if listed != living:
                self.diary.wrong.append(f"{namespace}: lists {sorted(listed)}, but {sorted(living)} live")
        for name in names:
            await self._touch(client, name, names[name])
        assert await server.end() == 0

    async def _touch(self, client: Client, name: Identifier, uuid: str) -> None:
        """Load and change a table; the change ensures the receipt of the previous head."""
        table = f"{name.levels[0]}/{name.name}"
        loaded = await client.load(table)
        changed = await commit_last(client, table)
        if loaded is None or loaded[0].uuid != uuid or not changed.is_done:
            self.diary.wrong.append(f"{table}: found {loaded and loaded[0]} instead of {uuid}, changed: {changed}")

    def _look_for_tracebacks(self, fleet: Fleet) -> None:
        for server in fleet.servers:
            if "Traceback" in server.log:
                self.diary.wrong.append(f"server {server.port} said: {server.log[-4_000:]}")

    async def _process_marks(self) -> None:
        async with _Opened(self._settings) as opened:
            await process_marks(opened.lake("default", "default"))

    async def _names(self) -> Mapping[Identifier, str]:
        async with _Opened(self._settings) as opened:
            return await visible_names(opened.lake("default", "default"), SHOWN)

    async def _evidence(self) -> Evidence:
        async with _Opened(self._settings) as opened:
            return await gather_evidence(opened.lake("default", "default"), SHOWN)


class _Opened:
    """The store as this process sees it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        environment = {f"SANDUR_{name.upper()}": value for name, value in settings.items()}
        read = load_settings(environment=environment)
        clock = SystemClock()
        self._lakes = Lakes(read, clock, connect(read, clock))

    async def __aenter__(self) -> Lakes:
        return self._lakes

    async def __aexit__(self, *_: object) -> None:
        await self._lakes.close()


async def _live(client: Client, enough: asyncio.Event) -> None:
    deeds, weights = list(DEEDS), list(DEEDS.values())
    while not enough.is_set():
        [deed] = client.chance.choices(deeds, weights)
        await deed(client)


async def run_and_judge(settings: Mapping[str, str], folder: Path, plan: Plan) -> None:
    chaos = Chaos(settings, folder, plan)

    evidence = await chaos.run()

    counts = Counter(f"{sent.kind} {sent.status}" for sent in chaos.diary.sent)
    sys.stdout.write(f"{chaos.kills} kills, {chaos.lost} answers lost, {len(evidence.histories)} tables\n{counts}\n")
    if wrong := judge(chaos.diary, evidence):
        pytest.fail("\n".join(wrong), pytrace=False)
    assert chaos.kills
    assert chaos.lost


def s3_settings(settings: Settings, tmp_path: Path) -> dict[str, str]:
    return {
        "store": f"s3://sandur/{tmp_path.name}",
        "s3_endpoint": settings.s3.endpoint,
        "s3_region": settings.s3.region,
        "s3_access_key_id": settings.s3.access_key_id,
        "s3_secret_access_key": settings.s3.secret_access_key,
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fsync", [pytest.param("never", marks=pytest.mark.crash), "always"])
async def test_no_commit_is_lost_repeated_or_torn_on_a_folder(fsync: str, tmp_path: Path) -> None:
    await run_and_judge({"store": str(tmp_path / "data"), "fsync": fsync}, tmp_path, SHORT)


@pytest.mark.timeout(600)
async def test_no_commit_is_lost_repeated_or_torn_on_s3(seaweedfs_settings: Settings, tmp_path: Path) -> None:
    await run_and_judge(s3_settings(seaweedfs_settings, tmp_path), tmp_path, SHORT_ON_S3)


@pytest.mark.crash
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("fsync", ["never", "always"])
async def test_no_commit_is_lost_repeated_or_torn_on_a_folder_in_a_long_run(fsync: str, tmp_path: Path) -> None:
    await run_and_judge({"store": str(tmp_path / "data"), "fsync": fsync}, tmp_path, LONG)


@pytest.mark.crash
@pytest.mark.timeout(1_800)
async def test_no_commit_is_lost_repeated_or_torn_on_s3_in_a_long_run(
    seaweedfs_settings: Settings, tmp_path: Path
) -> None:
    await run_and_judge(s3_settings(seaweedfs_settings, tmp_path), tmp_path, LONG)
