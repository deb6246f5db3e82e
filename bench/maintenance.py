"""Compaction of many tables with small files: one maintenance run beside a loop of procedures in one Spark session.

Both work in the same session, on equal tables of two namespaces. The run also plans, records, compares rows and
publishes; the loop calls Iceberg's procedure for one table after the other, and checks nothing. Then one table of many
small files is queried before and after. CPU time is that of the driver: Python, the JVM, and the catalog server.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

from bench.measurement import save, show
from bench.processes import family_cpu_seconds
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

_SCHEMA: Final = pa.schema({"id": pa.int64(), "text": pa.string()})
_ROWS_PER_FILE: Final = 100
_POLICY: Final = {"mode": "run", "quiet": "PT0S", "orphans": {"enabled": False}}
_QUERY: Final = "SELECT count(*), sum(id) FROM {}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench maintenance", description=__doc__)
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--files", type=int, default=50, help="small files of each table")
    parser.add_argument("--large", type=int, default=10_000, help="small files of the table that is queried")
    parser.add_argument("--quick", action="store_true", help="12 tables, and 400 files in the large one")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/maintenance.json")
    options = parser.parse_args()
    if options.quick:
        options.tables, options.large = 12, 400
    sizes = {"tables": options.tables, "files": options.files, "large": options.large}
    result: dict[str, float] = {}

    def keep(found: Mapping[str, float]) -> None:
        result.update({name: round(value, 3) for name, value in found.items()})
        save("maintenance", {"settings": sizes, **result}, file=options.json)
        print(", ".join(f"{name} {result[name]:,}" for name in found), flush=True)

    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        _measure(Settings(store=f"{folder}/store", fsync="never"), options, keep)
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in result.items()]
    show("maintenance", ("what", "found"), rows)


def _measure(settings: Settings, options: argparse.Namespace, keep: Keep) -> None:
    packages = session_options(settings, with_delta=False)
    with open_catalog(settings) as connection, open_session("local[2]", packages) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        uri, token = connection.uri, connection.token
        catalog = load_catalog("bench", type="rest", uri=uri, token=token, warehouse="main")
        for namespace in ("looped", "planned", "large"):
            catalog.create_namespace(namespace)
        began = time.perf_counter()
        for number in range(options.tables):
            _make(catalog, f"looped.t{number}", options.files)
            _make(catalog, f"planned.t{number}", options.files)
        _make(catalog, "large.t", options.large)
        keep({"made_s": time.perf_counter() - began})
        session = _with_catalog(spark, connection)
        keep({f"large_{name}_before": value for name, value in _query(session, catalog).items()})
        _call(session, "looped.t0")  # Both sides start with a warm JVM.
        with _cost("loop", keep):
            for number in range(1, options.tables):
                _call(session, f"looped.t{number}")
        _maintain(spark, settings, "planned", "run", tables=options.tables, keep=keep)
        _maintain(spark, settings, "large", "large", tables=1, keep=keep)
        keep({f"large_{name}_after": value for name, value in _query(session, catalog).items()})


def _make(catalog: Catalog, name: str, files: int) -> None:
    """A table whose files are added by one commit."""
    table = catalog.create_table(name, _SCHEMA)
    folder = Path(table.location().removeprefix("file:")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        ids = range(number * _ROWS_PER_FILE, (number + 1) * _ROWS_PER_FILE)
        path = folder / f"{number:06d}.parquet"
        pq.write_table(pa.table({"id": list(ids), "text": [f"row {one}" for one in ids]}, schema=_SCHEMA), path)
        paths.append(f"file://{path}")
    table.add_files(paths)


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
