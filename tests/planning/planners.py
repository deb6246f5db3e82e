"""Sandur's planner for a table in a folder, as a function."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from sandur.avro import columns
from sandur.avro.columns import Record, columns_of
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifests import PartitionColumn, manifest_layout
from sandur.iceberg.scan.requests import ScanRequest, decode_scan_request, resolve_scan
from sandur.iceberg.table_metadata import decode_table_metadata
from sandur.operations.lake import Lake
from sandur.operations.planning.manifests import Manifests
from sandur.operations.planning.plan_tasks import decode_task
from sandur.operations.planning.scan import Limits, ScanRunner, run_plan, run_task
from sandur.operations.tables.manifest_places import ReadableManifests
from sandur.settings import Settings
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from sandur.storage.locations import Locations
from tests.fakes.fixed_clock import FixedClock

INLINE = Limits(inline_files_max=1_000_000, entries_per_task=128, select_seconds_max=60)


@dataclass(frozen=True)
class Task:
    """A file scan task as a client gets it."""

    path: str
    file: dict[str, Any]
    deletes: tuple[str, ...]
    residual: Any


def scan_request(**said: Any) -> ScanRequest:
    return decode_scan_request(msgspec.json.encode({name.replace("_", "-"): value for name, value in said.items()}))


def tasks_in(body: bytes) -> list[Task]:
    """The tasks in the fields of an answer."""
    answer = json.loads(b"{" + body + b"}")
    deletes = [file["file-path"] for file in answer.get("delete-files", [])]
    return [
        Task(
            task["data-file"]["file-path"],
            task["data-file"],
            tuple(deletes[place] for place in task.get("delete-file-references", [])),
            task["residual-filter"],
        )
        for task in answer["file-scan-tasks"]
    ]


def lake_of(folder: Path) -> Lake:
    store = LocalStore(folder, fsync="never")
    address = f"file://{folder}"
    locations = Locations(address, store, open_store=lambda _: store)
    return Lake(store=store, layout=Layout(), clock=FixedClock(), settings=Settings(), locations=locations)


def selecting_of(folder: Path, metadata_path: str, lake: Lake | None = None, **said: Any) -> ScanRunner:
    metadata = decode_table_metadata(Path(metadata_path).read_bytes())
    manifests = Manifests(lake or lake_of(folder), [f"file://{folder}"], ReadableManifests(metadata))
    return ScanRunner(resolve_scan(scan_request(**said), metadata), metadata, manifests)


def plan(folder: Path, metadata_path: str, **said: Any) -> list[Task]:
    """All tasks of a scan without plan tasks."""
    answered = asyncio.run(run_plan("p", selecting_of(folder, metadata_path, **said), INLINE))
    assert not answered.plan_tasks
    return tasks_in(answered.fields)


def plan_as_if_large(folder: Path, metadata_path: str, **said: Any) -> list[Task]:
    """All tasks of a scan whose manifests are decoded in batches, and then read from the cache."""

    async def run() -> list[list[Task]]:
        lake = lake_of(folder)
        answers = [await run_plan("p", selecting_of(folder, metadata_path, lake, **said), INLINE) for _ in (1, 2)]
        return [tasks_in(answered.fields) for answered in answers]

    with patch.object(columns, "RECORDS_MIN", 1):
        first, again = asyncio.run(run())
    assert first == again
    return again


def plan_through_tasks(folder: Path, metadata_path: str, limits: Limits, **said: Any) -> list[list[Task]]:
    """The tasks of a scan: first those in the answer, then those of each plan task."""

    async def run() -> list[list[Task]]:
        lake = lake_of(folder)
        answered = await run_plan("p", selecting_of(folder, metadata_path, lake, **said), limits)
        found = [tasks_in(answered.fields)]
        for token in answered.plan_tasks:
            task = decode_task(token)
            found.append(tasks_in(await run_task(selecting_of(folder, metadata_path, lake, **said), task)))
        return found

    return asyncio.run(run())


def manifest_columns(
    records: Iterable[Record], partition: Sequence[PartitionColumn], header: Mapping[str, str]
) -> ManifestColumns:
    """The columns of manifest entries that were read one by one."""
    columns = columns_of(records, manifest_layout(partition))
    return ManifestColumns(columns, header, len(columns["file_path"]))
