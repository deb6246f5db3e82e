"""A soak of maintenance: tables of both formats, a writer of every kind, and runs of maintenance beside them.

Every row that was acknowledged stays, every tag keeps its rows, and in the end only files that a reader can reach are
left. A seed, which is printed, decides what is written; which run meets which commit is left to the machine. The clock
of maintenance is ten days further in every run, and all files look years old, so that everything may go that nothing
needs, also files of writers that have not committed yet. The long form:

    python -m tests.pipeline.soak --tables 200 --minutes 30
"""

import argparse
import os
import random  # noqa: TID251 - seeded
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from sandur.cli.catalog_server import open_catalog
from sandur.clock import SystemClock
from sandur.pipeline.job import JobReport
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.maintenance.engine import SPARK_ERRORS, is_conflict, session_options
from sandur.pipeline.runs import create_session
from sandur.pipeline.sources import register_sources
from sandur.settings import Settings
from sandur.spark.sessions import Connection
from sandur.storage.contract import Listed, ObjectStore
from sandur.storage.locations import connect
from tests.fakes.wrapping_store import WrappingStore
from tests.pipeline.conftest import OPTIONS
from tests.pipeline.delta_tables import DeltaOnSpark, create_table, record_of, register_by_delta_rs
from tests.pipeline.maintained import FASTER, SCHEMA, connected, opener, set_policy
from tests.pipeline.world import World

Rows = Mapping[int, str]

TRIES_MAX: Final = 30
RUNS_AFTER: Final = 4
"""Runs without writers: files are condemned by one and deleted by the next, also those of its own rewrites."""
SNAPSHOTS_KEPT: Final = 5
POLICY: Final[Mapping[str, Any]] = {
    "mode": "run",
    "quiet": "PT0S",
    "compaction": {"min_input_files": 3},
    "deletes": {"min_files": 3},
    "manifests": {"min_manifests": 5},
    "snapshots": {"min_expired": 1, "min_to_keep": SNAPSHOTS_KEPT},
    # Iceberg's own clock is not ahead: it refuses what looks younger than a day to it.
    "orphans": {"interval": "PT0S", "share_max": 1.0, "age": "P10000D"},
}
RUN_S: Final = 10 * 86_400
"""How far every run is after the one before it, to its clock."""
_WRITTEN_S: Final = 86_400
"""When all files were written, as far as maintenance can see."""
RUNS_MAX: Final = 900
"""The most runs beside writers: many more would bring the clock to the age of orphans."""


class LaterClock(SystemClock):
    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class LaterStore(WrappingStore):
    """A store whose clock is as far ahead as that of the driver: only so do files become old."""

    def __init__(self, inner: ObjectStore, clock: LaterClock) -> None:
        super().__init__(inner)
        self._clock = clock

    async def head(self, key: str) -> Listed | None:
        found = await super().head(key)
        return found._replace(modified_ms=found.modified_ms + self._clock.ahead_ms) if found else None


class Lost(Exception):
    """A commit was refused because another one was faster; nothing of it is visible."""


class Writer(Protocol):
    """One kind of writer. `Lost` is the only error that it may raise."""

    def create(self, name: str) -> Rows: ...
    def append(self, name: str, rows: Rows) -> None: ...
    def upsert(self, name: str, rows: Rows) -> None: ...
    def delete(self, name: str, ids: Sequence[int]) -> None: ...
    def read(self, name: str) -> Rows: ...


class _Iceberg:
    def __init__(self, catalog: Catalog, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._properties = properties

    def create(self, name: str) -> Rows:
        self._catalog.create_table(f"sales.{name}", SCHEMA, properties=dict(self._properties))
        return {}

    def tag(self, name: str, tag: str) -> None:
        table = self._catalog.load_table(f"sales.{name}")
        snapshot = table.current_snapshot()
        assert snapshot
        try:
            table.manage_snapshots().create_tag(snapshot.snapshot_id, tag).commit()
        except FASTER as error:
            raise Lost from error

    def unreachable(self, name: str) -> set[str]:
        """Data files on disk that no snapshot has."""
        table = self._catalog.load_table(f"sales.{name}")
        reachable = set(table.inspect.all_files().column("file_path").to_pylist())
        folder = Path(table.location().removeprefix("file:")) / "data"
        return {file.as_uri() for file in folder.rglob("*.parquet")} - {_uri(path) for path in reachable}

    def snapshots(self, name: str) -> int:
        return len(self._catalog.load_table(f"sales.{name}").snapshots())


class PyIceberg(_Iceberg):
    """Upserts and deletes rewrite files."""

    def append(self, name: str, rows: Rows) -> None:
        self._commit(name, lambda table: table.append(_arrow(rows)))

    def upsert(self, name: str, rows: Rows) -> None:
        self._commit(name, lambda table: table.upsert(_arrow(rows), join_cols=["id"]))

    def delete(self, name: str, ids: Sequence[int]) -> None:
        self._commit(name, lambda table: table.delete(f"id IN ({_listed(ids)})"))

    def read(self, name: str, tag: str | None = None) -> Rows:
        table = self._catalog.load_table(f"sales.{name}")
        chosen = table.metadata.refs[tag].snapshot_id if tag else None
        return _rows(table.scan(snapshot_id=chosen).to_arrow().to_pylist())

    def _commit(self, name: str, change: Callable[[Any], object]) -> None:
        try:
            change(self._catalog.load_table(f"sales.{name}"))
        except FASTER as error:
            raise Lost from error


class IcebergOnSpark(_Iceberg):
    """Upserts and deletes write delete files; with format version 3, deletion vectors."""

    def __init__(self, catalog: Catalog, spark: SparkSession, connection: Connection, version: str) -> None:
        modes = {f"write.{one}.mode": "merge-on-read" for one in ("merge", "update", "delete")}
        super().__init__(catalog, {"format-version": "2", **modes})
        self._version = version
        self._session = spark.newSession()
        for option, value in {**connection.options(), "spark.sql.catalog.sandur.cache-enabled": "false"}.items():
            self._session.conf.set(option, value)

    def create(self, name: str) -> Rows:
        rows = super().create(name)
        if self._version != "2":
            self._sql(f"ALTER TABLE {_named(name)} SET TBLPROPERTIES ('format-version' = '{self._version}')")
        return rows

    def append(self, name: str, rows: Rows) -> None:
        self._sql(f"INSERT INTO {_named(name)} {_values(rows)}")

    def upsert(self, name: str, rows: Rows) -> None:
        self._sql(
            f"MERGE INTO {_named(name)} t USING ({_values(rows)}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *"
        )

    def delete(self, name: str, ids: Sequence[int]) -> None:
        self._sql(f"DELETE FROM {_named(name)} WHERE id IN ({_listed(ids)})")  # noqa: S608 - names and numbers of ours

    def read(self, name: str, tag: str | None = None) -> Rows:
        at = f" VERSION AS OF '{tag}'" if tag else ""
        found = self._session.sql(f"SELECT * FROM {_named(name)}{at}").collect()  # noqa: S608 - names of ours
        return _rows(row.asDict() for row in found)

    def _sql(self, statement: str) -> None:
        _with_spark(lambda: self._session.sql(statement))


class ManagedDelta:
    """Delta on Spark, which asks the catalog for commits; deletes are deletion vectors."""

    def __init__(self, world: World, spark: SparkSession, connection: Connection) -> None:
        self._world = world
        self._spark = spark
        self._connection = connection

    def create(self, name: str) -> Rows:
        create_table(self._spark, self._connection, name)
        return {}

    def append(self, name: str, rows: Rows) -> None:
        _with_spark(lambda: self._table(name).append(_values(rows)))

    def upsert(self, name: str, rows: Rows) -> None:
        _with_spark(lambda: self._table(name).merge(_values(rows)))

    def delete(self, name: str, ids: Sequence[int]) -> None:
        _with_spark(lambda: self._table(name).delete(f"id IN ({_listed(ids)})"))

    def read(self, name: str) -> Rows:
        return {int(number): str(text) for number, text in self._table(name).rows("id", "text")}

    def _table(self, name: str) -> DeltaOnSpark:
        return DeltaOnSpark(self._world, self._spark, self._connection, name)

    def files(self, name: str) -> int:
        folder = Path(record_of(self._world, name).location.removeprefix("file://"))
        return len([file for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts])


class ExternalDelta:
    """delta-rs, which the catalog does not see."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder

    def create(self, name: str) -> Rows:
        register_by_delta_rs(self._world, self._folder / name, name, 1)
        return self.read(name)

    def append(self, name: str, rows: Rows) -> None:
        _with_delta_rs(lambda: deltalake.write_deltalake(self._folder / name, _arrow(rows), mode="append"))

    def upsert(self, name: str, rows: Rows) -> None:
        def merge() -> None:
            table = deltalake.DeltaTable(self._folder / name)
            merged = table.merge(_arrow(rows), "t.id = s.id", source_alias="s", target_alias="t")
            merged.when_matched_update_all().when_not_matched_insert_all().execute()

        _with_delta_rs(merge)

    def delete(self, name: str, ids: Sequence[int]) -> None:
        _with_delta_rs(lambda: deltalake.DeltaTable(self._folder / name).delete(f"id IN ({_listed(ids)})"))

    def read(self, name: str) -> Rows:
        return _rows(deltalake.DeltaTable(self._folder / name).to_pyarrow_table().to_pylist())

    def unreachable(self, name: str) -> set[str]:
        live = {Path(one.removeprefix("file://")).name for one in deltalake.DeltaTable(self._folder / name).file_uris()}
        return {file.name for file in (self._folder / name).glob("*.parquet")} - live


class Writing:
    """A writer with tables of its own, and everything that was acknowledged to it."""

    def __init__(self, kind: str, writer: Writer, tables: int, seed: int) -> None:
        self.kind = kind
        self.writer = writer
        self.names = [f"{kind}_{number:03d}" for number in range(tables)]
        self.rows: dict[str, dict[int, str]] = {}
        self.tags: dict[tuple[str, str], Rows] = {}
        self.steps = self.lost = 0
        self.error: BaseException | None = None
        self._chance = random.Random(f"{seed} {kind}")
        self._next_id = 1_000

    def create(self) -> None:
        for name in self.names:
            self.rows[name] = dict(self.writer.create(name))
            for _ in range(4):
                self._append(name)

    def work(self, *, steps: float, seconds: float) -> None:
        end = time.monotonic() + seconds
        try:
            while self.steps < steps and time.monotonic() < end:
                self._step(self._chance.choice(self.names))
                self.steps += 1
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self.error = error

    def _step(self, name: str) -> None:
        rows = self.rows[name]
        some = self._chance.sample(sorted(rows), min(3, len(rows)))
        match self._chance.choices(("append", "upsert", "delete", "tag"), (5, 3, 2, 1))[0]:
            case "upsert":
                changed = dict.fromkeys(some, f"changed in step {self.steps}") | self._new_rows()
                self._acknowledged(lambda: self.writer.upsert(name, changed))
                rows.update(changed)
            case "delete" if some:
                self._acknowledged(lambda: self.writer.delete(name, some))
                for number in some:
                    del rows[number]
            case "tag" if isinstance(self.writer, _Iceberg):
                iceberg, tag = self.writer, f"tag-{self.steps}"
                self._acknowledged(lambda: iceberg.tag(name, tag))
                self.tags[name, tag] = dict(rows)
            case _:
                self._append(name)

    def _append(self, name: str) -> None:
        added = self._new_rows()
        self._acknowledged(lambda: self.writer.append(name, added))
        self.rows[name].update(added)

    def _new_rows(self) -> dict[int, str]:
        self._next_id += 2
        return {number: f"row {number}" for number in (self._next_id, self._next_id + 1)}

    def _acknowledged(self, commit: Callable[[], None]) -> None:
        for _ in range(TRIES_MAX):
            try:
                commit()
            except Lost:
                self.lost += 1
                continue
            return
        raise AssertionError(f"{self.kind}: the writer was blocked")

    def check(self, seed: int) -> None:
        for name in self.names:
            assert self.writer.read(name) == self.rows[name], (seed, name)
        for (name, tag), rows in self.tags.items():
            assert isinstance(self.writer, (PyIceberg, IcebergOnSpark))
            assert self.writer.read(name, tag) == rows, (seed, name, tag)


class Soak:
    """One soak. `run` does everything once."""

    def __init__(self, spark: SparkSession, folder: Path, *, tables: int, seed: int) -> None:
        self._spark = spark
        self._seed = seed
        self._clock = LaterClock()
        self._stack = ExitStack()
        self._outside = folder / "outside"
        self.settings = Settings(
            store=str(folder / "store"), fsync="never", allowed_locations=(self._outside.as_uri(),)
        )
        self._world = self._stack.enter_context(World(self.settings))
        self._writings = [Writing(kind, made, max(1, tables // 5), seed) for kind, made in self._writers().items()]
        self.reports: list[JobReport] = []

    def _writers(self) -> Mapping[str, Writer]:
        """Each has connections of its own: a writer is a thread."""
        catalogs = [self._stack.enter_context(connected(self._world)) for _ in range(3)]
        connection = self._stack.enter_context(open_catalog(self.settings))
        managed, external = (World(self.settings) for _ in range(2))
        for world in (managed, external):
            self._stack.callback(world.blocking.close)
        return {
            "pyiceberg": PyIceberg(catalogs[0], {}),
            "spark_v2": IcebergOnSpark(catalogs[1], self._spark, connection, "2"),
            "spark_v3": IcebergOnSpark(catalogs[2], self._spark, connection, "3"),
            "managed": ManagedDelta(managed, self._spark, connection),
            "external": ExternalDelta(external, self._outside),
        }

    def run(self, *, steps: float = inf, seconds: float = inf) -> Mapping[str, int]:
        """Write and maintain beside each other until each writer did its steps or the time is over, then check.

        Returns how much was done.
        """
        print(f"soak: seed {self._seed}, {sum(len(one.names) for one in self._writings)} tables", flush=True)  # noqa: T201
        with self._stack:
            began = time.monotonic()
            for writing in self._writings:
                writing.create()
            print(f"soak: made in {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
            set_policy(self._world, dict(POLICY))
            bounds = {"steps": steps, "seconds": seconds}
            threads = [threading.Thread(target=one.work, kwargs=bounds, daemon=True) for one in self._writings]
            for thread in threads:
                thread.start()
            run_beside(threads, self._maintain)
            for writing in self._writings:
                if writing.error:
                    raise AssertionError(f"seed {self._seed}: {writing.kind}") from writing.error
                writing.check(self._seed)
            print(f"soak: every row and tag is there after {len(self.reports)} runs beside writers", flush=True)  # noqa: T201
            for _ in range(RUNS_AFTER):
                self._maintain()
            self._check_end()
        return self._counts()

    def _maintain(self) -> None:
        self._clock.ahead_ms += RUN_S * 1_000
        self._age_files()
        for job in (PROJECT, HEALTH):
            self._world.run(self._spark, job, clock=self._clock)
        stores = {"connect_store": lambda: LaterStore(connect(self.settings, self._clock), self._clock)}
        catalog = opener(self._world)
        report = self._world.run(self._spark, MAINTAIN, open_catalog=catalog, clock=self._clock, **stores)
        self.reports.append(report)
        done = {one.kind: one.steps for one in self._writings}
        print(f"soak: run {len(self.reports)}: {self.reports[-1].counts}, steps {done}", flush=True)  # noqa: T201
        for warning in self.reports[-1].warnings:
            print(f"soak:   {warning}", flush=True)  # noqa: T201

    def _age_files(self) -> None:
        for folder in (self._outside, Path(self.settings.store) / "tables"):
            for file in folder.rglob("*.parquet"):
                with suppress(FileNotFoundError):  # Maintenance or its writer has removed it.
                    os.utime(file, (_WRITTEN_S, _WRITTEN_S))

    def _check_end(self) -> None:
        assert not self.reports[-1].counts.get("operations_failed", 0), self.reports[-1].warnings
        for writing in self._writings:
            writing.check(self._seed)
            for name in writing.names:
                match writing.writer:
                    case _Iceberg() as iceberg:
                        tags = sum(tagged == name for tagged, _ in writing.tags)
                        assert iceberg.snapshots(name) <= SNAPSHOTS_KEPT + tags, (self._seed, name)
                        assert iceberg.unreachable(name) == set(), (self._seed, name)
                    case ExternalDelta() as external:
                        assert external.unreachable(name) == set(), (self._seed, name)
                    case ManagedDelta() as managed:
                        assert managed.files(name) <= POLICY["compaction"]["min_input_files"], (self._seed, name)
                    case other:
                        raise AssertionError(other)

    def _counts(self) -> Mapping[str, int]:
        total = {"runs": len(self.reports), "lost": sum(one.lost for one in self._writings)}
        total["steps"] = sum(one.steps for one in self._writings)
        total["tags"] = sum(len(one.tags) for one in self._writings)
        total["rows"] = sum(len(rows) for one in self._writings for rows in one.rows.values())
        for report in self.reports:
            for name, count in report.counts.items():
                total[name] = total.get(name, 0) + count
        return total


def run_beside(writers: Sequence[threading.Thread], maintain: Callable[[], None]) -> None:
    """Maintain until all writers ended, at least once; on a machine that reaches the most runs, they go on alone."""
    for _ in range(RUNS_MAX):
        maintain()
        if not any(writer.is_alive() for writer in writers):
            break
    for writer in writers:
        writer.join()


def _with_spark(work: Callable[[], object]) -> None:
    try:
        work()
    except SPARK_ERRORS as error:
        if not is_conflict(error):
            raise
        raise Lost from error


def _with_delta_rs(work: Callable[[], object]) -> None:
    try:
        work()
    except CommitFailedError as error:
        raise Lost from error


def _arrow(rows: Rows) -> pa.Table:
    return pa.table({"id": list(rows), "text": list(rows.values())}, schema=SCHEMA)


def _values(rows: Rows) -> str:
    return " UNION ALL ".join(f"SELECT {number}L id, '{text}' text" for number, text in rows.items())


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _named(name: str) -> str:
    return f"sandur.sales.{name}"


def _uri(path: str) -> str:
    return Path(path.removeprefix("file:")).as_uri()


def _rows(rows: Iterable[Mapping[str, Any]]) -> Rows:
    found = [(row["id"], row["text"]) for row in rows]
    assert len(dict(found)) == len(found), "a row is there twice"
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.soak", description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    packages = session_options(Settings(store="/nonexistent"), with_delta=True)
    spark = create_session("local[2]", name="soak", options={**OPTIONS, **packages})
    register_sources(spark)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="sandur-soak-") as folder:
        soak = Soak(spark, Path(folder), tables=options.tables, seed=options.seed)
        print(f"soak: passed: {soak.run(seconds=options.minutes * 60)}")  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
