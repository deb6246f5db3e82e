"""The files of a Delta log: which commits and checkpoints it has, and the actions in them."""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import DeltaTable
from sandur.decompression import uncompressed_bytes_max
from sandur.delta.log_state import Sidecar, decode_lines, decode_rows
from sandur.errors import Invalid, Unavailable
from sandur.extras import pa, pq
from sandur.operations.delta.publishing import LOG_FOLDER, published_location, staged_location
from sandur.operations.lake import Lake
from sandur.storage.cell import gather_all
from sandur.storage.contract import list_all, list_pages

_COMMIT: Final = re.compile(r"(\d{20})\.json\Z")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(parquet|json)\Z")
_COMMITS_AT_ONCE: Final = 20
_BATCH_ROWS: Final = 1_000


class _WithSidecar(Protocol):
    @property
    def sidecar(self) -> Sidecar | None: ...


A = TypeVar("A", bound=_WithSidecar)
T = TypeVar("T")


class Form(NamedTuple):
    """What is read of a checkpoint: the columns that are wanted, and how a row is completed before it is decoded.

    A checkpoint that becomes too large in memory is refused: `row_bytes` is about what a row takes there beside its
    texts and numbers. Without it nothing is refused: a server reads no checkpoint so.
    """

    is_wanted: Callable[[str], bool]
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda row: row
    row_bytes: int | None = 400


class Checkpoint(NamedTuple):
    version: int
    names: tuple[str, ...]


async def log_names(lake: Lake, table: DeltaTable) -> Sequence[str]:
    """The names of the files directly in the log's folder."""
    store, key = lake.locations.holder(f"{table.location}/{LOG_FOLDER}/_")
    folder = key.removesuffix("_")
    found = [one.key.removeprefix(folder) for one in await list_all(store, folder)]
    return [name for name in found if "/" not in name]


async def list_log(lake: Lake, table: DeltaTable, *, since: int, limit: int) -> Mapping[str, int]:
    """The names of commits and checkpoints from a version on, with their bytes; the first `limit` of them."""
    store, key = lake.locations.holder(f"{table.location}/{LOG_FOLDER}/_")
    folder = key.removesuffix("_")
    found: dict[str, int] = {}
    async for page in list_pages(store, folder, after=f"{folder}{since:020d}"):
        names = {one.key.removeprefix(folder): one.size_bytes for one in page}
        numbered = {name: size for name, size in names.items() if name[0].isdecimal()}
        found |= numbered
        if len(numbered) < len(names) or len(found) >= limit:
            break  # Names with a number come first.
    return found


def published_versions(names: Sequence[str]) -> set[int]:
    return {int(found[1]) for name in names if (found := _COMMIT.match(name))}


def is_checkpoint(name: str) -> bool:
    """Whether a name is that of a checkpoint, or of one of its parts."""
    return _CHECKPOINT.match(name) is not None


def newest_checkpoint(names: Sequence[str], *, upto: int | None = None) -> Checkpoint | None:
    """The newest complete checkpoint, at most of version `upto`: one file, or all its parts."""
    complete: dict[int, tuple[str, ...]] = {}
    parts: dict[tuple[int, int], set[str]] = {}
    for name in names:
        found = _CHECKPOINT.match(name)
        if found is None or (upto is not None and int(found[1]) > upto):
            continue
        version, part, of = int(found[1]), found[2], found[3]
        if part is None:
            complete[version] = (name,)
            continue
        several = parts.setdefault((version, int(of)), set())
        several.add(name)
        if len(several) == int(of):
            complete[version] = tuple(sorted(several))
    newest = max(complete, default=None)
    return Checkpoint(newest, complete[newest]) if newest is not None else None


async def read_commits(
    lake: Lake, table: DeltaTable, versions: range, kind: type[A]
) -> AsyncIterator[tuple[int, Sequence[A]]]:
    """The actions of these versions, in their order, published or staged; Unavailable if one of them is missing."""
    staged = {commit.version: commit.file_name for commit in table.commits}

    async def read(version: int) -> tuple[str, bytes]:
        location = published_location(table, version)
        data = await lake.locations.read(location)
        if data is None and staged.get(version):
            location = staged_location(table, staged[version])
            data = await lake.locations.read(location)
        if data is None:
            raise Unavailable(f"table {table.uuid}: version {version} of its log is missing")
        return location, data

    for start in range(0, len(versions), _COMMITS_AT_ONCE):
        some = versions[start : start + _COMMITS_AT_ONCE]
        for version, (location, data) in zip(some, await gather_all(map(read, some)), strict=True):
            yield version, list(decode_lines(data, kind, location=location))


async def read_checkpoint(
    lake: Lake,
    table: DeltaTable,
    checkpoint: Checkpoint,
    kind: type[A],
    form: Form,
    pick: Callable[[Iterable[A]], Iterable[A]] = iter,
) -> AsyncIterator[Sequence[A]]:
    """The actions of a checkpoint, file by file, with its sidecars, which lie in the log; Invalid for one elsewhere.

    `pick` chooses actions of a file while they are decoded, and keeps those that name sidecars.
    """
    log = f"{table.location}/{LOG_FOLDER}"
    sidecars: list[str] = []
    for name in checkpoint.names:
        actions = await read_checkpoint_file(lake, f"{log}/{name}", kind, form, pick)
        sidecars += [one.sidecar.path for one in actions if one.sidecar]
        yield actions
    folder = f"{log}/_sidecars"
    for path in sidecars:
        location = path if "/" in path else f"{folder}/{path}"
        if ".." in path.split("/") or not is_within(normalize_location(location), normalize_location(folder)):
            raise Invalid(f"table {table.uuid}: its checkpoint has the sidecar {path}, which is not in {folder}")
        yield await read_checkpoint_file(lake, location, kind, form, pick)


async def read_checkpoint_file(
    lake: Lake, location: str, kind: type[T], form: Form, pick: Callable[[Iterable[T]], Iterable[T]] = iter
) -> Sequence[T]:
    """The actions in one file of a checkpoint, without those of its sidecars; Unavailable if it is missing."""
    data = await lake.locations.read(location)
    if data is None:
        raise Unavailable(f"file {location}: is missing, so it is not known which files are needed")
    if location.endswith(".json"):
        return list(pick(decode_lines(data, kind, location=location)))

    def decoded() -> Sequence[T]:
        return list(pick(decode_rows(checkpoint_rows(data, form, location=location), kind, location=location)))

    return await asyncio.to_thread(decoded)


def decode_checkpoint(data: bytes, kind: type[T], form: Form, *, location: str) -> Sequence[T]:
    """The actions of a checkpoint file in Parquet; Invalid if it cannot be read."""
    return list(decode_rows(checkpoint_rows(data, form, location=location), kind, location=location))


def checkpoint_rows(data: bytes, form: Form, *, location: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a checkpoint file in Parquet, with the wanted columns; Invalid if it cannot be read."""
    allowed = bytes_left = uncompressed_bytes_max(len(data))
    too_large = Invalid(f"file {location}: a checkpoint that is larger than {allowed} bytes when uncompressed")
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        # Most files that are too large say so before anything is decoded. The number may be wrong.
        if form.row_bytes and form.row_bytes * file.metadata.num_rows > allowed:
            raise too_large
        schema = file.schema
        leaves = [schema.column(number).path for number in range(len(schema))]
        for batch in file.iter_batches(_BATCH_ROWS, columns=[path for path in leaves if form.is_wanted(path)]):
            bytes_left -= 0 if form.row_bytes is None else batch.nbytes + form.row_bytes * batch.num_rows
            if bytes_left < 0:
                raise too_large
            yield from map(form.complete, batch.to_pylist(maps_as_pydicts="lossy"))
    except (pa.ArrowException, OSError, AttributeError, ValueError) as error:  # Also columns of other types.
        raise Invalid(f"file {location}: cannot be read as a Delta checkpoint: {error}") from error
