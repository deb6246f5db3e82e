"""Commit to several tables and views at once (rules T1–T9): all of it becomes visible at one moment, or none."""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, checked_identifier
from sandur.catalog.record_versions import in_place_of
from sandur.catalog.records import Definite, Request, Transaction, error_of, failure_of
from sandur.errors import BadRequest, Busy, Hidden, KeyReused, OutcomeUnknown, SandurError, SwapLost
from sandur.iceberg.requests import AssertCreate, AssertViewUuid, TableCommit
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddViewVersion, SetCurrentViewVersion
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.access import READS_MAX, read_authority
from sandur.operations.commit_queues import CommitQueue, CommitQueues
from sandur.operations.counters import TRANSACTIONS, Counters, count_commit, outcome_of
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims
from sandur.operations.locations.placement import allowed_roots, resolve_placed_namespace
from sandur.operations.name_access import authorize_places
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX, TableChange, check_updates, named_places
from sandur.operations.tables.create import created_metadata, needs_location
from sandur.operations.tables.documents import TABLES, VIEWS
from sandur.operations.tables.views import created_view_metadata, view_change
from sandur.operations.transactions.participants import Attempt, ChangedTable, CreatedTable, Overtaken, Replayed
from sandur.storage.cell import Attempts, Versioned, gather_all
from sandur.storage.contract import ABSENT

Part = (
    ChangedTable[TableMetadata] | ChangedTable[ViewMetadata] | CreatedTable[TableMetadata] | CreatedTable[ViewMetadata]
)


async def commit_transaction(
    lake: Lake, catalog: str, commits: Sequence[tuple[Identifier, TableCommit]], request: Request
) -> None:
    """Apply all commits or none. If one of them is refused, nothing changes."""
    if not commits:
        raise BadRequest("Invalid table changes: empty")
    twice = [str(identifier) for identifier, count in Counter(i for i, _ in commits).items() if count > 1]
    if twice:
        raise BadRequest(f"Invalid table changes: {', '.join(twice)} is named more than once")
    await allowed_roots(lake, catalog)
    await authorize_places(lake, catalog, [place for _, commit in commits for place in named_places(commit.updates)])
    for _, commit in commits:
        check_updates(commit.updates)
    placed = {one.namespace for one, commit in commits if _creates(commit) and needs_location(commit)}
    await gather_all(resolve_placed_namespace(lake, namespace) for namespace in placed)  # For `default_location`.
    async with contextlib.AsyncExitStack() as turns:
        queues = {
            identifier: await turns.enter_async_context(lake.feature(CommitQueues).turn(identifier))
            for identifier in sorted(identifier for identifier, _ in commits)
        }
        await _Transaction(lake, commits, request, queues).run()


def _creates(commit: TableCommit) -> bool:
    return any(isinstance(requirement, AssertCreate) for requirement in commit.requirements)


@dataclass
class _Transaction:
    """One request. Its record makes all of it visible at once, and is its claim if there is a key."""

    _lake: Lake
    _commits: Sequence[tuple[Identifier, TableCommit]]
    _request: Request
    _queues: Mapping[Identifier, CommitQueue]
    _record: Versioned[Transaction] | None = None
    _started_ms: int = 0
    _unreadable: SandurError | None = None

    def __post_init__(self) -> None:
        self._id = key_hash_of(self._request) or self._lake.clock.new_id()
        self._cell = self._lake.transaction(self._id)
        self._places = {identifier: LocationClaims(self._lake) for identifier, _ in self._commits}

    async def run(self) -> None:
        try:
            async for _ in Attempts(self._lake.clock):
                if outcome := await self._attempt():
                    self._lake.feature(Counters).add(TRANSACTIONS, outcome)
                    return
            raise Busy("other transactions keep interrupting this one")
        except SandurError as error:
            self._lake.feature(Counters).add(TRANSACTIONS, outcome_of(error))
            for claims in self._places.values():
                await self._lake.background.run("withdraw location claims", claims.withdraw())
            raise

    async def _attempt(self) -> Literal["ok", "replayed"] | None:
        """One attempt from its record to its end; None if another transaction aborted it."""
        parts = [self._part(identifier, commit) for identifier, commit in self._commits]
        now_ms = self._lake.clock.now_ms()
        begun = Attempt(self._id, self._lake.clock.new_id(), self._started_ms or now_ms)
        is_new, authority, _ = await gather_all(  # T2: round 1
            (
                self._try_begin(begun),
                read_authority(self._lake),
                gather_all([self._read(part, begun) for part in parts]),
            )
        )
        try:
            for part in parts:
                await part.authorize(authority)  # A9: before the record of an earlier attempt counts.
            if isinstance(is_new, SandurError):
                raise is_new
            if not is_new:
                return "replayed"
            await self._prepare(parts, begun)
        except Definite as error:
            await self._abort(parts, None if isinstance(error, Hidden) else error)  # A10
            for part in parts:
                await self._lake.background.run("delete the file of a lost create", part.discard())
            raise
        except (Replayed, Overtaken, SandurError) as error:
            await self._abort(parts, None)
            if isinstance(error, Overtaken | Busy):  # Nothing is decided: another attempt may succeed.
                return None
            if isinstance(error, Replayed):
                return "replayed"
            raise
        if not await self._commit(parts):
            _release(parts)
            return None
        count_commit(self._lake, "transaction", *(identifier for identifier, _ in self._commits))
        await self._lake.background.run("finish transaction", self._finish(parts, begun))
        return "ok"

    async def _try_begin(self, begun: Attempt) -> bool | SandurError:
        """As `_begin`; an error is returned, because it counts only once the caller is authorized."""
        try:
            return await self._begin(begun)
        except SandurError as error:
            return error

    async def _begin(self, begun: Attempt) -> bool:
        """T2: write the record as `preparing`, before any pending; False if the request was carried out before."""
        record = Transaction(
            state="preparing",
            attempt=begun.attempt,
            request_hash=self._request.hash,
            started_ms=begun.started_ms,
            attempt_ms=self._lake.clock.now_ms(),
        )
        found = await self._cell.read() if self._record else None
        async for _ in Attempts(self._lake.clock):
            if found and not self._may_begin_again(found.value):
                return False
            self._started_ms = found.value.started_ms if found else begun.started_ms
            begins = in_place_of(found.value if found else None, replace(record, started_ms=self._started_ms))
            if written := await self._cell.try_swap(begins, expected=found.version if found else ABSENT):
                self._record = written
                return True
            found = await self._cell.read()  # Another attempt began it, or another request aborted it.
        raise self._busy()

    def _may_begin_again(self, found: Transaction) -> bool:
        """Whether another attempt may begin; False if one committed. Raises Busy while one may be active."""
        if found.request_hash != self._request.hash:
            raise KeyReused(f"Idempotency-Key {self._request.key} was already used for a different request")
        if found.state == "committed":
            return False
        if found.failure:
            raise error_of(found.failure)  # T8
        is_ours = self._record is not None and found.attempt == self._record.value.attempt
        stale_ms = found.attempt_ms + self._lake.settings.transaction_timeout_ms
        if found.state == "preparing" and not is_ours and stale_ms > self._lake.clock.now_ms():
            raise self._busy()
        return True

    async def _read(self, part: Part, begun: Attempt) -> None:
        """Read a part. A failure is raised later, when the record exists and can keep the refusal (T8)."""
        try:
            await part.read(begun)
        except SandurError as error:
            self._unreadable = self._unreadable or error

    async def _prepare(self, parts: Sequence[Part], begun: Attempt) -> None:
        """T3, round 2: decide everything before anything is written, then write all of it in parallel."""
        if self._unreadable:
            error, self._unreadable = self._unreadable, None
            raise error
        if all(part.is_applied for part in parts):  # C9: every part shows that this was done before.
            raise Replayed
        for part in parts:
            part.decide()
        read_ms = self._lake.clock.now_ms()
        authority, _ = await gather_all(
            (read_authority(self._lake), gather_all([part.prepare(begun) for part in parts]))  # A15 (late)
        )
        if any(part.is_decided_again for part in parts):  # A6 (attempt): that version was not known before.
            authority = await read_authority(self._lake)
        await gather_all([part.confirm() for part in parts])
        for _ in range(READS_MAX):
            for part in parts:
                await part.authorize(authority)
            now_ms = self._lake.clock.now_ms()
            if authority is None or now_ms - read_ms <= SWAP_DELAY_MS_MAX:
                return
            read_ms, authority = now_ms, await read_authority(self._lake)
        raise Overtaken

    async def _commit(self, parts: Sequence[Part]) -> bool:
        """T4: the transaction happens here, for all parts. False if it was aborted before."""
        record = self._held()
        committed = replace(record.value, state="committed", participants=tuple(part.participant() for part in parts))
        try:
            self._record = await self._cell.swap(committed, expected=record.version)
        except SwapLost as lost:
            if lost.is_definite:
                return False
            found = await self._cell.read()
            if found is None:
                raise OutcomeUnknown(
                    "the answer to the commit of the transaction was lost, and its record is gone"
                ) from lost
            return (found.value.state, found.value.attempt) == ("committed", record.value.attempt)
        return True

    async def _abort(self, parts: Sequence[Part], error: SandurError | None) -> None:
        """T8: record the refusal before it is answered. If that swap is lost, the refusal is not final for the key."""
        if self._record is None:
            return  # This attempt never began.
        record = self._held()
        aborted = replace(record.value, state="aborted", failure=failure_of(error) if error else None)
        written = await self._cell.try_swap(aborted, expected=record.version)
        if written is None and error and self._request.key:
            raise self._busy()
        self._record = written or record
        _release(parts)

    async def _finish(self, parts: Sequence[Part], begun: Attempt) -> None:
        """T9, after the answer: complete all parts. Then only a retry with a key needs the record."""
        await gather_all([part.finish(begun) for part in parts])
        if not self._request.key:
            with contextlib.suppress(SwapLost):
                await self._cell.empty(expected=self._held().version)

    def _part(self, identifier: Identifier, commit: TableCommit) -> Part:
        lake, request, places = self._lake, self._request, self._places[identifier]
        is_view = any(isinstance(update, AddViewVersion | SetCurrentViewVersion) for update in commit.updates) or any(
            isinstance(requirement, AssertViewUuid) for requirement in commit.requirements
        )
        if not _creates(commit):
            queue = self._queues[identifier]
            if is_view:
                return ChangedTable(lake, VIEWS, identifier, view_change(commit), request, places, queue)
            return ChangedTable(lake, TABLES, identifier, TableChange(commit), request, places, queue)
        checked_identifier(identifier)
        if is_view:
            view = created_view_metadata(lake, identifier, commit)
            return CreatedTable(lake, VIEWS, identifier, view, view.view_uuid, request, places)
        table = created_metadata(lake, identifier, commit)
        return CreatedTable(lake, TABLES, identifier, table, table.table_uuid or "", request, places)

    def _held(self) -> Versioned[Transaction]:
        if self._record is None:
            raise self._busy()
        return self._record

    def _busy(self) -> Busy:
        return Busy(f"transaction {self._id}: another attempt of it is active")


def _release(parts: Sequence[Part]) -> None:
    for part in parts:
        part.release()
