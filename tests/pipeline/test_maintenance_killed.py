"""A driver of maintenance that dies, at any write: no row is lost, and the next run settles everything."""

import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from sandur.cli.catalog_server import open_catalog
from sandur.clock import SystemClock
from sandur.operations.maintenance.runs import list_runs
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.jobs.project import PROJECT
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from tests.fakes.dying_store import Died
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.pipeline.delta_tables import DeltaOnSpark, append_file, create_table
from tests.pipeline.maintained import (
    EAGER,
    connected,
    hashes,
    make_small_files,
    measured,
    opener,
    row_hash,
    set_policy,
    small_rows,
)
from tests.pipeline.test_maintenance_under_load import AnswerLost, LaterClock
from tests.pipeline.world import World

pytestmark = pytest.mark.timeout(1_800)

T = TypeVar("T")
Format = Literal["iceberg", "delta"]

ROOT: Final = Path(__file__).parents[2]
NOT_DONE: Final = frozenset({"planned", "running"})
WRITES_MAX: Final = 60
PROBES: Final = "_probe/"
_COMMITTER: Final = "uccommitcoordinator"
_LOOK_SECONDS: Final = 0.5


class Fate:
    """The life of one process: at the write that `is_last` says, all its stores fail, and every later call does.

    The writes by which a starting server probes its store are not counted: they say nothing about maintenance.
    """

    def __init__(self, is_last: Callable[[int, str], bool]) -> None:
        self._is_last = is_last
        self._writes = 0
        self._lock = threading.Lock()
        self.has_come = False

    def check(self, call: Call) -> None:
        counts = call.is_write and not call.key.startswith(PROBES)
        with self._lock:
            self._writes += counts
            self.has_come = self.has_come or (counts and self._is_last(self._writes, call.key))
        if self.has_come:
            raise Died(f"at {call.name} {call.key}")


class MortalStore(WrappingStore):
    def __init__(self, inner: ObjectStore, fate: Fate) -> None:
        super().__init__(inner)
        self._fate = fate

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        self._fate.check(call)
        return await perform()


def _run_until(world: World, spark: SparkSession, fate: Fate, **options: Any) -> None:
    """A run whose driver and catalog server share one life."""

    def opened() -> ObjectStore:
        return MortalStore(connect(world.settings, SystemClock()), fate)

    catalog = partial(open_catalog, world.settings, store=opened())
    with _ending_with(fate, spark):
        try:
            world.run(spark, MAINTAIN, store=opened(), connect_store=opened, open_catalog=catalog, **options)
        except BaseException:
            if not fate.has_come:
                raise


@contextmanager
def _ending_with(fate: Fate, spark: SparkSession) -> Iterator[None]:
    """The threads of Spark that wait for an answer of the catalog server end with it, as they would in one process.

    The committer of Delta sends a commit without an answer again for up to an hour.
    """
    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            for thread in _waiting_committers(spark) if fate.has_come else ():
                thread.interrupt()

    watch = threading.Thread(target=interrupt)
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()


def _waiting_committers(spark: SparkSession) -> Iterator[JavaObject]:
    jvm = spark._jvm
    assert jvm is not None
    for thread in jvm.Thread.getAllStackTraces().keySet():
        if str(thread.getState()) == "TIMED_WAITING" and any(_COMMITTER in str(one) for one in thread.getStackTrace()):
            yield thread


class IcebergTable:
    """What dies with the run does not wait long for an answer."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._rows = 0
        waits = {"num-retries": "1", "min-wait-ms": "10", "max-wait-ms": "10"}
        with connected(world) as catalog:
            make_small_files(
                catalog, name, 0, **{f"commit.status-check.{name}": value for name, value in waits.items()}
            )

    def grow(self) -> None:
        with connected(self._world) as catalog:
            table = catalog.load_table(f"sales.{self._name}")
            for number in range(self._rows, self._rows + 4):
                table.append(small_rows([number]))
        self._rows += 4

    def check(self, *, is_compacted: bool) -> None:
        """Its rows are there, and it is compacted if it must be: what failed is tried again after an hour only."""
        with connected(self._world) as catalog:
            table = catalog.load_table(f"sales.{self._name}")
            assert hashes(table)["main"] == row_hash(small_rows(range(self._rows)))
            assert not is_compacted or len(list(table.scan().plan_files())) == 1


class DeltaTable:
    def __init__(self, world: World, spark: SparkSession, name: str) -> None:
        self._world = world
        self._spark = spark
        self._name = name
        self._rows = 0
        with open_catalog(world.settings) as connection:
            create_table(spark, connection, name)

    def grow(self) -> None:
        for number in range(self._rows, self._rows + 4):
            append_file(self._world, self._name, [number])
        self._rows += 4

    def check(self, *, is_compacted: bool) -> None:
        with open_catalog(self._world.settings) as connection:
            delta = DeltaOnSpark(self._world, self._spark, connection, self._name)
            assert sorted(row[0] for row in delta.rows("id")) == list(range(self._rows))
            assert not is_compacted or delta.count_files() == 1


def _made(form: Format, world: World, spark: SparkSession, name: str = "t") -> IcebergTable | DeltaTable:
    """A table with a few small files."""
    table = IcebergTable(world, name) if form == "iceberg" else DeltaTable(world, spark, name)
    table.grow()
    return table


def _is_number(last: int, write: int, _: str) -> bool:
    return write == last


def _check_settled(world: World, spark: SparkSession) -> None:
    assert all(run.is_over for run in world.wait(list_runs(world.lake)))
    assert NOT_DONE.isdisjoint(row["state"] for row in world.dataset(spark, "maintenance"))


def test_a_delta_commit_whose_run_died_is_complete_and_settled(world: World, spark: SparkSession) -> None:
    """The run dies before it writes down that its commit is done."""
    table = _made("delta", world, spark)
    set_policy(world, EAGER)
    measured(world, spark)

    _run_until(world, spark, Fate(lambda _, key: "000000-end" in key))
    world.run(spark, MAINTAIN, open_catalog=opener(world))

    table.check(is_compacted=True)
    _check_settled(world, spark)
    settled = [row for row in world.dataset(spark, "maintenance") if row["settled_by"]]
    assert [(row["operation"], row["state"], row["files_after"]) for row in settled] == [("compaction", "done", 1)]


def test_a_delta_commit_whose_answer_is_lost_counts_as_done(world: World, spark: SparkSession) -> None:
    table = _made("delta", world, spark)
    set_policy(world, EAGER)
    measured(world, spark)
    lossy = AnswerLost(connect(world.settings, SystemClock()), "delta_tables/")

    world.run(spark, MAINTAIN, open_catalog=partial(open_catalog, world.settings, store=lossy))

    table.check(is_compacted=True)
    rows = [row for row in world.dataset(spark, "maintenance") if row["operation"] == "compaction"]
    assert [(row["state"], row["files_after"]) for row in rows] == [("done", 1)]
    assert lossy.lost == 1


@pytest.mark.crash
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_run_that_dies_at_any_write_is_settled_and_finished_by_the_next(
    world: World, spark: SparkSession, form: Format
) -> None:
    """Each death is that of a run on a table of its own."""
    set_policy(world, EAGER)
    tables = []
    for number in range(1, WRITES_MAX):
        tables.append(_made(form, world, spark, f"t{number}"))
        measured(world, spark)
        fate = Fate(partial(_is_number, number))

        _run_until(world, spark, fate)
        world.run(spark, MAINTAIN, open_catalog=opener(world))

        tables[-1].check(is_compacted=not fate.has_come)
        _check_settled(world, spark)
        if not fate.has_come:
            break
    assert len(tables) < WRITES_MAX - 1
    world.run(spark, MAINTAIN, open_catalog=opener(world), clock=LaterClock())
    for table in tables:
        table.check(is_compacted=True)


DUE: Final[dict[Format, dict[str, Any]]] = {
    "iceberg": {
        "deletes": {"min_files": 2},
        "manifests": {"min_manifests": 2},
        "snapshots": {"min_expired": 1},
        "statistics": {"enabled": True, "interval": "P1D"},
    },
    "delta": {"delta": {"checkpoint_interval": 3}},
}
OPERATIONS: Final[dict[Format, tuple[str, ...]]] = {
    "iceberg": ("deletes", "manifests", "snapshots", "statistics"),
    "delta": ("publish", "checkpoint", "vacuum"),
}
FAST: Final = {("snapshots", "end"), ("checkpoint", "end")}


class LaterEachTime(SystemClock):
    """Ten days ahead at first. Snapshots that were written before are old then."""

    days = 10

    def now_ms(self) -> int:
        return super().now_ms() + self.days * 86_400_000


class TaggedTable:
    """An Iceberg table with rows that position deletes removed, a tag, and snapshots that nothing needs."""

    def __init__(self, world: World, spark: SparkSession) -> None:
        self._world = world
        with open_catalog(world.settings) as connection:
            session = spark.newSession()
            for option, value in connection.options().items():
                session.conf.set(option, value)
            session.sql(
                "CREATE TABLE sandur.sales.t (id BIGINT, text STRING) TBLPROPERTIES ('format-version'='2', "
                "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition')"
            )
            for number in range(3):
                rows = f"range({4 * number}, {4 * number + 4}, 1, 1)"
                session.sql(f"INSERT INTO sandur.sales.t SELECT id, concat('row ', id) FROM {rows}")  # noqa: S608 - numbers
                session.sql(f"DELETE FROM sandur.sales.t WHERE id = {number * 4}")  # noqa: S608 - a number
                if number == 1:
                    session.sql("ALTER TABLE sandur.sales.t CREATE TAG early")
        self._before = self._hashes()

    def check(self) -> None:
        assert self._hashes() == self._before

    def _hashes(self) -> dict[str, str]:
        with connected(self._world) as catalog:
            found = hashes(catalog.load_table("sales.t"))
        return {name: found[name] for name in ("main", "early")}


class LongDelta(DeltaTable):
    """A Delta table with commits that are not published, and no checkpoint."""

    def __init__(self, world: World, spark: SparkSession) -> None:
        super().__init__(world, spark, "t")
        self.grow()

    def check(self, *, is_compacted: bool = False) -> None:
        super().check(is_compacted=is_compacted)


@pytest.mark.parametrize(
    ("form", "operation", "moment"),
    [
        pytest.param(form, one, moment, marks=[] if (one, moment) in FAST else pytest.mark.crash)
        for form, operations in OPERATIONS.items()
        for one in operations
        for moment in ("begin", "end")
    ],
)
def test_a_run_that_dies_in_any_operation_is_settled_and_later_nothing_is_left_to_do(
    world: World, spark: SparkSession, form: Format, operation: str, moment: str
) -> None:
    """It dies at the write of the operation's first record or of its last one, when all its work is done."""
    table = TaggedTable(world, spark) if form == "iceberg" else LongDelta(world, spark)
    set_policy(world, {**EAGER, "compaction": {"enabled": False}, **DUE[form]})
    clock = LaterEachTime()
    number = OPERATIONS[form].index(operation)
    _measured_at(world, spark, clock)
    fate = Fate(lambda _, key: key.endswith(f"/{number:06d}-{moment}.json"))

    _run_until(world, spark, fate, clock=clock)
    world.run(spark, MAINTAIN, open_catalog=opener(world), clock=clock)

    assert fate.has_come
    table.check()
    _check_settled(world, spark)
    rows = world.dataset(spark, "maintenance")
    first = min(row["run"] for row in rows)
    killed = sorted((row for row in rows if row["run"] == first), key=lambda row: int(row["number"]))
    assert tuple(row["operation"] for row in killed) == OPERATIONS[form]
    assert {row["state"] for row in killed[:number]} <= {"done"}
    assert {row["state"] for row in killed[number + 1 :]} <= {"cancelled"}
    clock.days += 1
    _measured_at(world, spark, clock)
    world.run(spark, MAINTAIN, open_catalog=opener(world), clock=clock)
    table.check()
    _measured_at(world, spark, clock)
    (health,) = (row for row in world.dataset(spark, "table_health") if row["name"] == "t")
    assert (health["blocked"], health["needs_json"]) == ("", "[]")


def _measured_at(world: World, spark: SparkSession, clock: SystemClock) -> None:
    for job in (PROJECT, HEALTH):
        world.run(spark, job, clock=clock)


STEPS: Final = {
    "iceberg": (("driver", "plan.json"), ("server", "iceberg_pointers/"), ("driver", "maintenance/killed/end.json")),
    "delta": (("driver", "000000-begin"), ("server", "delta_tables/"), ("driver", "000000-end")),
}


@pytest.mark.crash
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("form", "who", "step"), [(form, *step) for form, steps in STEPS.items() for step in steps])
def test_the_run_after_a_killed_driver_settles_it_and_finishes_the_work(
    world: World, spark: SparkSession, form: Format, who: str, step: str, when: str
) -> None:
    table = _made(form, world, spark)
    set_policy(world, EAGER)
    measured(world, spark)
    command = [sys.executable, "-m", "tests.pipeline.killed_maintenance", world.settings.store, form]

    killed = subprocess.run(
        [*command, who, when, step], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
    )
    world.run(spark, MAINTAIN, open_catalog=opener(world))

    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    table.check(is_compacted=False)
    _check_settled(world, spark)
    world.run(spark, MAINTAIN, open_catalog=opener(world), clock=LaterClock())
    table.check(is_compacted=True)
    of_killed = [row["state"] for row in world.dataset(spark, "maintenance") if row["run"] == "killed"]
    is_committed = (who, when) == ("server", "after") or "end" in step
    assert ("done" in of_killed) == is_committed
