"""The throughput of the pipeline: receipts in compact and tables in project, compared with a plain loop, by size."""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.generated import Made
from bench.measurement import save, show
from bench.processes import family_cpu_seconds, forget_largest, largest_mib
from sandur.catalog.records import head_of
from sandur.operations.lake import Lake
from sandur.operations.tables.names import resolve_name
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import Job, JobContext
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.runs import create_session
from sandur.pipeline.sources.metadata import Rows, rows_of_table
from sandur.pipeline.sources.receipt_rows import row_of
from sandur.settings import Settings
from sandur.storage.contract import get_many

RECEIPTS: Final = (10_000, 100_000, 1_000_000)
TABLES: Final = (1_000, 10_000, 100_000)
LOOKS_AT_ONCE: Final = 200
LISTED_AT_ONCE: Final = 20_000
OPTIONS: Final = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


class Taken(msgspec.Struct, frozen=True):
    """The cost of a run: wall-clock time, and CPU time of all its processes."""

    seconds: float
    cpu_seconds: float


class Measured(msgspec.Struct, frozen=True):
    """One size: the cost of Spark and of the loop, and the peak memory of the driver and of the loop.

    `load` is the load average meanwhile; above the number of cores, wall-clock times mean little.
    """

    things: int
    spark_seconds: float
    spark_cpu_seconds: float
    loop_seconds: float
    loop_cpu_seconds: float
    python_mib: int
    jvm_mib: int
    loop_mib: int
    load: float

    @property
    def spark_per_second(self) -> float:
        return self.things / self.spark_seconds

    @property
    def loop_per_second(self) -> float:
        return self.things / self.loop_seconds

    def with_rates(self) -> dict[str, object]:
        rates = {"spark_per_second": round(self.spark_per_second), "loop_per_second": round(self.loop_per_second)}
        return {**msgspec.structs.asdict(self), **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receipts", type=numbers, default=RECEIPTS)
    parser.add_argument("--tables", type=numbers, default=TABLES)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path)
    options, _ = parser.parse_known_args()
    begin = time.perf_counter()
    spark = create_session(options.master, name="bench", options=OPTIONS)
    spark.range(1).count()
    start_seconds = time.perf_counter() - begin
    first = _first_run(spark)
    result: dict[str, object] = {
        "settings": f"{options.master}, folder, fsync never",
        "master": options.master,
        "cores": os.cpu_count(),
        "start_seconds": round(start_seconds, 2),
        "first_run_seconds": round(first, 2),
    }
    for job, sizes, make, loop in (
        (PROJECT, options.tables, Made.tables, project_loop),
        (COMPACT, options.receipts, Made.receipts, compact_loop),
    ):
        measured: list[Measured] = []
        for count in sizes:
            measured.append(_measured(spark, job, count, make, loop))
            result[job.name] = [one.with_rates() for one in measured]
            save("pipeline", result, file=options.out)  # Saved after each size, because the largest ones take long.
        _show(f"{'receipts' if job is COMPACT else 'tables'} through {job.name}", measured)
    spark.stop()
    print(f"start of Spark: {start_seconds:.1f} s; the first run of both jobs over one table: {first:.1f} s")


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part.replace("_", "")) for part in text.split(",") if part)


def _first_run(spark: SparkSession) -> float:
    """The cost of the first run of each job on a tiny input: workers start, and queries are compiled."""
    with tempfile.TemporaryDirectory() as folder:
        Made(Path(folder) / "store").tables(1)
        store = Path(folder) / "store"
        return sum(taken(partial(run_job, spark, job, store)).seconds for job in (COMPACT, PROJECT))


def _measured(
    spark: SparkSession, job: Job, count: int, make: Callable[[Made, int], None], loop: Callable[[Path, Path], int]
) -> Measured:
    folder = Path(tempfile.mkdtemp(prefix="sandur-bench-"))
    try:
        make(Made(folder / "store"), count)
        os.sync()
        # The loop runs first, so that the page cache does not favour it. It runs in its own process, because it keeps
        # everything in memory, and the memory of the driver is measured.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
            looped, loop_mib = processes.submit(_looped, loop, folder, count).result()
        python, jvm = driver_processes(spark)
        for pid in (python, jvm):
            forget_largest(pid)
        cost = taken(lambda: run_job(spark, job, folder / "store"))
        python_mib, jvm_mib = largest_mib(python), largest_mib(jvm)
    finally:
        shutil.rmtree(folder)
    print(f"{job.name} {count:,}: Spark {cost.seconds:.1f} s, loop {looped.seconds:.1f} s", flush=True)
    return Measured(
        things=count,
        spark_seconds=cost.seconds,
        spark_cpu_seconds=cost.cpu_seconds,
        loop_seconds=looped.seconds,
        loop_cpu_seconds=looped.cpu_seconds,
        python_mib=python_mib,
        jvm_mib=jvm_mib,
        loop_mib=loop_mib,
        load=round(os.getloadavg()[1], 1),
    )


def _looped(loop: Callable[[Path, Path], int], folder: Path, count: int) -> tuple[Taken, int]:
    """The cost of the loop, and the peak memory of its process."""
    cost = taken(lambda: _checked(loop(folder / "store", folder / "out.parquet"), count))
    return cost, largest_mib(os.getpid())


def _checked(found: int, count: int) -> None:
    assert found == count, f"{found} of {count} were found"


def taken(work: Callable[[], object]) -> Taken:
    begin, cpu = time.perf_counter(), family_cpu_seconds(os.getpid())
    work()
    return Taken(round(time.perf_counter() - begin, 2), round(family_cpu_seconds(os.getpid()) - cpu, 2))


def run_job(spark: SparkSession, job: Job, root: Path) -> None:
    settings = Settings(store=str(root), fsync="never")
    with JobContext(spark=spark, blocking=BlockingLake(settings), run_id="bench") as context:
        report = job.run(context)
    assert not report.warnings, report.warnings


def compact_loop(root: Path, out: Path) -> int:
    """The work of compact in one process: read, decode, sort and write every receipt."""
    with BlockingLake(Settings(store=str(root), fsync="never")) as blocking:
        rows = blocking.wait(_all_receipts(blocking.lake))
    rows.sort(key=lambda row: (row["table_uuid"], row["metadata_version"], row["commit_key"]))
    days = Counter((row["table_uuid"], row["date"]) for row in rows)
    current = {row["table_uuid"]: row["commit_key"] for row in rows}
    timeline = [{**row, "is_current": current[row["table_uuid"]] == row["commit_key"]} for row in rows]
    busy = [{"table_uuid": uuid, "day": day, "commits": times} for (uuid, day), times in days.items()]
    for name, some in (("commits", rows), ("timeline", timeline), ("activity", busy)):
        _write(some, out.with_name(f"{name}-{out.name}"))
    return len(rows)


async def _all_receipts(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await lake.store.list(lake.layout.events_folder(), after=after, limit=LISTED_AT_ONCE)
        keys = [listed.key for listed in page]
        for key, stored in zip(keys, await get_many(lake.store, keys), strict=True):
            if stored:
                rows.append({"date": key, **row_of(lake.layout, key, stored.data)})
        if len(page) < LISTED_AT_ONCE:
            return rows
        after = keys[-1]


def project_loop(root: Path, out: Path) -> int:
    """The work of project in one process: look up every name, read its metadata file, and write the rows."""
    with BlockingLake(Settings(store=str(root), fsync="never")) as blocking:
        parts = blocking.wait(_all_tables(blocking.lake))
    for part, rows in parts.items():
        _write(rows, out.with_name(f"{part}-{out.name}"))
    return len(parts.get("tables", ()))


async def _all_tables(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    parts: dict[str, list[dict[str, Any]]] = {}
    after: str | None = None
    while True:
        page = await lake.store.list(lake.layout.all_names_folder(), after=after, limit=LISTED_AT_ONCE)
        for start in range(0, len(page), LOOKS_AT_ONCE):
            keys = [listed.key for listed in page[start : start + LOOKS_AT_ONCE]]
            for rows in await asyncio.gather(*(_table(lake, key) for key in keys)):
                for part, some in rows.items():
                    parts.setdefault(part, []).extend(dict(row) for row in some)
        if len(page) < LISTED_AT_ONCE:
            return parts
        after = page[-1].key


async def _table(lake: Lake, key: str) -> Rows:
    found = await resolve_name(lake, lake.layout.parse_name(key))
    head = head_of(found.pointer.value) if found else None
    if found is None or head is None:
        return {}
    row = {"uuid": found.uuid, "kind": "table", "format": "iceberg"}
    return await rows_of_table(lake, row | {"metadata_location": head.metadata_location})


def _write(rows: Sequence[dict[str, Any]], path: Path) -> None:
    if rows:
        pq.write_table(pa.Table.from_pylist(list(rows)), path, compression="zstd")


def driver_processes(spark: SparkSession) -> tuple[int, int]:
    """The Python process of the driver and its JVM."""
    jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - no other way to its id
    return os.getpid(), jvm.pid


def _show(title: str, measured: Sequence[Measured]) -> None:
    rows = [
        (
            f"{one.things:,}",
            f"{one.spark_seconds:.1f} s",
            f"{one.spark_cpu_seconds:.1f} s",
            f"{one.spark_per_second:,.0f}/s",
            f"{one.loop_seconds:.1f} s",
            f"{one.loop_per_second:,.0f}/s",
            f"{one.spark_per_second / one.loop_per_second:.2f}",
            f"{one.python_mib} + {one.jvm_mib} MiB",
            f"{one.loop_mib} MiB",
        )
        for one in measured
    ]
    columns = ("how many", "Spark", "CPU", "rate", "loop", "rate", "Spark : loop", "driver at most", "loop at most")
    show(title, columns, rows)
