"""Installs DuckDB's extensions below HOME from packages, as `INSTALL` would from DuckDB's repository."""

import importlib.util
from pathlib import Path

import duckdb

EXTENSIONS = ("avro", "httpfs", "iceberg")


def main() -> None:
    with duckdb.connect() as opened:
        for name in EXTENSIONS:
            package = importlib.util.find_spec(f"duckdb_extension_{name}")
            if package is None or not package.submodule_search_locations:
                raise RuntimeError(f"duckdb-extension-{name} is not installed")
            folder = Path(package.submodule_search_locations[0], "extensions", f"v{duckdb.__version__}")
            opened.execute(f"INSTALL '{folder / name}.duckdb_extension'")


if __name__ == "__main__":
    main()
