"""What changes of a record have in common: who made the last one, and how its request learns that it happened."""

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Failure, LastChange, NamespaceRecord, failure_of
from sandur.catalog.sources import Request
from sandur.errors import Busy, NotFound, SandurError, SwapLost
from sandur.operations.lake import Lake

TRIES_MAX: Final = 8


class Signed(Protocol):
    """A record that says which request made it what it is."""

    @property
    def change(self) -> LastChange | None: ...


def change_of(lake: Lake, request: Request, operation: str) -> LastChange:
    """How a request signs the record that it writes; without a key by an id that nobody else has."""
    key_hash = request.key_hash
    return LastChange(key_hash, operation) if key_hash else LastChange(lake.clock.new_id())


def is_by(record: Signed, change: LastChange) -> bool:
    """Whether the last change of the record is that of the request which signs so."""
    last = record.change
    return last is not None and (last.id, last.operation) == (change.id, change.operation)


def shown_properties(record: NamespaceRecord) -> Mapping[str, str]:
    """The properties as Iceberg clients see them: a comment is one of them, wherever it was given."""
    if record.comment is None:
        return record.properties
    return {"comment": record.comment, **record.properties}


def missing(namespace: Namespace | None) -> NotFound:
    return NotFound(f"Namespace does not exist: {namespace}", subject="namespace")


def missing_catalog(name: str) -> NotFound:
    return NotFound(f"Catalog does not exist: {name}", subject="catalog")


def missing_parent(namespace: Namespace) -> NotFound:
    """That what a namespace would be in does not exist."""
    return missing(namespace.parent) if namespace.parent else missing_catalog(namespace.catalog)


def nothing(now_ms: int, change: LastChange | None = None) -> NamespaceRecord:
    """What stands where a namespace was, or would have been: it has no id that a child could find again.

    `change` is the drop that made it so; None for a child that never was.
    """
    return NamespaceRecord(state="dropped", id="", change=change, updated_ms=now_ms)


async def help_predecessor(lake: Lake, record: Signed | None, *, failed_by: SandurError | None = None) -> None:
    """G6: before a record is changed, the claim of the request that made it what it is says that this happened.

    A retry of that request can then never mistake it for something that did not happen, whatever becomes of the record.
    With `failed_by`, it did not happen: the record is a child whose parent was gone.
    """
    last = record.change if record else None
    if last is not None and last.operation:
        await _make_done(lake, last, failure_of(failed_by) if failed_by else None)


async def _make_done(lake: Lake, last: LastChange, failure: Failure | None) -> None:
    cell = lake.claim(last.operation, last.id)
    for _ in range(TRIES_MAX):
        claim = await cell.read()
        if claim is None or claim.value.state == "done":
            return
        try:
            await cell.swap(
                replace(claim.value, state="done", answer=last.answer, failure=failure), expected=claim.version
            )
        except SwapLost:
            continue
        return
    raise Busy(f"the claim of an earlier {last.operation} keeps changing")
