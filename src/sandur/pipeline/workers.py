"""The process from which Spark forks its Python workers, with all that they need in it before the first fork.

Otherwise every worker imports it by itself, which takes seconds, and goes through it again after each task in search of
garbage, which takes a tenth of one. And before each task it would read anew what is in the archives that Spark comes
in, in case that they changed, which takes a fifth.
"""

import gc
from zipimport import zipimporter

import pyarrow as pa
from pyspark.daemon import manager

import sandur.pipeline.jobs  # noqa: F401 - what tasks are made of


def _as_before(archive: zipimporter) -> None:
    """Archives of a process that runs do not change."""


def main() -> None:
    zipimporter.invalidate_caches = _as_before  # type: ignore[method-assign,assignment]  # There is no other way.
    pa.array([0])  # pyarrow looks for pandas when the first array is made, and imports it.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
