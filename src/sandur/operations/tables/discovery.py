"""The tables in a folder that no catalog describes: which files are their metadata, and which names they get."""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import normalize_location
from sandur.errors import BadRequest
from sandur.operations.tables.documents import version_in_name
from sandur.storage.contract import Listed

DEFAULT_NAMESPACE: Final = "default"
OBJECTS_MAX: Final = 2_000_000
"""The most objects that one process lists. The pipeline's job `import` has no such limit."""

_HIVE: Final = ".db"
_ICEBERG: Final = re.compile(r"^(.*?)(?:^|/)metadata/([^/]+\.metadata\.json|[^/]+\.metadata\.json\.gz)$")
_DELTA: Final = re.compile(r"^(.*?)(?:^|/)_delta_log/([0-9]{20}\.(?:json|checkpoint\.parquet))$")


class MetadataFile(NamedTuple):
    """A metadata file of a table. `folder` is that of the table, relative to the location that is searched."""

    format: Literal["iceberg", "delta"]
    folder: str
    file: str
    number: int
    modified_ms: int


def metadata_file(path: str, modified_ms: int) -> MetadataFile | None:
    """The metadata file at a path relative to the location; None if the path is that of another file."""
    if match := _ICEBERG.match(path):
        return MetadataFile("iceberg", match[1], match[2], version_in_name(match[2]), modified_ms)
    if match := _DELTA.match(path):
        return MetadataFile("delta", match[1], match[2], int(match[2][:20]), modified_ms)
    return None


def table_location(location: str, folder: str) -> str:
    return f"{location.rstrip('/')}/{folder}".rstrip("/")


def identifier_in(catalog: str, location: str, folder: str, namespace: Sequence[str] = ()) -> Identifier:
    """The name for the table in a folder: the folders above it are its namespace, unless one is given."""
    whole = [part for part in normalize_location(table_location(location, folder)).split("/") if part]
    above = [part.removesuffix(_HIVE) for part in folder.split("/") if part][:-1]
    return Identifier(catalog, tuple(namespace) or tuple(above) or (DEFAULT_NAMESPACE,), whole[-1])


async def newest_metadata_files(pages: AsyncIterator[Iterable[Listed]], prefix: str) -> Sequence[MetadataFile]:
    """The newest metadata file of every table among the listed objects, by folder. Raises BadRequest for too many."""
    newest: dict[tuple[str, str], MetadataFile] = {}
    count = 0
    async for page in pages:
        for listed in page:
            count += 1
            found = metadata_file(listed.key.removeprefix(prefix), listed.modified_ms)
            if found is not None:
                known = newest.get(found[:2])
                newest[found[:2]] = found if known is None else max(known, found, key=_age)
        if count > OBJECTS_MAX:
            raise BadRequest(f"more than {OBJECTS_MAX} objects; search with Spark: sandur run import --location URL")
    return [newest[key] for key in sorted(newest, key=lambda one: (one[1], one[0]))]


def _age(found: MetadataFile) -> tuple[int, int, str]:
    return found.number, found.modified_ms, found.file
