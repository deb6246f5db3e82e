"""Notes that operations make for the audit record of their request, such as what a change of grants replaced."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final, Literal, Protocol

import msgspec

from sandur.catalog.audit import AuditedChange, AuditedCredentials
from sandur.catalog.credentials.profiles import ClientAccess
from sandur.catalog.security.manifest import Caller


class Notes(msgspec.Struct, gc=False):
    """The notes of one request."""

    changes: tuple[AuditedChange, ...] = ()
    credentials: AuditedCredentials | None = None
    is_replay: bool = False
    logged_in: Caller | None = None
    failed_login: str = ""


NO_NOTES: Final = Notes()
"""What nearly every request notes. It is never changed."""


class Notebook(Protocol):
    """Whatever holds the notes of one request; they are None until something is noted."""

    notes: Notes | None


class OwnNotebook(msgspec.Struct):
    """The notebook of work that no request asked for."""

    notes: Notes | None = None


current_notebook: Final[ContextVar[Notebook | None]] = ContextVar("current_notebook", default=None)
"""The notebook of the request that the current task belongs to; None if it is not audited."""


def _notes() -> Notes | None:
    """The notes of the current request, made if it has none; None if it is not audited."""
    notebook = current_notebook.get()
    if notebook is None:
        return None
    if notebook.notes is None:
        notebook.notes = Notes()
    return notebook.notes


def note_replay() -> None:
    """Note that the request was answered with the outcome of an earlier request under the same idempotency key."""
    if notes := _notes():
        notes.is_replay = True


def note_login(caller: Caller) -> None:
    """Note that the request, which had no token, got one for this caller."""
    if notes := _notes():
        notes.logged_in = caller


def note_failed_login(name: str) -> None:
    """Note that a login as this principal failed. A name that no principal has may be a secret in the wrong place."""
    if notes := _notes():
        notes.failed_login = f"failed login as {name}" if name else "failed login as an unknown client"


def note_changes(changes: Sequence[AuditedChange]) -> None:
    """Note what the request changed about principals, groups, grants or owners."""
    if notes := _notes():
        notes.changes = (*notes.changes, *changes)


def note_credentials(
    prefixes: Sequence[str], mode: Literal["read", "write"], *, access: ClientAccess, expires_ms: int = 0
) -> None:
    """Note that the request was given access to these prefixes of the storage, how, and until when."""
    if notes := _notes():
        notes.credentials = AuditedCredentials(
            prefixes=tuple(prefixes), mode=mode, access=access, expires_ms=expires_ms
        )
