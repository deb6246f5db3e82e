"""What an operation costs by the number of tables: storage calls, rounds, bytes, CPU time, and memory of the process.

Each size is a process of its own, with a store in memory that behaves as a bucket: every read is a call. Its objects
are written directly, and are ten days old. `spread` has 1,000 tables in each namespace, `one` has all of them in one.
`--whole` measures what a list of a whole namespace and the rebuild of its index hold in memory beside the caches.
`--spark` runs the jobs that read a whole catalog, on a folder with 1,000 tables in each namespace. A part without sizes
keeps what the result file has: `python -m bench scale --spread= --in-one= --whole= --spark=1_000_000`.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from bench.generated import TABLES_PER_NAMESPACE, Made, MadeInMemory
from bench.measurement import save, show
from bench.pipeline import OPTIONS, driver_processes, numbers, run_job, taken
from bench.processes import forget_largest, largest_mib
from bench.provenance import RESULTS, provenance
from bench.ui import send
from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, names_scope, namespaces_scope
from sandur.clock import SystemClock
from sandur.operations.browse import list_contents
from sandur.operations.index.rebuild import rebuild
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from sandur.pipeline.job import Job
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.jobs.rebuild_index import REBUILD_INDEX
from sandur.pipeline.runs import create_session
from sandur.server.app import App
from sandur.server.logs import configure_logging
from sandur.server.process import RunningCatalog
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.contract import Stored, Version
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.requests import create_table, set_properties

SPREAD: Final = (1_000, 10_000, 100_000, 1_000_000)
IN_ONE: Final = (1_000, 10_000, 100_000)
WHOLE: Final = (10_000, 100_000)
ON_SPARK: Final = (10_000, 100_000, 1_000_000)
PAGE: Final = 100
_OK: Final = (200, 204)
_TIMES: Final = 20
_AGE_DAYS: Final = 10
_DAY_MS: Final = 86_400_000
_CACHE_BYTES: Final = 4 << 20
_CACHE_RECORDS: Final = 500
_MIB: Final = 1 << 20
_ROOT: Final = Path("/bench/store")


class Cost(msgspec.Struct, frozen=True):
    """One operation: the medians of its storage calls, sequential rounds, bytes and CPU time."""

    calls: float
    rounds: float
    read_kb: float
    written_kb: float
    cpu_ms: float


class Measured(msgspec.Struct, frozen=True):
    """One size, and the memory that the server needed at most beside the store."""

    shape: str
    tables: int
    server_mib: int
    operations: Mapping[str, Cost]
    load: float


class Held(msgspec.Struct, frozen=True):
    """One operation on a namespace with this number of tables, and its peak memory without that of the store."""

    operation: str
    tables: int
    mib: int


class SparkRun(msgspec.Struct, frozen=True):
    """One job over all tables: its time, the CPU time of all its processes, and the peak memory of its driver."""

    job: str
    tables: int
    seconds: float
    cpu_seconds: float
    python_mib: int
    jvm_mib: int
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--spread", type=numbers, default=SPREAD, help="sizes with 1,000 tables per namespace")
    parser.add_argument("--in-one", type=numbers, default=IN_ONE, help="sizes in one namespace")
    parser.add_argument("--whole", type=numbers, default=WHOLE, help="sizes of namespaces whose lists are held")
    parser.add_argument("--spark", type=numbers, default=ON_SPARK, help="sizes of the jobs on Spark")
    parser.add_argument("--again", action="store_true", help="keep the stored sizes, and store these beside them")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/scale.json")
    options, _ = parser.parse_known_args()
    file = options.json or RESULTS / "scale.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    result = {
        "settings": {"store": "memory as a bucket"},
        "sizes": kept.get("sizes", []),
        "spark": kept.get("spark", []),
        **{key: kept[key] for key in ("whole", "again") if key in kept},
    }
    if options.again or not (options.spread or options.in_one):
        result.update({key: kept[key] for key in ("date", "sources_sha256") if key in kept})
    found: list[Measured] = []
    for shape, sizes in (("spread", options.spread), ("one", options.in_one)):
        for count in sizes:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
                found.append(processes.submit(_measured, shape, count).result())
            print(f"{shape} {count:,}: measured", flush=True)
            if options.again:
                result["again"] = {**provenance("scale"), "sizes": found}
            else:
                result["sizes"] = found
            save("scale", result, file=options.json)
    for shape in ("spread", "one"):
        _show([one for one in found if one.shape == shape])
    held: list[Held] = []
    for count in options.whole:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
            held += processes.submit(_held, count).result()
        result["whole"] = {**provenance("scale"), "memory": held}
        save("scale", result, file=options.json)
    if held:
        show("Memory beside the caches", ("operation", "tables", "MiB"), [msgspec.structs.astuple(one) for one in held])
    runs: list[SparkRun] = []
    for count in options.spark:
        for one in _on_spark(count):
            result["spark"] = runs = [*runs, one]
            save("scale", result, file=options.json)


def _on_spark(count: int) -> Iterator[SparkRun]:
    """The jobs that read all tables, one after the other on one folder."""
    folder = Path(tempfile.mkdtemp(prefix="sandur-bench-"))
    spark = create_session("local[2]", name="bench", options=OPTIONS)
    try:
        Made(folder / "store").tables(count)
        for job in (REBUILD_INDEX, PROJECT):
            one = _job(spark, job, folder / "store", count)
            print(f"{job.name} {count:,}: {one.seconds:.0f} s, {one.cpu_seconds:.0f} s of CPU", flush=True)
            yield one
    finally:
        spark.stop()
        shutil.rmtree(folder)


def _job(spark: SparkSession, job: Job, store: Path, count: int) -> SparkRun:
    python, jvm = driver_processes(spark)
    for pid in (python, jvm):
        forget_largest(pid)
    cost = taken(lambda: run_job(spark, job, store))
    peaks = largest_mib(python), largest_mib(jvm)
    return SparkRun(job.name, count, cost.seconds, cost.cpu_seconds, *peaks, load=round(os.getloadavg()[1], 1))


def _show(found: Sequence[Measured]) -> None:
    if not found:
        return
    rows: list[Sequence[object]] = [
        (name, *(_text(one.operations[name]) for one in found)) for name in found[0].operations
    ]
    rows.append(("memory of the server, MiB", *(one.server_mib for one in found)))
    title = "1,000 tables per namespace" if found[0].shape == "spread" else "all tables in one namespace"
    show(f"{title}: calls, rounds, kB read, CPU ms", ("", *(f"{one.tables:,}" for one in found)), rows)


def _text(cost: Cost) -> str:
    return f"{cost.calls:,.0f} · {cost.rounds:.0f} · {cost.read_kb:,.0f} · {cost.cpu_ms:,.1f}"


class Filled(MemoryStore):
    """A store that begins with these objects."""

    def __init__(self, objects: Mapping[str, bytes], written_ms: int) -> None:
        super().__init__()
        self._objects = {
            key: (Stored(data, Version(f"0-{number}")), written_ms)
            for number, (key, data) in enumerate(objects.items())
        }
        self._sorted_keys = sorted(objects)

    async def get(self, key: str) -> Stored | None:
        """Bytes of its own for every read, as from a bucket."""
        found = await super().get(key)
        return found and Stored(bytes(bytearray(found.data)), found.version)

    @property
    def mib(self) -> int:
        return sum(len(stored.data) for stored, _ in self._objects.values()) // _MIB

    async def close(self) -> None:
        """Keep everything: the next server uses the same store."""


def _measured(shape: str, count: int) -> Measured:
    configure_logging("text", "error")
    return asyncio.run(_Scale(shape, count).run())


class _Scale:
    """One server on one store."""

    def __init__(self, shape: str, count: int) -> None:
        self._shape, self._count = shape, count
        self._per_namespace = TABLES_PER_NAMESPACE if shape == "spread" else count
        made = MadeInMemory(_ROOT)
        made.as_new()
        made.tables(count, per_namespace=self._per_namespace, has_receipts=True)
        self._content = Filled(made.objects, SystemClock().now_ms() - _AGE_DAYS * _DAY_MS)
        self._settings = Settings(store=str(_ROOT), janitors=False, log_level="error")
        self._costs: dict[str, Cost] = {}

    async def run(self) -> Measured:
        gc.collect()
        forget_largest(os.getpid())
        before_mib = largest_mib(os.getpid())
        _, catalog = await self._started()
        lake = catalog.lakes.lake("default", "default")
        middle = Namespace("main", ("sales", f"n{self._count // self._per_namespace // 2}"))
        await self._cost("rebuild the index of a namespace", 1, lambda _: rebuild(lake, names_scope(middle)), lake)
        await self._cost(
            "rebuild the index of namespaces",
            1,
            lambda _: rebuild(lake, namespaces_scope("main", Namespace("main", ("sales",)))),
            lake,
        )
        for scope in (CATALOGS, namespaces_scope("main", None)):  # A start reads them to find the others.
            await rebuild(lake, scope)
        await catalog.close()
        app, catalog = await self._started()  # Nothing is cached.
        await self._requests(app, catalog, middle)
        await self._cost("janitor round", 1, lambda _: self._janitors(catalog))
        await catalog.close()
        await self._cost("restart", 1, lambda _: self._restart())
        return Measured(
            shape=self._shape,
            tables=self._count,
            server_mib=largest_mib(os.getpid()) - before_mib,
            operations=self._costs,
            load=round(os.getloadavg()[1], 1),
        )

    async def _restart(self) -> None:
        """Until the server is ready: it reads lists ahead, as on a bucket."""
        _, catalog = await self._started()
        await catalog.close()

    async def _started(self) -> tuple[App, RunningCatalog]:
        self._store = SpyStore(self._content)
        app, catalog = build(self._settings, store=self._store)
        await catalog.start()
        return app, catalog

    async def _requests(self, app: App, catalog: RunningCatalog, middle: Namespace) -> None:
        inside = f"/v1/main/namespaces/{'%1F'.join(middle.levels)}/tables"
        first = int(middle.levels[1].removeprefix("n")) * self._per_namespace
        half = first + self._per_namespace // 2

        async def request(method: str, path: str, body: object = None) -> bytes:
            answer = await send(app, method, path, body)
            if answer.status not in _OK:
                raise SystemExit(f"bench: {method} {path} answered {answer.status}: {answer.body[:300]!r}")
            return answer.body

        def table(number: int) -> str:
            return f"{inside}/t{half + number:07d}"

        page = f"{inside}?pageSize={PAGE}&pageToken="
        token = ""
        for _ in range(min(self._per_namespace // PAGE // 2, 20)):
            token = msgspec.json.decode(await request("GET", page + token))["next-page-token"]
        lake = catalog.lakes.lake("default", "default")
        await lake.background.drain()
        steps: Mapping[str, tuple[int, Callable[[int], Awaitable[object]]]] = {
            "load, cold": (_TIMES, lambda one: request("GET", table(one))),
            "load, warm": (_TIMES, lambda one: request("GET", table(one))),
            "list, first page": (_TIMES, lambda _: request("GET", page)),
            "list, a middle page": (_TIMES, lambda _: request("GET", page + token)),
            "list from a prefix on": (
                _TIMES,
                lambda _: list_contents(lake, middle, page_size=PAGE, begins=f"t{half:07d}"),
            ),
            "list, whole namespace": (3, lambda _: request("GET", inside)),
            "list namespaces, first page": (
                _TIMES,
                lambda _: request("GET", f"/v1/main/namespaces?parent=sales&pageSize={PAGE}&pageToken="),
            ),
            "commit": (_TIMES, lambda one: request("POST", table(one), set_properties(a=str(one)))),
            "create": (_TIMES, lambda one: request("POST", inside, create_table(f"t{half:07d}-new{one}"))),
            "drop": (_TIMES, lambda one: request("DELETE", f"{inside}/t{half:07d}-new{one}")),
        }
        for name, (times, step) in steps.items():
            await self._cost(name, times, step, lake)

    async def _janitors(self, catalog: RunningCatalog) -> None:
        lake = catalog.lakes.fresh_lake(catalog.lakes.lake("default", "default").layout)
        await run_janitors(lake, {}, on_error=lambda _key, _error: None)

    async def _cost(
        self, name: str, times: int, step: Callable[[int], Awaitable[object]], lake: Lake | None = None
    ) -> None:
        """Run the step `times` times; what it does after its answer is counted with it."""
        found: dict[str, list[float]] = {field: [] for field in Cost.__struct_fields__}
        for number in range(times):
            if lake:
                await lake.background.drain()  # What a timer started since the last step belongs to no step.
            self._store.reset()
            cpu = time.process_time()
            await step(number)
            rounds = self._store.rounds
            if lake:
                await lake.background.drain()
            found["cpu_ms"].append((time.process_time() - cpu) * 1_000)
            found["calls"].append(len(self._store.calls))
            found["rounds"].append(rounds)
            found["read_kb"].append(self._store.bytes_read / 1_000)
            found["written_kb"].append(self._store.bytes_written / 1_000)
        self._costs[name] = Cost(**{field: round(statistics.median(values), 2) for field, values in found.items()})


def _held(count: int) -> Sequence[Held]:
    configure_logging("text", "error")
    return asyncio.run(_measure_held(count))


async def _measure_held(count: int) -> Sequence[Held]:
    """Each operation on a new server, whose caches are so small that they do not count."""
    made = MadeInMemory(_ROOT)
    made.as_new()
    made.tables(count, per_namespace=count)
    store = Filled(made.objects, SystemClock().now_ms() - _AGE_DAYS * _DAY_MS)
    settings = Settings(
        store=str(_ROOT),
        janitors=False,
        log_level="error",
        cache_bytes_max=_CACHE_BYTES,
        cache_records_max=_CACHE_RECORDS,
    )
    namespace = Namespace("main", ("sales", "n0"))

    async def rebuilt(_app: App, lake: Lake) -> None:
        await rebuild(lake, names_scope(namespace))

    async def listed(app: App, _lake: Lake) -> None:
        answer = await send(app, "GET", f"/v1/main/namespaces/{'%1F'.join(namespace.levels)}/tables")
        if answer.status not in _OK:
            raise SystemExit(f"bench: the list was answered with {answer.status}")

    found: list[Held] = []
    steps = (("rebuild without an index", rebuilt), ("rebuild of an index", rebuilt), ("list, whole namespace", listed))
    for name, step in steps:
        app, catalog = build(settings, store=store)
        await catalog.start()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # What was freed before would be used again, and not counted.
        forget_largest(os.getpid())
        before_mib, stored_mib = largest_mib(os.getpid()), store.mib
        await step(app, catalog.lakes.lake("default", "default"))
        mib = largest_mib(os.getpid()) - before_mib - (store.mib - stored_mib)
        found.append(Held(name, count, mib))
        await catalog.close()
    return found


if __name__ == "__main__":
    main()
