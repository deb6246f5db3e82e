"""The handler that answers where a table comes from and what is made from it."""

from typing import Final

import msgspec

from sandur.errors import BadRequest
from sandur.operations.audit.search import time_of
from sandur.operations.lineage.graph import Direction, Question, load_lineage
from sandur.server.context import QUOTED_CHARS_MAX, Call, whole_number
from sandur.server.http import NO_STORE, Answer, json_answer

_KNOWN: Final = frozenset({"node", "direction", "depth", "columns", "as_of"})
_DIRECTIONS: Final[dict[str, Direction]] = {"up": "up", "down": "down", "both": "both"}
_COLUMNS_MAX: Final = 1_000


async def load_lineage_graph(call: Call) -> Answer:
    query = call.query
    if unknown := sorted(query.keys() - _KNOWN):
        expected = ", ".join(sorted(_KNOWN))
        raise BadRequest(f"Unknown query parameter {unknown[0][:QUOTED_CHARS_MAX]!r}: expected one of {expected}")
    direction = _DIRECTIONS.get(query.get("direction") or "both")
    if direction is None:
        raise BadRequest(
            f"Invalid direction {query['direction'][:QUOTED_CHARS_MAX]!r}: expected one of {', '.join(_DIRECTIONS)}"
        )
    as_of, depth = query.get("as_of"), query.get("depth")
    asked = Question(
        call.required("node"),
        direction,
        whole_number(depth, "depth", at_least=1) if depth else Question("").depth,
        _columns(query.get("columns") or ""),
        time_of(as_of, call.lake.clock.now_ms()) if as_of else None,
    )
    return json_answer(msgspec.json.encode(await load_lineage(call.lake, asked)), NO_STORE)


def _columns(text: str) -> frozenset[str] | None:
    """The columns of a query: none, all (`true`), or some names separated by commas."""
    if text.lower() in {"", "false"}:
        return None
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if len(names) > _COLUMNS_MAX:
        raise BadRequest(f"Invalid columns: {len(names)} names, at most {_COLUMNS_MAX} are allowed")
    return frozenset() if text.lower() == "true" else names
