"""Tables move to a server on a store elsewhere, by the steps of docs/backup.md; then the old files are deleted."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import deltalake
import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from demo.duckdb_sessions import unity_session
from tests.cli.commands import User
from tests.interop.engines.environments import NotInstalled
from tests.interop.matrix import FOLDER
from tests.interop.server_address import Served
from tests.interop.spark.flavours import LATEST
from tests.interop.spark.spark_processes import catalog_of, running_spark
from tests.server.process import ServerProcess, server_process

ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["one", "two", "three"]})


class Place(NamedTuple):
    """A cloud: a server on a store of its own, and a place for tables beside the store."""

    server: ServerProcess
    tables: Path
    user: User

    def run(self, *command: str) -> str:
        done = self.user.run(*command, "--server", self.server.url)
        assert done.code == 0, f"{command}: {done.err}"
        return done.out

    def shown(self, name: str) -> str:
        """The location of a table."""
        location: str = self.user.run("show", name, "-o", "json", "--server", self.server.url).json["location"]
        return location

    def iceberg(self) -> RestCatalog:
        return RestCatalog("moved", uri=self.server.url)


class Clouds(NamedTuple):
    old: Place
    new: Place

    def copy_definitions(self, file: Path, *kinds: str) -> None:
        self.old.run("export", "--file", str(file), *(part for kind in kinds for part in ("--kind", kind)))
        self.new.run("apply", str(file), "--yes")


@pytest.fixture
def clouds(tmp_path: Path) -> Iterator[Clouds]:
    """An old cloud with a namespace, and a new one without."""
    places, user = [], User(tmp_path / "user")
    for name in ("old", "new"):
        (tables := tmp_path / name / "tables").mkdir(parents=True)
        places.append((tmp_path / name, tables))
    with (
        server_process(places[0][0], "--allow-location", str(places[0][1]), fsync="never") as old,
        server_process(places[1][0], "--allow-location", str(places[1][1]), fsync="never", preview="rows") as new,
    ):
        made = Clouds(Place(old, places[0][1], user), Place(new, places[1][1], user))
        made.old.run("create", "namespace", "main.sales", "--property", "team=sales")
        made.copy_definitions(tmp_path / "namespaces.json", "catalog", "namespace")
        yield made


def local(location: str) -> Path:
    return Path(urlsplit(location).path)


def test_namespaces_go_first_and_views_after_the_tables_that_they_read(clouds: Clouds, tmp_path: Path) -> None:
    clouds.old.run("create", "table", "main.sales.orders", "--columns", "id BIGINT")
    clouds.old.run("create", "view", "main.sales.recent", "--sql", "select 1 as id", "--columns", "id INT")
    clouds.old.run("create", "function", "main.sales.plus", "--definition", "x + 1", "--returns", "INT")

    clouds.copy_definitions(tmp_path / "namespaces.json", "catalog", "namespace")
    assert "team" in clouds.new.run("show", "main.sales")
    assert clouds.new.run("ls", "main.sales", "-o", "csv").splitlines()[1:] == []  # The names stay free.
    clouds.copy_definitions(tmp_path / "views.json", "view", "function")

    assert "select 1 as id" in clouds.new.run("show", "main.sales.recent", "-o", "json")
    assert "plus" in clouds.new.run("ls", "main.sales")


def test_the_folder_of_an_external_delta_table_is_copied_as_it_is(clouds: Clouds) -> None:
    before, after = clouds.old.tables / "clicks", clouds.new.tables / "clicks"
    deltalake.write_deltalake(before, ROWS)
    deltalake.DeltaTable(before).delete("id = 2")
    clouds.old.run("register", "main.sales.clicks", str(before))

    shutil.copytree(before, after)
    clouds.new.run("register", "main.sales.clicks", str(after))
    shutil.rmtree(before)

    assert local(clouds.new.shown("main.sales.clicks")) == after
    assert (
        len(clouds.new.user.run("history", "main.sales.clicks", "-o", "json", "--server", clouds.new.server.url).json)
        == 2
    )
    with duck(clouds.new) as session:
        assert session.execute("SELECT id FROM uc.sales.clicks ORDER BY id").fetchall() == [(1,), (3,)]


def duck(place: Place) -> duckdb.DuckDBPyConnection:
    return unity_session(place.server.url, "sales")


def test_the_rows_of_a_managed_delta_table_are_copied_because_its_folder_is_refused(
    clouds: Clouds, tmp_path: Path
) -> None:
    definition = ("delta", "create", "main.sales.visits", "--columns", "id BIGINT NOT NULL, text STRING")
    rows = tmp_path / "new" / "visits.parquet"
    clouds.old.run(*definition)
    with duck(clouds.old) as session:
        session.execute("INSERT INTO uc.sales.visits VALUES (1, 'one'), (2, 'two')")
        session.execute("INSERT INTO uc.sales.visits VALUES (3, 'three')")
        session.sql("SELECT * FROM uc.sales.visits").write_parquet(str(rows))
    before = local(clouds.old.shown("main.sales.visits"))
    copied = clouds.new.tables / "visits"
    shutil.copytree(before, copied)

    refused = clouds.new.user.run("register", "main.sales.visits", str(copied), "--server", clouds.new.server.url)
    clouds.new.run(*definition)
    with duck(clouds.new) as session:
        session.execute("INSERT INTO uc.sales.visits SELECT * FROM read_parquet(?)", [str(rows)])
    shutil.rmtree(before)

    assert refused.code != 0
    assert "managed by a catalog" in refused.err
    with duck(clouds.new) as session:
        found = session.execute("SELECT * FROM uc.sales.visits ORDER BY id").fetchall()
    assert found == [(1, "one"), (2, "two"), (3, "three")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_iceberg_table_moves_with_its_history_by_the_procedure_of_spark(clouds: Clouds, tmp_path: Path) -> None:
    clouds.new.run("create", "namespace", "main.later")
    served = Served(FOLDER, clouds.old.server)
    staging, target = f"file:{tmp_path}/old/staging", f"file:{clouds.new.tables}/orders"
    try:
        with running_spark(LATEST, tmp_path, [catalog_of(served)]) as spark:
            spark.sql(
                "CREATE TABLE sandur.sales.orders (id BIGINT, text STRING) PARTITIONED BY (text) "
                "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
            )
            spark.sql("INSERT INTO sandur.sales.orders VALUES (1, 'one'), (2, 'two'), (3, 'three')")
            spark.sql("ALTER TABLE sandur.sales.orders CREATE TAG first")
            spark.sql("DELETE FROM sandur.sales.orders WHERE id = 2")
            before = clouds.old.shown("main.sales.orders")
            ((newest, listed, *_),) = spark.sql(
                f"CALL sandur.system.rewrite_table_path(table => 'sandur.sales.orders', source_prefix => '{before}', "
                f"target_prefix => '{target}', staging_location => '{staging}')"
            )
    except NotInstalled as reason:
        pytest.skip(f"Spark: {reason}")

    for source, copy in csv.reader(local(listed).read_text(encoding="utf-8").splitlines()):
        local(copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(local(source), local(copy))
    clouds.new.run("register", "main.sales.orders", f"{target}/metadata/{newest}")
    shutil.rmtree(local(before))
    shutil.rmtree(local(staging))

    table = clouds.new.iceberg().load_table("sales.orders")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]
    tagged = table.refs()["first"].snapshot_id
    assert table.scan(snapshot_id=tagged).to_arrow().num_rows == 3
    table.append(ROWS.slice(1, 1))
    assert clouds.new.iceberg().load_table("sales.orders").scan().to_arrow().num_rows == 3
    where = ("--store", str(tmp_path / "new" / "data"), "--allow-location", str(clouds.new.tables))
    assert clouds.new.user.run("verify", *where).code == 0
