"""The commit engine of Delta tables (L1–L4): decide on the table's one record, then swap it.

The Delta API and the older commit API both use it. A commit that a client sends again is recognised by the name of its
staged file; once the catalog no longer tracks that name, by its bytes (L3).
"""

import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from sandur.catalog.events import EventSubject
from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import check_length
from sandur.catalog.records import DeltaCommit, DeltaTable, NameRecord, Request, Uniform
from sandur.delta.column_mapping import check_physical_names, is_mapped
from sandur.delta.columns import decode_columns
from sandur.delta.coordination import (
    DeltaMetadata,
    LogTail,
    Verdict,
    apply_change,
    check_room,
    checked_commit,
    decide_commit,
    newly_published,
    without_published,
)
from sandur.delta.log_state import added_files, read_actions
from sandur.delta.requests import CommitFile, DeltaChange
from sandur.delta.requests import Uniform as UniformRequest
from sandur.errors import (
    Busy,
    Conflict,
    Exhausted,
    Invalid,
    OutcomeUnknown,
    SandurError,
    SwapLost,
    VersionTaken,
    WrongFormat,
)
from sandur.operations.access import forget_refusals, read_authority, require
from sandur.operations.commit_queues import CommitQueues
from sandur.operations.counters import DELTA_COMMITS, Counters, outcome_of
from sandur.operations.delta.publishing import (
    have_same_actions,
    known_published,
    published_location,
    staged_location,
    verify_published,
)
from sandur.operations.delta.tables import (
    check_takes_commits,
    find_allowed_table,
    find_by_id,
    id_not_found,
    table_not_found,
)
from sandur.operations.events import changed_fields, event_of, with_event
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.name_access import naming_missing_parent, read_allowed, record_chain
from sandur.operations.receipts import CatalogReceipts, DeltaReceipts, delta_commit_key
from sandur.operations.securable_chains import name_chain
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX
from sandur.operations.tables.names import ResolvedName, activate_name, resolve_name
from sandur.operations.tables.swept import check_files, swept_files
from sandur.storage.cell import Cell, Versioned, gather_all

_BACKOFF_SECONDS: Final = 0.002
CHECKED_BYTES_MAX: Final = 64 << 20


async def update_table(lake: Lake, identifier: Identifier | None, change: DeltaChange, request: Request) -> DeltaTable:
    """Apply a change and return the table after it. Without an identifier the asserted uuid names the table.

    Raises Conflict if a requirement fails, VersionTaken if another commit has the version, Exhausted if too many
    commits are unpublished, and OutcomeUnknown if it cannot be known whether the commit happened.
    """
    update, counters = _Update(lake, change, request, identifier), lake.feature(Counters)
    try:
        if identifier is None:
            table = await update.run_in_turn()
        else:
            async with naming_missing_parent(lake, identifier.namespace):
                table = await update.run_in_turn()
    except SandurError as error:
        counters.add(DELTA_COMMITS, outcome_of(error))
        raise
    counters.add(DELTA_COMMITS, "ok" if update.is_swapped else "replayed")
    return table


class _Base(NamedTuple):
    """The state that a change is decided on. `is_remembered`: from the cache, so no refusal may rest on it (G4)."""

    table: Versioned[DeltaTable]
    found: ResolvedName | None
    is_remembered: bool


class _Plan(NamedTuple):
    """The decision: `after` is the record to swap in, None if the table does not change.

    `reported` is the version that the client newly reports as published. `fits` is false if the report must be verified
    first, because without it too many commits would be unpublished.
    """

    verdict: Verdict
    after: DeltaTable | None = None
    reported: int | None = None
    fits: bool = True


@dataclass
class _Update:
    """One request to change a table; `identifier` is None if the client names the table by its uuid alone."""

    lake: Lake
    change: DeltaChange
    request: Request
    identifier: Identifier | None
    # The etag of the record that the last attempt wrote, and whether that swap may have happened.
    _etag: str = ""
    _is_uncertain: bool = False
    is_swapped: bool = False
    # When the read of the grants began that allows the next swap; None if nothing is checked.
    _decided_ms: int | None = None

    async def run_in_turn(self) -> DeltaTable:
        async with self.lake.feature(CommitQueues).turn(self._cell().key):
            if self._is_possible():
                return await self.run()
        # Refused most likely, or a replay. A fresh record decides (G4), out of turn: the queue need not wait.
        return await self.run()

    def _is_possible(self) -> bool:
        """Whether the version of the commit is free, by the record that this server saw last."""
        base, commit = self._remembered(), self.change.commit
        return base is None or commit is None or commit.version > base.table.value.last_version

    async def run(self) -> DeltaTable:
        if self.change.commit:
            checked_commit(self.change.commit)
        base = self._remembered()
        for attempt in range(self.lake.settings.commit_attempts_max):
            if base is None:
                base = await self._read(attempt)
                if self._was_made(base.table.value):
                    return base.table.value
            try:
                await self._authorize(base.found, base.table.value)
                plan = self._decide(base)
                await self._check_names(plan.after)
                await self._check_not_swept(base.table.value, plan.after)
            except SandurError:
                if not base.is_remembered:
                    raise
                forget_refusals(self.lake)
                base = None  # G4: a refusal rests only on what this request read.
                continue
            if base.is_remembered and plan.after is None:
                base = None
                continue
            if outcome := await self._carry_out(base, plan):
                return outcome
            base = None
        raise Busy(f"table {self.change.asserted_uuid}: too many concurrent changes")

    async def _authorize(self, found: ResolvedName | None, table: DeltaTable) -> None:
        """A6: check what the route declares, by a read of the grants that begins after the record's version was known.

        The commit is one swap, so the grants must be read before it: on a bucket this costs a round. A request that
        needs no grant and names the table by its uuid has nothing to read, not even the names of containers (X1).
        """
        if self.lake.access is None and self.identifier is None:
            return
        began_ms = self.lake.clock.now_ms()
        authority = await read_authority(self.lake)
        if authority is None:
            return
        self._decided_ms = began_ms
        if found is None:
            missing = id_not_found(self.change.asserted_uuid)
            chain = await record_chain(self.lake, authority, table, missing)
        else:
            missing = table_not_found(found.identifier)
            chain = await name_chain(self.lake, authority, found, missing=missing)
        require(self.lake, authority, chain, missing=missing)

    def _was_made(self, table: DeltaTable) -> bool:
        """Whether an uncertain swap of this request happened; a commit is recognised by its file instead."""
        if not self._is_uncertain or self.change.commit or not self.change.changes_metadata:
            return False
        if table.etag == self._etag:
            return True
        raise OutcomeUnknown(
            f"table {table.uuid}: the outcome of the change is unknown, and others changed the table since"
        )

    def _cell(self) -> Cell[DeltaTable]:
        return self.lake.delta_table(self.change.asserted_uuid)

    def _remembered(self) -> _Base | None:
        """The state in the cache; None if it is not enough to decide on."""
        table = self._cell().last_seen
        if table is None or table.value.state != "live":
            return None
        if self.identifier is None:
            return _Base(table, None, is_remembered=True)
        name = self.lake.name(self.identifier).last_seen
        if name is None or not _refers_to(name.value, self.change.asserted_uuid):
            return None
        return _Base(table, ResolvedName(self.identifier, name, table), is_remembered=True)

    async def _read(self, attempt: int) -> _Base:
        """The state in the store, in one round if the name refers directly to the asserted table."""
        if attempt > 1:
            await self.lake.clock.sleep(_BACKOFF_SECONDS * self.lake.clock.chance())
        if self.identifier is None:
            return _Base(await find_by_id(self.lake, self.change.asserted_uuid), None, is_remembered=False)
        name, table = await gather_all((self.lake.name(self.identifier).read(), self._cell().read()))
        if name and table and _refers_to(name.value, self.change.asserted_uuid) and table.value.state == "live":
            return _Base(table, ResolvedName(self.identifier, name, table), is_remembered=False)
        found = await resolve_name(self.lake, self.identifier)
        if found is None or found.name.value.kind != "table":
            raise table_not_found(self.identifier)
        if not isinstance(found.pointer.value, DeltaTable):
            await find_allowed_table(self.lake, self.identifier)
            raise WrongFormat(f"{self.identifier} is not a Delta table")
        return _Base(Versioned(found.pointer.value, found.pointer.version), found, is_remembered=False)

    def _decide(self, base: _Base) -> _Plan:
        """Decide about the change; a refusal is raised."""
        table, change = base.table.value, self.change
        if table.uuid.lower() != change.asserted_uuid:
            raise Conflict(f"assert-table-uuid failed: expected {change.asserted_uuid}, found {table.uuid}")
        log = LogTail(table.last_version, known_published(self.lake, table), table.commits)
        # What others changed meanwhile is a conflict, also if the change would be invalid on the table as it is now.
        if change.commit:
            verdict = decide_commit(log, change.commit.version, change.commit.file_name)
            if verdict is not Verdict.APPEND:
                return _Plan(verdict)
        if change.asserted_etag is not None and change.asserted_etag != table.etag:
            raise Conflict(f"assert-etag failed: expected {change.asserted_etag}, found {table.etag}")
        waives = self.lake.settings.delta_waive_deletion_vectors
        metadata = apply_change(metadata_of(table), change, waives_deletion_vectors=waives)
        reported = None
        if change.published is not None:
            reported = newly_published(log, change.published, commits=change.commit is not None)
        if not change.commit and not change.changes_metadata and change.domains is None and reported is None:
            return _Plan(Verdict.REPLAY)
        fits = self._fits(log, reported)
        return _Plan(Verdict.APPEND, self._after(table, metadata, log.published), reported, fits=fits)

    def _fits(self, log: LogTail, reported: int | None) -> bool:
        if self.change.commit is None:
            # Verifying the report is then the whole change, if nothing else is asked for.
            return reported is None or self.change.changes_metadata or self.change.domains is not None
        unpublished_max = self.lake.settings.delta_unpublished_max
        try:
            check_room(log, self.change.commit.version, log.published, unpublished_max)
        except Exhausted:
            if reported is None:
                raise
            check_room(log, self.change.commit.version, reported, unpublished_max)
            return False
        return True

    def _after(self, table: DeltaTable, metadata: DeltaMetadata, published: int) -> DeltaTable:
        """The record to swap in. A commit that only adds data keeps what clients cache and what lists contain."""
        change, now_ms = self.change, self.lake.clock.now_ms()
        after = replace(table, state="live", properties=dict(metadata.properties))
        if change.changes_metadata:
            self._etag = self.lake.clock.new_id()
            after = replace(
                after,
                columns=metadata.columns,
                comment=metadata.comment,
                etag=self._etag,
                changed_ms=max(now_ms, table.changed_ms),
                changed_by=self.request.source.principal,
                updated_ms=now_ms,
            )
        if change.commit:
            row = self._row(table, change.commit)
            after = replace(
                after,
                commits=(*table.commits, row),
                last_version=row.version,
                last_commit_ms=row.timestamp_ms,
                uniform=uniform_record(change.uniform),
            )
        # G6: a commit may be forgotten only if its receipt is known to exist.
        gone = [row for row in table.commits if row.version <= published]
        is_receipted = self.lake.feature(DeltaReceipts).are_known(table, gone)
        return _with_published(after, published if is_receipted else table.published)

    def _row(self, table: DeltaTable, commit: CommitFile) -> DeltaCommit:
        last = table.commits[-1].file_name if table.commits else ""
        return DeltaCommit(
            version=commit.version,
            timestamp_ms=commit.timestamp,
            file_name=commit.file_name,
            file_size=commit.file_size,
            file_modified_ms=commit.file_modification_timestamp,
            previous_commit_key=delta_commit_key(table.uuid, table.last_version, last),
            source=self.request.source,
        )

    async def _carry_out(self, base: _Base, plan: _Plan) -> DeltaTable | None:
        """Carry the decision out and return the table; None if the swap was lost."""
        if plan.after is None:
            if plan.verdict is Verdict.COMPARE and self.change.commit:
                await self._compare(base.table.value, self.change.commit)
            return base.table.value
        after = plan.after
        if not plan.fits and plan.reported is not None:
            published = await verify_published(self.lake, base.table.value, plan.reported)
            if self.change.commit is None and published <= base.table.value.published:
                return base.table.value
            if self.change.commit:
                log = LogTail(base.table.value.last_version, published, base.table.value.commits)
                check_room(log, self.change.commit.version, published, self.lake.settings.delta_unpublished_max)
            after = _with_published(after, published)
            plan = plan._replace(reported=None)
        return await self._swap(base, after, plan.reported)

    async def _check_names(self, table: DeltaTable | None) -> None:
        """L6: raise Invalid if the staged commit shows that its writer ignores the table's column mapping.

        A commit that is missing or too large is not checked: the catalog does not need it.
        """
        commit = self.change.commit
        if table and commit and is_mapped(table.properties) and commit.file_size <= CHECKED_BYTES_MAX:
            data = await self.lake.locations.read(staged_location(table, commit.file_name))
            check_physical_names(decode_columns(table.columns), data or b"")

    async def _check_not_swept(self, table: DeltaTable, after: DeltaTable | None) -> None:
        """O5: raise Invalid if the staged commit adds a file that maintenance deletes or has deleted."""
        commit = self.change.commit
        if not table.swept or commit is None or after is None:
            return
        listed = await swept_files(self.lake, table)
        location = staged_location(table, commit.file_name)
        data = await self.lake.locations.read(location) if listed else b""
        if data is None:
            raise Invalid(f"commit version {commit.version}: its staged file {location} does not exist")
        actions = read_actions(data, location=location)
        await check_files(self.lake, listed, added_files(actions, table.location))

    async def _swap(self, base: _Base, after: DeltaTable, reported: int | None) -> DeltaTable | None:
        """L1: swap the record, in one round with everything else; None if the swap was lost."""
        # I5: a commit by uuid knows the name that the table had first.
        known = base.found.identifier if base.found else base.table.value.made_for
        listed = known if self.change.changes_metadata else None
        if self._decided_ms is not None and self.lake.clock.now_ms() - self._decided_ms > SWAP_DELAY_MS_MAX:
            return None  # The grants were read too long ago: decide again.
        after = await self._with_event(base, after)
        deferred = await update.begin_deferred_update(self.lake, listed, after.uuid) if listed else None  # I1
        try:
            swap = self._cell().swap(after, expected=base.table.version)
            held, _ = await gather_all((swap, self._beside(base, reported)))  # The commit happens here.
        except SwapLost as lost:
            self._is_uncertain = not lost.is_definite
            if deferred:
                deferred.end()
            return None
        if deferred:  # After any other failure the swap may still be made: a janitor keeps the mark until then.
            deferred.end()
        self.is_swapped = True
        await self.lake.background.run("finish Delta commit", self._finish(base, held.value))
        return held.value

    async def _with_event(self, base: _Base, after: DeltaTable) -> DeltaTable:
        """A change of metadata without a commit has no other receipt. That of the last one is mostly known (E2)."""
        before, found = base.table.value, base.found
        if self.change.commit or not self.change.changes_metadata:
            return after
        subject = EventSubject(before.kind, before.uuid, found.identifier if found else before.made_for, "delta")
        source, last = self.request.source, before.last_change
        event = await event_of(
            self.lake, "changed", subject, source, before=last, details=changed_fields(before, after)
        )
        await self.lake.feature(CatalogReceipts).ensure(last)
        return with_event(after, event or last)

    async def _beside(self, base: _Base, reported: int | None) -> None:
        """Reads in the same round, for the next request: this one acts on the uuid that it asserts."""
        reads: list[Awaitable[object]] = []
        if base.is_remembered and self.identifier:
            reads.append(self.lake.name(self.identifier).read())
        if reported is not None:
            reads.append(verify_published(self.lake, base.table.value, reported))
        with contextlib.suppress(SandurError):
            await gather_all(reads)

    async def _finish(self, base: _Base, table: DeltaTable) -> None:
        """After the answer: write the receipt, and activate the name of a table that has its first commit."""
        work: list[Awaitable[object]] = []
        if self.change.commit:
            work.append(self.lake.feature(DeltaReceipts).ensure(table, table.commits[-1]))
        elif self.change.changes_metadata:
            work.append(self.lake.feature(CatalogReceipts).ensure(table.last_change))
        if base.found and base.found.name.value.state == "new":
            work.append(activate_name(self.lake, base.found))
        await gather_all(work)

    async def _compare(self, table: DeltaTable, commit: CommitFile) -> None:
        """L3: raise VersionTaken unless the commit is the one that was published under its version.

        Raises OutcomeUnknown if a file cannot be read, so that the client tries again.
        """
        staged = staged_location(table, commit.file_name)
        published = published_location(table, commit.version)
        try:
            is_same = await have_same_actions(self.lake, staged, published)
        except SandurError as error:
            raise OutcomeUnknown(f"commit version {commit.version}: its files cannot be read: {error}") from error
        if is_same is None:
            raise OutcomeUnknown(
                f"commit version {commit.version} was accepted before; whether it is this one is unknown, "
                "because its staged or published file is missing"
            )
        if not is_same:
            raise VersionTaken(f"commit version {commit.version} was accepted before with other content")


def _refers_to(name: NameRecord, uuid: str) -> bool:
    """Whether a name certainly refers to the table."""
    return (name.state, name.kind, name.format, name.uuid) == ("active", "table", "delta", uuid)


def metadata_of(table: DeltaTable) -> DeltaMetadata:
    return DeltaMetadata(
        uuid=table.uuid,
        is_managed=table.table_type == "MANAGED",
        location=table.location,
        columns=table.columns,
        properties=table.properties,
        comment=table.comment,
    )


def uniform_record(uniform: UniformRequest | None) -> Uniform | None:
    """The record of the Iceberg metadata that a client wrote, if it wrote any; raises Invalid if it is too long."""
    if uniform is None:
        return None
    iceberg = uniform.iceberg
    check_length("metadata-location", iceberg.metadata_location)
    return Uniform(
        metadata_location=iceberg.metadata_location,
        converted_delta_version=iceberg.converted_delta_version,
        converted_delta_timestamp_ms=iceberg.converted_delta_timestamp,
        base_converted_delta_version=iceberg.base_converted_delta_version,
    )


def _with_published(table: DeltaTable, published: int) -> DeltaTable:
    """The record with all commits up to a version published; of these only the newest stays tracked."""
    return replace(table, published=published, commits=without_published(table.commits, published))


async def post_commit(lake: Lake, change: DeltaChange, table_uri: str, request: Request) -> None:
    """Commit through the older API; `table_uri` must be the location of the table in the catalog."""
    uuid = change.asserted_uuid
    table = await read_allowed(lake, lake.delta_table(uuid), missing=id_not_found(uuid))
    check_takes_commits(table.value, table_uri)
    await update_table(lake, None, change, request)
