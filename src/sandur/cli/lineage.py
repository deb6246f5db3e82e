"""`sandur lineage`: where a table comes from and what is made from it, as a tree."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from rich.console import Console
from rich.tree import Tree

from sandur.cli.flags import ServerFlags
from sandur.cli.output import escaped
from sandur.cli.store_admin import StoreFlags, run_on_store
from sandur.client.profiles import user_profiles
from sandur.client.sessions import API, connected, find_target
from sandur.clock import SystemClock
from sandur.errors import BadRequest
from sandur.operations.audit.search import time_of
from sandur.operations.lineage.graph import ColumnEdge, Direction, Edge, Graph, Question, load_lineage

LINES_MAX: Final = 1_000
_KINDS: Final = ("table:", "external:", "job:")
_STYLES: Final = {"verified": "green", "matched": "green", "declared": "yellow", "partial": "yellow"}


class LineageFlags(NamedTuple):
    """What to ask, and of whom: of the store if one is given, otherwise of the server of the profile."""

    name: str
    direction: str
    depth: int
    columns: bool
    as_of: str | None
    server: ServerFlags
    store: StoreFlags


def show_lineage(flags: LineageFlags) -> None:
    """Print the graph around a table: as trees, or as JSON."""
    graph = _from_store(flags) if flags.store.store or flags.store.config else _from_server(flags)
    if flags.server.as_json:
        print(msgspec.json.encode(graph).decode())  # noqa: T201 - output for machines
        return
    console = Console(highlight=False)
    for way, title in (("up", "made from"), ("down", "used by")):
        if flags.direction in {way, "both"}:
            console.print(_tree(graph, way == "up", title))
    if not graph.published_ms:
        console.print("Nothing is published yet: run sandur run all")
    if graph.truncated:
        console.print("There is more: this is cut at 1,000 nodes.")


def _node_of(name: str) -> str:
    return name if name.startswith(_KINDS) else f"table:{name}"


def _direction(text: str) -> Direction:
    known: dict[str, Direction] = {"up": "up", "down": "down", "both": "both"}
    if text not in known:
        raise BadRequest(f"--direction {text!r}: expected up, down or both")
    return known[text]


def _from_store(flags: LineageFlags) -> Graph:
    now_ms = SystemClock().now_ms()
    asked = Question(
        _node_of(flags.name),
        _direction(flags.direction),
        flags.depth,
        frozenset() if flags.columns else None,
        time_of(flags.as_of, now_ms) if flags.as_of else None,
    )
    return run_on_store(lambda lake: load_lineage(lake, asked), flags.store, access="read")


def _from_server(flags: LineageFlags) -> Graph:
    query = {"node": _node_of(flags.name), "direction": _direction(flags.direction), "depth": str(flags.depth)}
    query |= {"columns": "true"} if flags.columns else {}
    query |= {"as_of": flags.as_of} if flags.as_of else {}
    profiles = user_profiles(os.environ)
    target = find_target(profiles, profile=flags.server.profile, server=flags.server.server, environment=os.environ)

    async def run() -> Graph:
        async with connected(target, profiles, SystemClock()) as session:
            return msgspec.json.decode(await session.request("GET", f"{API}/lineage", query=query), type=Graph)

    return asyncio.run(run())


def _tree(graph: Graph, is_up: bool, title: str) -> Tree:  # noqa: FBT001 - called in one place
    """The tree of one direction. A node that was shown before is not opened again."""
    names = {node.id: node.name or "(hidden)" for node in graph.nodes}
    near: Literal["source", "target"] = "target" if is_up else "source"
    tree = Tree(f"[bold]{escaped(names.get(graph.start, graph.start))}[/] {title}")
    opened: set[str] = set()
    waiting: list[tuple[str, Tree]] = [(graph.start, tree)]
    lines = 0
    while waiting and lines < LINES_MAX:
        node, branch = waiting.pop(0)
        if node in opened:
            continue
        opened.add(node)
        for edge in (one for one in graph.edges if getattr(one, near) == node):
            far = edge.source if is_up else edge.target
            added = branch.add(_line(names.get(far, far), edge))
            lines += 1
            for column in _columns(graph.columns, edge):
                added.add(column)
                lines += 1
            waiting.append((far, added))
    if not tree.children:
        tree.add("[dim]nothing known[/]")
    return tree


def _line(name: str, edge: Edge) -> str:
    style = _STYLES.get(edge.confidence, "dim")
    job = f" [dim]{escaped(edge.job)}[/]" if edge.job else ""
    return f"{escaped(name)} [{style}]{edge.confidence}[/]{job}"


def _columns(columns: Sequence[ColumnEdge], edge: Edge) -> Sequence[str]:
    return [
        escaped(f"{one.source_column} -> {one.target_column or '(all rows)'} {one.subtype or one.type}")
        for one in columns
        if (one.source, one.target, one.job) == (edge.source, edge.target, edge.job)
    ]
