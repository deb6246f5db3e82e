"""Transforms as functions of frames: the same rows come out, whatever order, copies or parts they come in."""

import random  # noqa: TID251 - seeded
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sandur.catalog.records import Head, Tried
from sandur.catalog.sources import Source
from sandur.events.receipts import commit_key_of, receipt_key, receipt_of
from sandur.pipeline.receipt_rows import row_of
from sandur.pipeline.sources.reading import batch_of
from sandur.pipeline.tables import ACTIVITY, COMMITS, EVENTS, NAMES, OWNERS, POINTERS, Shape
from sandur.pipeline.transforms import commits as of_commits
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
from sandur.storage.layout import Layout
from tests.pipeline.world import rows_of

LAYOUT = Layout()
DAY_MS = 86_400_000


def frame(spark: SparkSession, shape: Shape, rows: Sequence[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([batch_of(shape, rows)]), schema=shape.spark_schema)


def chain(table: str, count: int, *, source: Source | None = None, from_ms: int = DAY_MS) -> list[dict[str, Any]]:
    """The events of a table with so many commits, one every six hours."""
    rows: list[dict[str, Any]] = []
    previous: Head | None = None
    for number in range(count):
        head = Head(
            metadata_location=f"file:///{table}/{number}",
            last_updated_ms=from_ms + number * DAY_MS // 4,
            metadata_version=number,
            previous_metadata_location=previous.metadata_location if previous else None,
            previous_commit_key=commit_key_of(previous) if previous else None,
            operation="append" if number else "create",
            snapshot_id=number or None,
            source=source or Source(kind="rest"),
        )
        key = receipt_key(LAYOUT, Tried(head.metadata_location, head.last_updated_ms))
        rows.append(dict(row_of(LAYOUT, key, msgspec.json.encode(receipt_of(table, head)))))
        previous = head
    return rows


def owner(table: str, name: str) -> dict[str, Any]:
    return {"table_uuid": table, "catalog": "main", "namespace": "a", "name": name, "kind": "table"}


RUBBISH = dict(row_of(LAYOUT, "rubbish", b"rubbish"))


@pytest.mark.parametrize("seed", [1, 2])
def test_commits_and_activity_do_not_depend_on_order_copies_or_parts(spark: SparkSession, seed: int) -> None:
    events = [*chain("t", 9), *chain("u", 3, source=Source(kind="pipeline", run_id="r")), RUBBISH]
    owners = frame(spark, OWNERS, [owner("t", "orders")])
    whole = frame(spark, EVENTS, events)
    chance = random.Random(seed)
    jumbled = [*events, *chance.choices(events, k=5)]
    chance.shuffle(jumbled)
    cut = chance.randrange(len(events))

    commits = rows_of(of_commits.commits(whole, owners).toArrow())
    of_jumbled = rows_of(of_commits.commits(frame(spark, EVENTS, jumbled), owners).toArrow())
    nothing = frame(spark, ACTIVITY, [])
    at_once = rows_of(of_commits.activity(of_commits.commits(whole, owners), nothing).toArrow())
    first = of_commits.activity(of_commits.commits(frame(spark, EVENTS, events[:cut]), owners), nothing)
    rest = of_commits.activity(of_commits.commits(frame(spark, EVENTS, events[cut:]), owners), first)

    assert len(commits) == 12
    assert of_jumbled == commits
    assert rows_of(rest.toArrow()) == at_once
    assert sum(row["commits"] for row in at_once) == 12


def test_what_is_not_understood_is_kept_aside_and_our_own_commits_are_left_out(spark: SparkSession) -> None:
    own = Source(kind="pipeline", client="sandur", run_id="r", task_id=SYSTEM_TABLES)
    events = frame(spark, EVENTS, [*chain("t", 2), *chain("system", 5, source=own), RUBBISH, RUBBISH])

    kept = rows_of(of_commits.commits(events, frame(spark, OWNERS, [])).toArrow())
    aside = rows_of(of_commits.quarantine(events).toArrow())

    assert {row["table_uuid"] for row in kept} == {"t"}
    assert [(row["key"], row["problem"], row["body"]) for row in aside] == [("rubbish", "corrupt", "rubbish")]


def test_a_timeline_tells_which_version_is_current_and_where_a_link_is_missing(spark: SparkSession) -> None:
    events = chain("t", 5)
    gone = events.pop(2)
    rows = of_commits.commits(frame(spark, EVENTS, events), frame(spark, OWNERS, [owner("t", "orders")]))
    heads = frame(spark, POINTERS, [{"uuid": "t", "table_uuid": "t", **_head(events[-1])}])

    told = {row["version"]: row for row in rows_of(of_commits.timeline(rows).toArrow())}
    missing = rows_of(of_commits.missing_links(rows, heads).toArrow())

    assert [version for version, row in told.items() if row["is_current"]] == [4]
    assert [version for version, row in told.items() if not row["is_linked"]] == [3]
    assert [row["commit_key"] for row in missing] == [gone["commit_key"]]


def test_a_chain_without_its_head_is_not_whole(spark: SparkSession) -> None:
    events = chain("t", 3)
    rows = of_commits.commits(frame(spark, EVENTS, events[:-1]), frame(spark, OWNERS, []))
    heads = frame(spark, POINTERS, [{"uuid": "t", "table_uuid": "t", **_head(events[-1])}])

    missing = rows_of(of_commits.missing_links(rows, heads).toArrow())

    assert [row["commit_key"] for row in missing] == [events[-1]["commit_key"]]


def test_tables_are_told_under_the_name_they_have_or_had(spark: SparkSession) -> None:
    shown = {"is_shown": True, "uuid": "x", "state": "active", "format": "iceberg"}
    names = frame(
        spark,
        NAMES,
        [
            {**owner("t", "now"), **shown},
            {**owner("gone", "other"), **shown, "is_shown": False},
        ],
    )
    pointers = frame(
        spark,
        POINTERS,
        [
            {**owner("t", "made for"), "uuid": "t", "updated_at": 5},
            {**owner("gone", "dropped as"), "uuid": "g", "updated_at": 7},
            {**owner("gone", "dropped earlier"), "uuid": "h", "updated_at": 6},
        ],
    )
    before = frame(spark, OWNERS, [owner("t", "before"), owner("forgotten", "known")])

    owners = of_commits.owners(names, pointers, before)

    assert {row["table_uuid"]: row["name"] for row in rows_of(owners.toArrow())} == {
        "t": "now",
        "gone": "dropped as",
        "forgotten": "known",
    }
    assert [row["table_uuid"] for row in rows_of(of_commits.renamed(owners, before).toArrow())] == ["t"]


def test_a_table_that_another_was_registered_over_is_told_under_its_name(spark: SparkSession) -> None:
    old, new = chain("old", 2), chain("new", 2)
    new[0] |= {"operation": "register", "previous_commit_key": old[-1]["commit_key"]}
    owners = frame(spark, OWNERS, [owner("new", "orders")])
    events = frame(spark, EVENTS, [*old, *new])

    everyone = of_commits.with_replaced(owners, events, frame(spark, COMMITS, []))

    assert {row["table_uuid"]: row["name"] for row in rows_of(everyone.toArrow())} == {"new": "orders", "old": "orders"}


def _head(event: dict[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ("commit_key", "metadata_location")}
