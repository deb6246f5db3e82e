"""Incidents: failures that no answer reports, because they happen behind it or are repaired at once.

The server logs and counts them. A command or a job logs them to standard error.
"""

import logging
from typing import Final, Protocol

from sandur.errors import SandurError

_log: Final = logging.getLogger("sandur")


class Incidents(Protocol):
    """Receives incidents. A call never raises and never waits."""

    def work_failed(self, work: str, error: Exception) -> None:
        """Work behind an answer failed. An error that is not a SandurError is a mistake in the program.

        `work` is one of a bounded set of texts, so that it can be a label; names belong into the error.
        """

    def object_damaged(self, key: str, reason: str) -> None:
        """An object cannot be decoded, or contradicts itself. It is rebuilt, replaced or removed."""


class LoggedIncidents:
    """Incidents as lines of the standard log."""

    def work_failed(self, work: str, error: Exception) -> None:
        is_expected = isinstance(error, SandurError)
        level = logging.WARNING if is_expected else logging.ERROR
        _log.log(level, "%s failed: %s", work, reason_of(error), exc_info=None if is_expected else error)

    def object_damaged(self, key: str, reason: str) -> None:
        _log.warning("object %s is damaged: %s", key, reason)


LOGGED: Final = LoggedIncidents()


def reason_of(error: Exception) -> str:
    """The class and text of an error, and of the errors that it hides."""
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
