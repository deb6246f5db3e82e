"""Garbage on a real store: executors find it, a dry run reports it, a real run deletes it."""

import os
import time
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sandur.catalog.records import Head, Pointer, PurgeOrder
from sandur.clock import SystemClock
from sandur.errors import Conflict, Unavailable
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.feed_readers import trim_feed
from sandur.operations.janitors.purge import ORDERS_MAX
from sandur.operations.tables.documents import current_document
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.reports import report_metrics
from sandur.pipeline.job import Limits
from sandur.pipeline.jobs.collect_garbage import COLLECT_GARBAGE
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.reconcile import RECONCILE
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.tables import CATALOGS
from sandur.settings import Settings
from sandur.storage.contract import ABSENT
from tests.fakes.fixed_clock import FixedClock
from tests.operations.requests import NAMESPACE
from tests.operations.table_files import create_table_with_files
from tests.pipeline.test_compact import receipts_of_users
from tests.pipeline.test_transforms import frame
from tests.pipeline.world import World, identifier_of

HASH: Final = "0123456789abcdef" * 2
UUID: Final = "5b6b2b4e-0000-4000-8000-00000000000c"
DAY_SECONDS: Final = 86_400


def age(world: World, *, days: int, part: str = "") -> None:
    """Set the modification time of every file with that part in its path to a number of days ago."""
    then = time.time() - days * DAY_SECONDS  # noqa: TID251 - the file system has no other clock
    for path in Path(world.settings.store).rglob("*"):
        if path.is_file() and part in str(path):
            os.utime(path, (then, then))


def _bytes(world: World) -> dict[str, bytes]:
    root = Path(world.settings.store)
    files = [path for path in root.rglob("*") if path.is_file() and ".sandur" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def head_of(world: World, name: str) -> str:
    return world.wait(current_document(world.lake, identifier_of(name))).location


def _orphan(world: World, name: str, version: int, nonce: str = "0" * 12) -> str:
    location = f"{head_of(world, name).rpartition('/')[0]}/{version:05d}-{HASH}-{nonce}.metadata.json"
    world.wait(world.lake.locations.create(location, b'{"last-updated-ms": 1}'))
    return location


def exists(world: World, location: str) -> bool:
    return world.wait(world.lake.locations.exists(location))


def full_of_garbage(world: World) -> dict[str, str]:
    """One object of every kind of garbage, beside live tables."""
    world.make("kept")
    world.commits("kept", 3)
    world.make("dropped")
    world.wait(drop_name(world.lake, identifier_of("dropped"), kind="table", purge=False, request=world.request()))
    layout, store = world.layout, world.store
    world.wait(report_metrics(world.lake, identifier_of("kept"), b'{"report-type": "scan-report"}', world.request()))
    world.wait(store.put(layout.core_snapshot("died", "commits.parquet"), b"x", expected=ABSENT))
    area = f"{world.lake.area}/main/sales"
    first = f"00000-{HASH}-{'1' * 12}.metadata.json"
    died = f"{area}/died/metadata/{first}"
    world.wait(world.lake.locations.create(died, f'{{"table-uuid": "{UUID}", "last-updated-ms": 1}}'.encode()))
    killed = f"{area}/killed/metadata/{first}"
    world.wait(world.lake.locations.create(killed, b"{}"))
    dead = Pointer(
        uuid="killed", table_uuid="killed", state="killed", head=Head(metadata_location=killed, last_updated_ms=1)
    )
    world.wait(world.lake.pointer("killed").create(dead))
    world.settle()
    return {"lost": _orphan(world, "kept", 9), "died": died, "killed": killed}


def test_a_dry_run_reports_the_garbage_and_a_real_run_deletes_it(world: World, spark: SparkSession) -> None:
    files = full_of_garbage(world)
    head = head_of(world, "kept")
    age(world, days=31)
    before = _bytes(world)

    dry = world.run(spark, COLLECT_GARBAGE, dry_run=True)
    after = _bytes(world)
    done = world.run(spark, COLLECT_GARBAGE)

    assert after == before
    assert (dry.dry_run, done.dry_run) == (True, False)
    assert dry.warnings == done.warnings == ()
    reported, deleted = (
        {name: times for name, times in report.counts.items() if name.endswith("_removed")} for report in (dry, done)
    )
    assert reported == {
        "names_removed": 1,
        "reports_removed": 1,
        "published_files_removed": 1,
        "metadata_files_removed": 1,
        "killed_creates_removed": 1,
        "died_creates_removed": 1,
        "pointers_removed": 1,
    }
    assert deleted == reported
    assert not any(exists(world, location) for location in files.values())
    assert head_of(world, "kept") == head
    document = world.wait(current_document(world.lake, identifier_of("kept")))
    assert all(exists(world, entry.metadata_file) for entry in document.metadata.metadata_log)


@pytest.mark.slow
def test_repeated_runs_delete_all_garbage(world: World, spark: SparkSession) -> None:
    full_of_garbage(world)
    reports = []
    for _ in range(3):
        age(world, days=31)
        reports.append(world.run(spark, COLLECT_GARBAGE))

    # The pointer of the dropped table is deleted after its name, and that of the killed create after its file.
    assert [report.counts.get("pointers_removed", 0) for report in reports] == [1, 2, 0]
    assert not any(name.endswith(("removed", "settled")) for name in reports[-1].counts)


@pytest.mark.slow
def test_young_objects_are_not_candidates(world: World, spark: SparkSession) -> None:
    full_of_garbage(world)
    before = _bytes(world)

    report = world.run(spark, COLLECT_GARBAGE)

    assert not any(name.endswith(("removed", "settled")) for name in report.counts)
    assert _bytes(world) == before


def test_a_run_deletes_no_more_than_its_limit(world: World, spark: SparkSession) -> None:
    world.make("t")
    orphans = [_orphan(world, "t", number, f"{number:012x}") for number in range(1, 8)]
    age(world, days=2)

    report = world.run(spark, COLLECT_GARBAGE, limits=Limits(objects_deleted_max=3))
    left = [location for location in orphans if exists(world, location)]
    again = world.run(spark, COLLECT_GARBAGE)

    assert report.counts["metadata_files_removed"] == 3
    assert report.counts["left_for_later"] == 4
    assert len(left) == 4
    assert again.counts["metadata_files_removed"] == 4


@pytest.mark.slow
def test_a_receipt_is_deleted_only_when_it_is_old_and_in_the_history(world: World, spark: SparkSession) -> None:
    world.make("t")
    world.commits("t", 2)
    age(world, days=91)

    unpublished = world.run(spark, COLLECT_GARBAGE)
    kept = len(world.receipts())
    world.run(spark, COMPACT)
    young = world.run(spark, COLLECT_GARBAGE, dry_run=True)
    age(world, days=91, part="/feed/")
    published = world.run(spark, COLLECT_GARBAGE)

    assert "committed_receipts_removed" not in unpublished.counts
    assert kept == 3
    assert published.counts["committed_receipts_removed"] == 3 + len(world.dataset(spark, "changes"))
    assert ("feed_entries_removed" in young.counts, published.counts["feed_entries_removed"]) == (False, 1)
    assert len(world.dataset(spark, "commits")) == 3


def test_a_history_that_begins_again_has_every_receipt_that_exists(world: World, spark: SparkSession) -> None:
    world.make("t")
    world.commits("t", 2)
    world.run(spark, COMPACT)
    old, *gone = sorted(receipts_of_users(world))
    for key in (*gone, *world.receipts(of_changes=True)):
        world.remove(key)
    age(world, days=91, part="/feed/")
    trimmed = world.wait(trim_feed(world.lake))

    world.remove(world.layout.core_manifest())
    world.commits("t", 1)
    report = world.run(spark, COMPACT)

    assert (trimmed.trimmed, trimmed.receipts_carried) == (1, 1)
    assert "entries 1 to 1 were removed" in report.warnings[0]
    kept = {receipt.commit_key for receipt in receipts_of_users(world).values()}
    assert {row["commit_key"] for row in world.dataset(spark, "commits")} == kept
    assert world.layout.parse_receipt(old).commit_key in kept


@pytest.mark.slow
def test_receipts_of_the_pipelines_own_tables_are_deleted_and_not_restored(world: World, spark: SparkSession) -> None:
    world.make("t")
    world.run(spark, COMPACT)
    world.commits("t", 1)
    world.run(spark, COMPACT)
    own = [key for key, data in world.receipts().items() if b'"task_id":"system-tables"' in data]
    changes = len(world.dataset(spark, "changes"))
    other = world.layout.receipt("2026-01-01", "iceberg", "ab" * 32)
    world.put(other, b"damaged")
    age(world, days=91)
    later = FixedClock(SystemClock().now_ms() + 91 * DAY_SECONDS * 1_000)

    before = world.run(spark, RECONCILE, clock=later)
    collected = world.run(spark, COLLECT_GARBAGE)
    left = world.receipts()
    reconciled = world.run(spark, RECONCILE, clock=later)
    come_back = world.receipts().keys() - left.keys()
    compacted = world.run(spark, COMPACT)

    assert collected.counts["committed_receipts_removed"] == len(own) + 2 + changes
    assert left.keys() == {other}
    assert before.warnings == reconciled.warnings == ()
    assert (reconciled.counts["restored_exactly"], reconciled.counts["restored_without_source"]) == (0, 0)
    assert not come_back
    assert compacted.counts["commits"] == 0
    assert len(world.dataset(spark, "commits")) == 2


@pytest.mark.slow
def test_a_purge_can_be_a_dry_run_or_real(world: World, spark: SparkSession) -> None:
    world.wait(create_namespace(world.lake, NAMESPACE, {}, world.request()))
    purged = world.wait(create_table_with_files(world.lake, "purged"))
    world.wait(drop_name(world.lake, purged.identifier, kind="table", purge=True, request=world.request()))
    world.settle()
    age(world, days=1)

    dry = world.run(spark, COLLECT_GARBAGE, dry_run=True)
    still_there = [exists(world, location) for location in purged.files]
    done = world.run(spark, COLLECT_GARBAGE)

    assert all(still_there)
    assert dry.counts["purge_files_removed"] == done.counts["purge_files_removed"] > len(purged.files)
    assert not any(exists(world, location) for location in purged.files)


@pytest.mark.slow
def test_a_purge_keeps_its_limit_and_skips_blocked_orders(world: World, spark: SparkSession) -> None:
    world.make("t")
    orphans = [_orphan(world, "t", 1, f"{number:012x}") for number in range(2)]
    world.wait(create_namespace(world.lake, NAMESPACE, {}, world.request()))
    purged = world.wait(create_table_with_files(world.lake, "purged"))
    world.wait(drop_name(world.lake, purged.identifier, kind="table", purge=True, request=world.request()))
    world.settle()
    for number in range(ORDERS_MAX):
        uuid = f"00000000-0000-4000-8000-{number:012d}"
        order = PurgeOrder(
            uuid=uuid,
            table_uuid=uuid,
            drop="d",
            kind="table",
            identifier=identifier_of("t"),
            ordered_ms=1,
            blocked="shared",
        )
        world.wait(world.lake.purge_order(uuid, "d").create(order))
    age(world, days=2)

    reports = [world.run(spark, COLLECT_GARBAGE, limits=Limits(objects_deleted_max=most)) for most in (2, 3, 1_000)]

    removed = [{name: times for name, times in one.counts.items() if name.endswith("_removed")} for one in reports]
    assert [sum(counts.values()) for counts in removed[:2]] == [2, 3]
    assert "purge_files_removed" not in removed[0]
    assert removed[1]["purge_files_removed"] > 0
    assert not any(exists(world, location) for location in (*orphans, *purged.files))


@pytest.mark.slow
def test_no_file_of_a_table_is_deleted_while_a_pointer_is_unreadable(world: World, spark: SparkSession) -> None:
    world.make("t")
    orphan = _orphan(world, "t", 1)
    world.wait(world.store.put(world.layout.pointer(UUID), b"damaged", expected=ABSENT))
    age(world, days=2)

    report = world.run(spark, COLLECT_GARBAGE)

    assert exists(world, orphan)
    assert any("metadata files are skipped" in warning for warning in report.warnings)


@pytest.mark.slow
def test_a_fenced_run_deletes_nothing(world: World, spark: SparkSession) -> None:
    world.make("t")
    orphan = _orphan(world, "t", 1)
    age(world, days=2)

    def lose_lease() -> None:
        raise Conflict("another run took over")

    with pytest.raises(Conflict):
        world.run(spark, COLLECT_GARBAGE, check_fence=lose_lease)
    assert exists(world, orphan)


@pytest.mark.slow
def test_garbage_is_collected_in_a_bucket(seaweedfs_settings: Settings, tmp_path: Path, spark: SparkSession) -> None:
    """Objects in a bucket cannot be aged, so the retention is zero."""
    store = f"s3://sandur/{tmp_path.name}"
    settings = replace(seaweedfs_settings, store=store, orphan_retention="PT0S", report_retention="PT0S")
    with World(settings) as world:
        world.make("t")
        world.commits("t", 2)
        orphans = [_orphan(world, "t", version, f"{version:012x}") for version in (1, 3)]
        world.wait(report_metrics(world.lake, identifier_of("t"), b'{"report-type": "scan-report"}', world.request()))

        dry = world.run(spark, COLLECT_GARBAGE, dry_run=True)
        still_there = [exists(world, location) for location in orphans]
        done = world.run(spark, COLLECT_GARBAGE)

        assert still_there == [True, True]
        assert dry.counts["metadata_files_removed"] == done.counts["metadata_files_removed"] == 2
        assert done.counts["reports_removed"] == 1
        assert not any(exists(world, location) for location in orphans)
        document = world.wait(current_document(world.lake, identifier_of("t")))
        assert all(exists(world, entry.metadata_file) for entry in document.metadata.metadata_log)


@pytest.mark.slow
def test_a_late_publication_fails_instead_of_naming_collected_files(world: World, spark: SparkSession) -> None:
    world.make("t")
    world.run(spark, COMPACT)
    world.commits("t", 1)
    removed: list[int] = []

    def collect_first() -> None:
        """The files were verified, but were not published for two days."""
        if not removed:
            age(world, days=2)
            removed.append(world.run(spark, COLLECT_GARBAGE).counts["published_files_removed"])

    with pytest.raises(Unavailable, match="written files are damaged"):
        world.run(spark, COMPACT, check_fence=collect_first)
    still_published = len(world.dataset(spark, "commits"))
    world.run(spark, COMPACT)

    assert removed[0] > 0
    assert still_published == 1
    assert len(world.dataset(spark, "commits")) == 2


def _publish(world: World, spark: SparkSession, *, at_ms: int, name: str) -> str:
    """Publish one catalog instead of the previous ones at a given time; returns the key of the manifest."""
    row = {"name": name, "id": "1", "root": "x", "properties_json": "{}", "created_at": 0, "updated_at": 0}
    with world.context(spark, clock=FixedClock(at_ms, seed=at_ms)) as context:
        publication = Publication(context)
        files = publication.write(frame(spark, CATALOGS, [row]), CATALOGS)
        publication.publish({CATALOGS.name: DatasetUpdate(files, {"feed": 1})})
    assert publication.published
    return publication.published.manifest


@pytest.mark.slow
def test_published_files_stay_for_a_day_after_they_were_replaced(world: World, spark: SparkSession) -> None:
    now_ms = SystemClock().now_ms()
    day_ms = DAY_SECONDS * 1_000
    keys = [
        _publish(world, spark, at_ms=now_ms - days * day_ms // 2, name=name)
        for days, name in ((8, "first"), (6, "second"), (1, "third"))
    ]
    age(world, days=3)
    reader = spark.read.format("sandur_dataset").option("dataset", "catalogs").option("store", world.settings.store)
    begun = reader.option("manifest", keys[1]).load()

    today = world.run(spark, COLLECT_GARBAGE)
    read = [row.name for row in begun.collect()]
    tomorrow = world.run(spark, COLLECT_GARBAGE, clock=FixedClock(now_ms + day_ms))

    assert read == ["second"]
    assert [report.counts["published_files_removed"] for report in (today, tomorrow)] == [2, 2]
    assert [row["name"] for row in world.dataset(spark, "catalogs")] == ["third"]


@pytest.mark.slow
def test_files_published_during_a_collection_stay(world: World, spark: SparkSession) -> None:
    row = {"name": "main", "id": "1", "root": "x", "properties_json": "{}", "created_at": 0, "updated_at": 0}
    with world.context(spark) as context:
        publication = Publication(context)
        files = publication.write(frame(spark, CATALOGS, [row]), CATALOGS)
        age(world, days=2)

        def publish() -> None:
            """A slow run publishes after the dry run and before the deletion."""
            if not publication.published:
                publication.publish({CATALOGS.name: DatasetUpdate(files, {"feed": 1})})

        report = world.run(spark, COLLECT_GARBAGE, check_fence=publish)

    assert publication.published
    assert "published_files_removed" not in report.counts
    assert [one["name"] for one in world.dataset(spark, "catalogs")] == ["main"]
