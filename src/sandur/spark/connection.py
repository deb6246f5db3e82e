"""How Spark reaches one catalog: where the server is, which catalog of it, who asks, and where its files lie."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from sandur.errors import BadRequest

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
