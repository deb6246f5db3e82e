"""The handler that searches the audit trail."""

from typing import Final

import msgspec

from sandur.catalog.audit import AuditFilter
from sandur.errors import BadRequest
from sandur.operations.audit.search import LAST_MS, search_audit, time_of
from sandur.server.context import Call, whole_number
from sandur.server.http import NO_STORE, Answer, json_answer

_DEFAULT_SINCE: Final = "P1D"
_DECISIONS: Final = ("", "allowed", "denied", "none")
_TEXTS: Final = ("principal", "operation", "securable", "kind", "request_id")
_KNOWN: Final = frozenset({*_TEXTS, "decision", "since", "until", "page_size", "page_token"})


async def load_audit_records(call: Call) -> Answer:
    """Records of the trail, oldest first. A page may have few records, or none, and still have a next one."""
    query = call.query
    if unknown := sorted(query.keys() - _KNOWN):
        raise BadRequest(f"Unknown query parameter {unknown[0][:40]!r}: expected one of {', '.join(sorted(_KNOWN))}")
    if query.get("decision", "") not in _DECISIONS:
        raise BadRequest(f"Invalid decision {query['decision'][:40]!r}: expected allowed, denied or none")
    now_ms = call.lake.clock.now_ms()
    wanted = AuditFilter(
        since_ms=time_of(query.get("since") or _DEFAULT_SINCE, now_ms),
        # A page token belongs to one search, so the end of a search without an end is not the current time.
        until_ms=time_of(query["until"], now_ms) if query.get("until") else LAST_MS,
        decision=query.get("decision", ""),
        **{name: query.get(name, "") for name in _TEXTS},
    )
    size = query.get("page_size")
    page = await search_audit(
        call.lake,
        wanted,
        page_size=None if size is None else whole_number(size, "page_size", at_least=1),
        page_token=query.get("page_token") or None,
    )
    return json_answer(msgspec.json.encode(page._asdict()), NO_STORE)
