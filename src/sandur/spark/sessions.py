"""PySpark sessions over Sandur's catalogs."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandur.errors import Invalid, Unfit
from sandur.spark.connection import Connection
from sandur.spark.options import EXTENSIONS, ICEBERG_EXTENSIONS, session_options
from sandur.spark.versions import Versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = {"spark.ui.showConsoleProgress": "false"}


def session(
    *catalogs: Connection | str,
    versions: Versions | None = None,
    packages: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session that knows these catalogs (see `session_options`), or the running one with these catalogs added.

    Spark fetches the packages once and keeps them in its Ivy cache; later sessions take them from there. Unfit without
    PySpark or Java; Invalid when a session runs already that does not know Iceberg, as that cannot be added.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra that may be missing
    except ImportError as error:
        raise Unfit("Spark sessions need PySpark: pip install 'sandur[spark]'") from error
    _check_java()
    told = session_options(*catalogs, versions=versions, packages=packages, options=options)
    running = SparkSession.getActiveSession()
    if running is not None and ICEBERG_EXTENSIONS not in (running.conf.get(EXTENSIONS, "") or ""):
        raise Invalid(
            "a Spark session runs already, without Iceberg, which Spark takes up only as it starts: begin with this "
            "one, in a fresh process, or give the first session what sandur.spark.session_options() tells"
        )
    builder = SparkSession.builder
    for name, value in (_QUIET | told).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return
    if shutil.which("java") is None:
        raise Unfit("Spark sessions need Java 17 or newer: none is on the PATH, and JAVA_HOME names none")
