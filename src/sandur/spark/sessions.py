"""Spark sessions for Sandur catalogs: connections, package versions and session options."""

import importlib.metadata
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sandur.errors import BadRequest, Invalid, Unfit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DEFAULT_SPARK: Final = "4.1"
DEFAULT_ICEBERG: Final = "1.11.0"
DELTA_PACKAGE: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
"""Delta for Spark 4.1; it brings Delta Kernel, and Kernel's client of Unity Catalog."""

_SPARK: Final = re.compile(r"(\d+)\.(\d+)(\.\S*)?")
_ICEBERG: Final = re.compile(r"\d+\.\d+\.\d+\S*")
_FIRST_SPARK_ON_SCALA_213: Final = 4


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Spark (`4.1`, or in full), Iceberg and Scala.

    Without `spark` it is the PySpark that is installed here, or 4.1 where there is none; without `scala` the one that
    this Spark is built with when it comes from a package registry.
    """

    spark: str = ""
    iceberg: str = DEFAULT_ICEBERG
    scala: str = ""

    def packages(self, *, with_s3: bool) -> tuple[str, ...]:
        """Coordinates of Iceberg's runtime, and of what speaks to S3; both are always of one version."""
        if not _ICEBERG.fullmatch(self.iceberg):
            raise BadRequest(f"Iceberg version {self.iceberg!r}: expected something like {DEFAULT_ICEBERG}")
        major, minor = self._spark_line()
        scala = self.scala or ("2.13" if major >= _FIRST_SPARK_ON_SCALA_213 else "2.12")
        runtime = f"org.apache.iceberg:iceberg-spark-runtime-{major}.{minor}_{scala}:{self.iceberg}"
        bundle = f"org.apache.iceberg:iceberg-aws-bundle:{self.iceberg}"
        return (runtime, bundle) if with_s3 else (runtime,)

    def _spark_line(self) -> tuple[int, int]:
        version = self.spark or _installed_spark() or DEFAULT_SPARK
        parts = _SPARK.fullmatch(version)
        if not parts:
            raise BadRequest(f"Spark version {version!r}: expected something like {DEFAULT_SPARK} or {DEFAULT_SPARK}.4")
        return int(parts[1]), int(parts[2])


def _installed_spark() -> str | None:
    """The version of PySpark in this environment; None without one."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


DEFAULT_URI: Final = "http://127.0.0.1:8181"
DEFAULT_NAME: Final = "sandur"
# A region is a part of every signature, even where the store has none.
DEFAULT_REGION: Final = "us-east-1"
SECRET_KEYS: Final = ("token", "credential", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")

_CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_FILE_ACCESS: Final = MappingProxyType(
    {
        "hadoop": "org.apache.iceberg.hadoop.HadoopFileIO",
        "resolving": "org.apache.iceberg.io.ResolvingFileIO",
        "s3": "org.apache.iceberg.aws.s3.S3FileIO",
    }
)
# Spark reads what follows the first dot as the name of a property.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, kw_only=True)
class S3Store:
    """How Spark itself reads and writes on S3. Keys that are empty come from the AWS environment Spark runs in."""

    endpoint: str = ""
    region: str = ""
    path_style: bool = True
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One catalog of a Sandur server, under the name that statements call it by.

    `warehouse` None is the server's default catalog. A server that asks who is there is shown a `token`, or a
    `credential` (`id:secret`) that the client changes for one. `s3` is needed when tables lie on S3 and Spark does not
    find its keys and endpoint by itself. `io_impl` says how files are read and written: `hadoop`, `s3`, `resolving` (by
    the scheme of each file) or a Java class; None is `s3` where `s3` is given, and left to the client elsewhere.
    `properties` are further properties of Iceberg's catalog; they win over what is said here.
    """

    name: str = DEFAULT_NAME
    uri: str = DEFAULT_URI
    warehouse: str | None = None
    token: str | None = field(default=None, repr=False)
    credential: str | None = field(default=None, repr=False)
    s3: S3Store | None = None
    io_impl: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads_s3(self) -> bool:
        """Whether Spark needs the classes that speak to S3."""
        return self.s3 is not None or self._file_access() == _FILE_ACCESS["s3"]

    def options(self) -> dict[str, str]:
        """The session options of this catalog; BadRequest for what Spark would misunderstand."""
        self._check()
        prefix = f"spark.sql.catalog.{self.name}"
        return {prefix: _CATALOG_CLASS} | {
            f"{prefix}.{key}": value for key, value in self._catalog_properties().items()
        }

    def _catalog_properties(self) -> dict[str, str]:
        said = {
            "type": "rest",
            "uri": self.uri,
            "warehouse": self.warehouse,
            "token": self.token,
            "credential": self.credential,
            # Iceberg guesses this address and warns; Sandur serves it beside everything else.
            "oauth2-server-uri": f"{self.uri.rstrip('/')}/v1/oauth/tokens" if self.credential else None,
            "io-impl": self._file_access(),
        }
        stored = _s3_properties(self.s3) if self.s3 else {}
        return {key: value for key, value in said.items() if value is not None} | stored | dict(self.properties)

    def _file_access(self) -> str | None:
        if self.io_impl is None:
            return _FILE_ACCESS["s3"] if self.s3 else None
        return _FILE_ACCESS.get(self.io_impl, self.io_impl)

    def _check(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadRequest(
                f"catalog {self.name!r}: Spark calls a catalog by letters, digits, _ and -; give it another name here "
                "and its own as warehouse"
            )
        if urlsplit(self.uri).scheme not in {"http", "https"} or not urlsplit(self.uri).netloc:
            raise BadRequest(f"uri {self.uri!r}: expected the address of a server, such as {DEFAULT_URI}")
        if self.token and self.credential:
            raise BadRequest(f"catalog {self.name}: a token and a credential were given, one of them is enough")
        if self.io_impl is not None and self.io_impl not in _FILE_ACCESS and "." not in self.io_impl:
            raise BadRequest(
                f"io_impl {self.io_impl!r}: expected {', '.join(_FILE_ACCESS)} or the name of a Java class"
            )


def _s3_properties(s3: S3Store) -> dict[str, str]:
    said = {
        "s3.endpoint": s3.endpoint,
        "client.region": s3.region or (DEFAULT_REGION if s3.endpoint else ""),
        "s3.path-style-access": "true" if s3.path_style else "",
        "s3.access-key-id": s3.access_key_id,
        "s3.secret-access-key": s3.secret_access_key,
        "s3.session-token": s3.session_token,
    }
    return {key: value for key, value in said.items() if value}


PACKAGES: Final = "spark.jars.packages"
EXTENSIONS: Final = "spark.sql.extensions"
ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def session_options(
    *catalogs: Connection | str,
    versions: Versions | None = None,
    packages: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What a Spark session is told so that it knows these catalogs; a text is the address of a server.

    Without a catalog it is the default one of the server on this machine. `packages` are further Maven coordinates.
    `options` win over what is worked out here, except that extensions and packages are added to ours.
    """
    connections = _connections(catalogs)
    said = dict(options or {})
    needed = (versions or Versions()).packages(with_s3=any(one.reads_s3 for one in connections))
    worked_out = {
        PACKAGES: _joined(*needed, *packages, *said.pop(PACKAGES, "").split(",")),
        EXTENSIONS: _joined(ICEBERG_EXTENSIONS, *said.pop(EXTENSIONS, "").split(",")),
    }
    for connection in connections:
        worked_out |= connection.options()
    return worked_out | said


def _connections(catalogs: Sequence[Connection | str]) -> list[Connection]:
    found = [Connection(uri=one) if isinstance(one, str) else one for one in catalogs] or [Connection()]
    twice = [name for name, count in Counter(one.name for one in found).items() if count > 1]
    if twice:
        raise BadRequest(f"catalog {twice[0]}: {len(found)} catalogs were given and two have this name")
    return found


def _joined(*parts: str) -> str:
    return ",".join(dict.fromkeys(part.strip() for part in parts if part.strip()))


_QUIET: Final = {"spark.ui.showConsoleProgress": "false"}


def session(
    *catalogs: Connection | str,
    versions: Versions | None = None,
    packages: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session that knows these catalogs (see `session_options`), or the running one with these catalogs added.

    Spark fetches the packages once and keeps them in its Ivy cache; later sessions take them from there. Unfit without
    PySpark or Java; Invalid when a session runs already that does not know Iceberg, as that cannot be added.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra that may be missing
    except ImportError as error:
        raise Unfit("Spark sessions need PySpark: pip install 'sandur[spark]'") from error
    _check_java()
    told = session_options(*catalogs, versions=versions, packages=packages, options=options)
    running = SparkSession.getActiveSession()
    if running is not None and ICEBERG_EXTENSIONS not in (running.conf.get(EXTENSIONS, "") or ""):
        raise Invalid(
            "a Spark session runs already, without Iceberg, which Spark takes up only as it starts: begin with this "
            "one, in a fresh process, or give the first session what sandur.spark.session_options() tells"
        )
    builder = SparkSession.builder
    for name, value in (_QUIET | told).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return
    if shutil.which("java") is None:
        raise Unfit("Spark sessions need Java 17 or newer: none is on the PATH, and JAVA_HOME names none")
