"""The lineage graph around a table, a dataset or a job, from what the pipeline published; no Spark is needed.

Every table of the graph is checked: what the caller may not see is a node without a name.
"""

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.catalog.identifiers import full_name_of, parse_full_name
from sandur.catalog.security.manifest import Authority
from sandur.errors import BadRequest, NotFound
from sandur.extras import pa, pc
from sandur.operations.access import authorize_metastore, resolve_with_authority
from sandur.operations.explore.visibility import Sight
from sandur.operations.lake import Lake
from sandur.operations.published import CoreManifest, PublishedDatasets
from sandur.storage.cell import gather_all, gather_in_batches

DEPTH_MAX: Final = 10
NODES_MAX: Final = 1_000
EDGES_MAX: Final = 10_000
_CHECKS_AT_ONCE: Final = 64
_TABULAR: Final = frozenset({"table", "view"})
_SIDES: Final = ("source_uuid", "source_name", "target_uuid", "target_name")
_EDGES: Final = (
    *_SIDES,
    *("job_namespace", "job_name", "last_run_id", "confidence", "first_seen", "last_seen", "runs"),
    *("source_version", "target_version", "commit_key"),
)
_COLUMNS: Final = (
    *_SIDES,
    *("source_column", "source_field_id", "target_column", "target_field_id", "type", "subtype", "masking"),
    *("job_namespace", "job_name", "last_run_id", "confidence", "first_seen", "last_seen"),
)

Direction = Literal["up", "down", "both"]


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table (`table:main.sales.daily`), a dataset outside the catalog, or something that the caller may not see."""

    id: str
    kind: Literal["table", "external", "hidden"]
    name: str | None = None
    uuid: str | None = None


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """`target` was made from `source`. What is known about the job is left out if one of both is hidden."""

    source: str
    target: str
    confidence: str
    job: str | None = None
    last_run_id: str | None = None
    source_version: str | None = None
    target_version: str | None = None
    commit_key: str | None = None
    runs: int | None = None
    first_seen_ms: int | None = None
    last_seen_ms: int | None = None


class ColumnEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of `target` depends on a column of `source`; without `target_column`, all its rows do."""

    source: str
    source_column: str
    target: str
    type: str
    confidence: str
    source_field_id: int | None = None
    target_column: str | None = None
    target_field_id: int | None = None
    subtype: str | None = None
    masking: bool = False
    job: str | None = None
    last_run_id: str | None = None
    first_seen_ms: int | None = None
    last_seen_ms: int | None = None


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the graph. `truncated`: there is more within the depth. `published_ms`: when the pipeline made it."""

    start: str
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    columns: Sequence[ColumnEdge]
    truncated: bool
    published_ms: int


class Question(NamedTuple):
    """What is asked. `columns` None: no columns; empty: all columns between the nodes; otherwise those of the start."""

    node: str
    direction: Direction = "both"
    depth: int = 3
    columns: Collection[str] | None = None
    as_of_ms: int | None = None


async def load_lineage(lake: Lake, asked: Question) -> Graph:
    """The graph around a node, as far as the caller may see it.

    Raises BadRequest for a malformed question, and NotFound for a node that does not exist or is hidden.
    """
    if not 1 <= asked.depth <= DEPTH_MAX:
        raise BadRequest(f"Invalid depth {asked.depth}: expected 1 to {DEPTH_MAX}")
    kind, name = _parsed(asked.node)
    published = lake.feature(PublishedDatasets)
    (authority, uuid), manifest = await gather_all((_start(lake, kind, name), published.manifest()))
    edges = _as_of(await published.table(manifest, "lineage", _EDGES), asked.as_of_ms)
    starts = _starts(edges, kind, name, uuid)
    walked = _walk(edges, starts, asked)
    shown = await _Shown.of(lake, authority, walked.rows, (uuid, name) if uuid else None)
    if kind != "table" and all(shown.nodes[one].kind == "hidden" for one in starts if one in shown.nodes):
        raise NotFound(f"{asked.node[:200]} is not in the lineage that was published", subject="object")
    columns = await _columns(published, manifest, asked, shown, starts) if asked.columns is not None else ()
    found = [_edge(row, shown) for row in walked.rows]
    return Graph(
        start=shown.nodes[uuid].id if uuid else asked.node,
        nodes=list(shown.nodes.values()),
        edges=found[:EDGES_MAX],
        columns=columns[:EDGES_MAX],
        truncated=walked.truncated or max(len(found), len(columns)) > EDGES_MAX,
        published_ms=manifest.published_ms,
    )


def _parsed(node: str) -> tuple[str, str]:
    kind, _, name = node.partition(":")
    if not name or kind not in {"table", "external", "job"}:
        raise BadRequest(
            f"Invalid node {node[:100]!r}: expected table:catalog.schema.name, external:NAME or job:NAMESPACE:NAME"
        )
    return kind, name


async def _start(lake: Lake, kind: str, name: str) -> tuple[Authority | None, str | None]:
    """The grants, and the uuid of a table or view that the caller may see; NotFound otherwise."""
    if kind != "table":
        return await authorize_metastore(lake), None
    identifier = parse_full_name(name)
    missing = NotFound(f"Table does not exist: {full_name_of(identifier)[:300]}", subject="table")
    found, authority = await resolve_with_authority(
        lake, identifier, lambda found: found.name.value.kind in _TABULAR, missing=missing
    )
    return authority, found.published_uuid


Row = Mapping[str, object]


class _Walked(NamedTuple):
    rows: Sequence[Row]
    truncated: bool


def _as_of(table: "pa.Table", as_of_ms: int | None) -> "pa.Table":
    """The edges with the ids of both sides, without those that were first seen later."""
    for side in ("source", "target"):
        uuid, name = table[f"{side}_uuid"].cast(pa.string()), table[f"{side}_name"].cast(pa.string())
        table = table.append_column(f"{side}_id", pc.coalesce(uuid, name))
    if as_of_ms is None or not table.num_rows:
        return table
    moment = pa.scalar(as_of_ms * 1_000, pa.timestamp("us", tz="UTC"))
    return table.filter(pc.less_equal(table["first_seen"], moment))


def _starts(edges: "pa.Table", kind: str, name: str, uuid: str | None) -> Sequence[str]:
    """The ids at which the walk begins; for a job, everything that it reads or writes."""
    if uuid:
        return [uuid]
    if kind == "external":
        is_start = [pc.and_(pc.is_null(edges[f"{side}_uuid"]), pc.equal(edges[f"{side}_id"], name)) for side in _ENDS]
        return [name] if any(pc.any(found).as_py() for found in is_start) else []
    namespace, _, job = name.rpartition(":")
    of_job = edges.filter(
        pc.and_(pc.equal(edges["job_namespace"].cast(pa.string()), namespace), pc.equal(edges["job_name"], job))
    )
    return sorted({str(one) for side in _ENDS for one in of_job[f"{side}_id"].to_pylist()})[:NODES_MAX]


_ENDS: Final = ("source", "target")


def _walk(edges: "pa.Table", starts: Sequence[str], asked: Question) -> _Walked:
    """The edges within the depth, level by level, until there are too many nodes."""
    nodes, truncated = set(starts), False
    found: dict[tuple[object, ...], Row] = {}
    # Upwards and downwards are walked apart: the other sources of a target of the start are not its sources.
    for way, near, far in _WAYS:
        seen = frontier = set(starts) if asked.direction in {way, "both"} else set()
        for _ in range(asked.depth):
            if not frontier:
                break
            wanted = pa.array(sorted(frontier), type=pa.string())
            following: set[str] = set()
            for row in edges.filter(pc.is_in(edges[f"{near}_id"], value_set=wanted)).to_pylist():
                one = row[f"{far}_id"]
                if one not in nodes and len(nodes) >= NODES_MAX:
                    truncated = True
                    continue
                nodes.add(one)
                following.add(one)
                found[row["source_id"], row["target_id"], row["job_namespace"], row["job_name"]] = row
            frontier = following - seen
            seen = seen | frontier
    names = ("target_name", "source_name", "job_name")
    ordered = sorted(found.values(), key=lambda row: [str(row[name]) for name in names])
    return _Walked(ordered, truncated)


_WAYS: Final = (("up", "target", "source"), ("down", "source", "target"))


class _Shown(NamedTuple):
    """The nodes of a graph by the ids of the published rows."""

    nodes: Mapping[str, Node]

    def id_of(self, row: Row, side: str) -> str:
        return self.nodes[str(row[f"{side}_id"])].id

    def hides(self, row: Row) -> bool:
        return any(self.nodes[str(row[f"{side}_id"])].kind == "hidden" for side in _ENDS)

    @classmethod
    async def of(
        cls, lake: Lake, authority: Authority | None, rows: Sequence[Row], start: tuple[str, str] | None
    ) -> "_Shown":
        """Check every table. A dataset outside the catalog is shown if it is next to a table that is shown."""
        tables = dict([start]) if start else {}
        tables |= {uuid: name for uuid, name in _tables(rows) if uuid not in tables}
        ids, sight = list(tables), Sight(lake, authority)
        visible = await gather_in_batches(ids, lambda uuid: _sees(sight, uuid, tables[uuid]), at_once=_CHECKS_AT_ONCE)
        shown = {uuid for uuid, is_visible in zip(ids, visible, strict=True) if is_visible}
        shown |= {start[0]} if start else set()
        return cls(_nodes(rows, tables, shown, shows_outside=authority is None))


def _nodes(
    rows: Sequence[Row], tables: Mapping[str, str], shown: Collection[str], *, shows_outside: bool
) -> Mapping[str, Node]:
    """The nodes of the rows, tables first; `shown` are the tables that the caller may see."""
    outside = {
        str(row[f"{side}_id"])
        for row in rows
        for side, other in (_ENDS, _ENDS[::-1])
        if not row[f"{side}_uuid"] and (shows_outside or row[f"{other}_uuid"] in shown)
    }
    every = [*tables, *sorted({str(row[f"{side}_id"]) for row in rows for side in _ENDS} - tables.keys())]
    hidden = [one for one in every if one not in shown and one not in outside]
    nodes = {one: Node(f"hidden:{number}", "hidden") for number, one in enumerate(hidden, start=1)}
    nodes |= {one: Node(f"external:{one}", "external", one) for one in outside}
    nodes |= {one: Node(f"table:{tables[one]}", "table", tables[one], one) for one in shown}
    return {one: nodes[one] for one in every}


def _tables(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """The uuid and the name of every table in the rows."""
    for row in rows:
        for side in _ENDS:
            if row[f"{side}_uuid"]:
                yield str(row[f"{side}_uuid"]), str(row[f"{side}_name"])


async def _sees(sight: Sight, uuid: str, name: str) -> bool:
    """A published name that cannot be parsed names nothing that the caller may see."""
    try:
        catalog, levels, table = parse_full_name(name)
    except BadRequest:
        return sight.is_unlimited
    return await sight.sees(catalog, ".".join(levels), table, uuid)


def _edge(row: Row, shown: _Shown) -> Edge:
    source, target, confidence = shown.id_of(row, "source"), shown.id_of(row, "target"), str(row["confidence"])
    if shown.hides(row):
        return Edge(source, target, confidence)
    return Edge(
        source,
        target,
        confidence,
        job=f"{row['job_namespace']}:{row['job_name']}",
        last_run_id=_text(row["last_run_id"]),
        source_version=_text(row["source_version"]),
        target_version=_text(row["target_version"]),
        commit_key=_text(row["commit_key"]),
        runs=row["runs"] if isinstance(row["runs"], int) else None,
        first_seen_ms=_ms(row["first_seen"]),
        last_seen_ms=_ms(row["last_seen"]),
    )


async def _columns(
    published: PublishedDatasets, manifest: CoreManifest, asked: Question, shown: _Shown, starts: Sequence[str]
) -> Sequence[ColumnEdge]:
    """The edges of columns between the tables that are shown."""
    table = _as_of(await published.table(manifest, "column_lineage", _COLUMNS), asked.as_of_ms)
    ids = pa.array([one for one, node in shown.nodes.items() if node.kind != "hidden"], type=pa.string())
    for side in _ENDS:
        table = table.filter(pc.is_in(table[f"{side}_id"], value_set=ids))
        column = table[f"{side}_column"].cast(pa.string())
        table = table.append_column(f"{side}_at", pc.binary_join_element_wise(table[f"{side}_id"], column, "\n"))
    if asked.columns:
        table = _of_columns(table, {f"{start}\n{column}" for start in starts for column in asked.columns}, asked)
    rows = table.slice(0, EDGES_MAX + 1).to_pylist()
    return [
        ColumnEdge(
            source=shown.id_of(row, "source"),
            source_column=row["source_column"],
            target=shown.id_of(row, "target"),
            type=row["type"],
            confidence=row["confidence"],
            source_field_id=row["source_field_id"],
            target_column=row["target_column"],
            target_field_id=row["target_field_id"],
            subtype=row["subtype"] or None,
            masking=bool(row["masking"]),
            job=f"{row['job_namespace']}:{row['job_name']}",
            last_run_id=_text(row["last_run_id"]),
            first_seen_ms=_ms(row["first_seen"]),
            last_seen_ms=_ms(row["last_seen"]),
        )
        for row in rows
    ]


def _of_columns(table: "pa.Table", starts: set[str], asked: Question) -> "pa.Table":
    """The edges that lead to or from some columns, within the depth."""
    found = pa.array([False] * table.num_rows, type=pa.bool_())
    for way, near, far in _WAYS:
        frontier = starts if asked.direction in {way, "both"} else set()
        seen = set(frontier)
        for _ in range(asked.depth):
            if not frontier:
                break
            is_next = pc.fill_null(
                pc.is_in(table[f"{near}_at"], value_set=pa.array(sorted(frontier), type=pa.string())), fill_value=False
            )
            found = pc.or_(found, is_next)
            following = {one for one in table.filter(is_next)[f"{far}_at"].to_pylist() if one}
            frontier = following - seen
            seen |= frontier
    return table.filter(found)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _ms(value: object) -> int | None:
    return round(value.timestamp() * 1_000) if isinstance(value, dt.datetime) else None
