"""The Spark session that jobs run in: on this machine, or on a cluster."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

_OPTIONS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": "sandur.pipeline.workers",
}


def pipeline_session(
    master: str = "local[*]", *, name: str = "sandur", options: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for jobs, or the running one; no packages are needed, as objects are read through Sandur's own stores.

    Executors run the Python that runs this, unless the environment says otherwise.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**_OPTIONS, **(options or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
