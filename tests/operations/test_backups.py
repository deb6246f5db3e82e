"""A backup taken under load is a consistent cut; it restores into an empty store, also if everything is killed."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from sandur.catalog.backups import commits_to_include
from sandur.catalog.records import DeltaTable
from sandur.catalog.security.manifest import SecurityManifest
from sandur.catalog.verification.findings import Finding
from sandur.delta.protocol import TABLE_ID, required_properties
from sandur.errors import Conflict, Damaged, Invalid, NotEmpty, Unavailable, Unfit
from sandur.operations.access import Security
from sandur.operations.backups.backup import back_up
from sandur.operations.backups.repository import BackupManifest, list_backups
from sandur.operations.backups.restore import NUMBERS_AHEAD, restore
from sandur.operations.delta.load import list_commits
from sandur.operations.delta.publishing import published_location, staged_location
from sandur.operations.dry_run import DryRunStore
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake, Lakes
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.verification.run import verify
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, ObjectStore, list_all
from sandur.storage.layout import RESTORING, Layout, backup_part
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.yielding_store import YieldingStore
from tests.operations.delta_requests import COLUMNS, PROTOCOL, add, create_managed, names_in, publish, write_staged
from tests.operations.event_chains import all_events, check_holes
from tests.operations.invariants import chains, visible_names
from tests.operations.lakes import make_lake
from tests.operations.mixed_load import Load, marks_of
from tests.operations.requests import (
    TIMESTAMP_MS,
    commit,
    create,
    identifier_of,
    keyed_request,
    set_property,
    set_up_catalog,
)

SETTINGS: Final = Settings(store="memory:", log_level="error", janitors=False)
CALLS_MAX: Final = 400


async def backed_up(store: ObjectStore, target: ObjectStore, clock: FixedClock) -> BackupManifest:
    lakes = Lakes(SETTINGS, clock, DryRunStore(store))
    return await back_up(lakes, SETTINGS, target, on_progress=lambda *_: None)


async def restored(target: ObjectStore, into: ObjectStore, clock: FixedClock) -> Mapping[str, int]:
    newest = (await list_backups(target))[-1]
    return await restore(make_lake(into, clock), target, newest, on_progress=lambda *_: None)


async def findings(store: ObjectStore, clock: FixedClock) -> list[Finding]:
    lakes = Lakes(SETTINGS, clock, DryRunStore(store))
    return [one async for one in verify(lakes, SETTINGS) if one.severity != "in_flight"]


async def copied_files(source: MemoryStore, into: MemoryStore) -> None:
    """The files of tables, which a backup does not have: they are in the bucket of the tables."""
    for listed in await list_all(source, "tables/"):
        if stored := await source.get(listed.key):
            await into.put(listed.key, stored.data, expected=ABSENT)


@pytest.mark.parametrize("seed", [5, 10, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(11, 40))])
async def test_a_backup_under_load_restores_to_a_consistent_cut(seed: int) -> None:
    load, target = Load(seed), MemoryStore()
    await load.start()
    await load.run(40)
    acknowledged = set(load.acknowledged)

    running = asyncio.create_task(load.run(120))
    taken = 0
    while not running.done():  # Also increments.
        await backed_up(YieldingStore(load.store, seed=seed, yields_max=8), target, load.clock)
        taken += 1
    into = MemoryStore(clock=load.clock)
    await copied_files(load.store, into)
    await restored(target, into, load.clock)

    assert taken
    assert await findings(into, load.clock) == []
    lake = make_lake(into, load.clock)
    marks = await marks_of(lake)
    assert {mark: marks[mark] for mark, tables in load.begun.items() if 0 < marks.get(mark, 0) < tables} == {}
    assert acknowledged <= set(marks)
    await chains(lake)
    check_holes(await all_events(lake))
    names = list((await visible_names(lake)).values())
    assert len(names) == len(set(names)) > 0


def test_a_transaction_takes_along_the_commits_before_it_and_their_transactions() -> None:
    later = {"a": ["alone", "first", "later"], "b": ["second", "first"], "c": ["second"], "d": ["other"]}

    assert commits_to_include(["first"], later) == {"a": 2, "b": 2, "c": 1}
    assert commits_to_include(["nothing"], later) == {}


async def _quiet_load(requests: int = 30) -> Load:
    load = Load(5)
    await load.start()
    await load.run(requests)
    return load


async def test_a_second_backup_reads_what_changed_and_shares_the_rest() -> None:
    load, target = await _quiet_load(), MemoryStore()
    first_look, second_look = SpyStore(load.store), SpyStore(load.store)

    first = await backed_up(first_look, target, load.clock)
    server = load.server()
    await commit_table(server, identifier_of("t0"), commit(set_property("new", "1")), keyed_request("after"))
    await server.background.drain()
    second = await backed_up(second_look, target, load.clock)

    assert second.previous == first.id
    assert second.objects >= first.objects
    assert len(second_look.keys("get")) * 4 < len(first_look.keys("get"))
    assert second.copied_bytes * 5 < first.copied_bytes
    assert second_look.keys("put") == []


async def test_a_restore_refuses_a_store_with_a_catalog_and_another_unfinished_restore() -> None:
    load, target = await _quiet_load(), MemoryStore()
    await backed_up(load.store, target, load.clock)
    with pytest.raises(NotEmpty, match="has a catalog already"):
        await restored(target, load.store, load.clock)
    into = MemoryStore()
    await into.put(RESTORING, b'{"backup":"another"}', expected=ABSENT)

    with pytest.raises(Conflict, match="restore of the backup another"):
        await restored(target, into, load.clock)
    with pytest.raises(Unfit, match="a restore is not finished"):
        await Lakes(SETTINGS, load.clock, into).start()


async def test_a_damaged_backup_is_refused() -> None:
    load, target = await _quiet_load(), MemoryStore()
    taken = await backed_up(load.store, target, load.clock)
    key = backup_part(taken.id, "pack-000000")
    stored = await target.get(key)
    assert stored
    await target.put(key, stored.data[:-9] + b"123456789", expected=stored.version)

    with pytest.raises(Damaged, match="does not have the bytes"):
        await restored(target, MemoryStore(), load.clock)


async def test_restored_grants_have_a_number_that_no_server_has_seen_and_no_signing_keys() -> None:
    load, target, into = await _quiet_load(), MemoryStore(), MemoryStore()
    key = Layout().security_manifest()
    await load.server().security().create(SecurityManifest(number=7, metastore_id="m"))
    await load.store.put("_shared/security/keys.json", b"{}", expected=ABSENT)
    await backed_up(load.store, target, load.clock)

    await restored(target, into, load.clock)

    found = await make_lake(into, load.clock).uncached(key, SecurityManifest).read()
    assert found
    assert found.value.number == 7 + NUMBERS_AHEAD
    assert await into.get("_shared/security/keys.json") is None


async def test_a_killed_backup_leaves_nothing_that_counts_and_the_next_one_is_whole() -> None:
    load = await _quiet_load(10)
    for dies_at in range(1, CALLS_MAX):
        target = MemoryStore(clock=load.clock)
        dying = DyingStore(target, dies_at=dies_at, after=dies_at % 2 == 0)
        with contextlib.suppress(Died):
            await backed_up(load.store, dying, load.clock)
        left = len(await list_backups(target))
        taken = await backed_up(load.store, target, load.clock)

        assert left <= 1
        assert taken.objects > 20
        if not dying.has_died:
            return
    raise AssertionError("the backup makes more calls than expected")


async def test_a_killed_restore_completes_when_it_is_run_again() -> None:
    load, target = await _quiet_load(4), MemoryStore()
    await backed_up(load.store, target, load.clock)
    whole = MemoryStore(clock=load.clock)
    await restored(target, whole, load.clock)
    expected = {listed.key: (await whole.get(listed.key) or (b"",))[0] for listed in await list_all(whole, "")}
    for dies_at in range(1, CALLS_MAX, 3):
        into = MemoryStore(clock=load.clock)
        dying = DyingStore(into, dies_at=dies_at, after=dies_at % 2 == 0)
        with contextlib.suppress(Died):
            await restored(target, dying, load.clock)
        with contextlib.suppress(NotEmpty):  # It was complete.
            await restored(target, into, load.clock)

        found = {listed.key: (await into.get(listed.key) or (b"",))[0] for listed in await list_all(into, "")}
        assert found == expected, dies_at
        if not dying.has_died:
            return
    raise AssertionError("the restore makes more calls than expected")


async def test_janitors_keep_the_files_of_commits_after_the_backup_that_was_restored() -> None:
    """Nothing but its metadata file leads to such a commit: registered again, it comes back."""
    load, target = await _quiet_load(), MemoryStore()
    await backed_up(load.store, target, load.clock)
    server = load.server()
    change = commit(set_property("new", "1"), set_property("write.metadata.delete-after-commit.enabled", "true"))
    changed = await commit_table(server, identifier_of("t0"), change, keyed_request("after"))
    created = await create(server, "created-after")
    await server.background.drain()
    into = MemoryStore(clock=load.clock)
    await copied_files(load.store, into)
    load.clock.advance(10 * DAY_MS)
    await restored(target, into, load.clock)

    async def exists(table: LoadedTable) -> bool:
        return await make_lake(into, load.clock).locations.exists(table.metadata_location or "")

    for days in (0, 2, 87):
        load.clock.advance(days * DAY_MS)
        await run_janitors(make_lake(into, load.clock), {}, on_error=lambda *_: None)
        assert [await exists(one) for one in (changed, created)] == [True, True]
    load.clock.advance(2 * DAY_MS)
    await run_janitors(make_lake(into, load.clock), {}, on_error=lambda *_: None)

    assert not await exists(changed)


async def test_a_server_refuses_grants_that_are_older_than_those_it_has_seen() -> None:
    """Someone copied an old object back; `restore` raises the number instead."""
    store, clock = MemoryStore(), FixedClock()
    server = make_lake(store, clock)
    old = await server.security().create(SecurityManifest(number=7, metastore_id="m"))
    new = await server.security().swap(SecurityManifest(number=8, metastore_id="m"), expected=old.version)
    await server.feature(Security).read()

    await make_lake(store, clock).security().swap(old.value, expected=new.version)

    with pytest.raises(Unavailable, match="has seen 8"):
        await server.feature(Security).read()
    assert (await make_lake(store, clock).feature(Security).read()).manifest.number == 7


def log_file(version: int, *actions: dict[str, Any]) -> bytes:
    """A version of a Delta log, as a writer stages and publishes it."""
    info = {"inCommitTimestamp": TIMESTAMP_MS + version, "timestamp": 0, "operation": f"WRITE {version}"}
    return b"".join(json.dumps(one).encode() + b"\n" for one in ({"commitInfo": info}, *actions))


def metadata_actions(table: DeltaTable) -> list[dict[str, Any]]:
    """The actions of a writer that adds the column `more`, a property and clustering."""
    fields = [*COLUMNS["fields"], {"name": "more", "type": "long", "nullable": True, "metadata": {}}]  # type: ignore[misc]
    metadata = {
        "id": "1",
        "format": {"provider": "parquet"},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {**required_properties(table.uuid), "kind": "wide"},
        "description": "wider",
    }
    writer_features = sorted({*(PROTOCOL.writer_features or ()), "domainMetadata", "rowTracking"})
    features = {"readerFeatures": PROTOCOL.reader_features, "writerFeatures": writer_features}
    rows = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":7}', "removed": False}
    return [
        {"metaData": metadata},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"domainMetadata": rows},
    ]


async def commit_delta(lake: Lake, table: DeltaTable, version: int, body: bytes, *, name: str = "") -> str:
    """Stage a commit and add it to the table; returns the name of the staged file."""
    name = name or f"{version:020d}.one.json"
    await write_staged(lake, table, name, body)
    await add(lake, table, version, name)
    await lake.background.drain()
    return name


async def delta_store(clock: FixedClock) -> tuple[MemoryStore, Lake, DeltaTable]:
    """A managed Delta table with a published commit, and one that only the catalog and its staged file have."""
    store = MemoryStore(clock=clock)
    lake = make_lake(store, clock)
    await set_up_catalog(lake)
    table = await create_managed(lake)
    await publish(lake, table, 0, log_file(0, *metadata_actions(table)[1:]))
    for version in (1, 2):
        await commit_delta(lake, table, version, log_file(version))
    await publish(lake, table, 1, log_file(1))
    return store, lake, table


async def test_commits_that_only_the_catalog_knows_are_in_a_backup() -> None:
    """The folder of the table lost its staged files: they are what the catalog is responsible for."""
    clock, target, into = FixedClock(), MemoryStore(), MemoryStore()
    store, lake, table = await delta_store(clock)
    await backed_up(store, target, clock)
    await backed_up(store, target, clock)  # The second one keeps the record and still has the file.
    await lake.locations.remove(staged_location(table, f"{2:020d}.one.json"))

    await copied_files(store, into)
    await restored(target, into, clock)

    new = make_lake(into, clock)
    assert [one.version for one in (await list_commits(new, table.uuid, 0, None, None))[0]] == [2, 1]
    assert await new.locations.read(staged_location(table, f"{2:020d}.one.json")) == log_file(2)
    assert await findings(into, clock) == []


async def test_commits_that_were_published_after_a_backup_come_back_with_it() -> None:
    """Otherwise the next writer would take the version of a file that is in the log, and its own would be ignored."""
    clock, target, into = FixedClock(), MemoryStore(), MemoryStore()
    store, lake, table = await delta_store(clock)
    await backed_up(store, target, clock)
    await publish(lake, table, 2, log_file(2))
    for version, actions in ((3, metadata_actions(table)), (4, []), (5, [])):
        await commit_delta(lake, table, version, log_file(version, *actions))
        await publish(lake, table, version, log_file(version, *actions))
    await commit_delta(lake, table, 6, log_file(6))  # It was never published, so only the catalog knew it.
    await lake.locations.remove(staged_location(table, f"{4:020d}.one.json"))  # By VACUUM.

    await copied_files(store, into)
    await restored(target, into, clock)

    new = make_lake(into, clock)
    found = await new.delta_table(table.uuid).read()
    assert found
    record = found.value
    assert (record.last_version, record.published, record.last_commit_ms) == (5, 5, TIMESTAMP_MS + 5)
    assert [(one.version, one.file_name) for one in record.commits] == [(5, f"{5:020d}.one.json")]
    assert names_in(record.columns) == ["id", "more"]
    assert (record.comment, record.properties["kind"]) == ("wider", "wide")
    assert record.properties[TABLE_ID] == table.uuid
    assert record.properties["delta.rowTracking.rowIdHighWaterMark"] == "7"
    assert record.properties["delta.lastUpdateVersion"] == "3"
    assert record.etag != table.etag
    assert await findings(into, clock) == []
    check_holes(await all_events(new))
    await commit_delta(new, table, 6, log_file(6, {"txn": {}}), name=f"{6:020d}.other.json")
    await publish(new, table, 6, log_file(6, {"txn": {}}))
    assert await new.locations.read(published_location(table, 6)) == log_file(6, {"txn": {}})
    assert await findings(into, clock) == []


async def test_commits_after_a_backup_come_back_from_a_checkpoint_if_the_log_has_expired() -> None:
    """Otherwise the next writer would take a version that was taken long ago."""
    clock, target, into = FixedClock(), MemoryStore(), MemoryStore()
    store, lake, table = await delta_store(clock)
    await commit_delta(lake, table, 3, log_file(3, domain("delta.clustering", '{"clusteringColumns":[]}')))
    for version in (2, 3):
        await publish(lake, table, version, log_file(version))
    await backed_up(store, target, clock)
    for version in (4, 5, 6):
        await commit_delta(lake, table, version, log_file(version))
        await publish(lake, table, version, log_file(version))
    checkpoint = b"".join(json.dumps(one).encode() + b"\n" for one in metadata_actions(table))
    log = f"{table.location}/_delta_log"
    await lake.locations.create(f"{log}/{5:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", checkpoint)
    await lake.locations.create(f"{log}/_last_checkpoint", b'{"version":5}')
    for version in range(5):
        await lake.locations.remove(published_location(table, version))

    await copied_files(store, into)
    counts = await restored(target, into, clock)

    new = make_lake(into, clock)
    found = await new.delta_table(table.uuid).read()
    assert found
    record = found.value
    assert (counts["logs_unread"], record.last_version, record.published) == (0, 6, 6)
    assert record.last_commit_ms == TIMESTAMP_MS + 6
    assert names_in(record.columns) == ["id", "more"]
    assert record.properties["kind"] == "wide"
    assert await findings(into, clock) == []


def unreadable(schema: str = "{}", **more: Any) -> dict[str, Any]:
    fields = {"id": "1", "format": {}, "schemaString": schema, "partitionColumns": [], "configuration": {}}
    return {"metaData": {**fields, **more}}


def domain(name: str, configuration: str) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": False}}


@pytest.mark.parametrize(
    "action",
    [
        *(unreadable(schema) for schema in ("rubbish", "[]", "{}", '{"fields":5}', '{"type":"struct","fields":[1]}')),
        unreadable('{"type":"struct","fields":[{"name":"a"}]}'),
        unreadable('{"type":"struct","fields":' + "[" * 5_000 + "]" * 5_000 + "}"),
        unreadable(json.dumps(COLUMNS), partitionColumns=["nowhere"]),
        unreadable(json.dumps(COLUMNS), schemaString=7),
        *(domain(name, text) for name in ("delta.clustering", "delta.rowTracking") for text in ("rubbish", "[]", "")),
        {"protocol": {"minReaderVersion": 99, "minWriterVersion": -1, "readerFeatures": ["?"]}},
    ],
)
async def test_a_log_that_cannot_be_read_does_not_stop_a_restore(action: dict[str, Any]) -> None:
    """Writers of a table write its log: one of them could keep the whole store from coming back."""
    clock, target, into = FixedClock(), MemoryStore(), MemoryStore()
    store, lake, table = await delta_store(clock)
    await backed_up(store, target, clock)
    for version in (2, 3):
        await publish(lake, table, version, log_file(version, *([action] if version == 3 else [])))

    await copied_files(store, into)
    counts = await restored(target, into, clock)

    found = await make_lake(into, clock).delta_table(table.uuid).read()
    assert counts["logs_unread"] == 1
    assert found
    assert found.value.last_version == 2


async def test_a_restore_names_the_place_of_a_delta_table_that_it_may_not_read_and_continues_afterwards() -> None:
    clock, target, into = FixedClock(), MemoryStore(), MemoryStore()
    store, _, table = await delta_store(clock)
    await backed_up(store, target, clock)
    newest = (await list_backups(target))[-1]
    await copied_files(store, into)
    stranger = Lakes(Settings(store="memory:", log_level="error"), clock, into).lake("default", "default")
    stranger.locations.own = "memory://another"

    with pytest.raises(Invalid, match=f"{table.location}.*allow-location"):
        await restore(stranger, target, newest, on_progress=lambda *_: None)
    await restored(target, into, clock)

    assert await findings(into, clock) == []
