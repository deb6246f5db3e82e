"""Rows of tables for people: what a caller may read, in a process that can reach nothing else.

The caller needs the right to the data of every table, without row filters and column masks. The process gets the
folders of these tables, credentials that read them, and one query. It is killed when its time is over.
"""

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sandur.catalog.credentials.profiles import StorageProfile
from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import DeltaTable, Pointer
from sandur.errors import BadRequest, Busy, Forbidden, Invalid, SandurError, Unavailable, Unsupported
from sandur.operations.access import resolve_authorized
from sandur.operations.counters import PREVIEWS, Counters
from sandur.operations.credentials.vend import shared_profile, vend
from sandur.operations.delta.publishing import published_location
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import locations_of
from sandur.operations.preview import reader
from sandur.operations.tables.documents import TABLES, load_document
from sandur.operations.tables.names import ResolvedName, effective_head, name_not_found
from sandur.settings import seconds_of
from sandur.splicing import NOT_JSON
from sandur.storage.credentials import s3

ROWS_DEFAULT: Final = 100
ROWS_MAX: Final = 1_000
TABLES_MAX: Final = 10
SQL_CHARS_MAX: Final = 100_000
_CELL_CHARS_MAX: Final = 1_000
_BYTES_MAX: Final = 1 << 20
_OUTPUT_BYTES_MAX: Final = 8 << 20
_START_SECONDS_MAX: Final = 60
_MEMORY_BYTES: Final = 1 << 30
_AT_ONCE_MAX: Final = 2
SPARE_SECONDS: Final = 60
"""How long a spare process waits for a request. It takes about 100 MB."""
_EXTENSIONS: Final = ("avro", "iceberg", "delta", "httpfs")
_MISSING: Final = "previews need DuckDB: install sandur[preview] on the server"


class Column(msgspec.Struct, frozen=True):
    name: str
    type: str


class PreviewedRows(msgspec.Struct, frozen=True):
    """Rows in the order of the query. `is_cut`: there are more, or a limit ended the list."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool


class _Answer(msgspec.Struct, frozen=True):
    """What the process says: rows, or why the query is refused or failed."""

    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    is_cut: bool = False
    refused: str = ""
    failed: str = ""


class _Source(NamedTuple):
    """A table that the process reads: all its folders, and the file or folder that a scan begins at.

    `version` is the newest version of a Delta table that the catalog manages; None for any other table.
    """

    identifier: Identifier
    format: str
    location: str
    folders: Sequence[str]
    version: int | None = None


class Readers:
    """The reading processes of one workspace: a few at once, and one that waits for the next request.

    A process serves one request. The spare one has loaded DuckDB, but knows no table and no credential. It ends when no
    request came for a while.
    """

    def __init__(self, lake: Lake) -> None:
        self.counters = lake.feature(Counters)
        self.free = asyncio.Semaphore(_AT_ONCE_MAX)
        self.has_spare = asyncio.Event()
        self._taken = asyncio.Event()
        self._spare: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        lake.on_close(self.close)

    async def take(self, seconds_max: int) -> asyncio.subprocess.Process:
        """A process that is ready; Unsupported if DuckDB is not installed."""
        spare, self._spare = self._spare, None
        self.has_spare.clear()
        self._taken.set()
        if spare and spare.returncode is None:
            return spare
        return await _started(seconds_max)

    def prepare(self, seconds_max: int) -> None:
        """Start a spare process beside the answer, unless there is one."""
        if not self._is_closed and self._spare is None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._keep_spare(seconds_max), name="spare preview")

    async def _keep_spare(self, seconds_max: int) -> None:
        with contextlib.suppress(SandurError, TimeoutError):  # The next request says why no process can start.
            self._taken.clear()
            self._spare = started = await _started(seconds_max)
            self.has_spare.set()
            try:
                async with asyncio.timeout(SPARE_SECONDS):
                    await self._taken.wait()
            finally:
                if self._spare is started:
                    self._spare = None
                    await _end(started)

    async def close(self) -> None:
        self._is_closed = True
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def preview_rows(lake: Lake, identifier: Identifier, *, limit: int = ROWS_DEFAULT) -> PreviewedRows:
    """The first rows of a table, in no particular order."""
    sql = f'SELECT * FROM "{identifier.name.replace(chr(34), chr(34) * 2)}"'  # noqa: S608 - a quoted identifier
    return await query_rows(lake, [identifier], sql, limit=limit)


async def query_rows(
    lake: Lake, identifiers: Sequence[Identifier], sql: str, *, limit: int = ROWS_DEFAULT
) -> PreviewedRows:
    """The rows of one SELECT over these tables, which it names as `namespace.name` or `name`.

    Raises Invalid for a query that is not allowed or wrong, Unavailable if it takes too long or needs too much memory.
    """
    if not identifiers:
        raise BadRequest("a query needs at least one table; name it in the request")
    if len(identifiers) > TABLES_MAX or len(sql) > SQL_CHARS_MAX:
        raise BadRequest(f"a query has at most {TABLES_MAX} tables and {SQL_CHARS_MAX} characters")
    sources = [await _source(lake, identifier) for identifier in identifiers]
    request = {
        "tables": [
            {
                "namespace": str(one.identifier.namespace),
                "name": one.identifier.name,
                "format": one.format,
                "location": one.location,
                "version": one.version,
            }
            for one in sources
        ],
        "folders": [form for one in sources for folder in one.folders for form in _forms(folder)],
        "secrets": await _secrets(lake, sources),
        "sql": sql,
        "rows_max": min(limit, ROWS_MAX),
        "cell_chars_max": _CELL_CHARS_MAX,
        "bytes_max": _BYTES_MAX,
    }
    readers, seconds_max = lake.feature(Readers), seconds_of(lake.settings.preview_timeout)
    if readers.free.locked():
        raise Busy(f"{_AT_ONCE_MAX} previews run already; repeat this one in a moment")
    async with readers.free:
        answer = await _run(readers, msgspec.json.encode(request), seconds_max)
    readers.prepare(seconds_max)
    if answer.refused:
        raise Invalid(f"the query is refused: {answer.refused}")
    if answer.failed:
        raise Unavailable(f"the query failed: {answer.failed}")
    return PreviewedRows(answer.columns, answer.rows, answer.is_cut)


async def check_readable(lake: Lake, identifier: Identifier) -> None:
    """Raise unless the caller may read all rows of the table."""
    await _readable(lake, identifier)


async def _readable(lake: Lake, identifier: Identifier) -> ResolvedName:
    missing = name_not_found(identifier, "table")
    found = await resolve_authorized(lake, identifier, lambda one: one.name.value.kind == "table", missing=missing)
    if lake.access and lake.access.restrictions:
        raise Forbidden(
            f"{full_name_of(identifier)} has row filters or column masks for this caller: it has no preview"
        )
    return found


async def _source(lake: Lake, identifier: Identifier) -> _Source:
    """The files of a table whose data the caller may read."""
    found = await _readable(lake, identifier)
    match found.pointer.value:
        case Pointer():
            head = await effective_head(lake, found)
            metadata = (await load_document(lake, TABLES, head.metadata_location)).metadata
            return _Source(identifier, "iceberg", _plain(head.metadata_location), locations_of(metadata))
        case DeltaTable() as table if table.data_source_format == "DELTA":
            version = await _published_version(lake, table) if table.table_type == "MANAGED" else None
            return _Source(identifier, "delta", _plain(table.location), (table.location,), version)
        case _:
            raise Unsupported(f"{full_name_of(identifier)} is neither an Iceberg nor a Delta table: it has no preview")


async def _published_version(lake: Lake, table: DeltaTable) -> int:
    """The newest version whose file is published: the reader does not know staged commits."""
    for version in range(table.last_version, max(table.published - 1, -1), -1):
        if await lake.locations.exists(published_location(table, version)):
            return version
    return table.published


def _plain(location: str) -> str:
    """The location as DuckDB opens it: a path for a folder."""
    normal = normalize_location(location)
    return normal.removeprefix("file://") if normal.startswith("file://") else normal


def _forms(folder: str) -> Sequence[str]:
    """A folder in each way that metadata may write it; metadata of Java has one slash after `file:`."""
    plain = _plain(folder)
    return (f"{plain}/", f"file:{plain}/", f"file://{plain}/") if plain.startswith("/") else (f"{plain}/",)


async def _secrets(lake: Lake, sources: Sequence[_Source]) -> list[dict[str, str]]:
    """Credentials that read the tables, one for each; none for folders. Unsupported for clouds besides S3."""
    secrets = []
    for source in sources:
        if source.location.startswith("/"):
            continue
        profile = await shared_profile(lake, source.folders)
        if profile is None or profile.cloud != "s3":
            raise Unsupported(
                f"{full_name_of(source.identifier)}: previews read tables in folders and on S3, and this one is at "
                f"{source.location.partition('://')[0]}://…; read it with an engine"
            )
        secrets.append(await _secret(lake, profile, source))
    return secrets


async def _secret(lake: Lake, profile: StorageProfile, source: _Source) -> dict[str, str]:
    credential = await vend(lake, source.folders, writes=False) if profile.access == "vend" else None
    keys = credential or await s3.profile_keys(profile)
    scheme, _, host = profile.endpoint.rpartition("://")
    options = {
        "key_id": keys.access_key_id,
        "secret": keys.secret_access_key,
        "session_token": keys.session_token,
        "region": profile.region,
        "endpoint": host,
        "url_style": "path" if profile.path_style else "vhost",
        "use_ssl": "false" if scheme == "http" else "true",
        "scope": f"{_plain(source.folders[0])}/",
    }
    return {name: value for name, value in options.items() if value}


async def _run(readers: Readers, request: bytes, seconds_max: int) -> _Answer:
    """Let a process answer one request, and kill it when its time is over."""
    process = await readers.take(seconds_max)
    try:
        answer = await _answered(process, request, seconds_max)
    except TimeoutError:
        readers.counters.add(PREVIEWS, "killed")
        raise Unavailable(f"the query was ended: it took more than {seconds_max} seconds") from None
    except (ValueError, OSError, *NOT_JSON):
        readers.counters.add(PREVIEWS, "killed")
        raise Unavailable("the query was ended: it needed too much memory, or returned too much") from None
    finally:
        await _end(process)
    readers.counters.add(PREVIEWS, "refused" if answer.refused else "failed" if answer.failed else "ok")
    return answer


async def _started(seconds_max: int) -> asyncio.subprocess.Process:
    """A process that has loaded DuckDB and waits for a request; Unsupported if DuckDB is not installed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", reader.__file__),
        *(msgspec.json.encode(_extension_files()).decode(), str(_MEMORY_BYTES), str(seconds_max + 2)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},  # The environment of the server may hold secrets.
        cwd="/",
        limit=_OUTPUT_BYTES_MAX,
    )
    is_ready = False
    try:
        async with asyncio.timeout(_START_SECONDS_MAX):
            is_ready = (await _pipes(process)[1].readline()).strip().decode() == reader.READY
    except TimeoutError:
        raise Unavailable(f"the reading process did not start within {_START_SECONDS_MAX} seconds") from None
    finally:
        if not is_ready:
            await _end(process)
    if not is_ready:
        raise Unsupported(_MISSING)
    return process


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _answered(process: asyncio.subprocess.Process, request: bytes, seconds_max: int) -> _Answer:
    stdin, stdout = _pipes(process)
    async with asyncio.timeout(seconds_max):
        stdin.write(request + b"\n")
        await stdin.drain()
        return msgspec.json.decode(await stdout.readline(), type=_Answer)


def _pipes(process: asyncio.subprocess.Process) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    return process.stdin, process.stdout


def _extension_files() -> list[str]:
    """The extensions of DuckDB, from their packages. Unsupported if one is not installed."""
    files = []
    for name in _EXTENSIONS:
        package = importlib.util.find_spec(f"duckdb_extension_{name}")
        folders = list(package.submodule_search_locations or ()) if package else []
        found = next((file for folder in folders for file in Path(folder).rglob("*.duckdb_extension")), None)
        if found is None or importlib.util.find_spec("duckdb") is None:
            raise Unsupported(_MISSING)
        files.append(str(found))
    return files
