"""Executor tasks of `collect-garbage`: find the owners of files, and let a janitor decide about each candidate."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from posixpath import basename
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import asdict, replace

from sandur.catalog.garbage import folders_in_use
from sandur.catalog.records import Pointer
from sandur.errors import SandurError, SwapLost, Unavailable
from sandur.operations.dry_run import open_dry_run
from sandur.operations.janitors import metadata
from sandur.operations.janitors.leftovers import COMMITTED_RECEIPTS
from sandur.operations.janitors.schedule import JANITORS
from sandur.operations.janitors.sweep import VISITS_AT_ONCE, Janitor
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.sources.receipt_rows import row_of
from sandur.pipeline.tasks import ArrowTask, Row, column_names, lake_task, record_batch
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
from sandur.storage.cell import gather_all
from sandur.storage.contract import Listed, Version, get_many
from sandur.storage.record_form import decode_record

Outcome = Literal["removed", "settled", "kept", "changed", "failed"]

OBJECTS: Final = "key string, version string, size_bytes long, modified_ms long"
CANDIDATES: Final = f"kind string, {OBJECTS}, detail string"
VISITED: Final = f"{CANDIDATES}, outcome string, objects long, freed_bytes long, problem string"
OWNED: Final = "plain string, folder string, uuid string, state string, key string"

RECORDS_AT_ONCE: Final = 500

FOLDERS: Final = "metadata_files"
KILLED: Final = "killed_creates"
ABANDONED: Final = "died_creates"
PUBLISHED: Final = "published_files"

JANITORS_BY_NAME: Final[Mapping[str, Janitor]] = {janitor.name: janitor for janitor in (*JANITORS, COMMITTED_RECEIPTS)}
"""The janitors that decide about one object at a time."""

KINDS: Final = (KILLED, *JANITORS_BY_NAME, PUBLISHED, FOLDERS, ABANDONED)
"""All kinds in the order of deletion: the file of a killed create goes before its pointer."""

_UNCHANGED: Final = ("kept", "changed")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is old enough to be garbage; `detail` holds what its kind needs beyond the key."""

    kind: str
    key: str
    version: str = ""
    size_bytes: int = 0
    modified_ms: int = 0
    detail: str = ""


class Visited(Candidate, frozen=True, kw_only=True):
    """The outcome for a candidate, of `objects` objects; `problem` explains a failure."""

    outcome: Outcome
    objects: int = 1
    freed_bytes: int = 0
    problem: str = ""


class FolderDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tables with metadata files in a folder, and the files that may be deleted; None if not decided yet."""

    uuids: tuple[str, ...]
    names: tuple[str, ...] | None = None


def collect_task(options: Mapping[str, str], *, dry_run: bool) -> ArrowTask:
    """A task over candidates: one row per changed or failed candidate, and a count of the unchanged ones."""

    def collect(blocking: BlockingLake, rows: Sequence[Row]) -> Any:  # noqa: ANN401 - Arrow has no types
        candidates = msgspec.convert(rows, list[Candidate])
        # Each dry run has its own lake: one must not see what another one only pretends to delete.
        lakes = [open_dry_run(blocking.lake) if dry_run else blocking.lake for _ in candidates]
        visits = (visit(lake, candidate) for lake, candidate in zip(lakes, candidates, strict=True))
        visited = blocking.wait(gather_all(visits))
        blocking.wait(gather_all(lake.background.drain() for lake in lakes))
        names = column_names(VISITED)
        return record_batch(VISITED, [[getattr(one, name) for name in names] for one in _summarize(visited)])

    return lake_task(options, collect, rows_at_once=VISITS_AT_ONCE)


def _summarize(visited: Sequence[Visited]) -> list[Visited]:
    """The candidates that changed or failed, and one row per kind with the count of the others."""
    notable = [one for one in visited if one.outcome not in _UNCHANGED]
    counts = Counter((one.kind, one.outcome) for one in visited if one.outcome in _UNCHANGED)
    return notable + [
        Visited(kind=kind, key="", outcome=outcome, objects=times) for (kind, outcome), times in counts.items()
    ]


async def visit(lake: Lake, candidate: Candidate) -> Visited:
    """Decide about a candidate, and act on it in this lake."""
    try:
        return await _VISITORS[candidate.kind](lake, candidate)
    except SwapLost:
        return _visited(candidate, "changed")
    except SandurError as error:
        return _visited(candidate, "failed", problem=f"{type(error).__name__}: {error}")


async def _visit_by_janitor(lake: Lake, candidate: Candidate) -> Visited:
    listed = Listed(candidate.key, Version(candidate.version), candidate.size_bytes, candidate.modified_ms)
    outcome = await JANITORS_BY_NAME[candidate.kind].visit(lake, listed)
    return _visited(candidate, outcome, freed_bytes=candidate.size_bytes if outcome == "removed" else 0)


async def _visit_published_file(lake: Lake, candidate: Candidate) -> Visited:
    await lake.store.delete(candidate.key, expected=Version(candidate.version))
    return _visited(candidate, "removed", freed_bytes=candidate.size_bytes)


async def _visit_folder(lake: Lake, candidate: Candidate) -> Visited:
    known = msgspec.json.decode(candidate.detail, type=FolderDetail)
    garbage = await metadata.garbage_in_folder(lake, candidate.key, known.uuids)
    allowed = garbage if known.names is None else garbage.among(known.names)
    names = tuple(basename(file.location) for file in allowed.files)
    detail = msgspec.json.encode(FolderDetail(known.uuids, names)).decode()
    return await _remove(lake, replace(candidate, detail=detail), allowed)


async def _visit_killed_create(lake: Lake, candidate: Candidate) -> Visited:
    pointer = await lake.pointer(lake.layout.parse_pointer(candidate.key)).read()
    garbage = await metadata.garbage_of_killed(lake, pointer) if pointer else metadata.Garbage()
    return await _remove(lake, candidate, garbage)


async def _visit_abandoned_file(lake: Lake, candidate: Candidate) -> Visited:
    return await _remove(lake, candidate, await metadata.garbage_without_owner(lake, candidate.key))


async def _remove(lake: Lake, candidate: Candidate, garbage: metadata.Garbage) -> Visited:
    if not garbage.files:
        return _visited(candidate, "kept")
    removed = await metadata.remove_garbage(lake, garbage)
    freed_bytes = sum(file.size_bytes for file in garbage.files)
    return _visited(candidate, "removed", objects=removed, freed_bytes=freed_bytes)


def _visited(
    candidate: Candidate, outcome: Outcome, *, objects: int = 1, freed_bytes: int = 0, problem: str = ""
) -> Visited:
    return Visited(**asdict(candidate), outcome=outcome, objects=objects, freed_bytes=freed_bytes, problem=problem)


_VISITORS: Final[Mapping[str, Callable[[Lake, Candidate], Awaitable[Visited]]]] = {
    **dict.fromkeys(JANITORS_BY_NAME, _visit_by_janitor),
    PUBLISHED: _visit_published_file,
    FOLDERS: _visit_folder,
    KILLED: _visit_killed_create,
    ABANDONED: _visit_abandoned_file,
}


def own_receipts(blocking: BlockingLake, listed: Sequence[Row]) -> Any:  # noqa: ANN401 - Arrow has no types
    """Of some listed receipts, those of the pipeline's commits to its own tables."""
    lake = blocking.lake
    stored = blocking.wait(get_many(lake.store, [row["key"] for row in listed]))
    events = [row_of(lake.layout, row["key"], one.data) if one else {} for row, one in zip(listed, stored, strict=True)]
    own_source = ("pipeline", "", SYSTEM_TABLES)
    own_columns = ("source", "principal", "task_id")
    is_own = [tuple(map(event.get, own_columns)) == own_source and "object_id" not in event for event in events]
    names = column_names(OBJECTS)
    own = [[row[name] for name in names] for row, keep in zip(listed, is_own, strict=True) if keep]
    return record_batch(OBJECTS, own)


def owners_task(options: Mapping[str, str], roots: Sequence[str]) -> ArrowTask:
    """A task over keys of pointers: one row per folder with a file of the pointer, or one row without a folder.

    A pointer that cannot be read has an empty `state` and the error in `folder`.
    """

    def owners(blocking: BlockingLake, keys: Sequence[Row]) -> Any:  # noqa: ANN401 - Arrow has no types
        stored = blocking.wait(get_many(blocking.lake.store, [row["key"] for row in keys]))
        pairs = [(row["key"], one.data) for row, one in zip(keys, stored, strict=True) if one]
        return record_batch(OWNED, [row for key, data in pairs for row in _owner_rows(key, data, roots)])

    return lake_task(options, owners, rows_at_once=RECORDS_AT_ONCE)


def _owner_rows(key: str, data: bytes, roots: Sequence[str]) -> list[tuple[str | None, ...]]:
    try:
        pointer = decode_record(key, data, Pointer)
    except Unavailable as error:
        return [(None, str(error), None, "", key)]
    folders = folders_in_use([pointer], roots=roots)
    if not folders:
        return [(None, None, pointer.uuid, pointer.state, key)]
    return [(plain, folder.location, pointer.uuid, pointer.state, key) for plain, folder in folders.items()]
