"""Delta tables to maintain.

Managed ones have two writers: one commits files that it makes itself, one is Delta on Spark. External ones are written
by delta-rs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import json
from pyspark.sql import DataFrame, SparkSession

import sandur.spark
from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.records import DeltaTable
from sandur.delta.requests import CommitFile, DeltaChange
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.create import register_external
from sandur.operations.delta.publishing import staged_location
from sandur.operations.delta.tables import find_allowed_table
from sandur.pipeline.maintenance.delta import DeltaLog
from sandur.spark.sessions import Connection
from tests.pipeline.world import World, identifier_of

COLUMNS = "id BIGINT, text STRING"


def create_table(
    spark: SparkSession, connection: Connection, name: str, columns: str = COLUMNS, more: str = ""
) -> None:
    """A managed table, made by Delta Kernel in the JVM of Spark."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.main.uri", connection.uri)
    session.conf.set("spark.sql.catalog.main.token", connection.token or "")
    sandur.spark.sql(session, f"CREATE TABLE main.sales.{name} ({columns}) USING delta {more}", mode="STRICT")


def register_by_delta_rs(world: World, folder: Path, name: str, files: int) -> None:
    """An external table of small files by delta-rs, which writes no checksums. Only its first version is known here."""
    for number in range(files):
        rows = pa.table({"id": [number, 10 + number], "text": [f"row {number}", "more"]})
        deltalake.write_deltalake(folder, rows, mode="append")
        if not number:
            work = register_external(
                world.lake, identifier_of(name), folder.as_uri(), comment=None, request=world.request()
            )
            world.wait(work)


def rows_by_delta_rs(folder: Path) -> list[tuple[Any, ...]]:
    rows = deltalake.DeltaTable(folder).to_pyarrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


def record_of(world: World, name: str) -> DeltaTable:
    found = world.wait(find_allowed_table(world.lake, identifier_of(name))).pointer.value
    assert isinstance(found, DeltaTable)
    return found


def append_file(world: World, name: str, ids: Sequence[int]) -> int:
    """Commit one new file as a writer does that knows the protocol; returns its version."""
    table = record_of(world, name)
    version = table.last_version + 1
    path = f"part-{version:05d}-{world.lake.clock.new_uuid()}.parquet"
    sink = pa.BufferOutputStream()
    rows = pa.table({"id": list(ids), "text": [f"row {one}" for one in ids]})
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    now_ms = max(world.lake.clock.now_ms(), table.last_commit_ms + 1)
    stats = {"numRecords": len(ids), "minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"inCommitTimestamp": now_ms, "timestamp": now_ms, "operation": "WRITE", "txnId": path}},
        {
            "add": {
                "path": path,
                "partitionValues": {},
                "size": len(data),
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": json.encode(stats).decode(),
            }
        },
    ]
    log = b"\n".join(map(json.encode, actions))
    file_name = f"{version:020d}.{world.lake.clock.new_uuid()}.json"
    world.wait(world.lake.locations.create(f"{table.location}/{path}", data))
    world.wait(world.lake.locations.create(staged_location(table, file_name), log))
    commit = CommitFile(
        version=version,
        timestamp=now_ms,
        file_name=file_name,
        file_size=len(log),
        file_modification_timestamp=now_ms,
    )
    change = DeltaChange(asserted_uuid=table.uuid, commit=commit)
    world.wait(update_table(world.lake, identifier_of(name), change, world.request()))
    return version


class DeltaOnSpark:
    """Delta's own classes on one managed table, reached through a catalog server."""

    def __init__(self, world: World, spark: SparkSession, connection: Connection, name: str) -> None:
        table = record_of(world, name)
        self._session = spark.newSession()
        context: Any = self._session.sparkContext
        self._jvm = context._jvm
        self._none = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        self._delta = DeltaLog(self._session, connection, health_of(table, name), table)
        self._location = table.location
        self._name = name

    def append(self, query: str) -> None:
        transaction = self._delta.log.startTransaction(self._delta.catalog_table, self._none)
        files = transaction.writeFiles(self._session.sql(query).coalesce(1)._jdf)
        manual = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$")
        transaction.commit(files, getattr(manual, "MODULE$"))

    def delete(self, condition: str) -> None:
        """Delete rows, by deletion vectors."""
        self._table().delete(condition)

    def merge(self, query: str) -> None:
        table = getattr(self._table(), "as")("t")
        source = self._session.sql(query).alias("s")._jdf
        table.merge(source, "t.id = s.id").whenMatched().updateAll().whenNotMatched().insertAll().execute()

    def count_files(self) -> int:
        return self._delta.measure().files or 0

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of the newest version, sorted; `columns` may name what Delta keeps beside them, such as row ids."""
        frame = DataFrame(self._opened().toDf(self._delta.java), self._session)
        return sorted((tuple(row) for row in frame.selectExpr(*(columns or ("*",))).collect()), key=str)

    def _table(self) -> Any:
        opened = self._opened()
        return self._jvm.io.delta.tables.DeltaTable(opened.toDf(self._delta.java), opened)

    def _opened(self) -> Any:
        """The newest version of the table as a statement of Spark sees it."""
        options = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        path, name = self._jvm.org.apache.hadoop.fs.Path(self._location), self._jvm.scala.Option.apply(self._name)
        opened = self._jvm.org.apache.spark.sql.delta.catalog.DeltaTableV2
        return opened(self._delta.java, path, self._delta.catalog_table, name, self._none, options)


def health_of(table: DeltaTable, name: str) -> TableHealth:
    return TableHealth(uuid=table.uuid, catalog="main", namespace="sales", name=name, format="delta")


def files_by_kernel(
    spark: SparkSession, connection: Connection, table: DeltaTable, name: str, *, version: int | None = None
) -> Iterator[str]:
    """The data files of a version as Delta Kernel finds them, through the catalog; without one, of the newest."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    kernel, unity = jvm.io.delta.kernel, jvm.io.delta.kernel.unitycatalog
    settings = {"uri": connection.uri, "auth.type": "static", "auth.token": connection.token}
    client = jvm.io.delta.storage.commit.uccommitcoordinator.UCDeltaTokenBasedRestClient(settings, None)
    engine = kernel.defaults.engine.DefaultEngine.create(context._jsc.hadoopConfiguration())
    unset, known_as = jvm.java.util.Optional.empty(), unity.UCTableIdentifier("main", "sales", name)
    # A plain number would become an Integer.
    wanted = (
        unset if version is None else jvm.java.util.stream.LongStream.range(version, version + 1).boxed().findFirst()
    )
    managed = unity.UCCatalogManagedClient(client)
    snapshot = managed.loadSnapshot(engine, table.uuid, table.location, known_as, wanted, unset)
    rows = kernel.internal.util.Utils.intoRows(snapshot.getScanBuilder().build().getScanFiles(engine))
    while rows.hasNext():
        yield urlsplit(kernel.internal.InternalScanFileUtils.getAddFileStatus(rows.next()).getPath()).path
    client.close()
