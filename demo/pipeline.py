"""The last step of the demo: run the pipeline, then query its system tables."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import duckdb

from demo.output import print_output, say, show_rows, show_statement, step

SECONDS_MAX: Final = 900
COMMITS: Final = """SELECT committed_at, namespace, name, operation, snapshot_id, source, client
           FROM sandur.system.commits ORDER BY committed_at DESC LIMIT 8"""
TIMELINE: Final = """SELECT version, is_current, operation, client, committed_at
           FROM sandur.system.timeline WHERE name = 'orders' ORDER BY version DESC LIMIT 5"""


def run_pipeline(number: int, store: Path, duck: duckdb.DuckDBPyConnection) -> None:
    """Run all jobs on the folder while the server runs, then query the published tables through the server."""
    with step(number, "The pipeline: Spark reads the folder and publishes its history.", waiting="starting Spark …"):
        if shutil.which("java") is None:
            say("[yellow]skipped: Java is not installed[/]")
            return
        for report in _run_all(store):
            counts = ", ".join(f"{times} {name.replace('_', ' ')}" for name, times in report["counts"].items() if times)
            say(f"[bold]{report['job']}[/]{' (dry run)' if report['dry_run'] else ''}: {counts or 'nothing to do'}")
        for query in (COMMITS, TIMELINE):
            show_statement("duckdb", query)
            show_rows("", duck.execute(query).to_arrow_table(), keep_order=True)


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
