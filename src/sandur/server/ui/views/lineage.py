"""The lineage of a table as a graph and as a list."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from markupsafe import Markup

from sandur.catalog.identifiers import Identifier, parse_full_name
from sandur.errors import BadRequest
from sandur.operations.lineage.graph import Edge, Graph, Node
from sandur.server.ui.drawing.graphs import NODES_MAX, GraphEdge, GraphNode, layered_graph, layers_of
from sandur.server.ui.links import object_link
from sandur.server.ui.views.objects import ObjectView, object_head

DEPTHS: Final = (1, 2, 3, 5, 10)


class LineageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One edge: a source and a target, the job between them, and how much is known."""

    source: str
    source_link: str
    target: str
    target_link: str
    confidence: str
    job: str
    runs: int | None
    last_ms: int | None
    source_version: str
    target_version: str


class LineageView(ObjectView, frozen=True, kw_only=True):
    """`upstream` are the edges that lead to the table, `downstream` those that lead away from it."""

    graph: Markup
    upstream: Sequence[LineageRow]
    downstream: Sequence[LineageRow]
    depth: int
    as_of: str
    depths: Sequence[tuple[int, str]]
    published_ms: int
    is_cut: bool
    hidden: int


def lineage_view(identifier: Identifier, kind: str, found: Graph, *, depth: int, as_of: str) -> LineageView:
    nodes = found.nodes[:NODES_MAX]
    links = {node.id: _link(node, depth) for node in nodes}
    edges = [edge for edge in found.edges if edge.source in links and edge.target in links]
    layers = layers_of(found.start, list(links), [(one.source, one.target) for one in edges])
    texts = {node.id: _text(node) for node in nodes}
    rows = [(layers[edge.target] <= 0, _row(edge, texts, links)) for edge in edges]
    return LineageView(
        object=object_head(identifier, kind, "lineage"),
        graph=_drawn(found.start, nodes, edges, links),
        upstream=[row for is_up, row in rows if is_up],
        downstream=[row for is_up, row in rows if not is_up],
        depth=depth,
        as_of=as_of,
        depths=[(one, object_link(identifier, kind, "lineage", depth=one, at=as_of)) for one in DEPTHS],
        published_ms=found.published_ms,
        is_cut=found.truncated or len(found.nodes) > NODES_MAX,
        hidden=sum(node.kind == "hidden" for node in found.nodes),
    )


def _drawn(start: str, nodes: Sequence[Node], edges: Sequence[Edge], links: Mapping[str, str]) -> Markup:
    """The graph; empty without edges."""
    if not edges:
        return Markup("")
    boxes = [GraphNode(node.id, _text(node), links[node.id], _style(node, start)) for node in nodes]
    lines = [GraphEdge(edge.source, edge.target, edge.confidence, _edge_text(edge)) for edge in edges]
    return layered_graph(start, boxes, lines, label="Lineage as a graph; the lists below say the same")


def _text(node: Node) -> str:
    return node.name or "something that you may not see"


def _style(node: Node, start: str) -> str:
    if node.id == start:
        return "start"
    return {"table": "", "external": "external", "hidden": "hidden-node"}[node.kind]


def _link(node: Node, depth: int) -> str:
    if node.kind != "table" or not node.name:
        return ""
    try:
        return object_link(parse_full_name(node.name), "table", "lineage", depth=depth)
    except BadRequest:
        return ""


def _edge_text(edge: Edge) -> str:
    return f"{edge.job} ({edge.confidence})" if edge.job else edge.confidence


def _row(edge: Edge, texts: Mapping[str, str], links: Mapping[str, str]) -> LineageRow:
    return LineageRow(
        source=texts[edge.source],
        source_link=links[edge.source],
        target=texts[edge.target],
        target_link=links[edge.target],
        confidence=edge.confidence,
        job=edge.job or "",
        runs=edge.runs,
        last_ms=edge.last_seen_ms,
        source_version=edge.source_version or "",
        target_version=edge.target_version or "",
    )
