"""Executor task: walk a table's metadata log from its head and find receipts that are missing.

No listing is needed: the head names the receipt before it, and the log says when each file was written, which is where
its receipt lies.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import Head, Pointer
from sandur.clock import uuid_v7
from sandur.errors import SandurError
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.lake import Lake
from sandur.operations.receipts import (
    Receipt,
    commit_key,
    commit_key_of,
    delta_receipt_key,
    delta_receipt_of,
    first_delta_commit,
    receipt_of,
)
from sandur.operations.tables.documents import TABLES, load_document, version_in_name
from sandur.operations.tables.names import resolve_name
from sandur.operations.transactions import resolution
from sandur.pipeline.sources.receipt_rows import key_of, row_of
from sandur.pipeline.transforms.commits import SYSTEM_TABLES

_FILES_REMEMBERED_MAX: Final = 4

Status = Literal["present", "missing", "damaged", "unreadable", "depth_limited", "not_walked"]


class Finding(NamedTuple):
    """What was found out about one receipt of a table; `receipt` is what it should be at `key`, as far as can be told.

    `is_exact`: those are the very bytes that the commit writes, as its head is known. `is_own`: the commit is of the
    pipeline, to a table of its own.
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
    """A receipt that there must be: its key, and the file it is of."""

    commit_key: str
    location: str


async def walk_table(lake: Lake, uuid: str, *, depth_max: int) -> AsyncIterator[Finding]:
    """What there is to say about the receipts of a pointer, newest first."""
    held = await lake.pointer(uuid).read()
    if held is None or not await _counts(lake, held.value):
        return
    pointer = (await resolution.effective_pointer(lake, held)).value
    if pointer.head is None:
        return
    # The head that a committed transaction replaces has no successor that is known to have helped it (C5).
    before = held.value.head if held.value.head != pointer.head else None
    walk = _Walk(lake, pointer, {commit_key_of(head): head for head in (pointer.head, before) if head})
    step: _Step | None = _Step(commit_key_of(pointer.head), pointer.head.metadata_location)
    for _ in range(depth_max):
        if step is None:
            return
        finding, step = await walk.visit(step)
        yield finding
    if step is not None:
        yield Finding("depth_limited", pointer.table_uuid, detail=f"more than {depth_max} receipts")


async def walk_delta_table(lake: Lake, uuid: str) -> AsyncIterator[Finding]:
    """What there is to say about the receipts of a Delta table: of its first version and those its record holds.

    The record keeps all that their receipts say, so that each is told to the last bit.
    """
    held = await lake.delta_table(uuid).read()
    if held is None or held.value.state not in {"live", "dropped"} or held.value.data_source_format != "DELTA":
        return
    table = held.value
    first = [] if any(not commit.version for commit in table.commits) else [first_delta_commit(table)]
    for commit in (*reversed(table.commits), *first):
        receipt = delta_receipt_of(table, commit)
        key = delta_receipt_key(lake.layout, receipt)
        is_there = await lake.store.head(key) is not None
        data = b"" if is_there else msgspec.json.encode(receipt)
        yield Finding("present" if is_there else "missing", table.uuid, receipt.commit_key, key, data, is_exact=True)


async def _counts(lake: Lake, pointer: Pointer) -> bool:
    """Whether what the pointer says ever happened: one that was never bound counts if its name shows it (N4)."""
    if pointer.state in {"unbound", "condemned"}:
        found = await resolve_name(lake, pointer.made_for) if pointer.made_for else None
        return found is not None and found.uuid == pointer.uuid
    return pointer.state != "killed"


def _is_own(receipt: Receipt) -> bool:
    return receipt.source.kind == "pipeline" and receipt.source.task_id == SYSTEM_TABLES


class _Walk:
    def __init__(self, lake: Lake, pointer: Pointer, heads: Mapping[str, Head]) -> None:
        self._lake = lake
        self._pointer = pointer
        self._heads = heads
        self._times = {head.metadata_location: head.last_updated_ms for head in heads.values()}
        self._files: dict[str, TableMetadata] = {}

    async def visit(self, step: _Step) -> tuple[Finding, _Step | None]:
        """What became of one receipt, and the one before it; None when there is none, or when nobody can tell."""
        time_ms = await self._time_of(step.location)
        if time_ms is None:
            if self._pointer.kind != "table":  # Of views it is known: nobody need be told.
                return Finding("not_walked", self._pointer.table_uuid, step.commit_key), None
            detail = f"no time of {step.location}"
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
        if receipt.previous_commit_key is None or receipt.previous_metadata_location is None:
            return found, None
        return found, _Step(receipt.previous_commit_key, receipt.previous_metadata_location)

    async def _missing(self, step: _Step, time_ms: int) -> tuple[Finding, _Step | None]:
        head = self._heads.get(step.commit_key)
        if head is not None:
            receipt, is_exact = receipt_of(self._pointer.table_uuid, head), True
        else:
            metadata = await self._file(step.location)
            if metadata is None or not self._is_placed(step):
                detail = f"{step.location}: nothing is left that says what its receipt said"
                return Finding("unreadable", self._pointer.table_uuid, step.commit_key, detail=detail), None
            receipt, is_exact = await self._derived(step, metadata, time_ms), False
        key = key_of(self._lake.layout, step.commit_key, time_ms)
        data, is_own = msgspec.json.encode(receipt), _is_own(receipt)
        found = Finding("missing", receipt.table_uuid, step.commit_key, key, data, is_exact, is_own=is_own)
        if receipt.previous_commit_key is None or receipt.previous_metadata_location is None:
            return found, None
        return found, _Step(receipt.previous_commit_key, receipt.previous_metadata_location)

    def _is_placed(self, step: _Step) -> bool:
        """Whether it is known what was current before a file: not for one that was registered over a table."""
        return step.commit_key in {commit_key(step.location), commit_key(step.location, self._pointer.uuid)}

    async def _derived(self, step: _Step, metadata: TableMetadata, time_ms: int) -> Receipt:
        """The receipt of a file as far as files tell: everything but who made the commit."""
        is_registered = step.commit_key != commit_key(step.location)
        has_previous = metadata.metadata_log and not is_registered  # The log of a registered file is another's.
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
        )
        table_uuid = metadata.table_uuid or self._pointer.table_uuid
        # The key is that which its successor names: a registered file's is made of more than its location.
        event_id = uuid_v7(time_ms, int(step.commit_key, 16))
        return replace(receipt_of(table_uuid, head), commit_key=step.commit_key, event_id=event_id)

    def _operation(self, step: _Step, metadata: TableMetadata, before: TableMetadata | None) -> str:
        """What kind of commit made a file current: for a new snapshot, what that says."""
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
        """The commit key of a file in the log: registered with the table's creation, or written by a commit."""
        plain, registered = commit_key(location), commit_key(location, self._pointer.uuid)
        time_ms = await self._time_of(location)
        layout = self._lake.layout
        if time_ms is not None and await self._lake.store.head(key_of(layout, registered, time_ms)):
            return registered
        return plain

    async def _time_of(self, location: str) -> int | None:
        """When a file was written, which is where its receipt lies: from a log, or from the file itself."""
        if location not in self._times and self._pointer.kind == "table":
            await self._file(self._pointer.head.metadata_location if self._pointer.head else location)
            if location not in self._times:
                await self._file(location)
        return self._times.get(location)

    async def _file(self, location: str) -> TableMetadata | None:
        """A metadata file, and what its log says about times; None when it is gone or damaged."""
        if location not in self._files:
            try:
                metadata = (await load_document(self._lake, TABLES, location)).metadata
            except SandurError:
                return None
            self._files = {location: metadata} | dict(list(self._files.items())[-_FILES_REMEMBERED_MAX:])
            self._times.setdefault(location, metadata.last_updated_ms)
            for entry in metadata.metadata_log:
                self._times.setdefault(entry.metadata_file, entry.timestamp_ms)
        return self._files[location]
