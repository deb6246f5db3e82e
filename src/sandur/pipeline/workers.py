"""The process from which Spark forks its Python workers, with all that they need in it before the first fork.

Otherwise every worker imports it by itself, which takes seconds, and goes through it again after each task in search of
garbage, which takes a tenth of one.
"""

import gc

import pyarrow as pa
from pyspark.daemon import manager

import sandur.pipeline.jobs  # noqa: F401 - what tasks are made of


def main() -> None:
    pa.array([0])  # pyarrow looks for pandas when the first array is made, and imports it.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
