"""The health of a Delta table, from its log.

The checksum of the newest version has the totals. It knows neither partitions nor the deleted rows of a file, and some
writers leave none: then the log itself is read, if compaction may pay.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.measures import Group, SizeHistogram, fragments_of, small_file_bytes, small_group
from sandur.catalog.maintenance.policies import Compaction
from sandur.catalog.records import DeltaTable
from sandur.delta.log_state import EMPTY, Action, FileAction, folded
from sandur.errors import NotFound
from sandur.operations.delta.log_files import (
    Checkpoint,
    Form,
    list_log,
    newest_checkpoint,
    read_checkpoint,
    read_commits,
)
from sandur.operations.delta.publishing import LOG_FOLDER, published_location
from sandur.operations.delta.versions import newest_in_log, newest_version
from sandur.operations.lake import Lake
from sandur.splicing import NOT_JSON, Int64

FILES_MEASURED_MAX: Final = 2_000_000
"""A table with more files is measured by its totals alone."""
LOG_BYTES_MAX: Final = 128 << 20
COMMITS_MAX: Final = 10_000
"""A longer log after its checkpoint is not read; a checkpoint is due then, and the table is measured after it."""
_LOGS_AT_ONCE: Final = 2

_TOPS: Final = frozenset({"add", "remove", "sidecar", "protocol"})
_FIELDS: Final = frozenset(
    {"path", "size", "partitionValues", "deletionVector", "stats", "minReaderVersion", "readerFeatures"}
)


class LogPosition(NamedTuple):
    """The newest version of a Delta table, and the time of its commit."""

    version: int
    committed_ms: int


class _LastCheckpoint(msgspec.Struct, frozen=True):
    version: Int64


class _Histogram(msgspec.Struct, frozen=True, rename="camel"):
    sorted_bin_boundaries: tuple[Int64, ...]
    file_counts: tuple[Int64, ...]
    total_bytes: tuple[Int64, ...]


class _Checksum(msgspec.Struct, frozen=True, rename="camel"):
    """What Delta writes beside a commit: totals of the table, and the sizes of its files."""

    num_files: Int64
    table_size_bytes: Int64
    file_size_histogram: _Histogram | None = None
    num_deletion_vectors_opt: Int64 | None = None


class _Statistics(msgspec.Struct, frozen=True, rename="camel"):
    num_records: Int64 = 0


class _File(FileAction, frozen=True, rename="camel"):
    """An `add` with what its file weighs."""

    size: Int64 = 0
    partition_values: dict[str, str | None] = msgspec.field(default_factory=dict)
    stats: str | None = None


class _SizedAction(Action, frozen=True):
    add: _File | None = None


async def log_position(lake: Lake, table: DeltaTable) -> LogPosition:
    """Where a table is. Commits to an external table do not pass the catalog: only its log knows them.

    NotFound if it has no log.
    """
    if table.table_type == "MANAGED":
        return LogPosition(table.last_version, table.last_commit_ms or table.created_ms)
    version = await newest_version(lake, table)
    found = await _committed_ms(lake, table, version)
    if found is None:  # The record is of another table, which lay at this location before.
        version = await newest_in_log(lake, table.location, at_least=0)
        found = await _committed_ms(lake, table, version)
    if found is None:
        raise NotFound(f"table {table.uuid}: there is no Delta log at {table.location}", subject="file")
    return LogPosition(version, found)


async def _committed_ms(lake: Lake, table: DeltaTable, version: int) -> int | None:
    """When the store got the commit file of a version; None if it is not there."""
    store, key = lake.locations.holder(published_location(table, version))
    listed = await store.head(key)
    return listed.modified_ms if listed else None


async def checkpoint_since(lake: Lake, table: DeltaTable, since_ms: int) -> int | None:
    """The version of the last checkpoint, if its file is not older than this time; None otherwise."""
    location = f"{table.location}/{LOG_FOLDER}/_last_checkpoint"
    last = _decoded(await lake.locations.read(location), _LastCheckpoint)
    store, key = lake.locations.holder(location)
    listed = await store.head(key)
    return last.version if last and listed and listed.modified_ms >= since_ms else None


async def measure_delta(lake: Lake, table: DeltaTable, health: TableHealth, policy: Compaction) -> TableHealth:
    """What the log of a table says about its health; unknown is what it does not say or what is too much to read."""
    version, committed_ms = await log_position(lake, table)
    log = f"{table.location}/{LOG_FOLDER}"
    last = _decoded(await lake.locations.read(f"{log}/_last_checkpoint"), _LastCheckpoint)
    checksum = _decoded(await lake.locations.read(f"{log}/{version:020d}.crc"), _Checksum)
    health = replace(
        health,
        last_commit_ms=committed_ms,
        unpublished_commits=sum(commit.version > table.published for commit in table.commits),
        commits_since_checkpoint=version - (last.version if last else -1),
    )
    if checksum:
        health = _from_checksum(health, checksum, policy)
    if checksum and not _is_candidate(health, checksum, policy):
        return health
    async with lake.feature(_open_logs):
        files = await _live_files(lake, table, version, since=last.version if last else 0)
    return health if files is None else await asyncio.to_thread(_from_files, health, files, policy)


def _open_logs(_lake: Lake) -> asyncio.Semaphore:
    return asyncio.Semaphore(_LOGS_AT_ONCE)


def _from_checksum(health: TableHealth, checksum: _Checksum, policy: Compaction) -> TableHealth:
    health = replace(health, data_files=checksum.num_files, data_bytes=checksum.table_size_bytes)
    sizes = checksum.file_size_histogram
    if sizes is None or len({len(sizes.sorted_bin_boundaries), len(sizes.file_counts), len(sizes.total_bytes)}) > 1:
        return health
    histogram = SizeHistogram(sizes.sorted_bin_boundaries, sizes.file_counts, sizes.total_bytes)
    return _with_groups(health, [small_group(histogram, policy)], policy)


def _is_candidate(health: TableHealth, checksum: _Checksum, policy: Compaction) -> bool:
    """Whether the totals say that compaction may pay, so that the log is worth reading."""
    if checksum.num_files > FILES_MEASURED_MAX:
        return False
    if health.excess_files is None:
        has_small = checksum.table_size_bytes < checksum.num_files * small_file_bytes(policy)
        return checksum.num_files >= policy.min_input_files and has_small
    return health.excess_files + 1 >= policy.min_input_files or bool(checksum.num_deletion_vectors_opt)


async def _live_files(lake: Lake, table: DeltaTable, version: int, *, since: int) -> Sequence[_File] | None:
    """The files of a version, from the newest checkpoint and the commits after it; None if that is too much to read.

    `since` is a version that has a checkpoint, or 0.
    """
    listed = await list_log(lake, table, since=since, limit=3 * COMMITS_MAX)
    checkpoint = newest_checkpoint(list(listed), upto=version) or Checkpoint(-1, ())
    commits = range(checkpoint.version + 1, version + 1)
    names = (*checkpoint.names, *(f"{one:020d}.json" for one in commits))
    if len(commits) > COMMITS_MAX or sum(listed.get(name, 0) for name in names) > LOG_BYTES_MAX:
        return None
    state = EMPTY
    if checkpoint.names:
        async for part in read_checkpoint(lake, table, checkpoint, _SizedAction, _FORM):
            state = await asyncio.to_thread(folded, state._replace(removed={}), part)
    actions: list[Action] = []
    async for _, some in read_commits(lake, table, commits, _SizedAction):
        actions += some
    state = await asyncio.to_thread(folded, state, actions)
    return [one for one in state.live.values() if isinstance(one, _File)]


def _is_wanted(path: str) -> bool:
    top, _, rest = path.partition(".")
    return top in _TOPS and rest.partition(".")[0] in _FIELDS


def _without_statistics(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a checkpoint. Statistics are large; only those of a file with deleted rows are needed."""
    add = row.get("add")
    if not add:
        return row
    kept = {name: value for name, value in add.items() if value is not None}
    if "deletionVector" not in kept:
        kept.pop("stats", None)
    return {**row, "add": kept}


_FORM: Final = Form(_is_wanted, _without_statistics, row_bytes=None)


def _from_files(health: TableHealth, files: Sequence[_File], policy: Compaction) -> TableHealth:
    """The totals, the small files by partition, and the files with many deleted rows."""
    small: dict[tuple[tuple[str, str | None], ...], list[int]] = {}
    limit = small_file_bytes(policy)
    for one in files:
        if one.size < limit:
            small.setdefault(tuple(sorted(one.partition_values.items())), []).append(one.size)
    deleted = [one for one in files if _has_many_deletes(one, policy)]
    health = replace(
        health,
        data_files=len(files),
        data_bytes=sum(one.size for one in files),
        files_with_deletes=len(deleted),
        bytes_with_deletes=sum(one.size for one in deleted),
    )
    return _with_groups(health, (Group(len(sizes), sum(sizes)) for sizes in small.values()), policy)


def _has_many_deletes(file: _File, policy: Compaction) -> bool:
    """Whether enough rows are deleted from a file to rewrite it; False if its rows are not known."""
    vector = file.deletion_vector
    found = _decoded(file.stats.encode(), _Statistics) if vector and file.stats else None
    rows = found.num_records if found else 0
    return bool(vector and rows and vector.cardinality >= rows * policy.deleted_rows_share)


def _with_groups(health: TableHealth, groups: Iterable[Group], policy: Compaction) -> TableHealth:
    small_files, small_bytes, excess_files = fragments_of(groups, policy)
    return replace(health, small_files=small_files, small_bytes=small_bytes, excess_files=excess_files)


def _decoded(data: bytes | None, kind: type[Any]) -> Any:  # noqa: ANN401 - of the type that is asked for
    """A file of a Delta log; None if it is missing or damaged, because engines can do without it."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_JSON:
        return None
