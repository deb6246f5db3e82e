"""The errors of Sandur: one class for each thing the caller should do next."""

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
    "principal",
    "group",
    "secret",
    "API key",
    "metastore",
    "column",
    "dependency",
    "file",
    "plan",
    "plan task",
    "profile",
    "object",
    "subscription",
]


class SandurError(Exception):
    """The base of all errors that Sandur raises on purpose. The text says what was requested and what was found."""

    public_text: str = ""
    """The text for callers who must not learn names and addresses of others; empty if the whole text is harmless."""


class BadRequest(SandurError):
    """The request itself is wrong: correct it."""


class Incomplete(BadRequest):
    """The request lacks something that is required."""


class Invalid(BadRequest):
    """The request is well formed, but the rules forbid it."""

    def __init__(self, message: str, *, public_text: str = "") -> None:
        super().__init__(message)
        self.public_text = public_text


class Unprocessable(BadRequest):
    """The request contradicts itself."""


class WrongFormat(Invalid):
    """The table exists, but has another format: use the API of its format."""


class Expired(BadRequest):
    """The request continues something that is no longer kept: start again."""


class Unauthenticated(SandurError):
    """The caller's token is no longer worth anything: log in again."""


class Forbidden(SandurError):
    """The caller is not allowed to do this."""


class Unsupported(SandurError):
    """This server does not support the request, or its settings switch the feature off."""


class NotFound(SandurError):
    """The request names something that does not exist; `subject` says what kind of thing."""

    def __init__(self, message: str, *, subject: Subject) -> None:
        super().__init__(message)
        self.subject = subject


class Hidden(NotFound):
    """The caller must not learn whether it exists. The answer is that of NotFound, and no claim keeps it (A10)."""


class AlreadyExists(SandurError):
    """The request would create something that exists; `subject` says what kind of thing."""

    def __init__(self, message: str, *, subject: Subject) -> None:
        super().__init__(message)
        self.subject = subject


class NotEmpty(SandurError):
    """The request would drop something that is not empty."""


class Conflict(SandurError):
    """The request is based on a state that is no longer current: load again and decide again."""


class VersionTaken(Conflict):
    """Another commit has the requested version: read that commit, then request the next version."""


class Trimmed(Conflict):
    """What a reader has not read yet was removed: read what exists now, and continue from the oldest that is kept."""

    def __init__(self, position: int, trimmed: int) -> None:
        super().__init__(
            f"feed: entries up to {trimmed} were removed, and this reader is at entry {position}: it missed what lies "
            f"between. Read the receipts that exist (a batch of sandur_events), then go on from entry {trimmed}, in "
            "Spark with a new checkpoint. The feed waits for readers that register"
        )
        self.position = position
        self.trimmed = trimmed


class KeyReused(SandurError):
    """The idempotency key was used for another request: use a new key."""


class Busy(SandurError):
    """Another request is changing the same thing; nothing was decided: repeat the call after a short wait."""

    def __init__(self, message: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Renamed(Busy):
    """A catalog or namespace was renamed since the request began: resolve its names again."""


class Exhausted(Busy):
    """A limit is reached until the caller frees something; the message says what."""


class SwapLost(SandurError):
    """The object is not at the expected version: read it again and decide again.

    `is_definite` is true if the write was certainly never applied. It is false if the answer to an earlier try of the
    same write was lost and the object has changed since: the write can no longer land, but it may have been applied
    and then replaced, so look for its traces before you report a failure.
    """

    def __init__(self, message: str, *, is_definite: bool = True) -> None:
        super().__init__(message)
        self.is_definite = is_definite


class Unavailable(SandurError):
    """A service does not answer; nothing was written. The same call may be repeated.

    `is_throttled`: the service asked for fewer calls.
    """

    def __init__(self, message: str, *, is_throttled: bool = False) -> None:
        super().__init__(message)
        self.is_throttled = is_throttled


class ServiceRefused(Unavailable):
    """A service refuses what this server needs of it. A repetition does not help: an operator has to act."""


class Damaged(Unavailable):
    """A stored object cannot be decoded, or contradicts itself: nothing was written, and an operator may repair it."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"object {key}: {reason}")
        self.key = key
        self.reason = reason


class NewerRecord(Unavailable):
    """A record was written by a later version of Sandur: this program neither reads nor changes it (V1). Upgrade it."""

    def __init__(self, key: str, *, needed: str, known: str) -> None:
        what = f"written by a newer Sandur, in version {needed}; this server knows versions up to {known}: upgrade it"
        super().__init__(f"object {key}: {what}")
        self.public_text = f"A record of this request was {what}"


class OutcomeUnknown(SandurError):
    """The write may have been applied, or may still be applied, or not: read before you retry.

    `is_throttled`: the service asked for fewer calls.
    """

    def __init__(self, message: str, *, is_throttled: bool = False) -> None:
        super().__init__(message)
        self.is_throttled = is_throttled


class Unfit(SandurError):
    """The store or the configuration breaks a required guarantee: an operator has to change it."""
