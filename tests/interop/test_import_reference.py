"""`sandur import` from the reference server of Iceberg: its tables are read here, and follow it until the switch."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.cli.commands import User
from tests.cli.test_imports import rows_of
from tests.interop.engines.environments import NotInstalled
from tests.server.process import server_process
from tests.servers.iceberg_reference import iceberg_reference

pytestmark = pytest.mark.interop

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "reference").mkdir()
    try:
        with iceberg_reference(tmp_path / "reference") as url:
            yield url
    except NotInstalled as error:
        pytest.skip(str(error))


def _catalog(url: str, warehouse: str | None = None) -> Catalog:
    return load_catalog("c", type="rest", uri=url, **({"warehouse": warehouse} if warehouse else {}))


def test_a_catalog_of_the_reference_server_moves_here(reference: str, tmp_path: Path) -> None:
    source = _catalog(reference)
    source.create_namespace("sales", {"team": "one"})
    source.create_namespace(("sales", "europe"))
    for name in ("sales.orders", "sales.europe.orders"):
        source.create_table(name, ROWS.schema).append(ROWS)
    (tmp_path / "server").mkdir()
    user = User(tmp_path / "user")
    allow = ("--allow-location", str(tmp_path / "reference" / "warehouse"))
    with server_process(tmp_path / "server", *allow, fsync="never") as server:
        command = ("import", "rest", reference, "--into", "moved", "--server", server.url, "--yes", "--json")

        imported = user.run(*command)
        again = user.run(*command)
        source.load_table("sales.orders").append(ROWS)
        behind = user.run(*command)
        updated = user.run(*command, "--update")
        moved = _catalog(server.url, "moved")
        found = {
            name: len(moved.load_table(name).scan().to_arrow()) for name in ("sales.orders", "sales.europe.orders")
        }
        moved.load_table("sales.orders").append(ROWS)

        assert imported.code == 0, imported.err
        assert {action for action, _ in rows_of(again)} == {"same"}, again.out
        assert ("behind", "moved.sales.orders") in rows_of(behind)
        assert ("update", "moved.sales.orders") in rows_of(updated), updated.err
        assert found == {"sales.orders": 6, "sales.europe.orders": 3}
        assert moved.load_namespace_properties("sales")["team"] == "one"
        assert len(moved.load_table("sales.orders").scan().to_arrow()) == 9
        assert ("ahead", "moved.sales.orders") in rows_of(user.run(*command, "--update"))
