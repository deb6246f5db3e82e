"""Scan planning compared with the planners of PyIceberg and Iceberg Java, for tables of growing size, in one run.

Every planner gets the same table on the same disk and returns all file scan tasks of a scan: PyIceberg and Java as
their own objects, ours as the JSON that a client gets, in the answer and in every plan task.

- Cold: a process that has planned a few other tables, so that all code is loaded, but has not read this one. Ours and
  PyIceberg's each run in their own process, ours with frozen garbage collection, as in our servers; Java's process
  continues. There are several small tables, and the best time of each planner counts.
- Warm: the same scan again in the same process.
- HTTP: the same scan again of a running server, with all tasks fetched in sequence over one connection.

Memory is the peak of a process; ours covers cold and warm together.

Run: python -m bench planning [--files N …] [--manifest-files N] [--folder FOLDER] [--json FILE] [--without-java] …
"""

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import msgspec
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import StaticTable
from rich.progress import Progress

from bench.measurement import save, show
from bench.planning_tables import FILES_PER_MANIFEST, filters, made_table
from sandur.clock import SystemClock
from sandur.iceberg.scan.requests import decode_scan_request, resolve_scan
from sandur.iceberg.table_metadata import decode_table_metadata
from sandur.operations.lake import Lake
from sandur.operations.planning.manifests import Manifests
from sandur.operations.planning.plan_tasks import decode_task
from sandur.operations.planning.scan import Limits, ScanRunner, run_plan, run_task
from sandur.operations.tables.manifest_places import ReadableManifests
from sandur.settings import Settings
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from sandur.storage.locations import Locations
from tests.differential.java_oracle import OracleUnavailable
from tests.planning.java_planner import JavaPlanner
from tests.server.process import ServerProcess, server_process

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
WARM_ROUNDS: Final = 3
GOALS: Final = {"cold, times PyIceberg": 10.0, "warm, times Java": 3.0}
TABLES_TO_WARM_UP: Final = 4
FILES_TO_WARM_UP: Final = 2_000
SELECTIVITIES: Final = 3
SMALL_TABLES: Final = 8
SMALL_FILES_MAX: Final = 10_000
CACHE_BYTES: Final = Settings().plan_cache_bytes_max
MARK: Final = b'"data-file"'


class Ours:
    """The planning part of a server."""

    def __init__(self, catalog: Path, folder: Path, path: str, *, cache_bytes_max: int = CACHE_BYTES) -> None:
        store, tables = LocalStore(catalog, fsync="never"), LocalStore(folder, fsync="never")
        self.lake = Lake(
            store=store,
            layout=Layout(),
            clock=SystemClock(),
            settings=Settings(plan_cache_bytes_max=cache_bytes_max),
            locations=Locations(f"file://{folder}", tables, open_store=lambda _: tables),
        )
        self._metadata = decode_table_metadata(Path(path).read_bytes())
        self._manifests = Manifests(self.lake, [f"file://{folder}"], ReadableManifests(self._metadata))

    async def plan(self, wanted: Any, *, is_counted: bool = False) -> tuple[int, int]:  # noqa: ANN401 - any JSON
        """The number of planned files, if they are to be counted, and the bytes of JSON that list them."""
        settings = self.lake.settings
        request = decode_scan_request(msgspec.json.encode({"filter": wanted}))
        limits = Limits(settings.plan_inline_files_max, settings.plan_task_files, select_seconds_max=600)
        plan_id = self.lake.clock.new_id()
        scan = resolve_scan(request, self._metadata)
        selecting = ScanRunner(scan, self._metadata, self._manifests, plan_id=plan_id)
        answered = await run_plan(plan_id, selecting, limits)
        size, files = len(answered.fields), answered.fields.count(MARK) if is_counted else 0
        for token in answered.plan_tasks:
            body = await run_task(selecting, decode_task(token))
            size += len(body)
            files += body.count(MARK) if is_counted else 0
        return files, size


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


class Taken(NamedTuple):
    """The cost of some work."""

    seconds: float
    cpu_seconds: float


async def taken(work: Awaitable[Any]) -> Taken:
    cpu, begin = time.process_time(), time.perf_counter()
    await work
    return Taken(time.perf_counter() - begin, time.process_time() - cpu)


def peak_mb() -> int:
    """The peak memory of this process. The resource module would include the memory of its parent before the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


def settle() -> None:
    """Freeze the loaded objects, so that the garbage collector skips them, as a server does."""
    gc.collect()
    gc.freeze()


def other_tables(aside: Path) -> list[tuple[Path, str]]:
    """The tables that are planned before, each with its folder."""
    folders = [aside / str(place) for place in range(TABLES_TO_WARM_UP)]
    return [(folder, made_table(folder, FILES_TO_WARM_UP, FILES_TO_WARM_UP)) for folder in folders]


def measure_ours(
    catalog: Path,
    paths: Sequence[str],
    wanted: Any,  # noqa: ANN401 - a filter is any JSON
    *,
    rounds: int,
    cache_bytes_max: int,
) -> dict[str, Any]:
    """The first plan of every table, then the last one again. Runs in its own process."""

    async def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as aside:
            for folder, other in other_tables(Path(aside)):
                await Ours(folder / "catalog", folder, other).plan(wanted=True)
        settle()
        before = peak_mb()
        first: list[Taken] = []
        server: Ours | None = None
        for place, path in enumerate(paths):
            folder = Path(path).parent.parent
            server = Ours(catalog / str(place), folder, path, cache_bytes_max=cache_bytes_max)
            first.append(await taken(server.plan(wanted)))
            await server.lake.background.drain()
        assert server is not None
        again = [await taken(server.plan(wanted)) for _ in range(rounds)]
        files, size = await server.plan(wanted, is_counted=True)
        return {
            "files": files,
            "json bytes": size,
            "first s": min(one.seconds for one in first),
            "first CPU s": min(one.cpu_seconds for one in first),
            "again s": min((one.seconds for one in again), default=0.0),
            "again CPU s": min((one.cpu_seconds for one in again), default=0.0),
            "before MB": before,
            "peak MB": peak_mb(),
        }

    return asyncio.run(run())


def measure_pyiceberg(paths: Sequence[str], wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a filter is any JSON
    """The first plan of every table. Runs in its own process."""
    with tempfile.TemporaryDirectory() as aside:
        for _, other in other_tables(Path(aside)):
            list(StaticTable.from_metadata(other).scan().plan_files())
    found: list[Taken] = []
    files = 0
    for path in paths:
        table = StaticTable.from_metadata(path)
        scan = table.scan() if wanted is True else table.scan(row_filter=BooleanExpression.model_validate(wanted))
        cpu, begin = time.process_time(), time.perf_counter()
        files = sum(1 for _ in scan.plan_files())
        found.append(Taken(time.perf_counter() - begin, time.process_time() - cpu))
    return {
        "files": files,
        "s": min(one.seconds for one in found),
        "CPU s": min(one.cpu_seconds for one in found),
        "peak MB": peak_mb(),
    }


def measure_in_process(*arguments: str) -> dict[str, Any]:
    """The measurement of a separate process."""
    command = [sys.executable, "-m", "bench.planning", "--measure", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_ours_in_process(paths: Sequence[str], wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a filter is any JSON
    text = json.dumps(wanted)
    with tempfile.TemporaryDirectory() as catalog:
        cold = measure_in_process("ours", text, catalog, str(WARM_ROUNDS), str(CACHE_BYTES), *paths)
    return {
        "files": cold["files"],
        "json bytes": cold["json bytes"],
        "cold s": cold["first s"],
        "warm s": cold["again s"],
        "cold CPU s": cold["first CPU s"],
        "warm CPU s": cold["again CPU s"],
        "before MB": cold["before MB"],
        "peak MB": cold["peak MB"],
    }


def measure_java(java: JavaPlanner, path: str, wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a filter is any JSON
    table = java.table(path)
    cold, files = timed(lambda: java.count(java.scan(table, wanted)))
    cpu = java.cpu_seconds()
    warm = [timed(lambda: java.count(java.scan(table, wanted)))[0] for _ in range(WARM_ROUNDS)]
    warm_cpu = (java.cpu_seconds() - cpu) / WARM_ROUNDS
    return {"files": files, "cold s": cold, "warm s": min(warm), "warm CPU s": warm_cpu}


class Served:
    """A server on which the table is registered, and one connection to it."""

    def __init__(self, server: ServerProcess, path: str) -> None:
        self._client = httpx.Client(base_url=f"{server.url}/v1", timeout=600)
        self._send("/namespaces", {"namespace": ["db"]})
        self._send("/namespaces/db/register", {"name": "t", "metadata-location": f"file://{path}"})

    def _send(self, path: str, body: Any) -> bytes:  # noqa: ANN401 - any JSON
        answer = self._client.post(path, json=body)
        answer.raise_for_status()
        return answer.content

    def plan(self, wanted: Any) -> int:  # noqa: ANN401 - a filter is any JSON
        """The number of planned files."""
        body = self._send("/namespaces/db/tables/t/plan", {"filter": wanted})
        files = body.count(MARK)
        for token in msgspec.json.decode(body)["plan-tasks"]:
            files += self._send("/namespaces/db/tables/t/tasks", {"plan-task": token}).count(MARK)
        return files


def measure_http(served: Served, wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a filter is any JSON
    """The same scan again; the first one is not measured."""
    files = served.plan(wanted)
    return {"files": files, "warm s": min(timed(lambda: served.plan(wanted))[0] for _ in range(WARM_ROUNDS))}


def measured(
    folder: Path, count: int, per_manifest: int, java: JavaPlanner | None, *, with_pyiceberg: bool
) -> Iterator[dict[str, Any]]:
    tables = SMALL_TABLES if count <= SMALL_FILES_MAX else 1
    homes = [folder / f"{count} files, {per_manifest} each" / str(place) for place in range(tables)]
    paths = [made_table(home, count, per_manifest) for home in homes]
    with (
        tempfile.TemporaryDirectory() as catalog,
        server_process(Path(catalog), "--allow-location", f"file://{folder}", fsync="never") as server,
    ):
        served = Served(server, paths[0])
        for name, wanted in filters(count).items():
            line: dict[str, Any] = {"files": count, "selectivity": name, "ours": measure_ours_in_process(paths, wanted)}
            line["http"] = measure_http(served, wanted)
            if with_pyiceberg:
                line["pyiceberg"] = measure_in_process("pyiceberg", json.dumps(wanted), *paths)
            if java is not None:
                line["java"] = measure_java(java, paths[0], wanted)
            yield line | compared(line)


def compared(line: dict[str, Any]) -> dict[str, Any]:
    """The ratio of the times; all planners must return the same number of files."""
    ours, found = line["ours"], {}
    for other in ("http", "pyiceberg", "java"):
        assert line.get(other, ours)["files"] == ours["files"], line
    if "pyiceberg" in line:
        found["times PyIceberg, cold"] = round(line["pyiceberg"]["s"] / ours["cold s"], 1)
        found["times PyIceberg, cold, by CPU"] = round(line["pyiceberg"]["CPU s"] / ours["cold CPU s"], 1)
    if "java" in line:
        found["times Java, warm"] = round(line["java"]["warm s"] / ours["warm s"], 1)
        found["times Java, warm, by CPU"] = round(line["java"]["warm CPU s"] / ours["warm CPU s"], 1)
        found["times Java, cold"] = round(line["java"]["cold s"] / ours["cold s"], 1)
    return found


def measure(which: str, text: str, *rest: str) -> dict[str, Any]:
    """Run one measurement in this process."""
    if which == "pyiceberg":
        return measure_pyiceberg(rest, json.loads(text))
    catalog, rounds, cache_bytes, *paths = rest
    sizes = {"rounds": int(rounds), "cache_bytes_max": int(cache_bytes)}
    return measure_ours(Path(catalog), paths, json.loads(text), **sizes)


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "--measure":
        print(json.dumps(measure(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, action="append", help=f"default: {SIZES}")
    parser.add_argument("--manifest-files", type=int, default=FILES_PER_MANIFEST)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="where tables are made, kept, and found again")
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--without-pyiceberg", action="store_true")
    options = parser.parse_args()
    java = None if options.without_java else _java()
    lines: list[dict[str, Any]] = []
    sizes = options.files or SIZES
    with Progress() as progress:
        task = progress.add_task("planning", total=len(sizes) * SELECTIVITIES)
        for count in sizes:
            with tempfile.TemporaryDirectory() as aside:
                folder = Path(options.folder or aside)
                for line in measured(
                    folder, count, options.manifest_files, java, with_pyiceberg=not options.without_pyiceberg
                ):
                    lines.append(line)
                    save(
                        "planning",
                        {"settings": "two cores, nothing else running", "goals": GOALS, "lines": lines},
                        file=options.json,
                    )
                    progress.advance(task)
    if java is not None:
        java.close()
    _show(lines)


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
        "warm ms",
        "HTTP ms",
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
            round(line["ours"]["warm s"] * 1e3, 1),
            round(line["http"]["warm s"] * 1e3, 1),
            round(line.get("pyiceberg", {}).get("s", 0) * 1e3, 1),
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
