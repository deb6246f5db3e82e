"""Notes that operations make for the audit record of their request, such as what a change of grants replaced."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final, Literal

import msgspec

from sandur.catalog.audit import AuditedChange, AuditedCredentials
from sandur.catalog.security import Caller
from sandur.catalog.storage_profiles import ClientAccess


class Notes(msgspec.Struct, gc=False):
    """The notes of one request."""

    changes: tuple[AuditedChange, ...] = ()
    credentials: AuditedCredentials | None = None
    is_replay: bool = False
    logged_in: Caller | None = None


current_notes: Final[ContextVar[Notes | None]] = ContextVar("current_notes", default=None)
"""The notes of the request that the current task belongs to; None if it is not audited."""


def begin_notes() -> Notes:
    """New notes for the request of the current task."""
    notes = Notes()
    current_notes.set(notes)
    return notes


def note_replay() -> None:
    """Note that the request was answered with the outcome of an earlier request under the same idempotency key."""
    if notes := current_notes.get():
        notes.is_replay = True


def note_login(caller: Caller) -> None:
    """Note that the request, which had no token, got one for this caller."""
    if notes := current_notes.get():
        notes.logged_in = caller


def note_changes(changes: Sequence[AuditedChange]) -> None:
    """Note what the request changed about principals, groups, grants or owners."""
    if notes := current_notes.get():
        notes.changes = (*notes.changes, *changes)


def note_credentials(
    prefixes: Sequence[str], mode: Literal["read", "write"], *, access: ClientAccess, expires_ms: int = 0
) -> None:
    """Note that the request was given access to these prefixes of the storage, how, and until when."""
    if notes := current_notes.get():
        notes.credentials = AuditedCredentials(
            prefixes=tuple(prefixes), mode=mode, access=access, expires_ms=expires_ms
        )
