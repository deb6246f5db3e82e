"""The overview of a workspace, from published datasets: how much it has, what changed last, which tables need work."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.extras import pa, pc
from sandur.operations.access import authorize_metastore
from sandur.operations.explore.visibility import CHECKED_MAX, Row, Sight
from sandur.operations.lake import Lake
from sandur.operations.published import BYTES_PER_PLACE, CoreManifest, PublishedDatasets
from sandur.storage.cell import gather_all

T = TypeVar("T")

COMMITS_MAX: Final = 200
_NEWEST: Final = 10
_WORST: Final = 10
_DAYS: Final = 30
_LONG_ROWS: Final = 50_000
"""From here on, a table is filtered in a thread."""

_COMMITS: Final = (
    *("catalog", "namespace", "name", "kind", "format", "table_uuid", "metadata_version", "committed_at_ms"),
    *("operation", "snapshot_id", "source", "principal", "client", "run_id", "lineage", "quality", "commit_key"),
)
_TABLES: Final = ("catalog", "namespace", "name", "uuid", "kind", "record_count", "size_bytes")
_HEALTH: Final = ("catalog", "namespace", "name", "uuid", "benefit", "needs_json", "blocked")


class CommitRow(msgspec.Struct, frozen=True, kw_only=True):
    """One commit anywhere in the workspace. `identifier` is None if the table has no name any more."""

    identifier: Identifier | None
    kind: str
    format: str
    uuid: str
    version: int
    at_ms: int
    operation: str
    source: str
    principal: str
    engine: str
    run_id: str
    lineage: str
    quality: str


class NeedyTable(msgspec.Struct, frozen=True, kw_only=True):
    identifier: Identifier
    reasons: tuple[str, ...]


class Totals(NamedTuple):
    """Of all tables together; rows and bytes are of those whose totals are known."""

    tables: int
    views: int
    rows: int
    bytes: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """`published_ms` is 0 if nothing was published. `totals` and `days` are for callers who see every table."""

    published_ms: int
    totals: Totals | None = None
    days: Sequence[tuple[str, int]] = ()
    newest: Sequence[CommitRow] = ()
    worst: Sequence[NeedyTable] = ()


class CommitFilter(NamedTuple):
    """Which commits; empty texts mean all."""

    catalog: str = ""
    namespace: str = ""
    principal: str = ""
    source: str = ""
    operation: str = ""


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    published_ms: int
    commits: Sequence[CommitRow] = ()


class _Derived:
    """What was computed from datasets, until they are published again."""

    def __init__(self, _lake: Lake) -> None:
        self.values: dict[str, tuple[int, Any]] = {}


async def load_overview(lake: Lake) -> Overview:
    """The overview, as far as the caller may see it."""
    published = lake.feature(PublishedDatasets)
    manifest, authority = await gather_all((published.manifest(), authorize_metastore(lake)))
    sight = Sight(lake, authority)
    if not manifest.published_ms:
        return Overview(published_ms=0)
    newest = await _newest(lake, manifest)
    needy = await _needy(lake, manifest)
    visible = await sight.visible(newest, _NEWEST, uuid="table_uuid")
    worst = await sight.visible(needy, _WORST)
    return Overview(
        published_ms=manifest.published_ms,
        totals=await _totals(lake, manifest) if sight.is_unlimited else None,
        days=await _days(lake, manifest) if sight.is_unlimited else (),
        newest=[commit_row(row) for row in visible],
        worst=[NeedyTable(identifier=_identifier(row), reasons=_reasons(row)) for row in worst],
    )


async def load_activity(lake: Lake, wanted: CommitFilter) -> Activity:
    """The newest commits that the filter selects, of tables that the caller may see."""
    published = lake.feature(PublishedDatasets)
    manifest, authority = await gather_all((published.manifest(), authorize_metastore(lake)))
    sight = Sight(lake, authority)
    if wanted == CommitFilter():
        rows = await _newest(lake, manifest)
    else:
        table = await published.table(manifest, "commits", _COMMITS)
        rows = await _aside(table, lambda: newest_rows(_filtered(table, wanted)))
    shown = await sight.visible(rows, COMMITS_MAX, uuid="table_uuid")
    return Activity(published_ms=manifest.published_ms, commits=[commit_row(row) for row in shown])


class PublishedSizes(NamedTuple):
    """The rows and bytes of all tables, as they were published. Nothing is checked: callers name what they may see."""

    published_ms: int
    sizes: "TableSizes"

    def of(self, uuids: Sequence[str]) -> Mapping[str, tuple[int | None, int | None]]:
        """Rows and bytes of the objects with these ids, as far as they are known."""
        places = [(uuid, self.sizes.places[uuid]) for uuid in uuids if uuid in self.sizes.places]
        if not places:
            return {}
        found = self.sizes.table.take([place for _, place in places]).to_pylist()
        return {uuid: (row["record_count"], row["size_bytes"]) for (uuid, _), row in zip(places, found, strict=True)}


class TableSizes(NamedTuple):
    """The sizes of all tables, and the number of the row of each one by its id."""

    table: "pa.Table"
    places: Mapping[str, int]

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes) + BYTES_PER_PLACE * len(self.places)


def places_of(table: "pa.Table") -> TableSizes:
    uuids = table["uuid"].to_pylist() if table.num_rows else []
    sizes = table.select(["record_count", "size_bytes"]) if table.num_rows else table
    return TableSizes(sizes, {uuid: place for place, uuid in enumerate(uuids)})


async def load_sizes(lake: Lake) -> PublishedSizes:
    published = lake.feature(PublishedDatasets)
    manifest = await published.manifest()
    sizes = await published.prepared(manifest, "tables", ("uuid", "record_count", "size_bytes"), places_of)
    return PublishedSizes(manifest.published_ms, sizes)


def commit_row(row: Row) -> CommitRow:
    return CommitRow(
        identifier=_identifier(row) if row["name"] else None,
        kind=row["kind"] or "table",
        format=row["format"],
        uuid=row["table_uuid"],
        version=row["metadata_version"],
        at_ms=row["committed_at_ms"],
        operation=row["operation"],
        source=row["source"],
        principal=row["principal"],
        engine=row["client"],
        run_id=row["run_id"],
        lineage=row["lineage"],
        quality=row["quality"],
    )


def newest_rows(table: "pa.Table", count: int = CHECKED_MAX) -> list[Row]:
    """The newest commits, newest first."""
    if not table.num_rows:
        return []
    keys = [("committed_at_ms", "descending"), ("table_uuid", "ascending"), ("metadata_version", "descending")]
    places = pc.select_k_unstable(table, k=min(count, table.num_rows), sort_keys=keys)
    rows: list[Row] = table.take(places).to_pylist()
    return rows


def _filtered(table: "pa.Table", wanted: CommitFilter) -> "pa.Table":
    for column, text in wanted._asdict().items():
        if text and table.num_rows:
            table = table.filter(pc.equal(table[column].cast(pa.string()), text))
    return table


async def _newest(lake: Lake, manifest: CoreManifest) -> list[Row]:
    return await derived(lake, manifest, "commits", _COMMITS, newest_rows)


async def _needy(lake: Lake, manifest: CoreManifest) -> list[Row]:
    return await derived(lake, manifest, "table_health", _HEALTH, needy_rows)


def needy_rows(table: "pa.Table") -> list[Row]:
    """The tables that need something, those that gain most first."""
    rows = [row for row in table.to_pylist() if row["needs_json"] != "[]"]
    rows.sort(key=lambda row: (-(row["benefit"] or 0.0), row["catalog"], row["namespace"], row["name"]))
    return rows[:CHECKED_MAX]


async def _totals(lake: Lake, manifest: CoreManifest) -> Totals:
    return await derived(lake, manifest, "tables", _TABLES, totals_of)


def totals_of(table: "pa.Table") -> Totals:
    if not table.num_rows:
        return Totals(0, 0, 0, 0)
    views = pc.sum(pc.equal(table["kind"].cast(pa.string()), "view")).as_py() or 0
    rows, size = (pc.sum(table[name].cast(pa.int64())).as_py() or 0 for name in ("record_count", "size_bytes"))
    return Totals(table.num_rows - views, views, rows, size)


async def _days(lake: Lake, manifest: CoreManifest) -> Sequence[tuple[str, int]]:
    return await derived(lake, manifest, "activity", ("day", "commits"), commits_by_day)


def commits_by_day(table: "pa.Table") -> Sequence[tuple[str, int]]:
    """The commits of the last days that have some, in their order."""
    if not table.num_rows:
        return ()
    counted = table.group_by("day").aggregate([("commits", "sum")]).sort_by("day")
    pairs = zip(counted["day"].to_pylist(), counted["commits_sum"].to_pylist(), strict=True)
    return tuple(pairs)[-_DAYS:]


async def derived(
    lake: Lake, manifest: CoreManifest, name: str, columns: Sequence[str], compute: "Callable[[pa.Table], T]"
) -> T:
    """What is computed from a dataset; it is computed once for each publication."""
    held = lake.feature(_Derived).values
    dataset = manifest.datasets.get(name)
    sequence = dataset.sequence if dataset else 0
    key = f"{name} {compute.__qualname__}"
    if key not in held or held[key][0] != sequence:
        table = await lake.feature(PublishedDatasets).table(manifest, name, columns)
        held[key] = (sequence, await _aside(table, lambda: compute(table)))
    found: T = held[key][1]
    return found


async def _aside(table: "pa.Table", work: Callable[[], T]) -> T:
    """The result of the work, in a thread if the table is long."""
    return await asyncio.to_thread(work) if table.num_rows > _LONG_ROWS else work()


def _identifier(row: Row) -> Identifier:
    return Identifier(row["catalog"], tuple(row["namespace"].split(".")), row["name"])


def _reasons(row: Row) -> tuple[str, ...]:
    needs = msgspec.json.decode(row["needs_json"], type=list[dict[str, Any]])
    return tuple(f"{need['operation']}: {need['reason']}" for need in needs)


def full_name(row: CommitRow) -> str:
    """The name of the table of a commit; its id if it has none."""
    return full_name_of(row.identifier) if row.identifier else row.uuid
