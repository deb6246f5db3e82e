"""Graphs as SVG: lineage in layers from left to right, and the snapshots of a table with its branches and tags."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from sandur.server.ui.texts import cut_text

NODES_MAX: Final = 150
_SWEEPS: Final = 4
_BOX_WIDTH: Final = 190
_BOX_HEIGHT: Final = 34
_LAYER_GAP: Final = 80
_ROW_GAP: Final = 14
_MARGIN: Final = 12
_BOX_CHARS: Final = 26
_TIP: Final = 8
_DOT_GAP: Final = 44
_LANE_HEIGHT: Final = 46
_REF_CHARS: Final = 14
_REF_GAP: Final = 14
_CHAR_WIDTH: Final = 7
"""A little more than most characters take, so that names of neighbours do not overlap."""


class GraphNode(NamedTuple):
    """A box. `link` is empty for one that leads nowhere; `style` is a class of the stylesheet."""

    id: str
    text: str
    link: str = ""
    style: str = ""


class GraphEdge(NamedTuple):
    source: str
    target: str
    style: str = ""
    text: str = ""


def layers_of(start: str, nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """The layer of each node: 0 for the start, negative for what it is made from, positive for what is made from it."""
    known = set(nodes)
    after: dict[str, list[str]] = defaultdict(list)
    before: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        if source in known and target in known:
            after[source].append(target)
            before[target].append(source)
    layers = {start: 0} if start in known else {}
    for following, step in ((before, -1), (after, 1)):
        frontier = [start] if start in known else []
        depth = 0
        while frontier:
            depth += step
            found = [one for node in frontier for one in following[node] if one not in layers]
            frontier = list(dict.fromkeys(found))
            layers |= dict.fromkeys(frontier, depth)
    return {node: layers.get(node, 0) for node in nodes}


def ordered_layers(layers: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> Mapping[int, Sequence[str]]:
    """The nodes of each layer, in an order with few crossings: each node near the middle of its neighbours."""
    by_layer: dict[int, list[str]] = defaultdict(list)
    for node, layer in layers.items():
        by_layer[layer].append(node)
    beside: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        beside[source].append(target)
        beside[target].append(source)
    for _ in range(_SWEEPS):
        places = {node: place for row in by_layer.values() for place, node in enumerate(row)}
        for row in by_layer.values():
            row.sort(key=lambda node: (_middle(beside[node], places, places[node]), node))
    return by_layer


def _middle(neighbours: Sequence[str], places: Mapping[str, int], own: int) -> float:
    known = [places[one] for one in neighbours if one in places]
    return sum(known) / len(known) if known else own


def layered_graph(start: str, nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], *, label: str) -> Markup:
    """The graph around the start. Boxes with a link can be reached by the keyboard, from left to right."""
    pairs = [(edge.source, edge.target) for edge in edges]
    layers = layers_of(start, [node.id for node in nodes], pairs)
    rows = ordered_layers(layers, pairs)
    first = min(rows, default=0)
    tallest = max((len(row) for row in rows.values()), default=1)
    height = 2 * _MARGIN + tallest * (_BOX_HEIGHT + _ROW_GAP)
    width = 2 * _MARGIN + (max(rows, default=0) - first + 1) * (_BOX_WIDTH + _LAYER_GAP) - _LAYER_GAP
    at: dict[str, tuple[int, float]] = {}
    for layer in sorted(rows):
        row = rows[layer]
        top = (height - len(row) * (_BOX_HEIGHT + _ROW_GAP)) / 2
        for place, node in enumerate(row):
            at[node] = (_MARGIN + (layer - first) * (_BOX_WIDTH + _LAYER_GAP), top + place * (_BOX_HEIGHT + _ROW_GAP))
    by_id = {node.id: node for node in nodes}
    drawn = [_edge(edge, at) for edge in edges if edge.source in at and edge.target in at]
    drawn += [_box(by_id[node], *at[node]) for layer in sorted(rows) for node in rows[layer]]
    return _svg(label, width, height, drawn)


def _edge(edge: GraphEdge, at: Mapping[str, tuple[int, float]]) -> Markup:
    (left, top), (right, bottom) = at[edge.source], at[edge.target]
    x1, y1, x2, y2 = left + _BOX_WIDTH, top + _BOX_HEIGHT / 2, right, bottom + _BOX_HEIGHT / 2
    bend = max(40.0, abs(x2 - x1) / 2)
    path = f"M{x1} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2 - _TIP} {y2:.1f}"
    tip = f"M{x2} {y2:.1f}l{-_TIP} -4v8z"
    return Markup(
        '<path class="edge {0}" data-from="{4}" data-to="{5}" d="{1}"><title>{2}</title></path>'
        '<path class="tip {0}" data-from="{4}" data-to="{5}" d="{3}"/>'
    ).format(edge.style, path, edge.text, tip, edge.source, edge.target)


def _box(node: GraphNode, x: float, y: float) -> Markup:
    box = Markup(
        '<g class="node {}" data-node="{}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="5"/>'
        '<text x="{}" y="{}">{}</text></g>'
    ).format(
        node.style,
        node.id,
        node.text,
        x,
        f"{y:.1f}",
        _BOX_WIDTH,
        _BOX_HEIGHT,
        x + 10,
        f"{y + _BOX_HEIGHT / 2 + 4:.1f}",
        _cut_front(node.text),
    )
    return Markup('<a href="{}">{}</a>').format(node.link, box) if node.link else box


def _cut_front(text: str) -> str:
    """The end of a long name: there it differs from its neighbours."""
    return text if len(text) <= _BOX_CHARS else f"…{text[1 - _BOX_CHARS :]}"


class SnapshotDot(NamedTuple):
    """A snapshot. `refs` are the branches and tags that point at it."""

    id: int
    parent: int | None
    link: str
    text: str
    refs: Sequence[str] = ()
    is_current: bool = False


def lanes_of(dots: Sequence[SnapshotDot], heads: Sequence[int]) -> Mapping[int, int]:
    """The lane of each snapshot: 0 for what the first head is based on, the next for what only the second one is."""
    parents = {dot.id: dot.parent for dot in dots}
    lanes: dict[int, int] = {}
    lane = 0
    for head in (*heads, *(dot.id for dot in reversed(dots))):
        if head in lanes or head not in parents:
            continue
        one: int | None = head
        while one is not None and one in parents and one not in lanes:
            lanes[one] = lane
            one = parents[one]
        lane += 1
    return lanes


def snapshot_graph(dots: Sequence[SnapshotDot], heads: Sequence[int], *, label: str) -> Markup:
    """The snapshots in their order, a line from each to its parent, and the names of branches and tags."""
    shown = dots[-NODES_MAX:]
    if not shown:
        return Markup("")
    lanes = lanes_of(shown, heads)
    at: dict[int, tuple[int, int]] = {}
    x, taken = _MARGIN + 16 - _DOT_GAP, 0
    for dot in shown:
        names = _ref_text(dot)
        x = max(x + _DOT_GAP, taken + _REF_GAP if names else 0)
        at[dot.id] = (x, 44 + lanes[dot.id] * _LANE_HEIGHT)
        taken = x + len(names) * _CHAR_WIDTH if names else taken
    width = max(x, taken) + 2 * _MARGIN
    height = 68 + max(lanes.values()) * _LANE_HEIGHT
    drawn = []
    for dot in shown:
        x, y = at[dot.id]
        if dot.parent in at:
            parent_x, parent_y = at[dot.parent]
            path = f"M{parent_x} {parent_y}C{parent_x + 20} {parent_y} {x - 20} {y} {x} {y}"
            drawn.append(Markup('<path class="edge" d="{}"/>').format(path))
    drawn += [_dot(dot, *at[dot.id]) for dot in shown]
    return _svg(label, width, height, drawn)


def _dot(dot: SnapshotDot, x: int, y: int) -> Markup:
    circle = Markup('<a href="{}"><g class="dot{}"><title>{}</title><circle cx="{}" cy="{}" r="7"/></g></a>').format(
        dot.link, "" if dot.is_current else " other", dot.text, x, y
    )
    names = _ref_text(dot)
    if not names:
        return circle
    label = Markup('<g class="dot"><text x="{}" y="{}">{}</text></g>').format(x - 6, y - 13, names)
    return circle + label


def _ref_text(dot: SnapshotDot) -> str:
    return cut_text(", ".join(cut_text(ref, _REF_CHARS) for ref in dot.refs), 40)


def _svg(label: str, width: float, height: float, drawn: Collection[Markup]) -> Markup:
    return Markup(
        '<svg class="graph" role="group" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">{}</svg>'
    ).format(label, f"{width:.0f}", f"{height:.0f}", f"{width:.0f}", f"{height:.0f}", Markup("").join(drawn))
