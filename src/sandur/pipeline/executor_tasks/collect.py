"""Executor task: let a janitor decide about each garbage candidate, for real or as a dry run."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
from msgspec.structs import asdict, replace

from sandur.errors import SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.dry_run import open_dry_run
from sandur.operations.janitors import metadata
from sandur.operations.janitors.leftovers import COMMITTED_RECEIPTS, PENDING_RECEIPTS
from sandur.operations.janitors.schedule import JANITORS
from sandur.operations.janitors.sweep import VISITS_AT_ONCE, Janitor
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import open_lake
from sandur.storage.contract import Listed, Version

Outcome = Literal["removed", "settled", "kept", "changed", "failed"]

CANDIDATES: Final = "kind string, key string, version string, size_bytes long, modified_ms long, detail string"
VISITED: Final = f"{CANDIDATES}, outcome string, objects long, freed_bytes long, problem string"

FOLDERS: Final = "metadata_files"
KILLED: Final = "killed_creates"
ABANDONED: Final = "died_creates"
PUBLISHED: Final = "published_files"

JANITORS_BY_NAME: Final[Mapping[str, Janitor]] = {
    janitor.name: janitor for janitor in (*JANITORS, PENDING_RECEIPTS, COMMITTED_RECEIPTS)
}
"""The janitors that look at one object at a time."""

KINDS: Final = (KILLED, *JANITORS_BY_NAME, PUBLISHED, FOLDERS, ABANDONED)
"""In the order in which they are acted on: the file of a killed create goes before its pointer does."""

_UNCHANGED: Final = ("kept", "changed")
_ARROW: Final = {"string": pa.string(), "long": pa.int64()}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is old enough to be looked at; `detail` is what its visitor has to know beyond it."""

    kind: str
    key: str
    version: str = ""
    size_bytes: int = 0
    modified_ms: int = 0
    detail: str = ""


class Visited(Candidate, frozen=True, kw_only=True):
    """What became of a candidate, or would; `objects` is how many it was about, `problem` why it was not decided."""

    outcome: Outcome
    objects: int = 1
    freed_bytes: int = 0
    problem: str = ""


class FolderDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose metadata files lie in a folder, and which of them may be deleted; None when that is not known yet."""

    uuids: tuple[str, ...]
    names: tuple[str, ...] | None = None


async def visit(lake: Lake, candidate: Candidate) -> Visited:
    """Let the one who knows decide, and act, in this workspace."""
    try:
        return await _VISITORS[candidate.kind](lake, candidate)
    except SwapLost:
        return _visited(candidate, "changed")
    except SandurError as error:
        return _visited(candidate, "failed", problem=f"{type(error).__name__}: {error}")


async def _by_janitor(lake: Lake, candidate: Candidate) -> Visited:
    listed = Listed(candidate.key, Version(candidate.version), candidate.size_bytes, candidate.modified_ms)
    outcome = await JANITORS_BY_NAME[candidate.kind].visit(lake, listed)
    return _visited(candidate, outcome, freed_bytes=candidate.size_bytes if outcome == "removed" else 0)


async def _published_file(lake: Lake, candidate: Candidate) -> Visited:
    await lake.store.delete(candidate.key, expected=Version(candidate.version))
    return _visited(candidate, "removed", freed_bytes=candidate.size_bytes)


async def _folder(lake: Lake, candidate: Candidate) -> Visited:
    told = msgspec.json.decode(candidate.detail, type=FolderDetail)
    garbage = await metadata.garbage_in_folder(lake, candidate.key, told.uuids)
    allowed = [file for file in garbage.files if told.names is None or _name(file.location) in told.names]
    names = tuple(_name(file.location) for file in allowed)
    detail = msgspec.json.encode(FolderDetail(told.uuids, names)).decode()
    return await _removed(lake, replace(candidate, detail=detail), garbage._replace(files=tuple(allowed)))


async def _killed(lake: Lake, candidate: Candidate) -> Visited:
    pointer = await lake.pointer(lake.layout.parse_pointer(candidate.key)).read()
    garbage = await metadata.garbage_of_killed(lake, pointer) if pointer else metadata.Garbage()
    return await _removed(lake, candidate, garbage)


async def _nobodys(lake: Lake, candidate: Candidate) -> Visited:
    return await _removed(lake, candidate, await metadata.garbage_without_owner(lake, candidate.key))


async def _removed(lake: Lake, candidate: Candidate, garbage: metadata.Garbage) -> Visited:
    if not garbage.files:
        return _visited(candidate, "kept")
    gone = await metadata.remove_garbage(lake, garbage)
    freed_bytes = sum(file.size_bytes for file in garbage.files)
    return _visited(candidate, "removed", objects=gone, freed_bytes=freed_bytes)


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _visited(
    candidate: Candidate, outcome: Outcome, *, objects: int = 1, freed_bytes: int = 0, problem: str = ""
) -> Visited:
    return Visited(**asdict(candidate), outcome=outcome, objects=objects, freed_bytes=freed_bytes, problem=problem)


_VISITORS: Final[Mapping[str, Callable[[Lake, Candidate], Awaitable[Visited]]]] = {
    **dict.fromkeys(JANITORS_BY_NAME, _by_janitor),
    PUBLISHED: _published_file,
    FOLDERS: _folder,
    KILLED: _killed,
    ABANDONED: _nobodys,
}


Batches = Iterable[Any]
"""Record batches, as Spark passes them to a function in an executor."""


def collect_task(options: Mapping[str, str], *, rehearses: bool) -> Callable[[Batches], Iterator[Any]]:
    """What each task does with its candidates; a row for each that was changed, would be, or could not be looked at.

    Those that are kept are only counted, a row for all of a batch.
    """

    def visit_all(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as open_store:
            held = open_store.lake
            for batch in batches:
                rows = msgspec.convert(batch.to_pylist(), list[Candidate])
                for start in range(0, len(rows), VISITS_AT_ONCE):
                    some = rows[start : start + VISITS_AT_ONCE]
                    # Each rehearsal is alone: what another one pretends must not count.
                    places = [open_dry_run(held) if rehearses else held for _ in some]
                    visits = (visit(place, candidate) for place, candidate in zip(places, some, strict=True))
                    visited = open_store.wait(gather_all(visits))
                    open_store.wait(gather_all(place.background.drain() for place in places))
                    yield _batch(_without_kept(visited))

    return visit_all


def _without_kept(visited: Sequence[Visited]) -> list[Visited]:
    told = [one for one in visited if one.outcome not in _UNCHANGED]
    counted = Counter((one.kind, one.outcome) for one in visited if one.outcome in _UNCHANGED)
    return told + [
        Visited(kind=kind, key="", outcome=outcome, objects=times) for (kind, outcome), times in counted.items()
    ]


def _batch(visited: Sequence[Visited]) -> pa.RecordBatch:
    fields = [field.split() for field in VISITED.split(", ")]
    arrays = [pa.array([getattr(one, name) for one in visited], type=_ARROW[kind]) for name, kind in fields]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])
