"""Error maps: one table per dialect, from an error class to the status and type of the answer."""

import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from sandur.errors import AlreadyExists, Busy, NotFound, SandurError, Unavailable, Unfit
from sandur.server.http import JSON, RETRY_AFTER, Answer, Headers, Refused

UNAVAILABLE_RETRY_SECONDS: Final = 2
_RETRY_SECONDS_MAX: Final = 5


class Rule(NamedTuple):
    """The status and type of an error, and after how many seconds the client may retry (None: not given)."""

    status: int
    type: str
    retry_after_seconds: int | None = None


Key = type[Exception] | tuple[type[Exception], str]
"""An error class; or a class with the operation that failed, or with the subject of NotFound or AlreadyExists."""


class Problem(NamedTuple):
    """An error as a dialect reports it."""

    status: int
    type: str
    message: str
    headers: Headers = ()


class ErrorMap(NamedTuple):
    """The errors of one dialect.

    The rule of the most specific class applies; within a class the operation comes first, then the subject. `rules`
    has one for Exception, the unexpected errors. `refusals` gives the type for each status of Refused; statuses that
    are not listed have `other_refusal`. `encode` makes the body of the answer.
    """

    rules: Mapping[Key, Rule]
    refusals: Mapping[int, str]
    other_refusal: str
    encode: Callable[[Problem], bytes]

    def answer(self, error: Exception, operation: str, request_id: str, *, is_public: bool = False) -> Answer:
        """The answer to a request that failed. A public one has no names and addresses of others."""
        problem = self.problem(error, operation, request_id, is_public=is_public)
        return Answer(problem.status, self.encode(problem), (JSON, *problem.headers))

    def problem(self, error: Exception, operation: str, request_id: str, *, is_public: bool = False) -> Problem:
        """What the error is in this dialect. An unexpected error says nothing but the request id."""
        if isinstance(error, Refused):
            return Problem(
                error.status, self.refusals.get(error.status, self.other_refusal), _text(error), error.headers
            )
        kind, rule = self._rule(error, operation)
        if kind is Exception:
            return Problem(rule.status, rule.type, f"Internal error; see the server log for request {request_id}")
        seconds = error.retry_after_seconds if isinstance(error, Busy) else rule.retry_after_seconds
        headers = () if seconds is None else ((RETRY_AFTER, b"%d" % spread(seconds, request_id)),)
        public_text = _public_text(error, request_id) if is_public else ""
        return Problem(rule.status, rule.type, public_text or _text(error), headers)

    def _rule(self, error: Exception, operation: str) -> tuple[type[Exception], Rule]:
        details = [operation]
        if isinstance(error, NotFound | AlreadyExists):
            details.append(error.subject)
        for kind in type(error).__mro__:
            keys: list[Key] = [*((kind, detail) for detail in details), kind]
            for key in keys:
                if rule := self.rules.get(key):
                    return kind, rule
        raise AssertionError("an error map has a rule for Exception")


def spread(seconds: int, request_id: str) -> int:
    """A time near `seconds`, at most 5 unless they are more, so that clients that were refused together spread out."""
    least, most = (seconds + 1) // 2, max(seconds, min(2 * seconds, _RETRY_SECONDS_MAX))
    return least + zlib.crc32(request_id.encode()) % (most - least + 1)


def _text(error: Exception) -> str:
    # A message may quote what a client sent; invalid Unicode must not break the answer.
    return str(error).encode("utf-8", "backslashreplace").decode()


def _public_text(error: Exception, request_id: str) -> str:
    text = error.public_text if isinstance(error, SandurError) else ""
    if isinstance(error, Unavailable | Unfit) and not text:
        return f"The storage cannot be used; see the server log for request {request_id}"
    return text.encode("utf-8", "backslashreplace").decode()


def error_object(problem: Problem) -> Mapping[str, str | int]:
    """An error in the form that the Iceberg and Delta APIs share."""
    return {"message": problem.message, "type": problem.type, "code": problem.status}


def encode_problem(problem: Problem) -> bytes:
    return msgspec.json.encode({"error": error_object(problem)})
