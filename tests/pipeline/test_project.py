"""`project` on real stores: new metadata files are read, known rows are kept."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sandur.catalog.identifiers import Identifier
from sandur.clock import SystemClock
from sandur.delta.requests import DeltaChange
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.delta.commit import update_table
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import current_document
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.unity.governance import change_tags
from sandur.pipeline.job import Limits
from sandur.pipeline.jobs.project import PROJECT
from tests.operations.delta_requests import create_managed
from tests.operations.requests import append, commit
from tests.pipeline.test_compact import system_table
from tests.pipeline.test_metadata_rows import NESTED
from tests.pipeline.world import NAMESPACE, World, identifier_of

HOUR_MS = 3_600_000


class LateClock(SystemClock):
    """A clock that jumps by an hour when the run reads names."""

    def __init__(self) -> None:
        self._late_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._late_ms

    def is_late_once_names_are_read(self, step: str) -> None:
        self._late_ms = HOUR_MS if step == "read names" else self._late_ms


def of_users(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["namespace"] != "system"]


def test_current_tables_are_published_and_only_new_files_are_read(spark: SparkSession, world: World) -> None:
    made = world.make("orders", schema=NESTED)
    world.wait(commit_table(world.lake, identifier_of("orders"), append(1), world.request()))
    world.make("customers")
    world.make("forgotten")
    hidden = world.make("hidden")
    delta = world.wait(create_managed(world.lake, identifier_of("versions")))

    clock = LateClock()
    first = world.run(spark, PROJECT, clock=clock, progress=clock.is_late_once_names_are_read)

    assert HOUR_MS <= first.counts["staleness_ms"] < 2 * HOUR_MS
    assert (first.counts["metadata_files_read"], first.counts["tables_with_problems"]) == (5, 0)
    tables = {row["name"]: row for row in of_users(system_table(world, "tables"))}
    assert tables.keys() == {"orders", "customers", "forgotten", "hidden", "versions"}
    assert (tables["orders"]["uuid"], tables["orders"]["snapshot_id"]) == (made.table_uuid, 1)
    paths = {row["path"]: row["field_id"] for row in system_table(world, "columns") if row["name"] == "orders"}
    assert paths["places.element.x"] not in {paths["id"], paths["places"]}
    assert [row["snapshot_id"] for row in system_table(world, "snapshots")] == [1]
    assert [(row["ref"], row["type"]) for row in system_table(world, "refs")] == [("main", "branch")]
    assert {row["name"] for row in system_table(world, "catalogs")} == {"main"}

    wider = {"type": "struct", "schema-id": 1, "fields": [*NESTED["fields"], _field(8, "more")]}  # type: ignore[misc]
    change = commit({"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1})
    world.wait(commit_table(world.lake, identifier_of("orders"), change, world.request()))
    world.wait(
        rename(world.lake, identifier_of("customers"), identifier_of("people"), kind="table", request=world.request())
    )
    tags = {"domain": "sales"}
    world.wait(change_tags(world.lake, "table", "main.sales.people", world.request(), set_=tags))
    world.wait(change_tags(world.lake, "table", "main.sales.people", world.request(), set_=tags, column="x"))
    world.wait(drop_name(world.lake, identifier_of("forgotten"), kind="table", request=world.request()))
    more = {"owner": "bo"}
    world.wait(update_namespace_properties(world.lake, NAMESPACE, updates=more, removals=(), request=world.request()))
    noted = DeltaChange(asserted_uuid=delta.uuid, set_properties={"noted": "yes"})
    world.wait(update_table(world.lake, identifier_of("versions"), noted, world.request()))
    world.settle()
    world.damage(world.layout.pointer(hidden.table_uuid))
    second = world.run(spark, PROJECT)

    assert second.counts["metadata_files_read"] == 2
    tables = {row["name"]: row for row in of_users(system_table(world, "tables"))}
    assert tables.keys() == {"orders", "people", "hidden", "versions"}
    assert json.loads(tables["people"]["tags_json"]) == {"tags": tags, "columns": {"1": tags}}
    assert {row["tags_json"] for name, row in tables.items() if name != "people"} == {None}
    assert '"noted":"yes"' in tables["versions"]["properties_json"]
    assert (second.counts["names_unreadable"], second.counts["tables_in_doubt"]) == (1, 1)
    assert [warning.partition(":")[0] for warning in second.warnings] == ["main.sales.hidden"]
    schemas = [row for row in system_table(world, "schema_history") if row["name"] == "orders"]
    assert [(row["schema_id"], row["is_current"]) for row in sorted(schemas, key=lambda row: row["schema_id"])] == [
        (0, False),
        (1, True),
    ]
    columns = system_table(world, "columns")
    assert {row["path"] for row in columns if row["name"] == "people"} == {"x"}
    assert "more" in {row["path"] for row in columns if row["name"] == "orders"}
    assert {row["name"] for row in system_table(world, "partition_spec_history")} == {"orders", "people", "hidden"}
    assert {row["namespace"] for row in system_table(world, "namespaces")} == {"sales", "system"}


def snapshot_of(world: World, name: str) -> int | None:
    document = world.wait(current_document(world.lake, Identifier("main", ("system",), name)))
    return document.metadata.current_snapshot_id


@pytest.mark.slow
def test_an_unreadable_file_is_reported_once_and_read_when_possible(spark: SparkSession, world: World) -> None:
    made = [world.make(name).metadata_location for name in ("orders", "returns")]
    world.make("customers")
    paths = [Path(str(location).removeprefix("file:")) for location in made]
    whole = [path.read_bytes() for path in paths]
    for path in paths:
        path.write_bytes(b"rubbish")

    first, again = world.run(spark, PROJECT), world.run(spark, PROJECT)
    before = snapshot_of(world, "tables")
    idle = world.run(spark, PROJECT, limits=Limits(files_retried_max=1))
    after = snapshot_of(world, "tables")
    for path, data in zip(paths, whole, strict=True):
        path.write_bytes(data)
    healed = world.run(spark, PROJECT, limits=Limits(files_retried_max=1))

    assert [report.counts["tables_with_problems"] for report in (first, again, idle, healed)] == [2, 2, 2, 0]
    assert [len(report.warnings) for report in (first, again, idle, healed)] == [2, 2, 1, 0]
    assert {warning.partition(":")[0] for warning in again.warnings} == {"main.sales.orders", "main.sales.returns"}
    assert before == after
    tables = of_users(system_table(world, "tables"))
    assert {row["name"]: row["problem"] for row in tables} == dict.fromkeys(("orders", "returns", "customers"))
    assert len(tables) == len({row["column_count"] for row in tables}) + 2
    assert {row["name"] for row in of_users(system_table(world, "columns"))} == {"orders", "returns", "customers"}


def _field(field_id: int, name: str) -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": "string", "required": False}
