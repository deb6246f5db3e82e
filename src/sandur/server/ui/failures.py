"""The errors of the UI, each as a page that says what happened and what to do next."""

from collections.abc import Mapping
from typing import Final

import msgspec

from sandur import errors
from sandur.catalog.security.manifest import ANONYMOUS
from sandur.catalog.security.privileges import OPEN
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Problem, Rule, encode_problem
from sandur.server.http import Answer, decode_query
from sandur.server.requests import READS, RunningExchange
from sandur.server.ui.links import add_parameter, page_link
from sandur.server.ui.renderer import Frame, View, html_answer, redirect, render

_STATES: Final = {
    "invalid": "This address is not valid",
    "expired": "This list has changed",
    "login": "Log in to see this page",
    "forbidden": "You may not do this",
    "missing": "Not found",
    "large": "This is too large",
    "conflict": "It has changed in the meantime",
    "unsupported": "This server does not do this",
    "busy": "The server is busy",
    "unavailable": "The storage does not answer",
    "unknown": "The outcome is not known",
    "broken": "Something went wrong in the server",
}
"""The title of each state that a page can be in."""

ERRORS: Final = ErrorMap(
    rules={
        errors.BadRequest: Rule(400, "invalid"),
        errors.Expired: Rule(410, "expired"),
        errors.Unauthenticated: Rule(401, "login"),
        errors.Forbidden: Rule(403, "forbidden"),
        errors.NotFound: Rule(404, "missing"),
        errors.AlreadyExists: Rule(409, "conflict"),
        errors.NotEmpty: Rule(409, "conflict"),
        errors.Conflict: Rule(409, "conflict"),
        errors.KeyReused: Rule(409, "conflict"),
        errors.Unsupported: Rule(501, "unsupported"),
        errors.Busy: Rule(503, "busy"),
        errors.Unavailable: Rule(503, "unavailable", UNAVAILABLE_RETRY_SECONDS),
        errors.Unfit: Rule(503, "unavailable", UNAVAILABLE_RETRY_SECONDS),
        errors.OutcomeUnknown: Rule(500, "unknown"),
        Exception: Rule(500, "broken"),
    },
    refusals={401: "login", 403: "forbidden", 404: "missing", 408: "busy", 413: "large", 429: "busy"},
    other_refusal="invalid",
    encode=encode_problem,
)


class FailureView(View, frozen=True, kw_only=True):
    """A page instead of the one that was requested. `state` is a key of the states.

    `kept` are the fields of the form, so that they need not be typed again; `is_final`: it was the last step.
    """

    state: str
    status: int
    message: str
    request_id: str
    path: str
    login_link: str
    kept: tuple[tuple[str, str], ...] = ()
    is_final: bool = False


_NOT_KEPT: Final = {True: frozenset({"step", "form_token", "key", "typed"}), False: frozenset({"step"})}
"""Fields that are not sent again: those of the session, if it is over."""


def _sent(exchange: RunningExchange) -> Mapping[str, str]:
    """The fields of the form that a request sent; none of a login, whose secret is never shown."""
    if exchange.scope["method"] != "POST" or not exchange.body or exchange.needs is OPEN:
        return {}
    try:
        return decode_query(exchange.body)
    except errors.BadRequest:
        return {}


def failure_page(problem: Problem, exchange: RunningExchange) -> Answer:
    """The page of a request that failed, with the same frame as every other page as far as the caller is known."""
    path = exchange.scope["raw_path"].decode("latin-1")
    query = exchange.scope["query_string"].decode("latin-1")
    identity, is_read = exchange.identity, exchange.scope["method"] in READS
    here = f"{path}?{query}" if query and is_read else path
    login_link = page_link("/login", next=here if is_read else None)
    if problem.type == "login" and is_read and exchange.headers.get(b"sec-fetch-mode") == b"navigate":
        return redirect(add_parameter(login_link, over="yes") if b"cookie" in exchange.headers else login_link)
    sent = _sent(exchange)
    frame = Frame(
        principal=identity.principal if identity and exchange.access and identity.caller is not ANONYMOUS else "",
        path=path,
        request_id=exchange.request_id,
    )
    view = FailureView(
        title=_STATES[problem.type],
        section="",
        state=problem.type,
        status=problem.status,
        message=problem.message,
        request_id=exchange.request_id,
        path=here,
        login_link=login_link,
        kept=tuple((name, value) for name, value in sent.items() if name not in _NOT_KEPT[problem.type == "login"]),
        is_final=sent.get("step") == "apply",
    )
    answer = html_answer(render("failure.html", frame, view), *problem.headers, status=problem.status)
    return answer if exchange.scope["method"] != "HEAD" else msgspec.structs.replace(answer, body=b"")
