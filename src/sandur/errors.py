"""The errors of Sandur, told apart by what the caller should do next."""

from typing import Literal

Subject = Literal[
    "catalog",
    "namespace",
    "table",
    "view",
    "volume",
    "function",
    "model",
    "model version",
    "credential",
    "external location",
    "user",
    "metastore",
    "file",
    "plan",
    "plan task",
]


class SandurError(Exception):
    """The root of all errors that Sandur raises on purpose; its text says what was asked and what was found."""


class BadRequest(SandurError):
    """The request itself is wrong and will stay so: correct it."""


class Invalid(BadRequest):
    """The request is well formed but asks for something the rules forbid."""


class Unprocessable(BadRequest):
    """The request contradicts itself."""


class WrongFormat(Invalid):
    """The thing is there, but of a format that was not asked for: ask for it in its own way."""


class Forbidden(SandurError):
    """Somebody else may ask for this, the one who did may not."""


class Unsupported(SandurError):
    """The request asks for something this server does not do, or was told not to do."""


class NotFound(SandurError):
    """What the request names does not exist; `subject` says what kind of thing it is."""

    def __init__(self, message: str, *, subject: Subject) -> None:
        super().__init__(message)
        self.subject = subject


class AlreadyExists(SandurError):
    """What the request would create is there already; `subject` says as what."""

    def __init__(self, message: str, *, subject: Subject) -> None:
        super().__init__(message)
        self.subject = subject


class NotEmpty(SandurError):
    """What the request would drop still holds something."""


class Conflict(SandurError):
    """The request was decided on a state that is no longer current: load again, decide again."""


class VersionTaken(Conflict):
    """Another commit has the version that this one asks for: read that one, then take the next."""


class KeyReused(SandurError):
    """The idempotency key was used before for another request: take a fresh one."""


class Busy(SandurError):
    """Somebody else is at it, and nothing was decided: make the same call again after a short wait."""

    def __init__(self, message: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Exhausted(Busy):
    """There is no room for more until the caller has tidied up: the message says what."""


class SwapLost(SandurError):
    """The object is not at the expected version: read it again and decide again.

    `is_definite` is true when the write was certainly never applied. It is false when the answer to an earlier try of
    the same write was lost and the object has moved on since: the write can no longer land, but it may have been
    applied and then replaced, so look for its traces before you call it a failure.
    """

    def __init__(self, message: str, *, is_definite: bool = True) -> None:
        super().__init__(message)
        self.is_definite = is_definite


class Unavailable(SandurError):
    """Something that should answer does not; nothing was written. The same call may be made again."""


class OutcomeUnknown(SandurError):
    """The write may have been applied, may still be applied, or never will be: look before you try again."""


class Unfit(SandurError):
    """The store or the configuration breaks a guarantee that everything rests on: a person has to change it."""
