"""Executor tasks of `reconcile`: find missing receipts of commits and of the catalog's events, and write them.

A walk goes through the metadata log of a table from its head. It needs no listing: each receipt names the one before
it, and the metadata log has the time of each file, which determines the key of its receipt.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import Head, Pointer
from sandur.clock import uuid_v7
from sandur.errors import SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.dry_run import DryRunStore, open_dry_run
from sandur.operations.janitors.events import ensure_events, is_effective, receipted_commits
from sandur.operations.lake import Lake
from sandur.operations.receipts import (
    Receipt,
    commit_key,
    commit_key_of,
    delta_receipt_key,
    delta_receipt_of,
    receipt_of,
)
from sandur.operations.tables.documents import TABLES, load_document, version_in_name
from sandur.operations.transactions import resolution
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.sources.range_reader import KeyRange, list_range
from sandur.pipeline.sources.receipt_rows import key_of, receipt_of_row, row_of
from sandur.pipeline.tasks import Row, record_batch
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
from sandur.storage.cell import gather_all
from sandur.storage.contract import ABSENT, portions

TABLES_AT_ONCE: Final = 16
FINDINGS: Final = (
    "uuid string, status string, table_uuid string, commit_key string, key string, receipt string, "
    "is_exact boolean, detail string, is_own boolean"
)
RESTORED: Final = "outcome string"
EVENTS_ENSURED: Final = "name string, times long, problem string"
PROBLEMS_REPORTED_MAX: Final = 10
_FILES_CACHED_MAX: Final = 4

Status = Literal["present", "missing", "damaged", "unreadable", "depth_limited", "not_walked"]


class Finding(NamedTuple):
    """The state of one receipt of a table, as the columns of FINDINGS after the uuid.

    `receipt` is the content that belongs at `key`; empty if it exists or is unknown. `is_exact`: `receipt` has the
    very bytes of the commit. `is_own`: the pipeline committed to a table of its own.
    """

    status: Status
    table_uuid: str
    commit_key: str = ""
    key: str = ""
    receipt: bytes = b""
    is_exact: bool = False
    detail: str = ""
    is_own: bool = False


class _Step(NamedTuple):
    """A receipt that must exist: its commit key and its metadata file."""

    commit_key: str
    location: str


def walk_task(options: Mapping[str, str], depth_max: int) -> Callable[[KeyRange], Iterator[Any]]:
    """A task over a range of pointers or Delta records: one row of FINDINGS per receipt."""

    def run(keys: KeyRange) -> Iterator[Any]:
        with open_lake(options) as blocking:
            for page in blocking.iterate(list_range(blocking.lake.store, keys)):
                for some in portions([listed.key for listed in page], TABLES_AT_ONCE):
                    found = blocking.wait(gather_all(_walk_key(blocking.lake, key, depth_max) for key in some))
                    yield record_batch(FINDINGS, [row for rows in found for row in rows])

    return run


async def _walk_key(lake: Lake, key: str, depth_max: int) -> Sequence[tuple[Any, ...]]:
    is_delta = key.startswith(lake.layout.delta_tables_folder())
    uuid = lake.layout.parse_delta_table(key) if is_delta else lake.layout.parse_pointer(key)
    findings = walk_delta_table(lake, uuid) if is_delta else walk_table(lake, uuid, depth_max=depth_max)
    try:
        return [(uuid, *finding) async for finding in findings]
    except SandurError as error:
        return [(uuid, "failed", None, None, None, None, None, str(error), False)]


def events_task(options: Mapping[str, str], *, dry_run: bool) -> Callable[[KeyRange], Iterator[Any]]:
    """A task over a range of records: it settles them and writes the receipts of their events; one row per problem.

    The first row has the number of records, of receipts that were missing, and of records that were not settled.
    """

    def run(keys: KeyRange) -> Iterator[Any]:
        counts, problems = Counter[str](), list[str]()
        with open_lake(options) as blocking:
            for page in blocking.iterate(list_range(blocking.lake.store, keys)):
                for some in portions([listed.key for listed in page], TABLES_AT_ONCE):
                    missing = blocking.wait(_ensure_events(blocking.lake, some, problems, dry_run=dry_run))
                    counts.update(records_visited=len(some), events_restored=missing)
        counts["records_unsettled"] = len(problems)
        rows = [[name, times, None] for name, times in counts.items()]
        yield record_batch(EVENTS_ENSURED, rows + [["", 0, problem] for problem in problems[:PROBLEMS_REPORTED_MAX]])

    return run


async def _ensure_events(lake: Lake, keys: Sequence[str], problems: list[str], *, dry_run: bool) -> int:
    """Settle records and ensure their receipts; returns how many receipts were missing.

    All is tried in a dry run first, which writes nothing if nothing is missing.
    """
    trial = DryRunStore(lake.store)
    pretended = open_dry_run(lake, trial)
    failed = await gather_all(_ensure_events_of(pretended, key) for key in keys)
    await pretended.background.drain()
    if trial.written and not dry_run:
        failed = await gather_all(_ensure_events_of(lake, key) for key in keys)
        await lake.background.drain()
    problems += [problem for problem in failed if problem]
    return sum("/catalog/committed/" in key for key in trial.written)


async def _ensure_events_of(lake: Lake, key: str) -> str:
    """Settle a record and ensure its receipts; returns the problem if that is not possible."""
    try:
        with contextlib.suppress(SwapLost):  # Who changed it meanwhile has ensured its receipts (E2).
            await ensure_events(lake, key)
    except SandurError as error:
        return f"{key}: {error}"
    return ""


async def restore_receipt(lake: Lake, row: Row) -> tuple[str]:
    """Write a missing receipt unless it exists: the exact one of a head, the published one, or the derived one."""
    if row["published"] is None or row["is_exact"]:
        key, data = row["key"], row["receipt"].encode()
    else:
        receipt = receipt_of_row(row["published"])
        key, data = key_of(lake.layout, receipt.commit_key, receipt.committed_at_ms), msgspec.json.encode(receipt)
    try:
        await lake.store.put(key, data, expected=ABSENT)
    except SwapLost:
        return ("there",)
    return ("written",)


async def walk_table(lake: Lake, uuid: str, *, depth_max: int) -> AsyncIterator[Finding]:
    """The receipts of a pointer, newest first."""
    held = await lake.pointer(uuid).read()
    if held is None or not await is_effective(lake, held.value):
        return
    pointer = (await resolution.effective_pointer(lake, held)).value
    if pointer.head is None:
        return
    # The head below a committed transaction, and what a batch passed, may still lack receipts: no successor has
    # written them yet (C5, B4).
    known = (pointer.head, held.value.head, *held.value.passed)
    walk = _Walk(lake, pointer, {commit_key_of(head): head for head in known if head})
    step: _Step | None = _Step(commit_key_of(pointer.head), pointer.head.metadata_location)
    for _ in range(depth_max):
        if step is None:
            return
        finding, step = await walk.visit(step)
        yield finding
    if step is not None:
        yield Finding("depth_limited", pointer.table_uuid, detail=f"more than {depth_max} receipts")


async def walk_delta_table(lake: Lake, uuid: str) -> AsyncIterator[Finding]:
    """The receipts of a Delta table: of its first version and of the versions in its record.

    The record has every field of these receipts, so each can be restored exactly.
    """
    held = await lake.delta_table(uuid).read()
    if held is None:
        return
    table = held.value
    for commit in receipted_commits(table):
        receipt = delta_receipt_of(table, commit)
        key = delta_receipt_key(lake.layout, receipt)
        is_there = await lake.store.head(key) is not None
        data = b"" if is_there else msgspec.json.encode(receipt)
        yield Finding("present" if is_there else "missing", table.uuid, receipt.commit_key, key, data, is_exact=True)


def _is_own(receipt: Receipt) -> bool:
    source = receipt.source
    return (source.kind, source.principal, source.task_id) == ("pipeline", "", SYSTEM_TABLES)


def _previous(receipt: Receipt) -> _Step | None:
    if receipt.previous_commit_key is None or receipt.previous_metadata_location is None:
        return None
    return _Step(receipt.previous_commit_key, receipt.previous_metadata_location)


class _Walk:
    def __init__(self, lake: Lake, pointer: Pointer, heads: Mapping[str, Head]) -> None:
        self._lake = lake
        self._pointer = pointer
        self._heads = heads
        self._times = {head.metadata_location: head.last_updated_ms for head in heads.values()}
        self._files: dict[str, TableMetadata] = {}

    async def visit(self, step: _Step) -> tuple[Finding, _Step | None]:
        """The state of one receipt, and the step to the previous one; None at the first one or if it is unknown."""
        time_ms = await self._time_of(step.location)
        if time_ms is None:
            if self._pointer.kind != "table":  # Expected: metadata files of views have no times.
                return Finding("not_walked", self._pointer.table_uuid, step.commit_key), None
            detail = f"{step.location}: the time of the file is unknown"
            return Finding("unreadable", self._pointer.table_uuid, step.commit_key, detail=detail), None
        key = key_of(self._lake.layout, step.commit_key, time_ms)
        stored = await self._lake.store.get(key)
        if stored is None:
            return await self._missing(step, time_ms)
        problem = row_of(self._lake.layout, key, stored.data).get("problem")
        if problem:
            _, previous = await self._missing(step, time_ms)
            return Finding("damaged", self._pointer.table_uuid, step.commit_key, detail=f"{key}: {problem}"), previous
        receipt = msgspec.json.decode(stored.data, type=Receipt)
        found = Finding("present", receipt.table_uuid, step.commit_key, key, is_own=_is_own(receipt))
        return found, _previous(receipt)

    async def _missing(self, step: _Step, time_ms: int) -> tuple[Finding, _Step | None]:
        head = self._heads.get(step.commit_key)
        if head is not None:
            receipt, is_exact = receipt_of(self._pointer.table_uuid, head), True
        else:
            metadata = await self._file(step.location)
            # The log of a file that was registered over an existing table is of another table.
            keys = {commit_key(step.location), commit_key(step.location, self._pointer.uuid)}
            if metadata is None or step.commit_key not in keys:
                detail = f"{step.location}: the receipt is missing and cannot be derived"
                return Finding("unreadable", self._pointer.table_uuid, step.commit_key, detail=detail), None
            receipt, is_exact = await self._derive(step, metadata, time_ms), False
        key = key_of(self._lake.layout, step.commit_key, time_ms)
        data, is_own = msgspec.json.encode(receipt), _is_own(receipt)
        found = Finding("missing", receipt.table_uuid, step.commit_key, key, data, is_exact, is_own=is_own)
        return found, _previous(receipt)

    async def _derive(self, step: _Step, metadata: TableMetadata, time_ms: int) -> Receipt:
        """The receipt of a file, derived from metadata files: everything but the source of the commit."""
        is_registered = step.commit_key != commit_key(step.location)
        has_previous = metadata.metadata_log and not is_registered  # The log of a registered file is of another table.
        previous = metadata.metadata_log[-1].metadata_file if has_previous else None
        before = await self._file(previous) if previous else None
        head = Head(
            metadata_location=step.location,
            last_updated_ms=time_ms,
            metadata_version=version_in_name(step.location),
            previous_metadata_location=previous,
            previous_commit_key=await self._key_of_file(previous) if previous else None,
            snapshot_id=metadata.current_snapshot_id,
            operation=self._operation(step, metadata, before),
            last_sequence_number=metadata.last_sequence_number,
            refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
            spec_id=metadata.default_spec_id,
        )
        table_uuid = metadata.table_uuid or self._pointer.table_uuid
        # Use the key that the successor names: the key of a registered file hashes more than its location.
        event_id = uuid_v7(time_ms, int(step.commit_key, 16))
        return replace(receipt_of(table_uuid, head), commit_key=step.commit_key, event_id=event_id)

    def _operation(self, step: _Step, metadata: TableMetadata, before: TableMetadata | None) -> str:
        """The operation of the commit: that of the new snapshot, if it added one."""
        if step.commit_key != commit_key(step.location):
            return "register"
        if not metadata.metadata_log:
            return "create"
        current = metadata.current_snapshot_id
        if before is not None and any(snapshot.snapshot_id == current for snapshot in before.snapshots):
            return ""
        snapshot = next((one for one in metadata.snapshots if one.snapshot_id == current), None)
        return (snapshot.summary or {}).get("operation", "") if snapshot else ""

    async def _key_of_file(self, location: str) -> str:
        """The commit key of a file in the log: a registered file has another key than a written one."""
        plain, registered = commit_key(location), commit_key(location, self._pointer.uuid)
        time_ms = await self._time_of(location)
        layout = self._lake.layout
        if time_ms is not None and await self._lake.store.head(key_of(layout, registered, time_ms)):
            return registered
        return plain

    async def _time_of(self, location: str) -> int | None:
        """The time of a file, from a metadata log or from the file itself; None if it is unknown."""
        if location not in self._times and self._pointer.kind == "table":
            await self._file(self._pointer.head.metadata_location if self._pointer.head else location)
            if location not in self._times:
                await self._file(location)
        return self._times.get(location)

    async def _file(self, location: str) -> TableMetadata | None:
        """Read a metadata file and the times in its log; None if it is missing or damaged."""
        if location not in self._files:
            try:
                metadata = (await load_document(self._lake, TABLES, location)).metadata
            except SandurError:
                return None
            self._files = {location: metadata} | dict(list(self._files.items())[-_FILES_CACHED_MAX:])
            self._times.setdefault(location, metadata.last_updated_ms)
            for entry in metadata.metadata_log:
                self._times.setdefault(entry.metadata_file, entry.timestamp_ms)
        return self._files[location]
