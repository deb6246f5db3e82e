"""Iceberg's own Java builders in a JVM that py4j controls."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.differential.outcomes import Commit, JsonObject, Outcome, Verdict

GROUP = "org.apache.iceberg"
ARTIFACT = "iceberg-spark-runtime-4.1_2.13"
VERSION = "1.11.0"
RESOLVE_SECONDS_MAX = 240
_FOUND = "found:"

# Spark resolves the coordinates into the default ivy folder and prints it; its JVM is discarded.
_RESOLVE = f"""
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
gateway = launch_gateway(SparkConf(False).set("spark.jars.packages", "{GROUP}:{ARTIFACT}:{VERSION}"))
print("{_FOUND}", gateway.jvm.java.lang.System.getProperty("spark.jars"))
gateway.shutdown()
"""

# The Java builder throws these on purpose; anything else is a crash.
_FORESEEN = {
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.NoSuchViewException",
    "org.apache.iceberg.exceptions.BadRequestException",
    "java.lang.IllegalArgumentException",
    "java.lang.UnsupportedOperationException",
    "java.lang.IllegalStateException",
}
_CONFLICT = "org.apache.iceberg.exceptions.CommitFailedException"
# The builder's prefix for stale values; the reference adapter answers 409 with it.
_STALE = "RetryableValidationException"
STALE_PREFIX = "Validation failed, please retry: "


class OracleUnavailable(Exception):
    """Java or Iceberg's jar is not available; the text says which."""


class JavaOracle:
    """One JVM with Iceberg on its class path."""

    def __init__(self) -> None:
        if shutil.which("java") is None:
            raise OracleUnavailable("no `java` on the path: the differential tests against Iceberg's builder need one")
        jar = _cached_jar() or _resolved_jar()
        jars = _spark_jars()
        class_path = ":".join([str(jar), *(str(path) for path in jars.glob("slf4j-api-*.jar"))])
        port, token, process = launch_gateway(
            jarpath=str(next(jars.glob("py4j*.jar"))),
            classpath=class_path,
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
            redirect_stderr=subprocess.DEVNULL,  # slf4j warns that it has no logger
            javaopts=["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        )
        self._process = process
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        self._iceberg: Any = self._gateway.jvm.org.apache.iceberg

    def close(self) -> None:
        self._gateway.shutdown()
        # The JVM ends itself when its standard input is closed.
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def commit_table(self, commit: Commit) -> Outcome:
        """Does what the reference REST adapter does with the request, without storing the result."""
        return self._attempt(lambda: self._commit_table(commit))

    def commit_view(self, commit: Commit) -> Outcome:
        """The same for a view; a `base` of None starts from an empty builder."""
        return self._attempt(lambda: self._commit_view(commit))

    def create_table(self, request: JsonObject) -> Outcome:
        """The metadata of a new table, from the parts of a create request."""
        return self._attempt(lambda: self._create_table(request))

    def rewritten_table(self, text: bytes) -> JsonObject:
        """A table metadata file after Java has read and written it."""
        parser = self._iceberg.TableMetadataParser
        return json_object(parser.toJson(parser.fromJson("memory:/rewritten.metadata.json", text.decode())))

    def rewritten_view(self, text: bytes) -> JsonObject:
        """A view metadata file after Java has read and written it."""
        parser = self._iceberg.view.ViewMetadataParser
        return json_object(parser.toJson(parser.fromJson(text.decode())))

    def _commit_table(self, commit: Commit) -> Outcome:
        request = self._parsed(commit)
        base = None
        if commit.base is not None:
            base = self._iceberg.TableMetadataParser.fromJson(commit.base_location, commit.base_text.decode())
        if _is_create(commit):
            if any(requirement.get("type") != "assert-create" for requirement in commit.requirements):
                return Outcome(Verdict.REFUSED, message="Invalid create requirements: ")
            builder = self._empty_table_builder(commit)
        else:
            builder = self._iceberg.TableMetadata.buildFrom(base)
        for requirement in request.requirements():
            requirement.validate(base)
        for update in request.updates():
            update.applyTo(builder)
        built = builder.build()
        if base is not None and built.changes().isEmpty():
            return Outcome(Verdict.UNCHANGED)
        return _changed(self._iceberg.TableMetadataParser.toJson(built))

    def _commit_view(self, commit: Commit) -> Outcome:
        request = self._parsed(commit)
        base = None
        if commit.base is None:
            builder = self._iceberg.view.ViewMetadata.builder()
        else:
            base = self._iceberg.view.ViewMetadataParser.fromJson(commit.base_location, commit.base_text.decode())
            builder = self._iceberg.view.ViewMetadata.buildFrom(base)
        for requirement in request.requirements():
            requirement.validate(base)
        for update in request.updates():
            update.applyTo(builder)
        built = builder.build()
        if base is not None and built.changes().isEmpty():
            return Outcome(Verdict.UNCHANGED)
        return _changed(self._iceberg.view.ViewMetadataParser.toJson(built))

    def _create_table(self, request: JsonObject) -> Outcome:
        schema, spec, order, properties = self._definition(request)
        built = self._iceberg.TableMetadata.newTableMetadata(schema, spec, order, request["location"], properties)
        return _changed(self._iceberg.TableMetadataParser.toJson(built))

    def _definition(self, request: JsonObject) -> tuple[Any, Any, Any, Any]:
        iceberg = self._iceberg
        schema = iceberg.SchemaParser.fromJson(json.dumps(request["schema"]))
        spec, order = iceberg.PartitionSpec.unpartitioned(), iceberg.SortOrder.unsorted()
        if "partition-spec" in request:
            spec = iceberg.PartitionSpecParser.fromJson(schema, json.dumps(request["partition-spec"]))
        if "write-order" in request:
            order = iceberg.SortOrderParser.fromJson(schema, json.dumps(request["write-order"]))
        properties = self._gateway.jvm.java.util.HashMap()
        for key, value in request["properties"].items():
            properties.put(key, value)
        return schema, spec, order, properties

    def _parsed(self, commit: Commit) -> Any:
        return self._iceberg.rest.requests.UpdateTableRequestParser.fromJson(json.dumps(commit.request))

    def _empty_table_builder(self, commit: Commit) -> Any:
        for update in commit.updates:
            if update.get("action") == "upgrade-format-version":
                return self._iceberg.TableMetadata.buildFromEmpty(update["format-version"])
        return self._iceberg.TableMetadata.buildFromEmpty()

    @staticmethod
    def _attempt(action: Any) -> Outcome:
        try:
            # An earlier Spark session of this process replaces py4j's conversion of exceptions,
            # and looks for it in every JVM.
            with mock.patch.object(java_gateway, "get_return_value", protocol.get_return_value):
                outcome: Outcome = action()
        except Py4JJavaError as error:
            return _failed(error.java_exception)
        return outcome


def json_object(text: str) -> JsonObject:
    value: JsonObject = json.loads(text)
    return value


def _is_create(commit: Commit) -> bool:
    return any(requirement.get("type") == "assert-create" for requirement in commit.requirements)


def _changed(text: str) -> Outcome:
    return Outcome(Verdict.CHANGED, metadata=json_object(text), text=text.encode())


def _failed(exception: Any) -> Outcome:
    name, message = exception.getClass().getName(), str(exception.getMessage())
    if name.endswith(_STALE):
        return Outcome(Verdict.CONFLICT, message=STALE_PREFIX + message)
    if name == _CONFLICT:
        return Outcome(Verdict.CONFLICT, message=message)
    return Outcome(Verdict.REFUSED, message=message, has_crashed=name not in _FORESEEN)


def _spark_jars() -> Path:
    import pyspark  # noqa: PLC0415  # heavy, and needed only where a JVM is started

    return Path(pyspark.__file__).parent / "jars"


def _cached_jar() -> Path | None:
    return next(iter(sorted(Path.home().glob(f".ivy2*/jars/{GROUP}_{ARTIFACT}-{VERSION}.jar"))), None)


def _resolved_jar() -> Path:
    coordinates = f"{GROUP}:{ARTIFACT}:{VERSION}"
    try:
        finished = subprocess.run(
            [sys.executable, "-c", _RESOLVE], capture_output=True, text=True, timeout=RESOLVE_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as slow:
        raise OracleUnavailable(f"{coordinates} was not resolved in {RESOLVE_SECONDS_MAX} s") from slow
    found = [line.removeprefix(_FOUND).strip() for line in finished.stdout.splitlines() if line.startswith(_FOUND)]
    jars = [Path(jar.removeprefix("file://")) for line in found for jar in line.split(",") if ARTIFACT in jar]
    if not jars or not jars[0].exists():
        complaints = [line.strip() for line in finished.stderr.splitlines() if "unresolved dependency" in line]
        raise OracleUnavailable(f"{coordinates} cannot be resolved: {complaints[:2] or finished.stderr[-400:]}")
    return jars[0]
