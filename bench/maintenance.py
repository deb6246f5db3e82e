"""Compaction of many tables with small files: one maintenance run beside a loop of procedures in one Spark session.

Both work on equal tables of two namespaces. The run also plans, records, compares rows and publishes; the loop calls
Iceberg's procedure for one table after the other, and checks nothing. Then one table of many small files is queried
before and after. CPU time is that of the driver: Python, the JVM, and the catalog server.

The parts `loop`, `run` and `large` can be measured one by one: results of other parts with the same sizes stay.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyspark.sql import SparkSession

from bench.measurement import save, show
from bench.processes import family_cpu_seconds
from bench.provenance import RESULTS
from sandur.catalog.maintenance.policies import PolicyEdit
from sandur.cli.catalog_server import open_catalog
from sandur.operations.policies import change_policy
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.maintenance.engine import session_options
from sandur.pipeline.runs import Runs, open_session
from sandur.settings import Settings
from sandur.spark.sessions import Connection
from tests.operations.requests import request

Keep = Callable[[Mapping[str, float]], None]
"""Receives the figures of a step."""

_FIELD_ID: Final = "PARQUET:field_id"
_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={_FIELD_ID: "1"}),
        pa.field("text", pa.string(), metadata={_FIELD_ID: "2"}),
    ]
)
_ROWS_PER_FILE: Final = 100
_KINDS_OF_FILES: Final = 50
_POLICY: Final = {"mode": "run", "quiet": "PT0S", "orphans": {"enabled": False}}
_QUERY: Final = "SELECT count(*), sum(id) FROM {}"
_PARTS: Final = ("loop", "run", "large")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench maintenance", description=__doc__)
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--files", type=int, default=50, help="small files of each table")
    parser.add_argument("--large", type=int, default=10_000, help="small files of the table that is queried")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--quick", action="store_true", help="12 tables, and 400 files in the large one")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/maintenance.json")
    options = parser.parse_args()
    if options.quick:
        options.tables, options.large = 12, 400
    sizes = {"tables": options.tables, "files": options.files, "large": options.large}
    result = _earlier(options.json or RESULTS / "maintenance.json", sizes, options.parts)

    def keep(found: Mapping[str, float]) -> None:
        result.update({name: round(value, 3) for name, value in found.items()})
        save("maintenance", {"settings": sizes, **result}, file=options.json)
        print(", ".join(f"{name} {result[name]:,}" for name in found), flush=True)

    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        _measure(Settings(store=f"{folder}/store", fsync="never"), options, keep)
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in result.items()]
    show("maintenance", ("what", "found"), rows)


def _earlier(file: Path, sizes: Mapping[str, int], parts: Sequence[str]) -> dict[str, float]:
    """The results of the parts that are not measured now, if they were measured with the same sizes."""
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if found.get("settings") != sizes:
        return {}
    kept = tuple(f"{part}_" for part in _PARTS if part not in parts)
    return {name: value for name, value in found.items() if name.startswith(kept)}


def _measure(settings: Settings, options: argparse.Namespace, keep: Keep) -> None:
    packages = session_options(settings, with_delta=False)
    with open_catalog(settings) as connection, open_session("local[2]", packages) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        catalog = load_catalog("bench", type="rest", uri=connection.uri, token=connection.token, warehouse="main")
        small = _SmallFiles(catalog)
        session = _with_catalog(spark, connection)
        small.add_to("warm.t", options.files)
        _call(session, "warm.t")  # All parts start with a warm JVM.
        if "loop" in options.parts:
            _loop(session, small, options, keep)
        if "run" in options.parts:
            _make(small, "planned", options, "run", keep)
            _maintain(spark, settings, "planned", "run", tables=options.tables, keep=keep)
        if "large" in options.parts:
            small.add_to("large.t", options.large)
            keep({f"large_{name}_before": value for name, value in _query(session, catalog).items()})
            _maintain(spark, settings, "large", "large", tables=1, keep=keep)
            keep({f"large_{name}_after": value for name, value in _query(session, catalog).items()})


class _SmallFiles:
    """Makes tables whose files are added by one commit. Their content repeats, so that each is only written once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        for namespace in ("warm", "looped", "planned", "large"):
            catalog.create_namespace(namespace)
        table = catalog.create_table("warm.content", _SCHEMA)
        folder = Path(table.location().removeprefix("file:"))
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{number}.parquet" for number in range(_KINDS_OF_FILES)]
        for number, path in enumerate(paths):
            ids = range(number * _ROWS_PER_FILE, (number + 1) * _ROWS_PER_FILE)
            pq.write_table(pa.table({"id": list(ids), "text": [f"row {one}" for one in ids]}, schema=_SCHEMA), path)
        self._content = [path.read_bytes() for path in paths]
        self._spec_id = table.spec().spec_id
        self._files = list(parquet_files_to_data_files(table.io, table.metadata, iter(map(str, paths))))

    def add_to(self, name: str, files: int) -> None:
        """Make a table with that number of files."""
        table = self._catalog.create_table(name, _SCHEMA)
        folder = Path(table.location().removeprefix("file:")) / "data"
        folder.mkdir(parents=True, exist_ok=True)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for number in range(files):
                path = folder / f"{number:06d}.parquet"
                path.write_bytes(self._content[number % _KINDS_OF_FILES])
                append.append_data_file(self._file_at(number % _KINDS_OF_FILES, path))

    def _file_at(self, number: int, path: Path) -> DataFile:
        known = self._files[number]
        found = DataFile(*(known[position] for position in range(len(known))))
        found[1] = f"file://{path}"  # The path is the second field of the specification.
        found.spec_id = self._spec_id
        return found


def _make(small: _SmallFiles, namespace: str, options: argparse.Namespace, part: str, keep: Keep) -> None:
    began = time.perf_counter()
    for number in range(options.tables):
        small.add_to(f"{namespace}.t{number}", options.files)
    keep({f"{part}_made_s": time.perf_counter() - began, f"{part}_load": os.getloadavg()[0]})


def _loop(session: SparkSession, small: _SmallFiles, options: argparse.Namespace, keep: Keep) -> None:
    _make(small, "looped", options, "loop", keep)
    with _cost("loop", keep):
        for number in range(options.tables):
            _call(session, f"looped.t{number}")


def _with_catalog(spark: SparkSession, connection: Connection) -> SparkSession:
    session = spark.newSession()
    for option, value in connection.options().items():
        session.conf.set(option, value)
    return session


def _call(session: SparkSession, name: str) -> None:
    session.sql(f"CALL sandur.system.rewrite_data_files(table => '{name}')").collect()


def _query(session: SparkSession, catalog: Catalog) -> dict[str, float]:
    session.sql(_QUERY.format("sandur.large.t")).collect()
    began = time.perf_counter()
    session.sql(_QUERY.format("sandur.large.t")).collect()
    seconds = time.perf_counter() - began
    return {"query_s": seconds, "planned_files": len(list(catalog.load_table("large.t").scan().plan_files()))}


def _maintain(spark: SparkSession, settings: Settings, namespace: str, name: str, *, tables: int, keep: Keep) -> None:
    """Measure all tables, then maintain those of a namespace."""
    with BlockingLake(settings) as blocking:
        edit = PolicyEdit(set=_POLICY)
        label = request(f"policy {namespace}")
        blocking.wait(change_policy(blocking.lake, "schema", f"main.{namespace}", edit, label))
    reports: list[Any] = []
    runs = Runs(spark, settings, open_catalog=partial(open_catalog, settings), arguments={"name": f"main.{namespace}"})
    for job in ("project", "health"):
        runs.run(job, on_report=reports.append)
        keep({f"{name}_{job}_s": reports[-1].took_ms / 1_000})
    with _cost(name, keep):
        runs.run("maintain", on_report=reports.append)
    done = reports[-1].counts.get("operations_done", 0)
    if done < tables:
        raise SystemExit(f"bench: {done} of {tables} operations are done: {reports[-1].warnings}")


@contextmanager
def _cost(name: str, keep: Keep) -> Iterator[None]:
    """Keep the wall and CPU time of the block."""
    cpu, began = family_cpu_seconds(os.getpid()), time.perf_counter()
    yield
    wall = time.perf_counter() - began
    keep({f"{name}_wall_s": wall, f"{name}_cpu_s": family_cpu_seconds(os.getpid()) - cpu})


if __name__ == "__main__":
    main()
