"""`system.changes` from the receipts of the catalog's events: each change once, however they are read."""

import itertools
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from sandur.catalog.events import CatalogEvent, Source
from sandur.catalog.identifiers import Identifier
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.feed import Feed
from sandur.operations.receipts import catalog_receipt_key, receipt_of_event, receipt_of_key
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.reconcile import RECONCILE, missing_events
from sandur.pipeline.sources.receipt_rows import row_of
from sandur.pipeline.tables import CHANGES, EVENTS
from sandur.pipeline.transforms import commits as of_commits
from sandur.storage.layout import Layout
from tests.pipeline.test_compact import system_table
from tests.pipeline.test_transforms import frame
from tests.pipeline.world import NAMESPACE, World, identifier_of, rows_of

LAYOUT = Layout()
RENAMED = CatalogEvent(
    id="2",
    kind="renamed",
    object_type="table",
    object_id="u",
    at_ms=1_767_225_600_123,
    identifier=Identifier("main", ("a", "b"), "new"),
    renamed_from=Identifier("main", ("a",), "old"),
    format="iceberg",
    previous="00" * 32,
    details=("owner", 'a "quoted" one'),
    source=Source(kind="rest", principal="ada", principal_id="7", client="c", run_id="r", task_id="t"),
)


def row(event: CatalogEvent) -> dict[str, Any]:
    receipt = receipt_of_event(event)
    return dict(row_of(LAYOUT, catalog_receipt_key(LAYOUT, receipt), msgspec.json.encode(receipt)))


def test_a_change_is_a_row_with_who_what_when_and_from_which_name() -> None:
    found = row(RENAMED)

    assert found.get("problem") is None
    assert {name: found[name] for name in ("change", "object_type", "object_id", "catalog", "namespace", "name")} == {
        "change": "renamed",
        "object_type": "table",
        "object_id": "u",
        "catalog": "main",
        "namespace": "a.b",
        "name": "new",
    }
    assert [found[f"previous_{part}"] for part in ("catalog", "namespace", "name")] == ["main", "a", "old"]
    assert (found["committed_at"], found["principal"], found["principal_id"]) == (1_767_225_600_123, "ada", "7")
    assert (found["event_type"], found["details_json"]) == ("catalog_changed", '["owner","a \\"quoted\\" one"]')


@pytest.mark.parametrize("identifier", [None, Identifier("main", (), ""), Identifier("main", ("a",), "")])
def test_what_has_no_name_has_none_in_its_row(identifier: Identifier | None) -> None:
    found = row(msgspec.structs.replace(RENAMED, identifier=identifier, renamed_from=None, details=()))

    assert found.get("name") is None
    assert found.get("previous_catalog") is None
    assert found["details_json"] is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda key, _: (key, b"rubbish"), "corrupt"),
        (lambda key, data: (key, data.replace(b'"renamed"', b'"bent"')), "corrupt"),
        (lambda key, data: (key.replace("/catalog/", "/iceberg/"), data), "unknown"),
        (lambda key, data: (key, data.replace(b'"event_version":1', b'"event_version":9')), "unknown"),
        (lambda key, data: (key.replace("2026-01-01", "2026-01-02"), data), "misplaced"),
        (lambda key, data: (key, data.replace(b"1767225600123", b"1767225600124")), "misplaced"),
        (lambda key, data: (key, data.replace(b"1767225600123", b"9" * 30)), "corrupt"),
    ],
)
def test_a_damaged_receipt_of_a_change_has_its_problem(change: Any, problem: str) -> None:
    receipt = receipt_of_event(RENAMED)
    key, data = change(catalog_receipt_key(LAYOUT, receipt), msgspec.json.encode(receipt))

    assert row_of(LAYOUT, key, data)["problem"] == problem


def test_changes_are_the_same_in_any_order_and_split_and_are_no_commits(spark: SparkSession) -> None:
    kinds = ("created", "renamed", "dropped")
    rows = [row(msgspec.structs.replace(RENAMED, id=str(number), kind=kind)) for number, kind in enumerate(kinds)]

    def published(*parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        before = frame(spark, CHANGES, [])
        for part in parts:
            new = of_commits.changes(frame(spark, EVENTS, part), before)
            before = frame(spark, CHANGES, [*rows_of(before.toArrow()), *rows_of(new.toArrow())])
        return [{**one, "changed_at": str(one["changed_at"])} for one in rows_of(before.toArrow())]

    at_once = published([*rows, rows[0]])

    assert [one["change"] for one in sorted(at_once, key=lambda one: kinds.index(one["change"]))] == [*kinds]
    keys = [one["commit_key"] for one in at_once]
    assert len(set(keys)) == 3
    for first, second, third in list(itertools.permutations(rows))[::3]:
        in_parts = published([first], [second, first], [third, second])
        assert sorted(one["commit_key"] for one in in_parts) == sorted(keys)
    assert of_commits.valid_commits(frame(spark, EVENTS, rows)).isEmpty()


def test_a_hole_is_an_event_that_is_named_and_nowhere_else(spark: SparkSession) -> None:
    first = msgspec.structs.replace(RENAMED, id="1", previous=None)
    second = msgspec.structs.replace(RENAMED, previous=receipt_of_event(first).commit_key)
    both, late = frame(spark, EVENTS, [row(first), row(second)]), frame(spark, EVENTS, [row(second)])
    none = frame(spark, CHANGES, [])
    published = of_commits.changes(frame(spark, EVENTS, [row(first)]), none)

    assert missing_events(both, both, none).isEmpty()
    assert missing_events(late, late, published).isEmpty()
    assert [tuple(one) for one in missing_events(late, late, none).collect()] == [
        (receipt_of_event(first).commit_key, "table", "u")
    ]


def of_users(world: World) -> list[dict[str, Any]]:
    return [one for one in system_table(world, "changes") if one["namespace"] != "system"]


def test_what_came_and_went_between_two_runs_is_published_with_who_did_it(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.make("passing")
    drops = world.request(Source(kind="rest", principal="bo"))
    world.wait(drop_name(world.lake, identifier_of("passing"), kind="table", request=drops))
    world.settle()
    first = world.run(spark, COMPACT)
    before = {one["commit_key"] for one in of_users(world)}
    world.wait(
        rename(world.lake, identifier_of("orders"), identifier_of("sold"), kind="table", request=world.request())
    )
    owner = {"owner": "bo"}
    world.wait(update_namespace_properties(world.lake, NAMESPACE, updates=owner, removals=(), request=world.request()))
    world.settle()
    lost = max(world.receipts(of_changes=True).items(), key=lambda item: b'"renamed"' in item[1])[0]
    world.wait(Feed(world.lake).advance())
    world.remove(lost)
    world.run(spark, COMPACT)
    without = {one["change"] for one in of_users(world) if one["commit_key"] not in before}

    repaired = world.run(spark, RECONCILE)
    last = world.run(spark, COMPACT)

    assert first.counts["commits"] == 2
    found = {(one["object"], one["change"], one["name"], one["previous_name"]) for one in of_users(world)}
    assert found == {
        ("catalog", "created", None, None),
        ("namespace", "created", None, None),
        ("namespace", "changed", None, None),
        ("table", "created", "orders", None),
        ("table", "created", "passing", None),
        ("table", "dropped", "passing", None),
        ("table", "renamed", "sold", "orders"),
    }
    assert len(of_users(world)) == len(found)
    who = {(one["change"], one["name"]): one["principal"] for one in of_users(world)}
    assert (who["dropped", "passing"], who["created", "passing"]) == ("bo", "ada")
    assert without == {"changed"}
    assert (repaired.counts["events_restored"], repaired.counts["read_again"]) == (1, 1)
    assert (repaired.counts["chains_broken"], repaired.counts["records_unsettled"]) == (0, 0)
    assert last.counts["changes"] == 1
    assert lost in world.receipts(of_changes=True)
    assert receipt_of_key(world.layout, lost).startswith(world.layout.parse_receipt(lost).date)


@pytest.mark.slow
def test_a_dry_run_of_reconcile_counts_missing_events_and_a_hole_is_reported(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.wait(
        rename(world.lake, identifier_of("orders"), identifier_of("sold"), kind="table", request=world.request())
    )
    world.settle()
    receipts = world.receipts(of_changes=True)
    renamed = next(key for key, data in receipts.items() if b'"renamed"' in data)
    created = next(key for key, data in receipts.items() if b'"created"' in data and b'"orders"' in data)
    world.remove(renamed)

    dry = world.run(spark, RECONCILE, dry_run=True)
    still = renamed not in world.receipts(of_changes=True)
    world.remove(created)
    done = world.run(spark, RECONCILE)

    assert (dry.counts["events_restored"], still) == (1, True)
    assert renamed in world.receipts(of_changes=True)
    assert (done.counts["events_restored"], done.counts["chains_broken"]) == (1, 1)
    assert "has no receipt" in next(warning for warning in done.warnings if "table" in warning)
