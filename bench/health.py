"""The health of many tables: the job `health`, after `project` on which it works, by the number of tables.

Sizes can be measured one by one: results of other sizes with the same settings stay.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from bench.generated import Made
from bench.measurement import save, show
from bench.pipeline import OPTIONS, numbers, run_job, taken
from bench.provenance import RESULTS
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.runs import create_session

TABLES: Final = (10_000, 100_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench health", description=__doc__)
    parser.add_argument("--tables", type=numbers, default=TABLES)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/health.json")
    options, _ = parser.parse_known_args()
    spark = create_session(options.master, name="bench", options=OPTIONS)
    settings = {"master": options.master, "store": "folder, fsync never"}
    found = _earlier(options.json or RESULTS / "health.json", settings, options.tables)
    for count in options.tables:
        found = sorted([*found, _measured(spark, count)], key=lambda one: one["tables"])
        save("health", {"settings": settings, "sizes": found}, file=options.json)
    spark.stop()
    _show(found)


def _earlier(file: Path, settings: Mapping[str, str], counts: Sequence[int]) -> list[dict[str, Any]]:
    """The results of the sizes that are not measured now, if they were measured with the same settings."""
    document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    sizes = document.get("sizes", []) if document.get("settings") == settings else []
    return [one for one in sizes if one["tables"] not in counts]


def _measured(spark: SparkSession, count: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="sandur-bench-"))
    store = folder / "store"
    try:
        Made(store).tables(count)
        run_job(spark, PROJECT, store)
        health = taken(partial(run_job, spark, HEALTH, store))
    finally:
        shutil.rmtree(folder)
    return {
        "tables": count,
        "health_seconds": health.seconds,
        "health_cpu_seconds": health.cpu_seconds,
        "load": round(os.getloadavg()[1], 1),
    }


def _show(found: Sequence[dict[str, Any]]) -> None:
    rows = [
        (
            f"{one['tables']:,}",
            f"{one['health_seconds']:.1f} s",
            f"{one['health_cpu_seconds']:.1f} s",
            f"{one['tables'] / one['health_seconds']:,.0f}/s",
        )
        for one in found
    ]
    show("health of tables", ("tables", "health", "CPU", "rate"), rows)
