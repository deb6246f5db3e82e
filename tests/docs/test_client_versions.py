"""The pages about Unity Catalog and Delta name the versions of the clients that the tests use."""

import re
from importlib.metadata import version
from typing import Final

import pytest

from sandur.spark.sessions import DELTA_PACKAGE
from tests.docs.pages import ROOT
from tests.interop.engines.environments import PINS
from tests.interop.test_printed_pages import CONNECTOR

_ROW: Final = re.compile(r"^\| (?P<client>[^|]+) \| (?P<tested>[^|]+) \|", re.MULTILINE)


def _tested(page: str, client: str) -> str:
    """The cell that says which versions of a client are tested."""
    rows = _ROW.finditer((ROOT / "docs" / page).read_text(encoding="utf-8"))
    cells = [row["tested"] for row in rows if row["client"].replace("`", "").startswith(client)]
    assert cells, f"{page} has no row about {client}"
    return " ".join(cells)


def _pinned(name: str, package: str) -> list[str]:
    lines = (PINS / name).read_text(encoding="utf-8").splitlines()
    return [line.split()[0].partition("==")[2] for line in lines if line.startswith(f"{package}==")]


@pytest.mark.parametrize(
    ("page", "client", "versions"),
    [
        ("delta.md", "DuckDB", [version("duckdb")]),
        ("delta.md", "Spark", [version("pyspark"), CONNECTOR, DELTA_PACKAGE]),
        ("delta.md", "Delta Kernel", [DELTA_PACKAGE.rpartition(":")[2]]),
        ("delta.md", "deltalake", [version("deltalake"), version("polars")]),
        ("delta.md", "chDB", _pinned("chdb.txt", "chdb")),
        ("delta.md", "unitycatalog-client", [version("unitycatalog-client")]),
        ("unity.md", "DuckDB, extension", [version("duckdb")]),
        ("unity.md", "Polars, pl.Catalog", [version("polars")]),
        ("unity.md", "Spark, connector", [CONNECTOR.rpartition(":")[2]]),
        (
            "unity.md",
            "unitycatalog-client (pip",
            [_pinned("unitycatalog-client.txt", "unitycatalog-client")[0], version("unitycatalog-client")],
        ),
    ],
)
def test_a_page_names_the_tested_versions_of_a_client(page: str, client: str, versions: list[str]) -> None:
    tested = _tested(page, client)

    assert versions
    assert [one for one in versions if one not in tested] == [], tested
