"""`audit` publishes every record of the trail once, also a late one, and sets damaged objects aside."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sandur.catalog.audit import AuditedChange, AuditedCredentials, AuditedDecision, AuditRecord
from sandur.catalog.identifiers import Identifier
from sandur.clock import uuid_v7
from sandur.operations import published
from sandur.operations.audit.trail import date_of, encode_batch
from sandur.operations.feed import AUDIT_BATCHES, Feed
from sandur.operations.tables.documents import current_document
from sandur.pipeline.jobs.audit import AUDIT_JOB
from sandur.pipeline.jobs.compact import COMPACT
from tests.fakes.fixed_clock import FixedClock
from tests.pipeline.world import World

START_MS = 1_794_900_000_000
DAY_MS = 86_400_000
RECORD = AuditRecord(
    time_ms=START_MS,
    kind="read",
    tenant="default",
    workspace="default",
    principal="ada",
    operation="loadTable",
    securable_name="main.sales.orders",
    decision="allowed",
    status=200,
    outcome="done",
)


def _put(world: World, number: int, *records: AuditRecord, time_ms: int = START_MS) -> str:
    """An object of the trail; returns its key."""
    batch_id = uuid_v7(time_ms, number)
    key = world.layout.audit(date_of(time_ms), batch_id)
    world.put(key, encode_batch(batch_id, records))
    return key


def _column(world: World, spark: SparkSession, name: str) -> list[Any]:
    return sorted(row[name] for row in world.dataset(spark, "audit"))


def test_every_field_of_a_record_is_a_column(world: World, spark: SparkSession) -> None:
    decision = AuditedDecision(
        securable_type="table", securable_name="t", securable_id="", privilege="MODIFY", decision="denied"
    )
    full = AuditRecord(
        time_ms=START_MS + 1,
        kind="security",
        request_id="r1",
        tenant="default",
        workspace="default",
        principal="ada",
        principal_id="p1",
        actor="trino",
        issuer="https://idp",
        token_id="jti-1",  # noqa: S106 - an id, not a token
        peer="10.0.0.1",
        protocol="unity",
        operation="updatePermissions",
        securable_type="table",
        securable_name="main.sales.orders",
        securable_id="u1",
        privilege="MANAGE",
        decision="denied",
        reason="hidden",
        detail="no right",
        manifest_number=7,
        status=404,
        outcome="refused",
        is_replay=True,
        idempotency_key_hash="ab",
        declared_agent="curl",
        declared_trace_id="tt",
        declared_run_id="run",
        declared_task_id="task",
        further_decisions=(decision,),
        changes=(AuditedChange(object="grants", id="u1", after=msgspec.Raw(b'{"p1":["SELECT"]}')),),
        credentials=AuditedCredentials(prefixes=("s3://b/t/",), mode="read", expires_ms=9),
        sampled=0.5,
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        lost={"read": 3},
    )
    _put(world, 1, full)

    world.run(spark, AUDIT_JOB)
    (row,) = world.dataset(spark, "audit")

    assert row.pop("id") == f"{uuid_v7(START_MS, 1)}-00000"
    assert row.pop("time").timestamp() * 1_000 == START_MS + 1
    assert row.pop("date") == date_of(START_MS)
    assert json.loads(row.pop("further_decisions_json")) == [json.loads(msgspec.json.encode(decision))]
    assert json.loads(row.pop("changes_json")) == [{"object": "grants", "id": "u1", "after": {"p1": ["SELECT"]}}]
    assert json.loads(row.pop("credentials_json")) == {"prefixes": ["s3://b/t/"], "mode": "read", "expires_ms": 9}
    assert json.loads(row.pop("lost_json")) == {"read": 3}
    nested = {"id", "time_ms", "further_decisions", "changes", "credentials", "lost"}
    assert row == {name: getattr(full, name) for name in full.__struct_fields__ if name not in nested}


def test_each_record_is_published_once_also_one_that_arrives_late(world: World, spark: SparkSession) -> None:
    _put(world, 5, replace(RECORD, request_id="a"), replace(RECORD, request_id="b", kind="denial", decision="denied"))
    first = world.run(spark, AUDIT_JOB)
    again = world.run(spark, AUDIT_JOB)
    late = START_MS - 3 * DAY_MS
    _put(world, 1, replace(RECORD, request_id="late", time_ms=late), time_ms=late)

    third = world.run(spark, AUDIT_JOB)

    assert first.counts == {
        "feed_from": 0,
        "feed_to": 1,
        "records": 2,
        "quarantined": 0,
        "records_allowed": 1,
        "records_denied": 1,
    }
    assert (first.manifest is None, again.manifest, third.manifest is None) == (False, None, False)
    assert (again.counts["records"], third.counts["records"]) == (0, 1)
    assert _column(world, spark, "request_id") == ["a", "b", "late"]


def test_published_records_outlive_the_objects(world: World, spark: SparkSession) -> None:
    key = _put(world, 1, replace(RECORD, request_id="a"))
    world.run(spark, AUDIT_JOB)
    world.remove(key)

    world.run(spark, AUDIT_JOB)

    assert _column(world, spark, "request_id") == ["a"]


def test_damaged_and_copied_objects_are_set_aside_and_the_others_are_published(
    world: World, spark: SparkSession
) -> None:
    world.make("t")
    world.put(world.layout.receipt("2026-11-17", "iceberg", "ab" * 32), b"rubbish")
    world.run(spark, COMPACT)
    good = _put(world, 1, replace(RECORD, request_id="a"))
    damaged = _put(world, 2, replace(RECORD, request_id="b"))
    world.damage(damaged)
    stored = world.wait(world.store.get(good))
    assert stored
    copy = world.layout.audit("2026-11-17", uuid_v7(START_MS, 3))
    world.put(copy, stored.data)

    report = world.run(spark, AUDIT_JOB)
    quarantine = {row["key"]: row["problem"] for row in world.dataset(spark, "quarantine")}

    assert _column(world, spark, "request_id") == ["a"]
    assert (report.counts["records"], report.counts["quarantined"]) == (1, 2)
    assert (quarantine.pop(damaged), quarantine.pop(copy)) == ("corrupt", "misplaced")
    assert len(quarantine) == 1  # The receipt that compact found.
    assert len(report.warnings) == 2
    assert world.run(spark, COMPACT).counts["quarantined"] == 0


def test_losses_and_objects_that_were_removed_too_early_are_reported(world: World, spark: SparkSession) -> None:
    _put(world, 1, replace(RECORD, kind="loss", operation="auditLoss", decision="none", lost={"read": 5}))
    stated = world.run(spark, AUDIT_JOB)
    gone = _put(world, 2, RECORD)
    world.wait(Feed(world.lake, AUDIT_BATCHES).advance())
    world.remove(gone)
    report = world.run(spark, AUDIT_JOB)

    assert stated.warnings == ('1 records say that others were lost, for example {"read":5}',)
    assert report.counts["objects_missing"] == 1
    assert "were removed before they were read" in report.warnings[0]


def test_the_table_system_audit_has_the_published_records(world: World, spark: SparkSession) -> None:
    _put(world, 1, RECORD, replace(RECORD, principal="ben"))

    report = world.run(spark, AUDIT_JOB)

    document = world.wait(current_document(world.lake, Identifier("main", ("system",), "audit")))
    (snapshot,) = document.metadata.snapshots
    assert report.warnings == ()
    assert (snapshot.summary or {})["total-records"] == "2"


def test_many_small_files_are_merged_without_records_beyond_the_retention(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "FILES_MAX", 2)
    old_ms = START_MS - 200 * DAY_MS
    _put(world, 1, replace(RECORD, request_id="old", time_ms=old_ms), time_ms=old_ms)
    for number in range(3):
        _put(world, 100 + number, replace(RECORD, request_id=str(number)))
        world.run(spark, AUDIT_JOB, clock=FixedClock(START_MS, seed=number))

    assert _column(world, spark, "request_id") == ["0", "1", "2"]


def test_the_source_reads_the_whole_trail(world: World, spark: SparkSession) -> None:
    _put(world, 1, RECORD)
    world.damage(_put(world, 2, RECORD))

    with world.context(spark) as context:
        rows = spark.read.format("sandur_audit").options(**context.source_options).load().collect()

    assert sorted((row.principal or "", row.problem or "") for row in rows) == [("", "corrupt"), ("ada", "")]
