"""`python -m bench [NAME …]`: run the benchmarks, all of them or those named."""

import importlib
import sys
from typing import Final

BENCHMARKS: Final = ("storage", "iceberg_commit")


def main() -> int:
    chosen = sys.argv[1:] or BENCHMARKS
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        print(f"bench: no {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    sys.argv = sys.argv[:1]
    for name in chosen:
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
