"""The trace of a request, after W3C Trace Context: read from its headers, sent with the requests that Sandur makes."""

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import httpx

_PARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?\Z"
)
# A client of HTTP sends no value that ends with a space.
_STATE: Final = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?\Z")
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """A trace, and the span that is the parent of further requests. `state` belongs to the tracers of the client."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""

    @property
    def parent(self) -> str:
        """The value of `traceparent`."""
        return traceparent(self.trace_id, self.span_id, is_sampled=self.is_sampled)


current_trace: Final[ContextVar[TraceContext | None]] = ContextVar("current_trace", default=None)
"""The trace of the request that this task serves; None if it belongs to no trace."""


def traceparent(trace_id: str, span_id: str, *, is_sampled: bool) -> str:
    return f"00-{trace_id}-{span_id}-{_SAMPLED if is_sampled else 0:02x}"


def parse_context(parent: bytes, state: bytes = b"") -> TraceContext | None:
    """The context in the headers `traceparent` and `tracestate`; None if the first is not valid."""
    found = _PARENT.match(parent)
    if found is None:
        return None
    is_sampled = bool(int(found[3], 16) & _SAMPLED)
    stripped = state.strip(b" \t")
    kept = stripped.decode() if _STATE.match(stripped) else ""
    return TraceContext(found[1].decode(), found[2].decode(), is_sampled, kept)


async def _add_context(request: "httpx.Request") -> None:
    if context := current_trace.get():
        request.headers["traceparent"] = context.parent
        if context.state:
            request.headers["tracestate"] = context.state


WITH_TRACE: Final = {"request": [_add_context]}
"""Event hooks of an HTTP client whose requests belong to the trace of the request that is being served."""
