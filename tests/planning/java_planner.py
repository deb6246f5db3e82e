"""Iceberg's Java planner for a table in a folder, in a JVM that py4j controls."""

import json
import shutil
import subprocess
from typing import Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.differential.java_oracle import OracleUnavailable, _cached_jar, _resolved_jar, _spark_jars


class JavaTask(NamedTuple):
    """A file scan task of the Java planner."""

    path: str
    deletes: frozenset[str]
    residual: Any


class JavaPlanner:
    """One JVM with Iceberg and Hadoop on its class path."""

    def __init__(self, *, memory: str = "1g") -> None:
        if shutil.which("java") is None:
            raise OracleUnavailable("no `java` on the path")
        jar = _cached_jar() or _resolved_jar()
        jars = _spark_jars()
        port, token, process = launch_gateway(
            jarpath=str(next(jars.glob("py4j*.jar"))),
            classpath=f"{jar}:{jars}/*",
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
            redirect_stderr=subprocess.DEVNULL,
            redirect_stdout=subprocess.DEVNULL,
            javaopts=[f"-Xmx{memory}"],
        )
        self._process = process
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        jvm = self._gateway.jvm
        self._iceberg: Any = jvm.org.apache.iceberg
        self._io = self._iceberg.hadoop.HadoopFileIO(jvm.org.apache.hadoop.conf.Configuration())

    def close(self) -> None:
        self._gateway.shutdown()
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def served_table(self, url: str, namespace: str, name: str) -> Any:
        """A table of a running server, whose scans the server plans."""
        jvm = self._gateway.jvm
        properties = jvm.java.util.HashMap()
        for key, value in {"uri": url, "scan-planning-mode": "server"}.items():
            properties.put(key, value)
        catalog = self._iceberg.rest.RESTCatalog()
        catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
        catalog.initialize("served", properties)
        levels = self._gateway.new_array(jvm.java.lang.String, 1)
        levels[0] = namespace
        identifier = self._iceberg.catalog.TableIdentifier.of(self._iceberg.catalog.Namespace.of(levels), name)
        return catalog.loadTable(identifier)

    def table(self, metadata_path: str) -> Any:
        operations = self._iceberg.StaticTableOperations(f"file://{metadata_path}", self._io)
        return self._iceberg.BaseTable(operations, "t")

    def scan(self, table: Any, filter_json: Any) -> Any:
        parser = self._iceberg.expressions.ExpressionParser
        schema = table.schema()
        return table.newScan().filter(parser.fromJson(json.dumps(filter_json), schema))

    def selecting(self, scan: Any, *columns: str) -> Any:
        """The scan of some columns."""
        names = self._gateway.jvm.java.util.ArrayList()
        for column in columns:
            names.add(column)
        return scan.select(names)

    def plan(self, metadata_path: str, filter_json: Any) -> list[JavaTask]:
        """Every task of a scan."""
        tasks = self.scan(self.table(metadata_path), filter_json).planFiles()
        parser = self._iceberg.expressions.ExpressionParser
        try:
            return [
                JavaTask(
                    str(task.file().location()),
                    frozenset(str(file.location()) for file in task.deletes()),
                    json.loads(parser.toJson(task.residual())),
                )
                for task in self._iceberg.relocated.com.google.common.collect.Lists.newArrayList(tasks)
            ]
        finally:
            tasks.close()

    def appended(self, metadata_path: str, start: int, end: int, filter_json: Any) -> set[str]:
        """The files of an incremental append scan between two snapshots."""
        table = self.table(metadata_path)
        wanted = self._iceberg.expressions.ExpressionParser.fromJson(json.dumps(filter_json), table.schema())
        long = self._gateway.jvm.java.lang.Long.parseLong
        scan = table.newIncrementalAppendScan().fromSnapshotExclusive(long(str(start))).toSnapshot(long(str(end)))
        tasks = scan.filter(wanted).planFiles()
        try:
            found = self._iceberg.relocated.com.google.common.collect.Lists.newArrayList(tasks)
            return {str(task.file().location()) for task in found}
        finally:
            tasks.close()

    def cpu_seconds(self) -> float:
        """The CPU time of the JVM."""
        used = self._gateway.jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
        return float(used.get().toMillis()) / 1e3

    def count(self, scan: Any) -> int:
        """The number of tasks of a scan, counted in Java."""
        tasks = scan.planFiles()
        try:
            return int(self._iceberg.relocated.com.google.common.collect.Iterables.size(tasks))
        finally:
            tasks.close()
