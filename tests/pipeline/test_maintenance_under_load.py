"""Maintenance beside writers, beside itself, and after crashes: every acknowledged row stays, in every state."""

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from sandur.cli.catalog_server import open_catalog
from sandur.clock import SystemClock
from sandur.errors import OutcomeUnknown
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.maintenance.engine import SPARK_ERRORS, is_conflict
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.pipeline.delta_tables import DeltaOnSpark, append_file, create_table
from tests.pipeline.maintained import (
    EAGER,
    FASTER,
    SCHEMA,
    connected,
    hashes,
    maintained,
    make_small_files,
    measured,
    opener,
    set_policy,
)
from tests.pipeline.world import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[2]
TRIES_MAX: Final = 20
FIRST: Final = 1_000
"""The first number that a writer writes."""
NOT_DONE: Final = frozenset({"planned", "running"})


class Writer:
    """A writer that appends until it is stopped, and knows what was acknowledged."""

    def __init__(self, write: Callable[[int], None]) -> None:
        self._write = write
        self._is_over = threading.Event()
        self.acknowledged: list[int] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = FIRST
        try:
            while not self._is_over.is_set():
                self._write(number)
                self.acknowledged.append(number)
                number += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    @contextmanager
    def beside(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._is_over.set()
        self._thread.join()
        if self.error:
            raise self.error


def _appending(catalog: Catalog, name: str) -> Callable[[int], None]:
    def append(number: int) -> None:
        for _ in range(TRIES_MAX):
            table = catalog.load_table(f"sales.{name}")
            try:
                table.append(pa.table({"id": [number], "text": ["new"]}, schema=SCHEMA))
            except FASTER:
                continue
            return
        raise AssertionError("the writer was blocked")

    return append


def _upserting(catalog: Catalog, name: str) -> Callable[[int], None]:
    """An upsert that loses to a rewrite of a file that it read is sent again, as a MERGE is."""

    def upsert(number: int) -> None:
        rows = pa.table({"id": [number, 0], "text": ["new", f"upserted {number}"]}, schema=SCHEMA)
        for _ in range(TRIES_MAX):
            try:
                catalog.load_table(f"sales.{name}").upsert(rows, join_cols=["id"])
            except FASTER:
                continue
            return
        raise AssertionError("the writer was blocked")

    return upsert


def _merging(session: SparkSession, name: str) -> Callable[[int], None]:
    """A MERGE that loses to a rewrite of a file that it read is sent again, as every engine must."""

    def merge(number: int) -> None:
        statement = (
            f"MERGE INTO sandur.sales.{name} t "
            f"USING (SELECT {number}L id, 'new' text UNION ALL SELECT 0L, 'merged {number}') s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *"
        )
        for _ in range(TRIES_MAX):
            try:
                session.sql(statement)
            except SPARK_ERRORS as error:
                if not is_conflict(error):
                    raise
                continue
            return
        raise AssertionError("the writer was blocked")

    return merge


def _changing(table: Callable[[], DeltaOnSpark], kind: str) -> Callable[[int], None]:
    """A change of a managed Delta table that loses to a compaction is sent again, as every engine must."""

    def change(number: int) -> None:
        for _ in range(TRIES_MAX):
            try:
                match kind:
                    case "append":
                        table().append(f"SELECT {number}L id, 'new' text")
                    case "merge":
                        table().merge(f"SELECT {number}L id, 'new' text UNION ALL SELECT 0L, 'merged {number}'")
                    case _:
                        table().delete(f"id = {number - FIRST}")
            except SPARK_ERRORS as error:
                if not is_conflict(error):
                    raise
                continue
            return
        raise AssertionError("the writer was blocked")

    return change


def _ids(catalog: Catalog, name: str) -> list[int]:
    return sorted(catalog.load_table(f"sales.{name}").scan().to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("kind", ["append", "upsert", "merge", "deletion vectors"])
def test_compaction_beside_a_writer_loses_no_row_and_never_blocks_it(
    world: World, spark: SparkSession, kind: str
) -> None:
    version = "3" if kind == "deletion vectors" else "2"
    rewritten = () if kind == "upsert" else ("merge", "update", "delete")  # PyIceberg writes no delete files.
    modes = {f"write.{one}.mode": "merge-on-read" for one in rewritten}
    with open_catalog(world.settings) as connection, connected(world) as catalog:
        make_small_files(catalog, "busy", 12, **{"format-version": "2", **modes})
        session = spark.newSession()
        for option, value in connection.options().items():
            session.conf.set(option, value)
        if version == "3":
            session.sql("ALTER TABLE sandur.sales.busy SET TBLPROPERTIES ('format-version' = '3')")
        set_policy(world, EAGER)
        by_pyiceberg = {"append": _appending, "upsert": _upserting}
        writer = Writer(by_pyiceberg[kind](catalog, "busy") if kind in by_pyiceberg else _merging(session, "busy"))

        with writer.beside():
            reports = [maintained(world, spark) for _ in range(2)]

        rows = session.sql("SELECT id, count(*) FROM sandur.sales.busy GROUP BY id").collect()
    assert {row[0]: row[1] for row in rows} == dict.fromkeys([*range(12), *writer.acknowledged], 1)
    assert writer.acknowledged
    states = [row["state"] for row in world.dataset(spark, "maintenance")]
    assert sum(report.counts.get("operations_done", 0) for report in reports) + states.count("conflict") > 0
    assert "failed" not in states


@pytest.mark.parametrize("kind", ["append", "merge", "deletion vectors"])
def test_compaction_of_a_delta_table_beside_a_writer_loses_no_row_and_never_blocks_it(
    world: World, spark: SparkSession, kind: str
) -> None:
    own = World(world.settings)  # A writer is a thread.
    with open_catalog(world.settings) as connection, closing(own.blocking):
        create_table(spark, connection, "busy")
        for number in range(6):
            append_file(world, "busy", range(number * 20, number * 20 + 20))
        set_policy(world, EAGER)
        writer = Writer(_changing(lambda: DeltaOnSpark(own, spark, connection, "busy"), kind))

        with writer.beside():
            reports = [maintained(world, spark) for _ in range(2)]

        rows = DeltaOnSpark(world, spark, connection, "busy").rows("id", "text")
    written = dict.fromkeys(writer.acknowledged, "new")
    expected = {number: f"row {number}" for number in range(120)}
    match kind:
        case "append":
            expected |= written
        case "merge":
            expected |= {**written, 0: f"merged {writer.acknowledged[-1]}"}
        case _:
            expected = {id_: text for id_, text in expected.items() if id_ + FIRST not in written}
    assert dict(rows) == expected
    assert len(rows) == len(expected)
    assert writer.acknowledged
    states = [row["state"] for row in world.dataset(spark, "maintenance")]
    assert sum(report.counts.get("operations_done", 0) for report in reports) + states.count("conflict") > 0
    assert "failed" not in states


def test_two_runs_on_the_same_tables_at_once_leave_every_row(world: World, spark: SparkSession) -> None:
    with connected(world) as catalog:
        tables = [make_small_files(catalog, f"t{number}", 8) for number in range(3)]
        before = [hashes(table)["main"] for table in tables]
        set_policy(world, EAGER)
        measured(world, spark)
        errors: list[BaseException] = []

        def run() -> None:
            again = World(world.settings)
            try:
                again.run(spark, MAINTAIN, open_catalog=opener(world))
            except Exception as error:  # noqa: BLE001 - one of them may lose the publication
                errors.append(error)
            finally:
                again.blocking.close()

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = [hashes(table)["main"] for table in tables]
        files = [len(list(table.scan().plan_files())) for table in tables]

    assert after == before
    assert files == [1, 1, 1]
    assert len(errors) <= 1


class AnswerLost(WrappingStore):
    """Loses the answer to the first swap below a folder, which is applied."""

    def __init__(self, inner: ObjectStore, folder: str = "iceberg_pointers/") -> None:
        super().__init__(inner)
        self._folder = folder
        self.lost = 0

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        done = await perform()
        if call.is_write and self._folder in call.key and not self.lost:
            self.lost += 1
            raise OutcomeUnknown(f"object {call.key}: the answer was lost on purpose")
        return done


def test_a_commit_whose_answer_is_lost_counts_as_done(world: World, spark: SparkSession) -> None:
    with connected(world) as catalog:
        before = hashes(make_small_files(catalog, "orders", 6))["main"]
    set_policy(world, EAGER)
    measured(world, spark)
    lossy = AnswerLost(connect(world.settings, SystemClock()))

    world.run(spark, MAINTAIN, open_catalog=partial(open_catalog, world.settings, store=lossy))

    with connected(world) as catalog:
        table = catalog.load_table("sales.orders")
        assert hashes(table)["main"] == before
        assert len(list(table.scan().plan_files())) == 1
    (row,) = world.dataset(spark, "maintenance")
    assert (row["state"], row["files_after"], lossy.lost) == ("done", 1, 1)


class LaterClock(SystemClock):
    """Ten days ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 10 * 86_400_000


@pytest.mark.parametrize("has_own_age", [False, True])
def test_expiry_keeps_tags_and_branches_and_deletes_what_nobody_needs(
    world: World, spark: SparkSession, *, has_own_age: bool
) -> None:
    with connected(world) as catalog:
        table = make_small_files(catalog, "orders", 6)
        ids = [one.snapshot_id for one in table.snapshots()]
        age = 1 if has_own_age else None
        table.manage_snapshots().create_tag(ids[1], "monday", max_ref_age_ms=age).create_branch(
            ids[3], "audit"
        ).commit()
        set_policy(world, {**EAGER, "snapshots": {"min_expired": 1}})
        before = hashes(table)
        clock = LaterClock()
        for job in (PROJECT, HEALTH):
            world.run(spark, job, clock=clock)

        world.run(spark, MAINTAIN, open_catalog=opener(world), clock=clock)

        after = hashes(table)
        left = {one.snapshot_id for one in table.snapshots()}
    assert {name: after[name] for name in ("main", "monday", "audit")} == {
        name: before[name] for name in ("main", "monday", "audit")
    }
    assert {ids[1], ids[3]} < left
    assert ids[0] not in left
    rows = {row["operation"]: row for row in world.dataset(spark, "maintenance")}
    assert [rows[one]["state"] for one in ("compaction", "snapshots")] == ["done", "done"]
    assert ("files stay" in rows["snapshots"]["reason"]) == has_own_age
    assert (rows["snapshots"]["files_deleted"] > 0) != has_own_age
