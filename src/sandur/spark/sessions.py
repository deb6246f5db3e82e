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
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sandur.errors import BadRequest, Invalid, Unfit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DEFAULT_SPARK: Final = "4.1"
DEFAULT_ICEBERG: Final = "1.11.0"
DELTA_PACKAGE: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
"""Delta for Spark 4.1, with Delta Kernel and its Unity Catalog client."""

_SPARK: Final = re.compile(r"(\d+)\.(\d+)(\.\S*)?")
_ICEBERG: Final = re.compile(r"\d+\.\d+\.\d+\S*")
_FIRST_SPARK_ON_SCALA_213: Final = 4


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions of Spark (`4.1` or in full), Iceberg and Scala.

    `spark` defaults to the installed PySpark, or to 4.1; `scala` to the version of Spark's published builds.
    """

    spark: str = ""
    iceberg: str = DEFAULT_ICEBERG
    scala: str = ""

    def packages(self, *, with_s3: bool) -> tuple[str, ...]:
        """The Maven coordinates of Iceberg's runtime and, of the same version, of its S3 classes."""
        if not _ICEBERG.fullmatch(self.iceberg):
            raise BadRequest(f"Iceberg version {self.iceberg!r}: expected something like {DEFAULT_ICEBERG}")
        version = self.spark or _installed_spark() or DEFAULT_SPARK
        parts = _SPARK.fullmatch(version)
        if not parts:
            raise BadRequest(f"Spark version {version!r}: expected something like {DEFAULT_SPARK} or {DEFAULT_SPARK}.4")
        major, minor = int(parts[1]), int(parts[2])
        scala = self.scala or ("2.13" if major >= _FIRST_SPARK_ON_SCALA_213 else "2.12")
        runtime = f"org.apache.iceberg:iceberg-spark-runtime-{major}.{minor}_{scala}:{self.iceberg}"
        bundle = f"org.apache.iceberg:iceberg-aws-bundle:{self.iceberg}"
        return (runtime, bundle) if with_s3 else (runtime,)


def _installed_spark() -> str | None:
    """The version of the installed PySpark; None if it is not installed."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


DEFAULT_URI: Final = "http://127.0.0.1:8181"
DEFAULT_NAME: Final = "sandur"
# Every signature contains a region, even if the store has none.
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
# Spark takes the text after the first dot for the name of a property.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, kw_only=True)
class S3Store:
    """How Spark accesses S3. Empty keys come from the AWS environment of Spark."""

    endpoint: str = ""
    region: str = ""
    path_style: bool = True
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One catalog of a Sandur server, with its name in Spark.

    `warehouse` None is the server's default catalog. A server with authentication needs a `token`, or a `credential`
    (`id:secret`) that the client exchanges for one. `s3` is needed for tables on S3 if Spark does not find the keys and
    the endpoint itself. `io_impl` selects the file access: `hadoop`, `s3`, `resolving` (by the scheme of each file) or
    a Java class; None is `s3` if `s3` is given, otherwise the client's default. `properties` are further properties of
    Iceberg's catalog, and override all others.
    """

    name: str = DEFAULT_NAME
    uri: str = DEFAULT_URI
    warehouse: str | None = None
    token: str | None = field(default=None, repr=False)
    credential: str | None = field(default=None, repr=False)
    s3: S3Store | None = None
    io_impl: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_profile(cls, profile: str | None = None, **options: Any) -> "Connection":  # noqa: ANN401 - its fields
        """The connection to the server of a profile of `sandur login`, with its token; None is the current profile.

        Iceberg renews the token while the session runs. `options` are the other fields.
        """
        from sandur.client.sessions import load_login  # noqa: PLC0415 - only for logins

        login = load_login(profile, os.environ)
        return cls(**{"uri": login.server, "token": login.token or None, **options})

    @property
    def reads_s3(self) -> bool:
        """Whether Spark needs Iceberg's S3 classes."""
        return self.s3 is not None or self._file_access() == _FILE_ACCESS["s3"]

    def options(self) -> dict[str, str]:
        """The session options of this catalog; raises BadRequest for values that Spark would misread."""
        self._check()
        prefix = f"spark.sql.catalog.{self.name}"
        return {prefix: _CATALOG_CLASS} | {
            f"{prefix}.{key}": value for key, value in self._catalog_properties().items()
        }

    def _catalog_properties(self) -> dict[str, str]:
        given = {
            "type": "rest",
            "uri": self.uri,
            "warehouse": self.warehouse,
            "token": self.token,
            "credential": self.credential,
            # Without it, Iceberg guesses this address and warns.
            "oauth2-server-uri": f"{self.uri.rstrip('/')}/v1/oauth/tokens" if self.credential else None,
            "io-impl": self._file_access(),
        }
        s3 = _s3_properties(self.s3) if self.s3 else {}
        return {key: value for key, value in given.items() if value is not None} | s3 | dict(self.properties)

    def _file_access(self) -> str | None:
        if self.io_impl is None:
            return _FILE_ACCESS["s3"] if self.s3 else None
        return _FILE_ACCESS.get(self.io_impl, self.io_impl)

    def _check(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadRequest(
                f"catalog {self.name!r}: a name in Spark has only letters, digits, _ and -; choose another name and "
                "pass the catalog's own name as warehouse"
            )
        if urlsplit(self.uri).scheme not in {"http", "https"} or not urlsplit(self.uri).netloc:
            raise BadRequest(f"uri {self.uri!r}: expected the address of a server, such as {DEFAULT_URI}")
        if self.token and self.credential:
            raise BadRequest(f"catalog {self.name}: pass a token or a credential, not both")
        if self.io_impl is not None and self.io_impl not in _FILE_ACCESS and "." not in self.io_impl:
            raise BadRequest(
                f"io_impl {self.io_impl!r}: expected {', '.join(_FILE_ACCESS)} or the name of a Java class"
            )


def _s3_properties(s3: S3Store) -> dict[str, str]:
    given = {
        "s3.endpoint": s3.endpoint,
        "client.region": s3.region or (DEFAULT_REGION if s3.endpoint else ""),
        "s3.path-style-access": "true" if s3.path_style else "",
        "s3.access-key-id": s3.access_key_id,
        "s3.secret-access-key": s3.secret_access_key,
        "s3.session-token": s3.session_token,
    }
    return {key: value for key, value in given.items() if value}


PACKAGES: Final = "spark.jars.packages"
EXTENSIONS: Final = "spark.sql.extensions"
ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def session_options(
    *catalogs: Connection | str,
    versions: Versions | None = None,
    packages: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The options of a Spark session with these catalogs; a string is the address of a server.

    The default is the default catalog of the local server. `packages` are further Maven coordinates. `options` override
    the computed ones, except that extensions and packages are added.
    """
    connections = _connections(catalogs)
    given = dict(options or {})
    needed = (versions or Versions()).packages(with_s3=any(one.reads_s3 for one in connections))
    computed = {
        PACKAGES: _joined(*needed, *packages, *given.pop(PACKAGES, "").split(",")),
        EXTENSIONS: _joined(ICEBERG_EXTENSIONS, *given.pop(EXTENSIONS, "").split(",")),
    }
    for connection in connections:
        computed |= connection.options()
    return computed | given


def _connections(catalogs: Sequence[Connection | str]) -> list[Connection]:
    found = [Connection(uri=one) if isinstance(one, str) else one for one in catalogs] or [Connection()]
    twice = [name for name, count in Counter(one.name for one in found).items() if count > 1]
    if twice:
        raise BadRequest(f"catalog {twice[0]}: two of {len(found)} catalogs have this name")
    return found


def _joined(*parts: str) -> str:
    return ",".join(dict.fromkeys(part.strip() for part in parts if part.strip()))


def session(
    *catalogs: Connection | str,
    versions: Versions | None = None,
    packages: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session with these catalogs (see `session_options`), or the running session with these catalogs added.

    Spark downloads the packages once into its Ivy cache. Raises Unfit without PySpark or Java, and Invalid if a session
    without Iceberg is running, because Iceberg cannot be added to it.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra that may be missing
    except ImportError as error:
        raise Unfit("Spark sessions need PySpark: pip install 'sandur[spark]'") from error
    _check_java()
    chosen = session_options(*catalogs, versions=versions, packages=packages, options=options)
    running = SparkSession.getActiveSession()
    if running is not None and ICEBERG_EXTENSIONS not in (running.conf.get(EXTENSIONS, "") or ""):
        raise Invalid(
            "a Spark session without Iceberg is running, and Iceberg cannot be added to it: call this first in a new "
            "process, or start the first session with sandur.spark.session_options()"
        )
    builder = SparkSession.builder
    for name, value in ({"spark.ui.showConsoleProgress": "false"} | chosen).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return
    if shutil.which("java") is None:
        raise Unfit("Spark sessions need Java 17 or newer: put java on the PATH, or set JAVA_HOME")
