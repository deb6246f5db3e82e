"""`health` measures every table of both formats, and says what its policy would do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.policies import FieldOrigin, PolicyEdit
from sandur.catalog.records import DeltaTable
from sandur.operations.delta.publishing import published_location
from sandur.operations.policies import Scopes, change_policy
from sandur.operations.table_health import load_health_of, load_table_health
from sandur.pipeline.executor_tasks.health import measured_row
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.sources.range_reader import shaped_batch
from sandur.pipeline.tables import TABLE_HEALTH
from sandur.splicing import INT64_MAX
from sandur.storage.contract import ABSENT
from tests.operations.delta_requests import create_managed
from tests.operations.janitor_runs import Cluster
from tests.operations.lakes import make_lake
from tests.operations.requests import NAMESPACE, content, create
from tests.operations.requests import identifier_of as named
from tests.operations.table_files import TableWithFiles, add_snapshot, avro, current_location
from tests.pipeline.world import World, identifier_of
from tests.server.process import server_process

_SMALL = PolicyEdit(set={"compaction": {"min_input_files": 3}, "snapshots": {"min_expired": 1}})


@pytest.fixture
def client(world: World, tmp_path: Path) -> Iterator[Catalog]:
    with server_process(tmp_path, "--store", world.settings.store, fsync="never") as server:
        yield load_catalog("sandur", type="rest", uri=server.url)


def _rows(world: World, spark: SparkSession) -> dict[str, Any]:
    world.run(spark, PROJECT)
    world.run(spark, HEALTH)
    return {row["name"]: row for row in world.dataset(spark, "table_health")}


def _needs(row: dict[str, Any]) -> list[str]:
    return [need["operation"] for need in json.loads(row["needs_json"])]


def test_small_files_are_found_by_partition_and_policies_apply(
    world: World, spark: SparkSession, client: Catalog
) -> None:
    for name in ("many", "few"):
        client.create_table(f"sales.{name}", pa.schema({"id": pa.int64()}))
    for _ in range(4):
        client.load_table("sales.many").append(pa.table({"id": [1, 2]}))
    client.load_table("sales.few").append(pa.table({"id": [1]}))
    delta = world.wait(create_managed(world.lake, identifier_of("versions")))
    world.wait(world.lake.locations.create(published_location(delta, 0), b'{"commitInfo":{}}'))

    before = _rows(world, spark)
    world.wait(change_policy(world.lake, "catalog", "main", _SMALL, world.request()))
    after = _rows(world, spark)

    assert before.keys() == {"many", "few", "versions"}
    assert [_needs(before[name]) for name in ("many", "few", "versions")] == [[], [], []]
    assert _needs(after["many"]) == ["compaction"]
    many = after["many"]
    assert (many["data_files"], many["small_files"], many["excess_files"], many["manifests"]) == (4, 4, 3, 4)
    assert many["small_bytes"] == many["data_bytes"] > 0
    assert (many["snapshots"], many["expirable_snapshots"], many["mode"], many["blocked"]) == (4, 0, "report", "")
    assert _needs(after["few"]) == []
    assert (after["versions"]["format"], after["versions"]["unpublished_commits"]) == ("delta", 0)
    assert after["versions"]["uuid"] == delta.uuid
    assert (after["versions"]["blocked"], after["versions"]["data_files"]) == ("", 0)
    decided = msgspec.json.decode(many["policy_json"], type=list[FieldOrigin])
    assert FieldOrigin("compaction.min_input_files", 3, "catalog main") in decided
    assert {one.origin for one in decided} == {"catalog main"}

    report = world.wait(load_table_health(world.lake, worst=20))
    assert [(row.name, row.skipped) for row in report.rows] == [
        ("main.sales.many", "a commit happened within the last PT10M")
    ]
    # What was measured is judged by the policies of now.
    quiet, urgent = PolicyEdit(set={"quiet": "PT0S"}), PolicyEdit(set={"priority": 7})
    world.wait(change_policy(world.lake, "table", "main.sales.many", quiet, world.request()))
    world.wait(change_policy(world.lake, "schema", "main.sales", urgent, world.request()))
    policy = world.wait(load_health_of(world.lake, identifier_of("many"))).policy
    assert (policy.quiet, policy.priority, policy.compaction.min_input_files) == ("PT0S", 7, 3)
    (row,) = world.wait(load_table_health(world.lake, worst=20)).rows
    assert (row.name, row.operation, row.mode) == ("main.sales.many", "compaction", "report")
    assert (row.data_files, row.reason) == (4, "4 small files, 3 of them can be saved")


def test_a_table_that_cannot_be_read_is_blocked_and_not_healthy(
    world: World, spark: SparkSession, client: Catalog
) -> None:
    table = client.create_table("sales.lost", pa.schema({"id": pa.int64()}))
    for _ in range(5):
        table.append(pa.table({"id": [1]}))
    snapshot = table.current_snapshot()
    assert snapshot
    Path(snapshot.manifest_list.removeprefix("file:")).unlink()

    (row,) = _rows(world, spark).values()

    assert row["blocked"].startswith("cannot be read: ")
    assert _needs(row) == []


def test_a_manifest_whose_files_are_all_deleted_is_measured(world: World, spark: SparkSession, client: Catalog) -> None:
    table = client.create_table("sales.shrunk", pa.schema({"id": pa.int64()}))
    for number in range(6):
        table.append(pa.table({"id": [number]}))
    table.delete("id = 5")

    (row,) = _rows(world, spark).values()

    assert (row["blocked"], row["data_files"], row["small_files"]) == ("", 5, 5)


def _unmeasured_row(**fields: object) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(column.name for column in TABLE_HEALTH.columns)
    row |= dict.fromkeys(("properties_json", "problem", "summary_json", "snapshots_json", "refs_json"))
    return row | dict.fromkeys(("file_count", "size_bytes")) | {"catalog": "main", "name": "t"} | fields


async def test_numbers_that_do_not_fit_block_their_table_and_no_other() -> None:
    """Writers choose the sizes of files in a Delta log. Their sum must not end the job for all tables."""
    lake = make_lake()
    table = DeltaTable(uuid="u", table_uuid="u", state="live", location="memory://store/t", table_type="MANAGED")
    await lake.bound_record("u", "delta").swap(table, expected=ABSENT)
    adds = [{"add": {"path": path, "size": INT64_MAX}} for path in ("a", "b")]
    lines = b"\n".join(msgspec.json.encode(one) for one in adds)
    await lake.locations.create(published_location(table, 0), lines)
    row = _unmeasured_row(uuid="u", namespace="sales", format="delta")

    measured = await measured_row(lake, row, Scopes(None, {}, {}, {}, "main"), 1_000)
    shaped = shaped_batch(TABLE_HEALTH, [measured])

    assert measured["blocked"] == "cannot be read: data_bytes has more than 64 bits"
    assert shaped.num_rows == 1


def _partitioned_manifest(values: Sequence[object], kind: str) -> bytes:
    """A manifest with a file of ten bytes in each partition."""
    partition = {"name": "p", "type": ["null", kind], "field-id": 1_000}
    fields = [
        {"name": "content", "type": "int"},
        {"name": "file_path", "type": "string"},
        {"name": "file_format", "type": "string"},
        {"name": "partition", "type": {"type": "record", "name": "r102", "fields": [partition]}},
        *({"name": name, "type": "long"} for name in ("record_count", "file_size_in_bytes")),
    ]
    file = {"content": 0, "file_path": "x", "file_format": "PARQUET", "record_count": 1, "file_size_in_bytes": 10}
    data_file = {"type": "record", "name": "r2", "fields": fields}
    entry = [{"name": "status", "type": "int"}, {"name": "data_file", "type": data_file}]
    entries = [{"status": 1, "data_file": {**file, "partition": {"p": one}}} for one in values]
    return avro({"type": "record", "name": "manifest_entry", "fields": entry}, entries)


def _listed_manifests(*paths: str) -> bytes:
    kinds = {"manifest_path": "string"} | dict.fromkeys(("partition_spec_id", "content", "added_files_count"), "int")
    kinds |= dict.fromkeys(("existing_files_count", "deleted_files_count"), "int")
    longs = ("manifest_length", "sequence_number", "min_sequence_number", "added_snapshot_id")
    kinds |= dict.fromkeys((*longs, "added_rows_count", "existing_rows_count", "deleted_rows_count"), "long")
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    numbers = {name: 0 for name, kind in kinds.items() if kind != "string"} | {"added_files_count": 6}
    rows = [{**numbers, "manifest_path": path, "manifest_length": 100} for path in paths]
    return avro({"type": "record", "name": "manifest_file", "fields": fields}, rows)


async def test_manifests_whose_partitions_have_different_types_block_their_table_and_no_other() -> None:
    cluster = await Cluster.with_catalog()
    lake = cluster.server()
    made = await create(lake, "t", NAMESPACE)
    table = TableWithFiles(named("t"), made.table_uuid, content(made)["location"])
    values: Mapping[str, Sequence[object]] = {"string": list("abcdef"), "int": list(range(6))}
    for kind, some in values.items():
        await lake.locations.create(table.at(f"metadata/{kind}.avro"), _partitioned_manifest(some, kind))
    listed = table.at("metadata/snap-1.avro")
    paths = [table.at(f"metadata/{kind}.avro") for kind in values]
    await lake.locations.create(listed, _listed_manifests(*paths))
    await add_snapshot(lake, table, 1, listed)
    found: dict[str, Any] = {"metadata_location": await current_location(lake, table), "file_count": 12}
    row = _unmeasured_row(uuid=table.uuid, namespace="a", format="iceberg", size_bytes=120, **found)

    measured = await measured_row(lake, row, Scopes(None, {}, {}, {}, "main"), 1_000)

    assert "manifests of one spec have partitions of different types" in str(measured["blocked"])
