"""Rules left out of the protocols, one at a time: the simulation must find each of them."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final
from unittest.mock import patch

from sandur.catalog.records import Transaction
from sandur.errors import OutcomeUnknown, SwapLost
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.index import update as index_update
from sandur.operations.receipts import Receipts
from sandur.operations.tables import batch, changes, creation, documents
from sandur.operations.tables import commit as commits
from sandur.operations.transactions import resolution
from sandur.storage.cell import Cell
from sandur.storage.contract import Version
from sandur.storage.retry import RetryingStore

Mutation = Callable[[], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def _replaced(*changes: tuple[object, str, object]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(patch.object(owner, name, value))
        yield


@contextlib.contextmanager
def _no_receipt_of_the_predecessor() -> Iterator[None]:
    """C5: a commit moves the pointer without the receipt of the head that it replaces."""
    is_helping: ContextVar[bool] = ContextVar("is_helping", default=False)
    write_aside, ensure = commits.Commit._write_aside, Receipts.ensure

    async def written(self: Any, *arguments: Any) -> bool:
        token = is_helping.set(True)
        try:
            return await write_aside(self, *arguments)
        finally:
            is_helping.reset(token)

    async def ensured(self: Receipts, table_uuid: str, head: Any) -> None:
        if not is_helping.get():
            await ensure(self, table_uuid, head)

    with _replaced((commits.Commit, "_write_aside", written), (Receipts, "ensure", ensured)):
        yield


def _unknown_is_done() -> contextlib.AbstractContextManager[object]:
    """G2: a write without an answer counts as done."""
    put = RetryingStore.put

    async def hopeful(self: RetryingStore, key: str, data: bytes, **options: Any) -> Version:
        try:
            return await put(self, key, data, **options)
        except OutcomeUnknown:
            return Version("unknown")

    return _replaced((RetryingStore, "put", hopeful))


def _unknown_is_lost() -> contextlib.AbstractContextManager[object]:
    """G2: a write without an answer counts as definitely lost."""
    put = RetryingStore.put

    async def gloomy(self: RetryingStore, key: str, data: bytes, **options: Any) -> Version:
        try:
            return await put(self, key, data, **options)
        except OutcomeUnknown as error:
            raise SwapLost(str(error)) from error
        except SwapLost as error:
            raise SwapLost(str(error)) from error

    return _replaced((RetryingStore, "put", gloomy))


def _file_names_return() -> contextlib.AbstractContextManager[object]:
    """C3: the attempts of a request use one file name, and a file that exists is taken for their own."""
    encode, write = documents.encode_document, documents.write_document

    def encoded(lake: Any, family: Any, metadata: Any, **options: Any) -> Any:
        document = encode(lake, family, metadata, **options)
        folder, _, name = document.location.rpartition("/")
        part = hashlib.sha256(options["request"].hash.encode()).hexdigest()[:12]
        location = f"{folder}/{name[: -len('.metadata.json') - 12]}{part}.metadata.json"
        return documents.Document(
            location,
            document.body,
            dataclasses.replace(document.metadata, metadata_location=location),
        )

    async def written(lake: Any, document: Any) -> None:
        with contextlib.suppress(SwapLost):
            await write(lake, document)

    writers = ((module, "write_document", written) for module in (commits, batch))
    return _replaced((changes, "encode_document", encoded), *writers)


def _any_attempt_counts() -> contextlib.AbstractContextManager[object]:
    """T1: a pending of an aborted attempt counts for a later attempt of the same transaction."""

    def outcome(record: Transaction | None, _attempt: str) -> resolution.Outcome:
        if record is None:
            return "gone"
        return "undecided" if record.state == "preparing" else record.state

    return _replaced((resolution, "outcome_of", outcome))


def _no_fence() -> contextlib.AbstractContextManager[object]:
    """C7: an attempt goes on after another one took its claim over."""
    take = KeyClaim.take

    async def taken(self: KeyClaim, **options: Any) -> None:
        held = self.held
        try:
            await take(self, **options)
        except ClaimLost:
            if held is None:
                raise
            self.held = held

    return _replaced((KeyClaim, "take", taken))


def _cached_cells_are_trusted() -> contextlib.AbstractContextManager[object]:
    """G4, C2: what a server remembers is used without asking the store."""
    read = Cell.read

    async def remembered(self: Any) -> Any:
        return self.last_seen or await read(self)

    return _replaced((Cell, "read", remembered))


def _index_is_not_marked() -> contextlib.AbstractContextManager[object]:
    """I1: nothing remembers that an index may be wrong after a crash."""

    async def unmarked(*_arguments: Any) -> None:
        return

    return _replaced((index_update, "mark", unmarked))


def _namespace_is_not_confirmed() -> contextlib.AbstractContextManager[object]:
    """N4: a creator does not look at the namespace after it wrote the name."""

    async def confirmed(*_arguments: Any) -> bool:
        return True

    from sandur.operations.tables import rename, undrop  # noqa: PLC0415 - their own names of the function

    return _replaced(
        *(
            (module, "confirm_namespace", confirmed)
            for module in (creation, undrop, rename)
            if hasattr(module, "confirm_namespace")
        )
    )


def _written_ahead_is_trusted() -> contextlib.AbstractContextManager[object]:
    """N2 ahead: what was written ahead is used although the namespace is not the one that the server knew."""
    return _replaced((creation, "_is_unchanged", lambda *_: True))


def _replays_are_not_recognised() -> contextlib.AbstractContextManager[object]:
    """C5, C7: after a lost answer, nobody looks whether the commit was made."""

    async def nothing(*_arguments: Any) -> None:
        return None

    return _replaced((commits.Commit, "_find_applied", nothing))


def _no_receipts_of_what_was_passed() -> contextlib.AbstractContextManager[object]:
    """B4: a writer that moves the head of a batch writes the receipt of the head alone."""

    async def ensured(self: Receipts, pointer: Any) -> None:
        if pointer.head:
            await self.ensure(pointer.table_uuid, pointer.head)

    return _replaced((Receipts, "ensure_all", ensured))


def _members_without_a_claim() -> contextlib.AbstractContextManager[object]:
    """B7: a batch makes every member, also one whose claim another attempt holds."""
    write = batch.Batch._write_member

    async def written(self: Any, member: Any) -> None:
        await write(self, member)

    return _replaced((batch.Batch, "_write_member", written))


MUTATIONS: Final[Mapping[str, Mutation]] = {
    "C5 no receipt of the predecessor": _no_receipt_of_the_predecessor,
    "G2 unknown is done": _unknown_is_done,
    "G2 unknown is lost": _unknown_is_lost,
    "C3 file names return": _file_names_return,
    "T1 any attempt counts": _any_attempt_counts,
    "C7 no fence": _no_fence,
    "G4 cached cells are trusted": _cached_cells_are_trusted,
    "I1 the index is not marked": _index_is_not_marked,
    "N4 the namespace is not confirmed": _namespace_is_not_confirmed,
    "N2 ahead: the namespace is not compared": _written_ahead_is_trusted,
    "C5 replays are not recognised": _replays_are_not_recognised,
    "B4 no receipts of what was passed": _no_receipts_of_what_was_passed,
    "B7 members without a claim": _members_without_a_claim,
}
