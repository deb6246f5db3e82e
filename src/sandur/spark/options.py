"""The options of a Spark session over Sandur's catalogs, as plain texts for whoever starts Spark."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from sandur.errors import BadRequest
from sandur.spark.connection import Connection
from sandur.spark.versions import Versions

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
