"""`python -m bench [NAME …] [OPTION …]`: run all benchmarks, or the named ones. Options go to each of them."""

import importlib
import itertools
import sys
from typing import Final

BENCHMARKS: Final = (
    "storage",
    "iceberg_commit",
    "server",
    "calls",
    "latency",
    "cold",
    "buckets",
    "batching",
    "grpc",
    "security",
    "audit",
    "traces",
    "events",
    "signing",
    "credentials",
    "planning",
    "unity",
    "delta",
    "pipeline",
    "lineage",
    "maintenance",
    "ui",
    "health",
    "scale",
)


def main() -> int:
    named = list(itertools.takewhile(lambda argument: not argument.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(named) :]
    if not named and {"-h", "--help"} & set(options):
        print(
            f"{__doc__}\nBenchmarks: {', '.join(BENCHMARKS)}. `python -m bench NAME --help` lists the options of one."
        )
        return 0
    unknown = [name for name in named if name not in BENCHMARKS]
    if unknown:
        print(f"bench: unknown: {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)}")
        return 2
    sys.argv = [sys.argv[0], *options]
    for name in named or BENCHMARKS:
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
