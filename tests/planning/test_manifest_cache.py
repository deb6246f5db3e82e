"""Cached manifests: bounded by bytes, and read once for concurrent requests."""

import asyncio
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from bench import planning, planning_tables
from sandur.operations.janitors.leftovers import PLANS
from sandur.operations.janitors.sweep import sweep
from sandur.operations.planning.cache import PlanningCache
from sandur.operations.planning.manifests import READS_AT_ONCE
from sandur.operations.planning.plans import Failed
from sandur.storage.contract import ObjectStore, Stored, list_all
from sandur.storage.local import LocalStore
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import WrappingStore
from tests.planning.plan_servers import Fleet, everything, made_table, request_by, request_plan
from tests.planning.tables import MadeFile, MadeManifest, MadeTable

COUNT = 2_100
WANTED: dict[str, Any] = {"filter": {"type": "eq", "term": "id", "value": 7}}


@pytest.fixture
def spy(tmp_path: Path) -> SpyStore:
    return SpyStore(LocalStore(tmp_path, fsync="never"))


def avro_reads(spy: SpyStore) -> list[str]:
    return [key for key in spy.keys("get") if "/m1-" in key]


async def test_the_cache_stays_within_its_bytes(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, plan_cache_bytes_max=100_000)
    server = await fleet.serve_table(made_table(fleet.table_folder, 200, 200, 200))

    assert len(await everything(server, await request_plan(server))) == 600

    assert 0 < server.feature(PlanningCache).manifests.bytes <= 100_000


async def test_concurrent_plans_read_a_manifest_once(tmp_path: Path, spy: SpyStore) -> None:
    fleet = Fleet(tmp_path, store=spy)
    server = await fleet.serve_table(made_table(fleet.table_folder, 30, 30))
    spy.reset()

    results = await asyncio.gather(*(request_plan(server, **WANTED) for _ in range(10)))

    assert {tuple(await everything(server, result)) for result in results} == {("file:///t/data/7.parquet",)}
    assert sorted(avro_reads(spy)) == sorted(set(avro_reads(spy)))


async def test_a_failed_read_of_a_manifest_is_repeated_the_next_time(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 3))
    manifest = fleet.table_folder / "metadata" / "m1-0.avro"
    manifest.rename(manifest.with_suffix(".away"))
    assert isinstance(await request_plan(server), Failed)

    manifest.with_suffix(".away").rename(manifest)

    assert len(await everything(server, await request_plan(server))) == 3


async def test_cached_selections_stay_within_their_limit(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, plan_cache_bytes_max=200_000, plan_inline_files_max=5, plan_task_files=20)
    server = await fleet.serve_table(made_table(fleet.table_folder, 200, 200, 200))

    assert len(await everything(server, await request_plan(server))) == 600

    assert server.feature(PlanningCache).selected.bytes <= 200_000


def add_deletes(metadata_path: str) -> None:
    """Add three position deletes and one equality delete to every partition of a benchmark table."""
    folder = Path(metadata_path).parent.parent
    deletes = [
        MadeFile(
            f"file:///t/deletes/{day}-{number}.parquet",
            (day,),
            record_count=10,
            content=2 if number == 3 else 1,
            sequence_number=2,
            equality_ids=(1,) if number == 3 else None,
            has_stats=False,
        )
        for day in planning_tables.DAYS
        for number in range(4)
    ]
    manifest = MadeManifest(planning_tables.SPEC, deletes, sequence_number=2, content=1)
    added = MadeTable(folder, [planning_tables.SPEC])._written(manifest, "deletes")
    listed = folder / "metadata" / "snap-1.avro"
    with listed.open("rb") as file:
        reader = fastavro.reader(file)
        records: list[Any] = list(reader)
        schema = reader.writer_schema
    with listed.open("wb") as file:
        fastavro.writer(file, schema, [*records, added])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["100 %", "1 %", "with deletes"])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, case: str) -> None:
    """Plan two tables, one with five times as many files, with a cache that is too small for both."""
    peaks = []
    for count in (100_000, 500_000):
        path = planning_tables.made_table(tmp_path / str(count), count, 5_000)
        if case == "with deletes":
            add_deletes(path)
        text = json.dumps(planning_tables.filters(count).get(case, True))
        measured = planning.measure_in_process(
            "ours", text, str(tmp_path / f"catalog {count}"), "1", str(8 << 20), path
        )
        assert measured["files"] == (count // 100 if case == "1 %" else count)
        peaks.append(measured["peak MB"] - measured["before MB"])

    assert peaks[1] < peaks[0] + 40, peaks


class GatheringStore(WrappingStore):
    """Returns manifests only when READS_AT_ONCE of them are requested concurrently."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.asked_now = self.asked_most = 0
        self._are_enough = asyncio.Event()

    async def get(self, key: str) -> Stored | None:
        if "/m1-" not in key:
            return await super().get(key)
        self.asked_now += 1
        self.asked_most = max(self.asked_most, self.asked_now)
        if self.asked_now == READS_AT_ONCE:
            self._are_enough.set()
        await self._are_enough.wait()
        self.asked_now -= 1
        return await super().get(key)


async def test_manifests_are_read_with_bounded_concurrency(tmp_path: Path) -> None:
    store = GatheringStore(LocalStore(tmp_path, fsync="never"))
    fleet = Fleet(tmp_path, store=store)
    server = await fleet.serve_table(made_table(fleet.table_folder, *[2] * (3 * READS_AT_ONCE)))

    result = await asyncio.wait_for(request_plan(server), 60)

    assert len(await everything(server, result)) == 6 * READS_AT_ONCE
    assert store.asked_most == READS_AT_ONCE


async def test_expired_plans_are_deleted(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, plan_ttl="PT10M")
    server = await fleet.serve_table(made_table(fleet.table_folder, 1))
    await request_plan(server, by=request_by())
    folder = server.layout.operational_folder("plans")
    listed = await list_all(fleet.store, folder)
    fleet.clock.advance(listed[0].modified_ms - fleet.clock.now_ms() + 9 * 60_000)

    await sweep(server, PLANS, position="", on_error=print)
    assert len(await list_all(fleet.store, folder)) == 1
    fleet.clock.advance(3 * 60_000)
    await sweep(server, PLANS, position="", on_error=print)

    assert not await list_all(fleet.store, folder)
