"""What the pipeline gets through: receipts in compact and tables in project, beside a plain loop, as both grow."""

import argparse
import asyncio
import os
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.generated import Made
from bench.measuring import save, show
from sandur.operations.names import look
from sandur.operations.workspace import Workspace
from sandur.pipeline.job import Job, job_context
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.metadata_rows import Rows
from sandur.pipeline.receipt_rows import row_of
from sandur.pipeline.session import pipeline_session
from sandur.pipeline.sources.metadata import rows_of_table
from sandur.pipeline.waiting import OpenStore
from sandur.settings import Settings
from sandur.storage.layout import Layout
from sandur.storage.object_store import LIST_LIMIT_MAX, get_many

RECEIPTS: Final = (10_000, 100_000, 1_000_000)
TABLES: Final = (1_000, 10_000, 100_000)
LOOKS_AT_ONCE: Final = 200
OPTIONS: Final = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


class Measured(msgspec.Struct, frozen=True):
    """One size: what Spark took and what the loop took, and how large the driver's processes had grown by then."""

    things: int
    spark_seconds: float
    loop_seconds: float
    python_mib: int
    jvm_mib: int

    @property
    def spark_per_second(self) -> float:
        return self.things / self.spark_seconds

    @property
    def loop_per_second(self) -> float:
        return self.things / self.loop_seconds


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--receipts", type=_numbers, default=RECEIPTS)
    asked.add_argument("--tables", type=_numbers, default=TABLES)
    asked.add_argument("--master", default="local[2]")
    asked.add_argument("--out", type=Path)
    told, _ = asked.parse_known_args()
    begin = time.perf_counter()
    spark = pipeline_session(told.master, name="bench", options=OPTIONS)
    spark.range(1).count()
    start_seconds = time.perf_counter() - begin
    first = _first_run(spark)
    compacted = [_measured(spark, COMPACT, count, Made.receipts, compact_loop) for count in told.receipts]
    projected = [_measured(spark, PROJECT, count, Made.tables, project_loop) for count in told.tables]
    spark.stop()
    _show("receipts through compact", compacted)
    _show("tables through project", projected)
    print(f"start of Spark: {start_seconds:.1f} s; a first run over nothing, which starts its workers: {first:.1f} s")
    result = {
        "master": told.master,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "start_seconds": round(start_seconds, 2),
        "first_run_seconds": round(first, 2),
        "compact": compacted,
        "project": projected,
    }
    save("pipeline", result, file=told.out)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part.replace("_", "")) for part in text.split(",") if part)


def _first_run(spark: SparkSession) -> float:
    with tempfile.TemporaryDirectory() as folder:
        Made(Path(folder) / "store").tables(1)
        return _seconds(lambda: _run(spark, COMPACT, Path(folder) / "store"))


def _measured(
    spark: SparkSession, job: Job, count: int, make: Callable[[Made, int], None], loop: Callable[[Path, Path], int]
) -> Measured:
    folder = Path(tempfile.mkdtemp(prefix="sandur-bench-"))
    try:
        make(Made(folder / "store"), count)
        os.sync()
        # The loop first: what the system keeps of the files in memory then helps Spark no more than the loop.
        _warm(folder / "store")
        loop_seconds = _seconds(lambda: _checked(loop(folder / "store", folder / "out.parquet"), count))
        spark_seconds = _seconds(lambda: _run(spark, job, folder / "store"))
    finally:
        shutil.rmtree(folder)
    python_mib, jvm_mib = _sizes(spark)
    print(f"{job.name} {count:,}: Spark {spark_seconds:.1f} s, loop {loop_seconds:.1f} s", flush=True)
    return Measured(count, round(spark_seconds, 2), round(loop_seconds, 2), python_mib, jvm_mib)


def _warm(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()


def _checked(found: int, count: int) -> None:
    assert found == count, f"{found} of {count} were found"


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _run(spark: SparkSession, job: Job, root: Path) -> None:
    settings = Settings(store=str(root), fsync="never")
    with job_context(spark, settings, run_id="bench") as context:
        report = job.run(context)
    assert not report.warnings, report.warnings


def compact_loop(root: Path, out: Path) -> int:
    """What compact does, by one process: every receipt is read, understood, put in order and written."""
    with OpenStore(Settings(store=str(root), fsync="never"), Layout()) as open_store:
        rows = open_store.wait(_all_receipts(open_store))
    rows.sort(key=lambda row: (row["table_uuid"], row["metadata_version"], row["commit_key"]))
    days = Counter((row["table_uuid"], row["date"]) for row in rows)
    current = {row["table_uuid"]: row["commit_key"] for row in rows}
    timeline = [{**row, "is_current": current[row["table_uuid"]] == row["commit_key"]} for row in rows]
    busy = [{"table_uuid": uuid, "day": day, "commits": times} for (uuid, day), times in days.items()]
    for name, some in (("commits", rows), ("timeline", timeline), ("activity", busy)):
        _write(some, out.with_name(f"{name}-{out.name}"))
    return len(rows)


async def _all_receipts(open_store: OpenStore) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await open_store.store.list(open_store.layout.events_folder(), after=after)
        keys = [listed.key for listed in page]
        for key, stored in zip(keys, await get_many(open_store.store, keys), strict=True):
            if stored:
                rows.append({"date": key, **row_of(open_store.layout, key, stored.data)})
        if len(page) < LIST_LIMIT_MAX:
            return rows
        after = keys[-1]


def project_loop(root: Path, out: Path) -> int:
    """What project does, by one process: every name is looked up, its metadata file opened, and all of it written."""
    with OpenStore(Settings(store=str(root), fsync="never"), Layout()) as open_store:
        parts = open_store.wait(_all_tables(open_store))
    for part, rows in parts.items():
        _write(rows, out.with_name(f"{part}-{out.name}"))
    return len(parts.get("tables", ()))


async def _all_tables(open_store: OpenStore) -> dict[str, list[dict[str, Any]]]:
    parts: dict[str, list[dict[str, Any]]] = {}
    after: str | None = None
    while True:
        page = await open_store.store.list(open_store.layout.all_names_folder(), after=after)
        for start in range(0, len(page), LOOKS_AT_ONCE):
            keys = [listed.key for listed in page[start : start + LOOKS_AT_ONCE]]
            for rows in await asyncio.gather(*(_table(open_store.workspace, key) for key in keys)):
                for part, some in rows.items():
                    parts.setdefault(part, []).extend(dict(row) for row in some)
        if len(page) < LIST_LIMIT_MAX:
            return parts
        after = page[-1].key


async def _table(workspace: Workspace, key: str) -> Rows:
    found = await look(workspace, workspace.layout.read_name(key))
    if found is None or found.pointer.value.head is None:
        return {}
    told = {"uuid": found.uuid, "kind": "table", "format": "iceberg"}
    return await rows_of_table(workspace, told | {"metadata_location": found.pointer.value.head.metadata_location})


def _write(rows: Sequence[dict[str, Any]], path: Path) -> None:
    if rows:
        pq.write_table(pa.Table.from_pylist(list(rows)), path, compression="zstd")


def _sizes(spark: SparkSession) -> tuple[int, int]:
    """The largest that the driver's Python and its JVM have been, in MiB."""
    python_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - no other way to its id
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        return python_mib, 0
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return python_mib, int(lines["VmHWM"].split()[0]) // 1_024


def _show(title: str, measured: Sequence[Measured]) -> None:
    rows = [
        (
            f"{one.things:,}",
            f"{one.spark_seconds:.1f} s",
            f"{one.spark_per_second:,.0f}/s",
            f"{one.loop_seconds:.1f} s",
            f"{one.loop_per_second:,.0f}/s",
            f"{one.spark_per_second / one.loop_per_second:.2f}",
            f"{one.python_mib} + {one.jvm_mib} MiB",
        )
        for one in measured
    ]
    show(title, ("how many", "Spark", "rate", "loop", "rate", "Spark : loop", "driver at most"), rows)
