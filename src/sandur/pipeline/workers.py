"""The daemon that forks Spark's Python workers; it imports everything that tasks need before the first fork.

Otherwise each worker imports these modules itself, which takes seconds, and garbage-collects them after each task,
which takes 0.1 s. Spark would also reread its zip archives before each task, which takes 0.2 s.
"""

import gc
from zipimport import zipimporter

import pyarrow as pa
from pyspark.daemon import manager

import sandur.pipeline.jobs  # noqa: F401 - tasks need it


def _keep_cache(archive: zipimporter) -> None:
    """Do nothing: the archives of a running process do not change."""


def main() -> None:
    zipimporter.invalidate_caches = _keep_cache  # type: ignore[method-assign,assignment]  # Spark has no option for it.
    pa.array([0])  # The first array makes pyarrow import pandas.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
