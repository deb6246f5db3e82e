"""A separate process for the test: Delta Kernel writes and reads a managed table on S3, without keys of its own.

Kernel, Hadoop's S3 client and Unity Catalog's provider of credentials run in Spark's JVM. Every step reports its result
or its error.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import sandur.spark
from sandur.spark.sessions import DELTA_PACKAGE
from sandur.spark.statements import MODE
from tests.interop.delta_sessions import delta_session

_SDK: Final = "2.29.52"  # The version that Hadoop 3.4.2 was built with; its own bundle has 600 MB.
PACKAGES: Final = (
    DELTA_PACKAGE,
    "org.apache.hadoop:hadoop-aws:3.4.2",
    *(f"software.amazon.awssdk:{part}:{_SDK}" for part in ("s3", "s3-transfer-manager", "sts")),
)
_S3A: Final = "org.apache.hadoop.fs.s3a"


def main(url: str, folder: str, endpoint: str, writer: str, reader: str) -> None:
    spark = delta_session(
        url,
        folder,
        options={
            "spark.jars.packages": ",".join(PACKAGES),
            "spark.jars.excludes": "software.amazon.awssdk:bundle",
            "spark.sql.catalog.main.token": writer,
            "spark.hadoop.fs.s3.impl": f"{_S3A}.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.attempts.maximum": "1",
            # Without a credential of the catalog, no request is signed.
            "spark.hadoop.fs.s3a.aws.credentials.provider": f"{_S3A}.AnonymousAWSCredentialsProvider",
        },
    )
    spark.conf.set(MODE, "STRICT")
    facts: dict[str, Any] = {}

    def step(name: str, work: Callable[[], object]) -> None:
        try:
            facts[name] = work()
        except Exception as error:  # noqa: BLE001 - reported to the test, which judges it
            facts[name] = f"{type(error).__name__}: {_cause(error)}"

    for name in ("orders", "neighbours"):
        step(f"create {name}", partial(_create, spark, name))
    writing, reading = _Client(spark, url, writer, folder), _Client(spark, url, reader, folder)
    for number in (1, 2):
        step(f"append {number}", partial(writing.append, "orders", number))
    step("publish", lambda: writing.publish("orders"))
    step("rows", lambda: reading.rows("orders"))
    step("a reader appends", lambda: reading.append("orders", 3))
    step("a reader reads the neighbour", lambda: reading.rows("neighbours"))
    step("the keys of one table at the other", lambda: writing.list_with_keys_of("orders", "neighbours"))
    step("without a credential", lambda: writing.list_without_keys("orders"))
    spark.stop()
    print(f"FACTS {json.dumps(facts)}")  # noqa: T201 - what the test reads


def _create(spark: SparkSession, name: str) -> None:
    sandur.spark.sql(spark, f"CREATE TABLE main.s.{name} (id BIGINT, text STRING) USING delta")


def _cause(error: Exception) -> str:
    """The message of an error of Java with those of its causes."""
    if not isinstance(error, Py4JJavaError):
        return str(error)[:500]
    texts: list[str] = []
    cause = error.java_exception
    while cause is not None and len(texts) < 8:
        texts.append(f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"[:300])
        cause = cause.getCause()
    return " <- ".join(texts)


class _Client:
    """Delta Kernel as one principal."""

    def __init__(self, spark: SparkSession, url: str, token: str, folder: str) -> None:
        jvm: Any = spark.sparkContext._jvm  # The only access to the driver's JVM.
        self._gateway: Any = spark.sparkContext._gateway
        self._base: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._jvm = jvm
        self._folder = Path(folder)
        self._commits = jvm.io.delta.storage.commit
        settings = {"uri": url, "auth.type": "static", "auth.token": token}
        self._client = self._commits.uccommitcoordinator.UCDeltaTokenBasedRestClient(settings, None)

    def append(self, name: str, number: int) -> int:
        """Append one row; returns the version of the commit."""
        info, engine = self._open(name)
        local = self._folder / f"{name}-{number}.parquet"
        pq.write_table(pa.table({"id": [number], "text": [f"text {number}"]}), local)
        target = f"{info.getLocation()}/{local.name}"
        self._files(info).copyFromLocalFile(self._path(str(local)), self._path(target))
        kernel = self._jvm.io.delta.kernel
        snapshot = self._snapshot(name, info, engine)
        transaction = snapshot.buildUpdateTableTransaction("sandur-tests", kernel.Operation.WRITE).build(engine)
        state = transaction.getTransactionState(engine)
        status = kernel.utils.DataFileStatus(
            target, local.stat().st_size, local.stat().st_mtime_ns // 1_000_000, self._jvm.java.util.Optional.empty()
        )
        files = kernel.internal.util.Utils.singletonCloseableIterator(status)
        context = kernel.Transaction.getWriteContext(engine, state, {})
        actions = kernel.Transaction.generateAppendActions(engine, state, files, context)
        done = transaction.commit(engine, kernel.utils.CloseableIterable.inMemoryIterable(actions))
        return int(done.getVersion())

    def publish(self, name: str) -> int:
        """Copy the commits into the log of the table."""
        info, engine = self._open(name)
        return int(self._snapshot(name, info, engine).publish(engine).getVersion())

    def rows(self, name: str) -> list[list[Any]]:
        """The rows of the files that Kernel finds."""
        info, engine = self._open(name)
        scan = self._snapshot(name, info, engine).getScanBuilder().build()
        utils = self._jvm.io.delta.kernel.internal
        rows = utils.util.Utils.intoRows(scan.getScanFiles(engine))
        found: list[list[Any]] = []
        while rows.hasNext():
            path = utils.InternalScanFileUtils.getAddFileStatus(rows.next()).getPath()
            local = self._folder / f"read-{len(found)}.parquet"
            self._files(info).copyToLocalFile(self._path(path), self._path(str(local)))
            found += [list(row.values()) for row in pq.read_table(local).to_pylist()]
        return sorted(found)

    def list_with_keys_of(self, name: str, other: str) -> int:
        """List the files of another table with the keys of this one."""
        keys = {
            key.rpartition("init.")[2]: value
            for key, value in dict(self._info(name).getStorageProperties()).items()
            if "s3a.init" in key
        }
        configuration = self._configuration(
            {
                "fs.s3a.aws.credentials.provider": f"{_S3A}.TemporaryAWSCredentialsProvider",
                **{f"fs.s3a.{key}": value for key, value in keys.items()},
            }
        )
        return self._listed(configuration, self._info(other).getLocation())

    def list_without_keys(self, name: str) -> int:
        return self._listed(self._configuration({}), self._info(name).getLocation())

    def _listed(self, configuration: Any, location: str) -> int:
        path = self._path(f"{location}/_delta_log")
        files = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), configuration)
        return len(files.listStatus(path))

    def _open(self, name: str) -> tuple[Any, Any]:
        info = self._info(name)
        configuration = self._configuration(dict(info.getStorageProperties()))
        return info, self._jvm.io.delta.kernel.defaults.engine.DefaultEngine.create(configuration)

    def _info(self, name: str) -> Any:
        schema = self._gateway.new_array(self._jvm.java.lang.String, 2)
        schema[0], schema[1] = "main", "s"
        return self._client.loadTable(self._commits.TableIdentifier(schema, name))

    def _snapshot(self, name: str, info: Any, engine: Any) -> Any:
        unity, empty = self._jvm.io.delta.kernel.unitycatalog, self._jvm.java.util.Optional.empty()
        known_as = unity.UCTableIdentifier("main", "s", name)
        table_id = info.getTableId().toString()
        managed = unity.UCCatalogManagedClient(self._client)
        return managed.loadSnapshot(engine, table_id, info.getLocation(), known_as, empty, empty)

    def _files(self, info: Any) -> Any:
        configuration = self._configuration(dict(info.getStorageProperties()))
        return self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(
            self._path(info.getLocation()).toUri(), configuration
        )

    def _configuration(self, options: dict[str, str]) -> Any:
        configuration = self._jvm.org.apache.hadoop.conf.Configuration(self._base)
        for key, value in options.items():
            configuration.set(key, value)
        return configuration

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
