"""The errors of Sandur, told apart by what the caller should do next."""


class SandurError(Exception):
    """The root of all errors that Sandur raises on purpose; its text says what was asked and what was found."""


class BadRequest(SandurError):
    """The request itself is wrong and will stay so: correct it."""


class Invalid(BadRequest):
    """The request is well formed but asks for something the rules forbid."""


class NotFound(SandurError):
    """What the request names does not exist."""


class AlreadyExists(SandurError):
    """What the request would create is there already."""


class Conflict(SandurError):
    """The request was decided on a state that is no longer current: load again, decide again."""


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
