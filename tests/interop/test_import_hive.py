"""The script of docs/migration.md moves the Iceberg tables of a Hive Metastore here."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import load_catalog

from tests.interop.engines.environments import NotInstalled, python_environment
from tests.server.process import server_process
from tests.servers.hive_metastore import hive_metastore

pytestmark = pytest.mark.interop

PAGE: Final = Path(__file__).parents[2] / "docs" / "migration.md"
FILL: Final = """
import sys
import pyarrow as pa
from pyiceberg.catalog import load_catalog

hive = load_catalog("hive", type="hive", uri=sys.argv[1], warehouse=sys.argv[2])
rows = pa.table({"id": [1, 2, 3]})
for namespace in ("sales", "stock"):
    hive.create_namespace(namespace)
    hive.create_table(f"{namespace}.orders", rows.schema).append(rows)
hive.load_table("sales.orders").append(rows)
"""


def script(uri: str) -> str:
    """The example of the page, with the address of a server."""
    (code,) = re.findall(r"(?ms)^## Hive Metastore$.*?^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    assert "thrift://metastore.example.org:9083" in code
    return str(code).replace("thrift://metastore.example.org:9083", uri)


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "metastore").mkdir()
    try:
        with hive_metastore(tmp_path / "metastore") as uri:
            yield uri
    except NotInstalled as error:
        pytest.skip(str(error))


def test_the_iceberg_tables_of_a_hive_metastore_move_here(metastore: str, tmp_path: Path) -> None:
    interpreter = python_environment("hive")
    warehouse = tmp_path / "metastore" / "warehouse"
    (tmp_path / "server").mkdir()

    def run(code: str, *arguments: str, **environment: str) -> None:
        subprocess.run(
            [interpreter, "-c", code, *arguments], check=True, timeout=300, env={**os.environ, **environment}
        )

    run(FILL, metastore, warehouse.as_uri())
    with server_process(tmp_path / "server", "--allow-location", str(warehouse), fsync="never") as server:
        commands = Path(sys.executable).parent
        run(script(metastore), PATH=f"{commands}:{os.environ['PATH']}", SANDUR_SERVER=server.url)
        moved = load_catalog("c", type="rest", uri=server.url, warehouse="prod")

        found = {name: len(moved.load_table(f"{name}.orders").scan().to_arrow()) for name in ("sales", "stock")}
        moved.load_table("sales.orders").append(moved.load_table("stock.orders").scan().to_arrow())

    assert found == {"sales": 6, "stock": 3}
