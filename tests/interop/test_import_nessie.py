"""`sandur import` from Nessie: the tables of one branch are read here, and follow it until the switch."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from sandur.settings import Settings
from tests.cli.commands import User
from tests.cli.test_imports import rows_of
from tests.interop.engines.environments import NotInstalled
from tests.interop.server_address import Served, server_settings
from tests.server.process import server_process
from tests.servers.nessie import nessie
from tests.servers.seaweedfs import BUCKET

pytestmark = pytest.mark.interop

ROWS = pa.table({"id": [1, 2, 3]})
WAREHOUSE = f"s3://{BUCKET}/nessie"


def rows_in(catalog: Catalog, name: str) -> int:
    return len(catalog.load_table(name).scan().to_arrow())


def test_a_branch_of_nessie_moves_here(seaweedfs_settings: Settings, tmp_path: Path) -> None:
    s3 = seaweedfs_settings.s3
    (tmp_path / "nessie").mkdir()
    (tmp_path / "server").mkdir()
    user = User(tmp_path / "user")
    allow = ("--allow-location", WAREHOUSE)
    try:
        with (
            nessie(tmp_path / "nessie", s3, WAREHOUSE) as url,
            server_process(tmp_path / "server", *allow, fsync="never", **server_settings(s3)) as server,
        ):
            keys = Served("S3", server, s3).pyiceberg_properties
            source = load_catalog("source", type="rest", uri=f"{url}/main", **keys)
            source.create_namespace("sales", {"team": "one"})
            source.create_namespace(("sales", "europe"))
            for name in ("sales.orders", "sales.europe.orders"):
                source.create_table(name, ROWS.schema).append(ROWS)
            command = ("import", "rest", f"{url}/main", "--into", "moved", "--server", server.url, "--yes", "--json")

            imported = user.run(*command)
            again = user.run(*command)
            source.load_table("sales.orders").append(ROWS)
            behind = user.run(*command)
            updated = user.run(*command, "--update")
            moved = load_catalog("moved", type="rest", uri=server.url, warehouse="moved", **keys)
            found = {name: rows_in(moved, name) for name in ("sales.orders", "sales.europe.orders")}
            moved.load_table("sales.orders").append(ROWS)

            assert imported.code == 0, imported.err
            assert {action for action, _ in rows_of(again)} == {"same"}, again.out
            assert ("behind", "moved.sales.orders") in rows_of(behind)
            assert ("update", "moved.sales.orders") in rows_of(updated), updated.err
            assert found == {"sales.orders": 6, "sales.europe.orders": 3}
            assert moved.load_namespace_properties("sales")["team"] == "one"
            assert rows_in(moved, "sales.orders") == 9
            assert rows_in(source, "sales.orders") == 6
    except NotInstalled as error:
        pytest.skip(str(error))
