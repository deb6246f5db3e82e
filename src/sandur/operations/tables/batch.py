"""Batched commits (rules B1–B9): commits to one table that wait in the queue of this server, made by one swap.

Each is drafted on the one before, and has its own file, claim and receipt, as if they were made one after the other.
One round writes all that, a second one swaps the pointer, which keeps the proof of all of them in `passed` (B3).
Whatever is not made by that swap is decided again, alone, by `Commit` itself (B6, B8).
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

import msgspec

from sandur.catalog.record_versions import WITH_BATCHES
from sandur.catalog.records import PASSED_MAX
from sandur.catalog.security.manifest import Authority
from sandur.errors import Invalid, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.access import Security, check_names, forget_refusals
from sandur.operations.commit_queues import CommitQueue, Waiting
from sandur.operations.counters import COMMIT_ATTEMPTS, COMMIT_OUTCOMES, Counters, count_commit
from sandur.operations.idempotency import ClaimLost, key_hash_of
from sandur.operations.receipts import Receipts, tried_of
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX, Base, Draft, commit_time_ms, draft_next, remembered_base
from sandur.operations.tables.documents import M, cache_document, write_document
from sandur.operations.tables.swept import check_not_swept
from sandur.storage.cell import gather_all

if TYPE_CHECKING:
    from sandur.operations.tables.commit import Commit

MEMBERS_MAX: Final = PASSED_MAX
BYTES_MAX: Final = 8 << 20
"""How much the metadata files of a batch take at most: all of them are drafted before the event loop goes on."""


class Member(NamedTuple, Generic[M]):
    """A commit of a batch, with its draft. `waiting` is its place in the queue; None for the one that has the turn."""

    commit: "Commit[M]"
    draft: Draft[M]
    waiting: Waiting | None


def close_batch(first: "Commit[M]", base: Base[M], queue: CommitQueue) -> "Batch[M] | None":
    """B1: the commit that has the turn, and those that wait and can be made by the same swap, within bounds.

    None if there are no others. A commit that is left out keeps its place in the queue, and is decided there (B6).
    """
    members_max = min(MEMBERS_MAX, BYTES_MAX // len(base.document.body))
    # V3: an older server would lose the proof of all members but the last.
    if members_max <= 1 or first.lake.form.major < WITH_BATCHES.major or base.found.name.value.state != "active":
        return None
    draft = _draft(first, base, None)
    members = [Member(first, draft, None)] if draft else []
    taken, bytes_left = {_sent(first)}, BYTES_MAX - (len(draft.document.body) if draft else 0)
    for one, commit in _candidates(first, queue) if draft else ():
        if len(members) >= members_max:
            break
        # Two sends of one request must not become two commits.
        if _sent(commit) not in taken and (draft := _draft(commit, base, members[-1].draft)):
            bytes_left -= len(draft.document.body)
            if bytes_left < 0:
                break
            taken.add(_sent(commit))
            members.append(Member(commit, draft, one))
    if len(members) <= 1:
        return None
    queue.take_out([member.waiting for member in members if member.waiting])
    return Batch(base, members, queue)


def _candidates(first: "Commit[M]", queue: CommitQueue) -> Iterator[tuple[Waiting, "Commit[M]"]]:
    """Those that wait and change the same kind of metadata."""
    for one in queue.waiting:
        commit = one.change
        if isinstance(commit, type(first)) and commit.family is first.family:
            yield one, commit


def _sent(commit: "Commit[M]") -> str:
    """What all sends of one request have in common."""
    return key_hash_of(commit.request) or commit.request.hash


def _draft(commit: "Commit[M]", base: Base[M], last: Draft[M] | None) -> Draft[M] | None:
    """The commit on the draft before it; None if it cannot be made together with the others.

    B5: the base alone would take it too, neither refused nor unchanged. So an attempt that takes its key over and
    decides on the base never refuses what this batch may still make.
    """
    known = remembered_base(commit.lake, commit.family, commit.identifier)
    seen = known and (known.found.uuid, known.found.name.version, known.pointer.version)
    if seen != (base.found.uuid, base.found.name.version, base.pointer.version):
        return None
    change, before = commit.change, base.document.metadata
    if commit.is_alone or change.sets_paths:  # What adds a place is checked and claimed first (P9).
        return None
    at = replace(base, head=last.head, document=last.document) if last else base
    now_ms = commit_time_ms(commit.lake, at)
    try:
        alone = change.apply(before, now_ms=now_ms)
        metadata = change.apply(at.document.metadata, now_ms=now_ms) if last else alone
        if alone is before or metadata is at.document.metadata:
            return None
        operation = change.operation(metadata)
        return draft_next(commit.lake, commit.family, at, metadata, operation, commit.request, now_ms=now_ms)
    except Exception:  # noqa: BLE001 - also a mistake in the program is for its own request alone
        return None


@dataclass(frozen=True)
class Batch(Generic[M]):
    """Commits that one swap makes, in their order. The first of them has the turn in the queue."""

    base: Base[M]
    members: Sequence[Member[M]]
    queue: CommitQueue

    async def run(self) -> None:
        """Carry it out, in a task of its own: a client that leaves does not end the commits of the others."""
        task = asyncio.create_task(self._run(), name="batch of commits")
        self.queue.batches.add(task)
        task.add_done_callback(self.queue.batches.discard)
        await asyncio.shield(task)

    async def _run(self) -> None:
        """Afterwards every member has its outcome, or decides again in a turn of its own."""
        try:
            if ready := await self._write_aside():
                await self._swap(ready)
        except Exception as error:  # noqa: BLE001 - every member raises it, also a mistake in the program
            self._fail(self.members, error)
        except BaseException as error:
            self._fail(self.members, error)
            raise
        finally:
            self._release()

    async def _write_aside(self) -> Sequence[Member[M]]:
        """Round 1: all files and claims, the receipts of what the swap passes (B4), the name, the grants.

        Returns the members to swap: all up to the first whose file or claim is not certain, or that may not (B7).
        """
        lake, began_ms = self._first.lake, self._first.lake.clock.now_ms()
        is_current, authority, _, done = await gather_all(
            (
                self._first.is_current(self.base),
                self._read_authority(),
                lake.feature(Receipts).ensure_all(self.base.pointer.value),  # C5 (help), B4
                gather_all(map(self._write_member, self.members)),
            )
        )
        written = list(zip(self.members, done, strict=True))
        ready: list[Member[M]] = []
        for member, failure in written if is_current else ():
            if failure or await self._is_refused(member, authority):
                break
            ready.append(member)
        if authority is not None and lake.clock.now_ms() - began_ms > SWAP_DELAY_MS_MAX:
            ready = []  # The grants were read too long ago.
        for member, failure in written[len(ready) :]:
            if failure:
                self._fail([member], failure)
            else:
                await member.commit.abandon(member.draft)
        return ready

    async def _write_member(self, member: Member[M]) -> Exception | None:
        """The file (B2), the claim and the mark of one member; returns why not all of it is certain.

        An attempt that lost its claim, or is refused, is decided again alone (B6).
        """
        commit, draft, base = member.commit, member.draft, self.base
        before, after = draft.base.document.metadata, draft.document.metadata
        try:
            await gather_all(
                [
                    write_document(commit.lake, draft.document),
                    commit.claim_for(base.found.uuid).take(uuid=base.found.uuid, tried=tried_of(draft.head)),  # C4
                    commit.listing.begin(base.found.uuid, before, after),  # I1
                    check_not_swept(commit.lake, base.pointer.value, before, after),  # O5
                ]
            )
        except (SandurError, ClaimLost) as error:
            return error
        return None

    async def _read_authority(self) -> Authority | None:
        """A6: one read of the grants for all members, which begins after the version to swap was known."""
        is_needed = any(one.commit.lake.access or one.commit.lake.names is not None for one in self.members)
        return await self._first.lake.feature(Security).read() if is_needed else None

    async def _is_refused(self, member: Member[M], authority: Authority | None) -> bool:
        """Whether the grants, or the names of containers, do not allow it; it is then decided again alone (B6)."""
        commit = member.commit
        try:
            if authority:
                check_names(commit.lake, authority)
            granted = authority if commit.lake.access else None
            await commit.authorize(granted, self.base.found, member.draft.base.document.metadata)
        except SandurError:
            forget_refusals(commit.lake)
            return True
        return False

    async def _swap(self, ready: Sequence[Member[M]]) -> None:
        """Round 2: all members are made here, in their order (B3)."""
        lake, last, before = self._first.lake, ready[-1].draft, self.base.pointer
        counters, now_ms = lake.feature(Counters), lake.clock.now_ms()
        passed = tuple(member.draft.head for member in ready[:-1])
        moved = msgspec.structs.replace(before.value, state="live", head=last.head, passed=passed, updated_ms=now_ms)
        try:
            pointer = await lake.pointer(moved.uuid).swap(moved, expected=before.version)
        except SwapLost as lost:  # B8: each looks for its proof, then decides again.
            self.queue.note_contention()
            for member in ready:
                counters.add(COMMIT_ATTEMPTS, "lost" if lost.is_definite else "unknown")
                await member.commit.note_lost(member.draft, lost)
            return
        except SandurError as error:  # B8: it may still be made.
            self._fail(ready, error)
            return
        cache_document(lake, self._first.family, last.document)
        for member in ready:
            member.commit.outcome = member.draft.document
            counters.add(COMMIT_ATTEMPTS, "won")
            counters.add(COMMIT_OUTCOMES, "ok")
            count_commit(lake, member.draft.head.operation, member.commit.identifier)
        await lake.background.run("finish commit", gather_all(one.commit.finish(one.draft, pointer) for one in ready))

    @property
    def _first(self) -> "Commit[M]":
        return self.members[0].commit

    def _fail(self, members: Sequence[Member[M]], error: BaseException) -> None:
        """Give the error to members that have no outcome; what is decided again is none."""
        for member in members:
            if member.commit.outcome is None and not isinstance(error, (ClaimLost, Invalid)):
                member.commit.outcome = error
                if isinstance(error, OutcomeUnknown) or not isinstance(error, SandurError):
                    member.commit.listing.leave()  # The swap may still be made (I1).

    def _release(self) -> None:
        """Let the members go on: those with an outcome answer (B6), the others get the next turns."""
        for commit, _, place in self.members:
            commit.is_alone = True
            commit.listing.end()  # Who decides again begins again.
            if place and commit.outcome is not None and not place.turn.done():
                place.turn.set_result(False)
        self.queue.put_back([member.waiting for member in self.members if member.waiting])
