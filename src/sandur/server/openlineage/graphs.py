"""The two graphs that Marquez serves, for clients and user interfaces that know them."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sandur.errors import BadRequest
from sandur.operations.lineage.graph import DEPTH_MAX, Direction, Graph, Node, Question, load_lineage
from sandur.server.context import QUOTED_CHARS_MAX, Call, whole_number
from sandur.server.http import NO_STORE, Answer, json_answer

_DEPTH_DEFAULT: Final = DEPTH_MAX
_EXTERNAL: Final = "external"

Json = Mapping[str, object]


async def get_lineage(call: Call) -> Answer:
    """Datasets, and between them the jobs that read and write them."""
    node, _ = _parsed_node(call.required("nodeId"))
    graph = await load_lineage(call.lake, Question(node, depth=_depth(call)))
    return json_answer(msgspec.json.encode({"graph": _dataset_graph(graph)}), NO_STORE)


async def get_column_lineage(call: Call) -> Answer:
    """Columns and what they come from; with `withDownstream` also what comes from them."""
    node, column = _parsed_node(call.required("nodeId"))
    direction: Direction = "both" if call.is_set("withDownstream") else "up"
    asked = Question(node, direction, _depth(call), frozenset({column} if column else ()))
    graph = await load_lineage(call.lake, asked)
    return json_answer(msgspec.json.encode({"graph": _column_graph(graph)}), NO_STORE)


def _depth(call: Call) -> int:
    """The depth; a larger one than this server allows is cut, because Marquez' default is 20."""
    text = call.query.get("depth")
    return min(whole_number(text, "depth", at_least=1), DEPTH_MAX) if text else _DEPTH_DEFAULT


def _parsed_node(text: str) -> tuple[str, str | None]:
    """A node as Marquez names it, `dataset:main:sales.daily`, and its column, if it names one.

    The namespace of a table is its catalog, as in the answers; `external` stands before every other dataset.
    """
    kind, _, name = text.partition(":")
    column: str | None = None
    if kind == "datasetField":
        name, _, column = name.rpartition(":")
    if kind == "job" and name:
        return f"job:{name}", None
    namespace, _, rest = name.partition(":")
    if kind not in {"dataset", "datasetField"} or not namespace or not rest:
        raise BadRequest(
            f"Invalid nodeId {text[:QUOTED_CHARS_MAX]!r}: expected dataset:CATALOG:SCHEMA.TABLE, "
            "datasetField:CATALOG:SCHEMA.TABLE:COLUMN or job:NAMESPACE:NAME"
        )
    return (f"external:{rest}" if namespace == _EXTERNAL else f"table:{namespace}.{rest}"), column


def _names(node: Node) -> tuple[str, str]:
    """The namespace and the name of a dataset."""
    if node.kind != "table" or node.name is None:
        return ("hidden" if node.kind == "hidden" else _EXTERNAL), node.name or node.id
    catalog, _, name = node.name.partition(".")
    return catalog, name


def _dataset_graph(graph: Graph) -> Sequence[Json]:
    ids = {node.id: ":".join(("dataset", *_names(node))) for node in graph.nodes}
    pairs: set[tuple[str, str]] = set()
    jobs: dict[str, str] = {}
    for edge in graph.edges:
        job = edge.job or "hidden:hidden"
        jobs[f"job:{job}"] = job
        pairs |= {(ids[edge.source], f"job:{job}"), (f"job:{job}", ids[edge.target])}
    datasets = [_node(ids[node.id], "DATASET", _named(*_names(node)), pairs) for node in graph.nodes]
    of_jobs = ((one, job.rpartition(":")) for one, job in sorted(jobs.items()))
    return [*datasets, *(_node(one, "JOB", _named(parts[0], parts[2]), pairs) for one, parts in of_jobs)]


def _named(namespace: str, name: str) -> Json:
    return {"id": {"namespace": namespace, "name": name}, "namespace": namespace, "name": name}


def _column_graph(graph: Graph) -> Sequence[Json]:
    names = {node.id: _names(node) for node in graph.nodes}
    pairs: set[tuple[str, str]] = set()
    fields: dict[str, list[Json]] = {}
    about: dict[str, Json] = {}
    for edge in graph.columns:
        if edge.target_column is None:
            continue  # Marquez has no node for all rows of a dataset.
        source, target = (
            ":".join(("datasetField", *names[node], column))
            for node, column in ((edge.source, edge.source_column), (edge.target, edge.target_column))
        )
        pairs.add((source, target))
        for one, node, column in ((source, edge.source, edge.source_column), (target, edge.target, edge.target_column)):
            about[one] = {"namespace": names[node][0], "dataset": names[node][1], "field": column}
        change = {"transformationType": edge.type, "transformationDescription": edge.subtype or ""}
        fields.setdefault(target, []).append({**about[source], **change})
    return [
        _node(one, "DATASET_FIELD", {**data, "inputFields": fields.get(one, [])}, pairs)
        for one, data in sorted(about.items())
    ]


def _node(node: str, kind: str, data: Json, pairs: set[tuple[str, str]]) -> Json:
    return {
        "id": node,
        "type": kind,
        "data": data,
        "inEdges": [{"origin": origin, "destination": node} for origin, to in sorted(pairs) if to == node],
        "outEdges": [{"origin": node, "destination": to} for origin, to in sorted(pairs) if origin == node],
    }
