"""DuckDB sessions on a Sandur server, with extensions from packages instead of downloads."""

import importlib.util
from pathlib import Path
from typing import Final

import duckdb

# Iceberg's manifests are Avro, and the server speaks HTTP.
EXTENSIONS: Final = ("avro", "httpfs", "iceberg")
UNITY_EXTENSIONS: Final = ("httpfs", "delta", "unity_catalog")


def extension_file(name: str) -> Path:
    """The file of an extension in its package `duckdb-extension-…`."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError(f"duckdb-extension-{name} is not installed; `make setup` installs it")
    folder = Path(package.submodule_search_locations[0])
    return folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"


def session(url: str, token: str = "") -> duckdb.DuckDBPyConnection:
    """A session with the server's default catalog as `sandur`; without a token, the server needs none."""
    opened = duckdb.connect()
    for name in EXTENSIONS:
        opened.load_extension(str(extension_file(name)))
    access = f"TOKEN '{token}'" if token else "AUTHORIZATION_TYPE 'none'"
    opened.execute(f"ATTACH 'main' AS sandur (TYPE iceberg, ENDPOINT '{url}', {access})")
    return opened


def unity_session(url: str, schema: str) -> duckdb.DuckDBPyConnection:
    """A session with the server's default catalog as `uc`, through the Unity Catalog API."""
    opened = duckdb.connect()
    for name in UNITY_EXTENSIONS:
        opened.load_extension(str(extension_file(name)))
    opened.execute(f"CREATE SECRET (TYPE unity_catalog, TOKEN 'any', ENDPOINT '{url}', AWS_REGION 'none')")
    opened.execute(f"ATTACH 'main' AS uc (TYPE unity_catalog, DEFAULT_SCHEMA '{schema}')")
    return opened
