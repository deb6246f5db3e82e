"""The cost of one append commit as a table's history grows: ours, full decoding, one pass over the bytes, PyIceberg.

Run: python bench/iceberg_commit.py [--json FILE] [--rounds N]
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import update_table_metadata
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.measurement import save
from sandur.iceberg.requests import decode_table_commit
from sandur.iceberg.table_commit import next_metadata
from sandur.iceberg.table_metadata import decode_table_metadata, encode_table_metadata

SIZES = (10, 100, 1_000, 10_000)
ROUNDS = 9
SAMPLE_SECONDS = 0.02
GOAL_FULL, GOAL_PYICEBERG, GOAL_PASS = 5.0, 20.0, 2.0
NOW_MS = 1_750_000_000_000
METADATA_LOG_MAX = 100
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LOCATION = "s3://warehouse/db/events"
METADATA_LOCATION = f"{LOCATION}/metadata/01000-6a1d6c3e-1b8f-4a63-9d0f-2f9f5f3f7d11.metadata.json"


_ENCODER = msgspec.json.Encoder()


class Snapshot(msgspec.Struct, rename="kebab", omit_defaults=True):
    snapshot_id: int
    timestamp_ms: int
    manifest_list: str
    summary: dict[str, str]
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    schema_id: int | None = None


class SnapshotLogEntry(msgspec.Struct, rename="kebab"):
    timestamp_ms: int
    snapshot_id: int


class MetadataLogEntry(msgspec.Struct, rename="kebab"):
    timestamp_ms: int
    metadata_file: str


class SnapshotRef(msgspec.Struct, rename="kebab", omit_defaults=True):
    snapshot_id: int
    type: str
    max_ref_age_ms: int | None = None


class FullMetadata(msgspec.Struct, rename="kebab"):
    """A table's metadata with every snapshot and log entry as a typed object; schemas and specs stay generic."""

    format_version: int
    table_uuid: str
    location: str
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    current_schema_id: int
    schemas: list[dict[str, object]]
    default_spec_id: int
    partition_specs: list[dict[str, object]]
    last_partition_id: int
    default_sort_order_id: int
    sort_orders: list[dict[str, object]]
    properties: dict[str, str]
    current_snapshot_id: int
    refs: dict[str, SnapshotRef]
    snapshots: list[Snapshot]
    statistics: list[dict[str, object]]
    partition_statistics: list[dict[str, object]]
    snapshot_log: list[SnapshotLogEntry]
    metadata_log: list[MetadataLogEntry]


class CommitBody(msgspec.Struct):
    requirements: list[dict[str, object]]
    updates: list[dict[str, object]]


@dataclass(frozen=True)
class Case:
    """One table and one append to it, as bytes."""

    snapshots: int
    metadata: bytes
    request: bytes


def snapshot_id(number: int) -> int:
    """A random-looking id of 63 bits, the same in every run."""
    return Random(number).getrandbits(63)


def snapshot(number: int) -> dict[str, object]:
    """A snapshot as a Spark append writes it."""
    value: dict[str, object] = {
        "sequence-number": number,
        "snapshot-id": snapshot_id(number),
        "timestamp-ms": NOW_MS - (100_000 - number) * 1000,
        "summary": {
            "operation": "append",
            "spark.app.id": "local-1750000000000",
            "added-data-files": "4",
            "added-records": "250000",
            "added-files-size": "18230944",
            "changed-partition-count": "4",
            "total-records": str(number * 250_000),
            "total-files-size": str(number * 18_230_944),
            "total-data-files": str(number * 4),
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
        },
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id(number)}-1-{UUID}.avro",
        "schema-id": 0,
    }
    if number > 1:
        value["parent-snapshot-id"] = snapshot_id(number - 1)
    return value


def case_of(size: int) -> Case:
    snapshots = [snapshot(number) for number in range(1, size + 1)]
    metadata = metadata_of(snapshots)
    return Case(size, _ENCODER.encode(metadata), _ENCODER.encode(append_request(metadata, snapshot(size + 1))))


def metadata_of(snapshots: list[dict[str, object]]) -> dict[str, object]:
    """A table of twenty columns with this history."""
    columns = [{"id": i, "name": f"column_{i}", "required": False, "type": "string"} for i in range(1, 21)]
    bucket = {"source-id": 1, "field-id": 1000, "name": "column_1_bucket", "transform": "bucket[16]"}
    current_id = snapshots[-1]["snapshot-id"]
    return {
        "format-version": 2,
        "table-uuid": UUID,
        "location": LOCATION,
        "last-sequence-number": len(snapshots),
        "last-updated-ms": snapshots[-1]["timestamp-ms"],
        "last-column-id": 20,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": columns}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": [bucket]}],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"owner": "bench", "write.parquet.compression-codec": "zstd"},
        "current-snapshot-id": current_id,
        "refs": {"main": {"snapshot-id": current_id, "type": "branch"}},
        "snapshots": snapshots,
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [{"timestamp-ms": s["timestamp-ms"], "snapshot-id": s["snapshot-id"]} for s in snapshots],
        "metadata-log": [
            {"timestamp-ms": s["timestamp-ms"], "metadata-file": f"{LOCATION}/metadata/{i:05d}-{UUID}.metadata.json"}
            for i, s in enumerate(snapshots[-METADATA_LOG_MAX:])
        ],
    }


def append_request(metadata: dict[str, object], added: dict[str, object]) -> dict[str, object]:
    """The commit that a client sends to append one snapshot to main."""
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": added["snapshot-id"]}
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": UUID},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": metadata["current-snapshot-id"]},
        ],
        "updates": [{"action": "add-snapshot", "snapshot": added}, ref],
    }


def ours(case: Case) -> bytes:
    request = decode_table_commit(case.request)
    base = decode_table_metadata(case.metadata, metadata_location=METADATA_LOCATION)
    return encode_table_metadata(next_metadata(base, request.requirements, request.updates, now_ms=NOW_MS))


_FULL_DECODER = msgspec.json.Decoder(FullMetadata)
_BODY_DECODER = msgspec.json.Decoder(CommitBody)


def full_msgspec(case: Case) -> bytes:
    """Every object decoded, the same two updates applied without any check, every object encoded."""
    body = _BODY_DECODER.decode(case.request)
    base = _FULL_DECODER.decode(case.metadata)
    added = msgspec.convert(body.updates[0]["snapshot"], Snapshot)
    base.metadata_log.append(MetadataLogEntry(base.last_updated_ms, METADATA_LOCATION))
    del base.metadata_log[:-METADATA_LOG_MAX]
    base.snapshots.append(added)
    base.last_sequence_number = added.sequence_number
    base.refs["main"] = SnapshotRef(added.snapshot_id, "branch")
    base.current_snapshot_id = added.snapshot_id
    base.snapshot_log.append(SnapshotLogEntry(added.timestamp_ms, added.snapshot_id))
    base.last_updated_ms = NOW_MS
    return _ENCODER.encode(base)


def copy_of_bytes(case: Case) -> bytes:
    return bytes(bytearray(case.metadata))


_RAW_DECODER = msgspec.json.Decoder(msgspec.Raw)


def validating_pass(case: Case) -> bytes:
    """Reads every byte as JSON and builds nothing."""
    return bytes(_RAW_DECODER.decode(case.metadata))


def pyiceberg(case: Case) -> bytes:
    request = CommitTableRequest.model_validate_json(
        b'{"identifier":{"namespace":["db"],"name":"events"},' + case.request[1:]
    )
    base = TableMetadataUtil.parse_raw(case.metadata.decode())
    for requirement in request.requirements:
        requirement.validate(base)
    return update_table_metadata(base, request.updates, metadata_location=METADATA_LOCATION).model_dump_json().encode()


CONTESTANTS: dict[str, Callable[[Case], bytes]] = {
    "ours": ours,
    "full msgspec": full_msgspec,
    "copy": copy_of_bytes,
    "validating pass": validating_pass,
    "pyiceberg": pyiceberg,
}


def check_agreement(case: Case) -> None:
    """Check that all engines do the same work before they are timed."""
    mine, full, other = (json.loads(make(case)) for make in (ours, full_msgspec, pyiceberg))
    for name in ("snapshots", "snapshot-log", "current-snapshot-id", "last-sequence-number", "metadata-log", "refs"):
        assert mine[name] == full[name], name
    assert len(other["snapshots"]) == len(mine["snapshots"]) == case.snapshots + 1
    assert other["current-snapshot-id"] == mine["current-snapshot-id"]
    assert [s["snapshot-id"] for s in other["snapshots"]] == [s["snapshot-id"] for s in mine["snapshots"]]


def sample_seconds(contestant: Callable[[Case], bytes], case: Case, repeats: int) -> float:
    """CPU seconds of one operation, over several repeats; earlier garbage is collected and frozen before."""
    gc.collect()
    gc.freeze()
    start = time.process_time()
    for _ in range(repeats):
        contestant(case)
    return (time.process_time() - start) / repeats


def measure(cases: list[Case], *, rounds: int, progress: Progress) -> dict[int, dict[str, float]]:
    """Median CPU microseconds by size and contestant; the contestants take turns, so that a disturbance affects all."""
    task = progress.add_task("measuring", total=len(cases) * rounds)
    results: dict[int, dict[str, float]] = {}
    for case in cases:
        check_agreement(case)
        once = {name: sample_seconds(contestant, case, 1) for name, contestant in CONTESTANTS.items()}
        repeats = {name: max(1, int(SAMPLE_SECONDS / max(seconds, 1e-7))) for name, seconds in once.items()}
        samples: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        for _ in range(rounds):
            for name, contestant in CONTESTANTS.items():
                samples[name].append(sample_seconds(contestant, case, repeats[name]))
            progress.advance(task)
        results[case.snapshots] = {name: statistics.median(values) * 1e6 for name, values in samples.items()}
    return results


def show(console: Console, cases: list[Case], results: dict[int, dict[str, float]]) -> None:
    """Print two narrow tables: the costs, and the ratios between contestants."""
    costs = Table("snapshots", "kB", *CONTESTANTS, title="One append commit: CPU microseconds, median")
    for case in cases:
        times = [f"{results[case.snapshots][name]:,.0f}" for name in CONTESTANTS]
        costs.add_row(f"{case.snapshots:,}", f"{len(case.metadata) / 1e3:,.0f}", *times)
    first, last = results[cases[0].snapshots], results[cases[-1].snapshots]
    costs.add_section()
    growth = [f"{last[name] / first[name]:,.0f}x" for name in CONTESTANTS]
    costs.add_row("growth", f"{len(cases[-1].metadata) / len(cases[0].metadata):,.0f}x", *growth)
    ratios = Table(
        "snapshots", "full msgspec / ours", "pyiceberg / ours", "ours / validating pass", "ours / copy", title="Ratios"
    )
    for case in cases:
        times_by_name = results[case.snapshots]
        mine = times_by_name["ours"]
        ratios.add_row(
            f"{case.snapshots:,}",
            *(f"{times_by_name[name] / mine:.1f}x" for name in ("full msgspec", "pyiceberg")),
            *(f"{mine / times_by_name[name]:.1f}x" for name in ("validating pass", "copy")),
        )
    for table in (costs, ratios):
        for column in table.columns:
            column.justify = "right"
        console.print(table)


def verdicts(largest: dict[str, float]) -> dict[str, dict[str, float | bool]]:
    """The goals at the largest size, and whether they are met."""
    faster_than_full = largest["full msgspec"] / largest["ours"]
    faster_than_pyiceberg = largest["pyiceberg"] / largest["ours"]
    to_pass = largest["ours"] / largest["validating pass"]
    return {
        "full msgspec / ours": {"goal": GOAL_FULL, "got": faster_than_full, "met": faster_than_full >= GOAL_FULL},
        "pyiceberg / ours": {
            "goal": GOAL_PYICEBERG,
            "got": faster_than_pyiceberg,
            "met": faster_than_pyiceberg >= GOAL_PYICEBERG,
        },
        "ours / validating pass": {"goal": GOAL_PASS, "got": to_pass, "met": to_pass <= GOAL_PASS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result file")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each contestant is timed at each size")
    arguments = parser.parse_args()
    console = Console()
    cases = [case_of(size) for size in SIZES]
    with Progress(console=console, transient=True) as progress:
        results = measure(cases, rounds=arguments.rounds, progress=progress)
    show(console, cases, results)
    goals = verdicts(results[SIZES[-1]])
    for name, goal in goals.items():
        console.print(f"{name}: {goal['got']:.1f}, goal {goal['goal']:.0f}: {'met' if goal['met'] else 'MISSED'}")
    report = {
        "settings": "in one process, without a store: CPU microseconds of one append commit, medians",
        "msgspec": msgspec.__version__,
        "rounds": arguments.rounds,
        "bytes": {str(case.snapshots): len(case.metadata) for case in cases},
        "microseconds": {str(size): times for size, times in results.items()},
        "growth": {name: results[SIZES[-1]][name] / results[SIZES[0]][name] for name in CONTESTANTS},
        "goals": goals,
    }
    save("iceberg_commit", report, file=arguments.json)


if __name__ == "__main__":
    main()
