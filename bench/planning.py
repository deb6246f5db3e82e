"""Scan planning beside PyIceberg's planner and Iceberg Java's own, over tables of more and more files, in one run.

Every planner gets the same table and has to come to all file scan tasks of a scan: ours as the JSON that a client gets,
in the answer and behind every plan task. Cold is a server that has just started; beside the catalog, one that finds
what another has decoded; warm, one that has planned the same scan before.

Run: python -m bench planning [--files N …] [--manifest-files N] [--json FILE] [--without-java] [--without-pyiceberg]
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import StaticTable
from rich.progress import Progress

from bench.measuring import save, show
from sandur.clock import SystemClock
from sandur.iceberg.scan.requests import decode_scan_request, scan_of
from sandur.iceberg.table_metadata import decode_table_metadata
from sandur.operations.planning.reading import Manifests
from sandur.operations.planning.running import Limits, run_plan, run_task
from sandur.operations.planning.selecting import Selecting
from sandur.operations.planning.tokens import decoded_task
from sandur.operations.workspace import Workspace
from sandur.settings import Settings
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from sandur.storage.locations import Locations
from tests.differential.java_oracle import OracleUnavailable
from tests.planning.java_planner import JavaPlanner
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
FILES_PER_MANIFEST: Final = 5_000
SPEC: Final = Spec(1, (("day", "identity", 1000),))
ROWS_PER_FILE: Final = 100
WARM_ROUNDS: Final = 3
GOAL_COLD, GOAL_WARM = 10.0, 3.0
DAYS: Final = 400


def made_table(folder: Path, count: int, per_manifest: int) -> str:
    """A table of so many files, a hundred rows and ten columns with statistics each; where its metadata lies."""
    table = MadeTable(folder, [SPEC])
    manifests = [
        MadeManifest(SPEC, Files(first, min(per_manifest, count - first))) for first in range(0, count, per_manifest)
    ]
    table.add_snapshot(manifests)
    return table.write()


class Files(list[MadeFile]):
    """The files of one manifest, made when they are written and not kept."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__()
        self._first = first
        self._count = count

    def __iter__(self) -> Iterator[MadeFile]:
        return (file_number(number) for number in range(self._first, self._first + self._count))

    def __len__(self) -> int:
        return self._count


def file_number(number: int) -> MadeFile:
    first = number * ROWS_PER_FILE
    day = number % DAYS
    rows = [
        {
            "id": row,
            "name": f"customer-{row % 97:05d}",
            "ts": 1_700_000_000_000_000 + row * 1_000_000,
            "day": day,
            "x": row / 7,
            "flag": row % 2 == 0,
            "amount": row % 10_000,
            "i": row % 1_000,
            "s.inner": row % 10,
        }
        for row in (first, first + ROWS_PER_FILE - 1)
    ]
    path = f"file:///warehouse/db/events/data/day={day}/00000-{number}-9c12d441-03fe-4693-9a96-a0705ddf69c1.parquet"
    return MadeFile(path, (day,), rows, record_count=ROWS_PER_FILE)


def filters(count: int) -> dict[str, Any]:
    """Everything, a hundredth of the files, and one file."""
    middle = count // 2 * ROWS_PER_FILE
    stop = middle + max(1, count // 100) * ROWS_PER_FILE
    return {
        "100 %": True,
        "1 %": {
            "type": "and",
            "left": {"type": "gt-eq", "term": "id", "value": middle},
            "right": {"type": "lt", "term": "id", "value": stop},
        },
        "one file": {"type": "eq", "term": "id", "value": middle},
    }


class Ours:
    """A server, as far as planning goes."""

    def __init__(self, folder: Path, path: str, *, keeps: bool) -> None:
        store = LocalStore(folder, fsync="never")
        settings = Settings(plan_store_bytes_max=(1 << 30) if keeps else 0)
        self.workspace = Workspace(
            store=store,
            layout=Layout(),
            clock=SystemClock(),
            settings=settings,
            locations=Locations(f"file://{folder}", store, open_store=lambda _: store),
        )
        self._metadata = decode_table_metadata(Path(path).read_bytes())
        self._manifests = Manifests(self.workspace, [f"file://{folder}"])

    async def plan(self, wanted: Any) -> tuple[int, int]:  # noqa: ANN401 - a filter is any JSON
        """How many files are planned, and how many bytes of JSON tell of them."""
        settings = self.workspace.settings
        request = decode_scan_request(msgspec.json.encode({"filter": wanted}))
        limits = Limits(settings.plan_inline_files_max, settings.plan_task_files, looking_seconds_max=600)
        selecting = Selecting(scan_of(request, self._metadata), self._metadata, self._manifests)
        answered = await run_plan("p", selecting, limits)
        size, files = len(answered.fields), answered.fields.count(b'"data-file"')
        for token in answered.plan_tasks:
            body = await run_task(selecting, decoded_task(token))
            size += len(body)
            files += body.count(b'"data-file"')
        return files, size


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def measure_ours(folder: Path, path: str, wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a filter is any JSON
    """Cold, then warm in the same process; then a server that finds what was kept. Run in a process of its own."""

    async def run() -> dict[str, Any]:
        # Arrow looks for pandas when it is first used; that is no part of planning.
        await Ours(folder, path, keeps=False).plan({"type": "eq", "term": "id", "value": -1})
        cold = Ours(folder, path, keeps=True)
        cpu, begin = time.process_time(), time.perf_counter()
        files, size = await cold.plan(wanted)
        cold_seconds, cold_cpu = time.perf_counter() - begin, time.process_time() - cpu
        await cold.workspace.background.drain()
        warm: list[float] = []
        cpu = time.process_time()
        for _ in range(WARM_ROUNDS):
            begin = time.perf_counter()
            await cold.plan(wanted)
            warm.append(time.perf_counter() - begin)
        warm_cpu = (time.process_time() - cpu) / WARM_ROUNDS
        beside = Ours(folder, path, keeps=True)
        begin = time.perf_counter()
        await beside.plan(wanted)
        beside_seconds = time.perf_counter() - begin
        await beside.workspace.background.drain()
        return {
            "files": files,
            "json bytes": size,
            "cold s": cold_seconds,
            "beside s": beside_seconds,
            "warm s": min(warm),
            "cold CPU s": cold_cpu,
            "warm CPU s": warm_cpu,
            "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }

    return asyncio.run(run())


def ours_apart(folder: Path, path: str, wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a filter is any JSON
    command = [sys.executable, "-m", "bench.planning", "--measure", str(folder), path, json.dumps(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_pyiceberg(path: str, wanted: Any) -> tuple[float, float, int]:  # noqa: ANN401 - a filter is any JSON
    table = StaticTable.from_metadata(path)
    scan = table.scan() if wanted is True else table.scan(row_filter=BooleanExpression.model_validate(wanted))
    cpu = time.process_time()
    seconds, tasks = timed(lambda: list(scan.plan_files()))
    return seconds, time.process_time() - cpu, len(tasks)


def measure_java(java: JavaPlanner, path: str, wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a filter is any JSON
    table = java.table(path)
    cold, files = timed(lambda: java.count(java.scan(table, wanted)))
    cpu = java.cpu_seconds()
    warm = [timed(lambda: java.count(java.scan(table, wanted)))[0] for _ in range(WARM_ROUNDS)]
    warm_cpu = (java.cpu_seconds() - cpu) / WARM_ROUNDS
    return {"files": files, "cold s": cold, "warm s": min(warm), "warm CPU s": warm_cpu}


def measured(
    folder: Path, count: int, per_manifest: int, java: JavaPlanner | None, *, with_pyiceberg: bool
) -> list[dict[str, Any]]:
    path = made_table(folder, count, per_manifest)
    found = []
    for name, wanted in filters(count).items():
        ours = ours_apart(folder, path, wanted)
        line: dict[str, Any] = {"files": count, "selectivity": name, "ours": ours}
        if with_pyiceberg:
            seconds, cpu, files = measure_pyiceberg(path, wanted)
            assert files == ours["files"], (files, ours)
            line |= {"pyiceberg s": seconds, "pyiceberg CPU s": cpu}
            line["times PyIceberg, cold"] = round(seconds / ours["cold s"], 1)
            line["times PyIceberg, cold, by CPU"] = round(cpu / ours["cold CPU s"], 1)
        if java is not None:
            theirs = measure_java(java, path, wanted)
            assert theirs["files"] == ours["files"], (theirs, ours)
            line["java"] = theirs
            line["times Java, warm"] = round(theirs["warm s"] / ours["warm s"], 1)
            line["times Java, warm, by CPU"] = round(theirs["warm CPU s"] / ours["warm CPU s"], 1)
            line["times Java, cold"] = round(theirs["cold s"] / ours["cold s"], 1)
        found.append(line)
    return found


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "--measure":
        folder, path, wanted = sys.argv[2:5]
        print(json.dumps(measure_ours(Path(folder), path, json.loads(wanted))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, action="append", help=f"default: {SIZES}")
    parser.add_argument("--manifest-files", type=int, default=FILES_PER_MANIFEST)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--without-pyiceberg", action="store_true")
    told = parser.parse_args()
    java = None if told.without_java else _java()
    lines: list[dict[str, Any]] = []
    sizes = told.files or SIZES
    with Progress() as progress:
        task = progress.add_task("planning", total=len(sizes))
        for count in sizes:
            with tempfile.TemporaryDirectory() as folder:
                lines += measured(
                    Path(folder), count, told.manifest_files, java, with_pyiceberg=not told.without_pyiceberg
                )
            progress.advance(task)
    if java is not None:
        java.close()
    _show(lines)
    save(
        "planning",
        {"goals": {"cold, times PyIceberg": GOAL_COLD, "warm, times Java": GOAL_WARM}, "lines": lines},
        file=told.json,
    )


def _java() -> JavaPlanner | None:
    try:
        return JavaPlanner(memory="2g")
    except OracleUnavailable as reason:
        print(f"Java is left out: {reason}")
        return None


def _show(lines: list[dict[str, Any]]) -> None:
    columns = (
        "files",
        "read",
        "cold ms",
        "beside ms",
        "warm ms",
        "PyIceberg ms",
        "Java warm ms",
        "× PyIceberg (CPU)",
        "× Java (CPU)",
        "peak MB",
    )
    rows = [
        (
            f"{line['files']:,} {line['selectivity']}",
            line["ours"]["files"],
            round(line["ours"]["cold s"] * 1e3, 1),
            round(line["ours"]["beside s"] * 1e3, 1),
            round(line["ours"]["warm s"] * 1e3, 1),
            round(line.get("pyiceberg s", 0) * 1e3, 1),
            round(line.get("java", {}).get("warm s", 0) * 1e3, 1),
            f"{line.get('times PyIceberg, cold', '')} ({line.get('times PyIceberg, cold, by CPU', '')})",
            f"{line.get('times Java, warm', '')} ({line.get('times Java, warm, by CPU', '')})",
            line["ours"]["peak MB"],
        )
        for line in lines
    ]
    show("Scan planning: every planner comes to all tasks of the scan", columns, rows)


if __name__ == "__main__":
    main()
