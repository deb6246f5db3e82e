"""Transforms give the same rows for any order, copies or parts of their input."""

import random  # noqa: TID251 - seeded
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

from sandur.catalog.events import Source
from sandur.catalog.records import AttemptedFile, Head
from sandur.operations.receipts import commit_key_of, receipt_key, receipt_of
from sandur.pipeline.jobs.reconcile import receipts_to_restore, unpublished_receipts, with_published
from sandur.pipeline.sources.range_reader import shaped_batch
from sandur.pipeline.sources.receipt_rows import row_of
from sandur.pipeline.tables import ACTIVITY, COMMITS, EVENTS, NAMES, OWNERS, POINTERS, TABLES, Shape
from sandur.pipeline.transforms import commits as of_commits
from sandur.pipeline.transforms import projection
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
from sandur.storage.layout import Layout
from tests.pipeline.world import rows_of

LAYOUT = Layout()
DAY_MS = 86_400_000


def frame(spark: SparkSession, shape: Shape, rows: Sequence[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([shaped_batch(shape, rows)]), schema=shape.spark_schema)


def chain(table: str, count: int, *, source: Source | None = None, from_ms: int = DAY_MS) -> list[dict[str, Any]]:
    """The events of a table with a number of commits, one every six hours."""
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
        key = receipt_key(LAYOUT, AttemptedFile(head.metadata_location, head.last_updated_ms))
        rows.append(dict(row_of(LAYOUT, key, msgspec.json.encode(receipt_of(table, head)))))
        previous = head
    return rows


def owner(table: str, name: str) -> dict[str, Any]:
    return {"table_uuid": table, "catalog": "main", "namespace": "a", "name": name, "kind": "table"}


NO_OWN_TABLES = ("main", "system", ())
RUBBISH = dict(row_of(LAYOUT, "rubbish", b"rubbish"))


def history(
    spark: SparkSession,
    events: Sequence[dict[str, Any]],
    *,
    before: DataFrame | None = None,
    owners: Sequence[dict[str, Any]] = (),
) -> DataFrame:
    known = before or frame(spark, COMMITS, [])
    return of_commits.history(frame(spark, EVENTS, events), known, frame(spark, OWNERS, owners))


def published(rows: DataFrame) -> DataFrame:
    return rows.select(*COMMITS.column_names)


def timeline(rows: DataFrame) -> list[dict[str, Any]]:
    return rows_of(of_commits.timeline(rows, of_commits.loose_ends(rows)).toArrow())


@pytest.mark.parametrize("seed", [1, 2])
def test_commits_and_activity_do_not_depend_on_order_copies_or_parts(spark: SparkSession, seed: int) -> None:
    events = [*chain("t", 9), *chain("u", 3, source=Source(kind="pipeline", run_id="r")), RUBBISH]
    owners = [owner("t", "orders")]
    chance = random.Random(seed)
    jumbled = [*events, *chance.choices(events, k=5)]
    chance.shuffle(jumbled)
    cut = chance.randrange(len(events))

    whole = history(spark, events, owners=owners)
    commits = rows_of(published(whole).toArrow())
    of_jumbled = rows_of(published(history(spark, jumbled, owners=owners)).toArrow())
    at_once = rows_of(of_commits.activity(whole.where("is_new"), frame(spark, ACTIVITY, [])).toArrow())
    first = history(spark, events[:cut], owners=owners)
    # A published receipt is repeated.
    rest = history(spark, events[max(0, cut - 2) :], before=published(first), owners=owners)
    busy = of_commits.activity(first.where("is_new"), frame(spark, ACTIVITY, []))
    in_parts = rows_of(of_commits.activity(rest.where("is_new"), busy).toArrow())

    assert len(commits) == 12
    assert of_jumbled == commits
    assert rows_of(published(rest).toArrow()) == commits
    assert in_parts == at_once
    assert sum(row["commits"] for row in at_once) == 12


def test_invalid_receipts_go_to_quarantine_and_own_commits_are_omitted(spark: SparkSession) -> None:
    own = Source(kind="pipeline", client="sandur", run_id="r", task_id=SYSTEM_TABLES)
    events = [*chain("t", 2), *chain("system", 5, source=own), RUBBISH, RUBBISH]

    kept = rows_of(history(spark, events).toArrow())
    aside = rows_of(of_commits.quarantine(frame(spark, EVENTS, events)).toArrow())

    assert {row["table_uuid"] for row in kept} == {"t"}
    assert [(row["key"], row["problem"], row["body"]) for row in aside] == [("rubbish", "corrupt", "rubbish")]


@pytest.mark.parametrize(
    ("source", "lineage", "quality"),
    [
        (Source(kind="pipeline", client="sandur", run_id="r", task_id="import"), "verified", "checked"),
        (Source(kind="pipeline", principal="nightly", principal_id="id", run_id="r"), "verified", "checked"),
        (Source(kind="rest", principal="etl", run_id="r", task_id="t"), "declared", "not checked"),
        (Source(kind="rest", principal="anonymous"), "declared", "not checked"),
        (Source(kind="admin", principal="ann"), "none", "not checked"),
        (Source(), "none", "not checked"),
    ],
)
def test_lineage_and_quality_of_a_version_follow_its_source(
    spark: SparkSession, source: Source, lineage: str, quality: str
) -> None:
    rows = history(spark, chain("t", 1, source=source), owners=[owner("t", "orders")])

    (commit,) = rows_of(published(rows).toArrow())
    (version,) = timeline(rows)

    assert (commit["source"], commit["principal"], commit["run_id"]) == (source.kind, source.principal, source.run_id)
    assert (commit["lineage"], commit["quality"]) == (lineage, quality)
    assert (version["source"], version["lineage"], version["quality"]) == (source.kind, lineage, quality)


def test_a_client_cannot_hide_its_commits_as_those_of_the_system_tables(spark: SparkSession) -> None:
    forged = Source(kind="pipeline", principal="nightly", client="sandur", task_id=SYSTEM_TABLES)

    kept = rows_of(history(spark, chain("t", 2, source=forged)).toArrow())

    assert len(kept) == 2


def test_a_timeline_marks_the_current_version_and_missing_links(spark: SparkSession) -> None:
    events = chain("t", 5)
    gone = events.pop(2)
    rows = history(spark, events, owners=[owner("t", "orders")])

    found = {row["version"]: row for row in timeline(rows)}
    ends = rows_of(of_commits.loose_ends(rows).toArrow())

    assert [version for version, row in found.items() if row["is_current"]] == [4]
    assert [version for version, row in found.items() if not row["is_linked"]] == [3]
    assert [(row["commit_key"], row["is_known"]) for row in ends] == [(gone["commit_key"], None)]


def test_a_chain_continues_in_another_table_and_across_restarted_versions(spark: SparkSession) -> None:
    """A registered file may be of another table and have a lower version."""
    old, new = chain("old", 3), chain("new", 4, from_ms=9 * DAY_MS)
    new[0] |= {"operation": "register", "previous_commit_key": old[-1]["commit_key"]}
    new[2]["metadata_version"], new[3]["metadata_version"] = 0, 1

    found = timeline(history(spark, [*old, *new]))

    assert all(row["is_linked"] for row in found)
    assert [row["commit_key"] for row in found if row["is_current"]] == [new[-1]["commit_key"]]
    assert len(found) == 7


def test_created_changed_and_dropped_tables_have_their_change(spark: SparkSession) -> None:
    def table_row(uuid: str, name: str, file: str | None, **more: Any) -> dict[str, Any]:
        return {**owner(uuid, name), "uuid": uuid, "format": "iceberg", "metadata_location": file, **more}

    before = [
        table_row("a", "a", "1"),
        table_row("b", "b", "1"),
        table_row("c", "c", "1"),
        table_row("d", "d", "1", problem="bad"),
    ]
    before += [table_row("g", "g", "1", etag="old"), table_row("h", "h", "1", etag="old", problem="bad")]
    now = [
        table_row("a", "a", "1"),
        table_row("b", "bb", "1"),
        table_row("d", "d", "1"),
        table_row("e", "e", "2"),
        table_row("f", "f", None),
        table_row("g", "g", "1", etag="new"),
        table_row("h", "h", "1", etag="new"),
    ]
    current = projection.current_tables(frame(spark, NAMES, [{**row, "is_shown": True} for row in now]), NO_OWN_TABLES)

    compared = projection.compare_tables(current, frame(spark, TABLES, before))
    found = {row["uuid"]: row for row in rows_of(compared.toArrow())}

    assert {uuid: row["change"] for uuid, row in found.items()} == {
        "a": "same",
        "b": "renamed",
        "c": "dropped",
        "d": "same",
        "e": "created",
        "f": "created",
        "g": "changed",
        "h": "changed",
    }
    assert {uuid for uuid, row in found.items() if row["is_unread"]} == {"e", "g", "h"}
    assert {uuid for uuid, row in found.items() if row["is_retried"]} == {"d"}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_table_with_two_names_has_the_first_one(spark: SparkSession, names: tuple[str, str]) -> None:
    rows = [{**owner("t", name), "uuid": "t", "format": "iceberg", "is_shown": True} for name in names]

    current = projection.current_tables(frame(spark, NAMES, rows).coalesce(1), NO_OWN_TABLES)

    assert [row["name"] for row in rows_of(current.toArrow())] == ["a"]


def test_every_unreadable_file_is_in_some_sample(spark: SparkSession) -> None:
    rows = [{**owner(uuid, uuid), "uuid": uuid, "format": "iceberg", "metadata_location": "1"} for uuid in "abcde"]
    current = frame(spark, NAMES, [{**row, "is_shown": True} for row in rows])
    before = frame(spark, TABLES, [{**row, "problem": "bad"} for row in rows[:4]])
    compared = projection.compare_tables(projection.current_tables(current, NO_OWN_TABLES), before).persist()

    def sampled(seed: str) -> set[str]:
        return {row.uuid for row in projection.sample_of_retried(compared, seed=seed, tables_max=3).collect()}

    by_seed = [sampled(f"run {number}") for number in range(4)]

    assert {len(some) for some in by_seed} == {3}
    assert set().union(*by_seed) == set("abcd")
    assert {row.uuid for row in projection.sample_of_retried(compared, seed="", tables_max=9).collect()} == set("abcd")


def test_a_missing_table_is_dropped_only_if_the_recheck_does_not_find_it(spark: SparkSession) -> None:
    def table_row(uuid: str, name: str, **more: Any) -> dict[str, Any]:
        return {**owner(uuid, name), "uuid": uuid, "format": "iceberg", "metadata_location": "1", **more}

    before = frame(spark, TABLES, [table_row("a", "a"), table_row("b", "b"), table_row("c", "c"), table_row("d", "d")])
    hidden = {**table_row("", "b", is_shown=False, problem="bad"), "metadata_location": None}
    names = frame(spark, NAMES, [table_row("a", "a", is_shown=True), hidden])
    again = frame(spark, NAMES, [table_row("b", "b", is_shown=True), table_row("c", "cc", is_shown=True)])

    first = projection.compare_tables(projection.current_tables(names, NO_OWN_TABLES), before)
    seem_gone = projection.as_published(first.where("change = 'dropped'"))
    found = projection.found_again(first, projection.current_tables(again, NO_OWN_TABLES), before)

    assert {(row["uuid"], row["name"]) for row in rows_of(seem_gone.toArrow())} == {("b", "b"), ("c", "c"), ("d", "d")}
    assert {row["uuid"]: row["change"] for row in rows_of(found.toArrow())} == {
        "a": "same",
        "b": "same",
        "c": "renamed",
        "d": "dropped",
        "main/a/b": "unreadable",
    }


def test_a_table_with_an_unreadable_name_keeps_its_published_name(spark: SparkSession) -> None:
    hidden = {"is_shown": False, "problem": "bad", "state": "active", "format": "iceberg"}
    names = [
        {**owner("", name), **hidden, "uuid": uuid, "table_uuid": None} for uuid, name in (("n", "new"), ("", "x"))
    ]
    live = {"state": "live", "updated_at": 5}
    pointers = [
        {**owner("t", "made for"), "uuid": "t", **live},
        {**owner("n", "made for"), "uuid": "n", **live},
        {**owner("o", "made for"), "uuid": "o", **live},
    ]

    owners = of_commits.owners(
        frame(spark, NAMES, names), frame(spark, POINTERS, pointers), frame(spark, OWNERS, [owner("t", "renamed to")])
    )

    assert {row["table_uuid"]: row["name"] for row in rows_of(owners.toArrow())} == {
        "t": "renamed to",
        "n": "new",
        "o": "made for",
    }


def test_tables_have_their_current_or_last_name(spark: SparkSession) -> None:
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
            {**owner("t", "made for"), "uuid": "t", "state": "live", "updated_at": 5},
            {**owner("gone", "dropped as"), "uuid": "g", "state": "dropped", "updated_at": 7},
            {**owner("gone", "dropped earlier"), "uuid": "h", "state": "dropped", "updated_at": 6},
        ],
    )
    before = frame(spark, OWNERS, [owner("t", "before"), owner("gone", "before"), owner("forgotten", "known")])

    owners = of_commits.owners(names, pointers, before)

    assert {row["table_uuid"]: row["name"] for row in rows_of(owners.toArrow())} == {
        "t": "now",
        "gone": "dropped as",
        "forgotten": "known",
    }
    assert [row["table_uuid"] for row in rows_of(of_commits.renamed_owners(owners, before).toArrow())] == ["gone", "t"]


def registered(table: str, over: dict[str, Any], *, days: int = 1) -> list[dict[str, Any]]:
    """A table whose first commit registers it over another one."""
    rows = chain(table, 2, from_ms=days * DAY_MS)
    rows[0] |= {"operation": "register", "previous_commit_key": over["commit_key"]}
    return rows


def named(rows: DataFrame) -> dict[str, str]:
    return {row["table_uuid"]: row["name"] for row in rows_of(rows.toArrow())}


def own_names(spark: SparkSession, *owners: dict[str, Any], known: Sequence[dict[str, Any]] = ()) -> DataFrame:
    shown = {"is_shown": True, "uuid": "x", "state": "active", "format": "iceberg"}
    names = frame(spark, NAMES, [{**one, **shown} for one in owners])
    return of_commits.owners(names, frame(spark, POINTERS, []), frame(spark, OWNERS, known))


@pytest.mark.parametrize("split", range(5))
def test_a_replaced_table_has_the_current_name_of_its_replacement_whichever_run_saw_what(
    spark: SparkSession, split: int
) -> None:
    old = chain("old", 2)
    middle = registered("middle", old[-1], days=5)
    new = registered("new", middle[-1], days=9)
    rows = [new[0], old[0], middle[0], old[1], middle[1], new[1]]
    events, before = frame(spark, EVENTS, rows[split:]), frame(spark, COMMITS, rows[:split])
    owners = own_names(spark, owner("new", "sold"), known=[owner("old", "orders"), owner("new", "orders")])

    everyone = of_commits.with_replaced(owners, of_commits.replacements(events, before))

    assert named(everyone) == {"new": "sold", "middle": "sold", "old": "sold"}


def test_a_table_that_came_back_keeps_its_own_name_and_gives_it_to_the_one_between(spark: SparkSession) -> None:
    old = chain("old", 2)
    between = registered("between", old[-1], days=5)
    back = [{**registered("old", between[-1], days=9)[0], "commit_key": "back"}]
    events = frame(spark, EVENTS, [*old, *between, *back])

    owners = own_names(spark, owner("old", "orders"))
    everyone = of_commits.with_replaced(owners, of_commits.replacements(events, frame(spark, COMMITS, [])))

    assert named(everyone) == {"old": "orders", "between": "orders"}


@pytest.mark.parametrize("order", [1, -1])
def test_a_table_with_two_replacements_has_the_name_of_the_latest(spark: SparkSession, order: int) -> None:
    old = chain("old", 2)
    one, two = registered("one", old[0], days=9), registered("two", old[1], days=5)
    events = frame(spark, EVENTS, [*old, *one, *two][::order])

    owners = own_names(spark, *[owner("one", "orders"), owner("two", "customers")][::order])
    everyone = of_commits.with_replaced(owners, of_commits.replacements(events, frame(spark, COMMITS, [])))

    assert named(everyone)["old"] == "orders"


def test_a_long_line_of_replacements_is_followed(spark: SparkSession) -> None:
    rows = chain("0", 1)
    for number in range(1, 16):
        rows += registered(str(number), rows[-1], days=number)

    owners = own_names(spark, owner("15", "orders"))
    found = of_commits.replacements(frame(spark, EVENTS, rows), frame(spark, COMMITS, []))

    assert set(named(of_commits.with_replaced(owners, found)).items()) == {(str(one), "orders") for one in range(16)}


def committed(key: str, day: int, kind: str) -> dict[str, Any]:
    return {**chain("t", 1)[0], "commit_key": key, "committed_at_ms": day * DAY_MS, "format": kind}


def test_collected_receipts_are_neither_counted_nor_restored(spark: SparkSession) -> None:
    old = [committed("a", 1, "iceberg"), committed("b", 1, "delta"), committed("g", 1, "iceberg")]
    recent = [committed("c", 9, "iceberg"), committed("d", 9, "delta"), committed("e", 9, "iceberg")]
    commits = frame(spark, COMMITS, [*old, *recent])
    walk = spark.createDataFrame(
        [
            *(("missing", key, f"events/{key}", "{}", True) for key in ("a", "b", "d", "f")),
            ("unreadable", "g", None, None, None),
            ("unreadable", "h", None, None, None),
            ("failed", None, None, None, None),
        ],
        "status string, commit_key string, key string, receipt string, is_exact boolean",
    )

    found = with_published(walk, commits, keep_from_ms=5 * DAY_MS)
    missing = found.where("status = 'missing'")
    there = spark.createDataFrame([("e", "1970-01-10"), ("c", "1970-01-09")], "commit_key string, date string")
    restored = receipts_to_restore(missing, commits, there, keep_from_ms=5 * DAY_MS)

    assert {(row["commit_key"], row["is_published"]) for row in rows_of(found.toArrow())} == {
        ("d", True),
        ("f", False),
        ("h", False),
        (None, False),
    }
    assert {row["commit_key"]: row["published"] is not None for row in rows_of(restored.toArrow())} == {
        "c": True,
        "d": False,
        "f": False,
    }


@pytest.mark.parametrize("listed", [(), ("a", "b", "c")])
def test_receipts_missed_by_a_walk_are_restored_despite_the_listing(spark: SparkSession, listed: Sequence[str]) -> None:
    commits = frame(spark, COMMITS, [committed("a", 9, "iceberg"), committed("b", 9, "iceberg")])
    missing = spark.createDataFrame(
        [(key, f"events/{key}", "{}", False) for key in ("b", "c")],
        "commit_key string, key string, receipt string, is_exact boolean",
    )
    keys = spark.createDataFrame([(key, "1970-01-10") for key in listed], "commit_key string, date string")

    found = {
        row["commit_key"]: row for row in rows_of(receipts_to_restore(missing, commits, keys, keep_from_ms=0).toArrow())
    }

    assert found.keys() >= {"b", "c"}
    assert found["b"]["published"]
    assert found["c"]["receipt"]


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_exact_finding_wins_in_any_order(spark: SparkSession, tasks: int) -> None:
    rows_found = [
        ("a", "events/a", "of files", False),
        ("a", "events/a", "of a head", True),
        ("a", "events/a", "{}", False),
    ]
    missing = spark.createDataFrame(rows_found, "commit_key string, key string, receipt string, is_exact boolean")
    keys = spark.createDataFrame([], "commit_key string, date string")
    commits = frame(spark, COMMITS, [])

    for rows in (missing, missing.orderBy(F.col("receipt").desc())):
        found = receipts_to_restore(rows.repartition(tasks), commits, keys, keep_from_ms=0)
        assert [(row["receipt"], row["is_exact"]) for row in rows_of(found.toArrow())] == [("of a head", True)]


def test_unpublished_receipts_are_user_receipts_that_the_history_lacks(spark: SparkSession) -> None:
    found = spark.createDataFrame(
        [
            ("present", "found", True, False),
            ("present", "new", False, False),
            ("missing", "lost", False, False),
            ("present", "own", False, True),
            ("damaged", "damaged", False, False),
        ],
        "status string, key string, is_published boolean, is_own boolean",
    )

    assert {row["key"] for row in rows_of(unpublished_receipts(found).toArrow())} == {"new", "lost"}
