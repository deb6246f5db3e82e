"""The last steps of the demo: run the pipeline, query its system tables, and turn small files into one."""

import datetime as dt
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog

from demo.output import print_output, say, show_rows, show_statement, step
from sandur.clock import SystemClock

SECONDS_MAX: Final = 900
COMMITS: Final = """SELECT committed_at, namespace, name, operation, snapshot_id, source, client
           FROM sandur.system.commits ORDER BY committed_at DESC LIMIT 8"""
TIMELINE: Final = """SELECT version, is_current, operation, client, committed_at
           FROM sandur.system.timeline WHERE name = 'orders' ORDER BY version DESC LIMIT 5"""
MAINTENANCE: Final = """SELECT name, operation, state, files_before, files_after, rows_before, rows_after, why
           FROM sandur.system.maintenance WHERE name = 'clicks' ORDER BY number"""
SMALL_FILES: Final = 200


def run_pipeline(number: int, store: Path, duck: duckdb.DuckDBPyConnection, url: str, catalog: Catalog) -> None:
    """Run all jobs on the folder while the server runs, then query the published tables through the server.

    Before that, the server gets the OpenLineage event of the table that Spark made from another one.
    """
    with step(number, "The pipeline: Spark reads the folder and publishes its history.", waiting="starting Spark …"):
        if shutil.which("java") is None:
            say("[yellow]skipped: Java is not installed[/]")
            return
        _send_lineage(url, catalog)
        _scatter(catalog, store)
        for report in _run_all(store):
            counts = ", ".join(f"{times} {name.replace('_', ' ')}" for name, times in report["counts"].items() if times)
            say(f"[bold]{report['job']}[/]{' (dry run)' if report['dry_run'] else ''}: {counts or 'nothing to do'}")
        for query in (COMMITS, TIMELINE):
            show_statement("duckdb", query)
            show_rows("", duck.execute(query).to_arrow_table(), keep_order=True)
        _show_lineage(store)
    with step(number + 1, f"Maintenance: a policy let that run turn {SMALL_FILES} small files into one."):
        show_statement("duckdb", MAINTENANCE)
        show_rows("", duck.execute(MAINTENANCE).to_arrow_table(), keep_order=True)
        files = len(list(catalog.load_table("sales.clicks").scan().plan_files()))
        say(f"a scan of sales.clicks opens {files} file{'' if files == 1 else 's'}")
        if files != 1:
            raise SystemExit("demo: the small files are still there")


def _scatter(catalog: Catalog, store: Path) -> None:
    """Make a table of many small files, as a stream leaves it, and let maintenance change it."""
    rows = pa.table({"id": [1], "page": ["/"]})
    table = catalog.create_table("sales.clicks", rows.schema)
    folder = Path(urlsplit(table.location()).path) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:03d}.parquet" for number in range(SMALL_FILES)]
    for file in files:
        pq.write_table(rows, file)
    table.add_files([f"file://{file}" for file in files])
    policy = ["policy", "set", "main.sales.clicks", "mode=run", "quiet=PT0S", "--store", str(store)]
    show_statement("shell", f"sandur {' '.join(policy)}")
    command = [str(Path(sys.executable).with_name("sandur")), *policy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    print_output(done.stdout or done.stderr)


def _send_lineage(url: str, catalog: Catalog) -> None:
    """Send what Spark's agent of OpenLineage sends at the end of CREATE TABLE AS; the demo does not download it."""
    made, clock = catalog.load_table("sales.by_country").current_snapshot(), SystemClock()
    event = {
        "eventTime": dt.datetime.fromtimestamp(clock.now_ms() / 1_000, dt.UTC).isoformat(),
        "eventType": "COMPLETE",
        "producer": "https://example.org/demo",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": clock.new_uuid()},
        "job": {"namespace": "demo", "name": "create_by_country"},
        "inputs": [{"namespace": "sandur", "name": "main.sales.orders"}],
        "outputs": [
            {
                "namespace": "sandur",
                "name": "main.sales.by_country",
                "facets": {"version": {"datasetVersion": str(made.snapshot_id if made else "")}},
            }
        ],
    }
    show_statement("http", f"POST {url}/api/v1/lineage")
    httpx.post(f"{url}/api/v1/lineage", json=event, timeout=60).raise_for_status()


def _show_lineage(store: Path) -> None:
    """The graph of a table of the demo, and of one that the pipeline made."""
    for name in ("main.sales.by_country", "main.system.timeline"):
        command = [str(Path(sys.executable).with_name("sandur")), "lineage", name, "--store", str(store)]
        show_statement("shell", f"sandur {' '.join(command[1:])}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        print_output(done.stdout or done.stderr)


def _run_all(store: Path) -> list[dict[str, Any]]:
    command = [
        Path(sys.executable).with_name("sandur"),
        "run",
        "all",
        "--store",
        store,
        "--master",
        "local[2]",
        "--json",
    ]
    show_statement("shell", f"sandur {' '.join(str(part) for part in command[1:])}")
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    if done.returncode:
        print_output(done.stderr[-3_000:])
        raise SystemExit("demo: the pipeline failed")
    return [json.loads(line) for line in done.stdout.splitlines()]
