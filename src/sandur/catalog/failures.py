"""Definite refusals as they are kept in a claim, so that a replay is refused in the same words."""

from typing import Final

from sandur import errors
from sandur.catalog.records import Failure

_KINDS: Final = (
    errors.BadRequest,
    errors.Invalid,
    errors.Unprocessable,
    errors.Unsupported,
    errors.NotEmpty,
    errors.Conflict,
)
_WITH_SUBJECT: Final = (errors.NotFound, errors.AlreadyExists)

Definite = (*_KINDS, *_WITH_SUBJECT)
"""The errors that stay true: the only ones a claim may keep. Everything else may be otherwise next time."""


def failure_of(error: errors.SandurError) -> Failure:
    subject = error.subject if isinstance(error, _WITH_SUBJECT) else None
    return Failure(error=type(error).__name__, message=str(error), subject=subject)


def error_of(failure: Failure) -> errors.SandurError:
    """The error a claim keeps; one that this version does not know is a conflict with its text."""
    for kind in _WITH_SUBJECT:
        if kind.__name__ == failure.error and failure.subject is not None:
            return kind(failure.message, subject=failure.subject)
    for plain in _KINDS:
        if plain.__name__ == failure.error:
            return plain(failure.message)
    return errors.Conflict(failure.message)
