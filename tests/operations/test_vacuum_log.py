"""VACUUM of the log of managed Delta tables: what no version needs that was current within its retention (O12)."""

import json
from collections.abc import Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from sandur.delta.log_state import CLEANS_LOG, LOG_RETENTION
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.maintenance.delta_log import LogFile, oldest_needed
from tests.operations.test_vacuum import Vacuumed, added, lines

UUID: Final = "80a083e8-7026-4e79-81be-64bd76c43a11"
METADATA: Final[dict[str, object]] = {"metaData": {"configuration": {}}}
PROTOCOL: Final = {"protocol": {"minReaderVersion": 3, "readerFeatures": ["v2Checkpoint"], "writerFeatures": []}}
NEWEST: Final = 40


def checkpoint_name(version: int) -> str:
    return f"_delta_log/{version:020d}.checkpoint.{UUID}.json"


def commit_name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


async def aged(*, properties: Mapping[str, str] | None = None, protocol: Mapping[str, object] = PROTOCOL) -> Vacuumed:
    """A table with a commit a day, a checksum for each, and a checkpoint with a sidecar every ten days."""
    made = await Vacuumed.managed(added("live"))
    await made.write("live")
    metadata = {"metaData": {"configuration": {**(properties or {})}}}
    for version in range(1, NEWEST + 1):
        made.cluster.clock.advance(DAY_MS)
        await made.publish(version, added("live"), *([metadata] if version == 1 else []))
        await made.write(f"_delta_log/{version:020d}.crc", data=b"{}")
        if version % 10 == 0:
            top = {"checkpointMetadata": {"version": version}}, {"sidecar": {"path": f"{version}.json"}}
            await made.write(f"_delta_log/_sidecars/{version}.json", data=lines(added("live")))
            await made.write(checkpoint_name(version), data=lines(*top, protocol, metadata))
    await made.write("_delta_log/_last_checkpoint", data=json.dumps({"version": NEWEST}).encode())
    server = made.cluster.server()
    found = await server.delta_table(made.table.uuid).read()
    assert found
    grown = replace(found.value, last_version=NEWEST, published=NEWEST)
    await server.delta_table(made.table.uuid).swap(grown, expected=found.version)
    return made


async def log(made: Vacuumed) -> list[str]:
    server = made.cluster.server()
    _, key = server.locations.holder(made.at("_"))
    folder = key.removesuffix("_")
    return [one.key.removeprefix(folder) for one in await made.cluster.store.list(f"{folder}_delta_log/", limit=1_000)]


async def test_log_files_before_an_old_checkpoint_are_deleted_and_every_later_version_can_be_read() -> None:
    """Day 41: the version of day 11 is current until day 12, so the checkpoint of version 10 is needed."""
    made = await aged()
    before = await log(made)

    done = await made.vacuum()

    after = await log(made)
    gone = [commit_name(one) for one in range(10)] + [f"_delta_log/{one:020d}.crc" for one in range(1, 10)]
    assert set(before) - set(after) == set(gone)
    assert done.files == len(gone)
    assert {checkpoint_name(10), commit_name(10), "_delta_log/_sidecars/10.json"} <= set(after)


async def test_an_expired_checkpoint_goes_with_its_sidecars() -> None:
    made = await aged()
    made.cluster.clock.advance(10 * DAY_MS)

    await made.vacuum()

    after = await log(made)
    assert not {checkpoint_name(10), "_delta_log/_sidecars/10.json", commit_name(19)} & set(after)
    assert {checkpoint_name(20), "_delta_log/_sidecars/20.json", commit_name(20)} <= set(after)


async def test_a_sidecar_that_a_later_checkpoint_names_again_stays() -> None:
    made = await aged()
    made.cluster.clock.advance(10 * DAY_MS)
    top = [{"sidecar": {"path": f"{one}.json"}} for one in (10, 40)]
    name = checkpoint_name(NEWEST).replace(UUID, UUID.replace("8", "9"))
    await made.write(name, data=lines(*top, PROTOCOL, METADATA))

    await made.vacuum()

    after = await log(made)
    assert checkpoint_name(10) not in after
    assert "_delta_log/_sidecars/10.json" in after


@pytest.mark.parametrize(
    "properties",
    [
        {CLEANS_LOG: "false"},
        {LOG_RETENTION: "interval 60 days"},
        {LOG_RETENTION: "whenever"},
    ],
)
async def test_a_table_that_keeps_its_log_is_obeyed(properties: Mapping[str, str]) -> None:
    made = await aged(properties=properties)
    before = await log(made)

    found = await made.condemn()
    made.cluster.clock.advance(DAY_MS)
    done = await made.delete()

    assert (found.files, done.files) == (0, 0)
    assert await log(made) == before


async def test_a_table_that_keeps_its_log_since_it_was_condemned_is_obeyed() -> None:
    made = await aged()
    assert (await made.condemn()).files
    before = await log(made)
    server = made.cluster.server()
    found = await server.delta_table(made.table.uuid).read()
    assert found
    keeping = replace(found.value, properties={CLEANS_LOG: "false"})
    await server.delta_table(made.table.uuid).swap(keeping, expected=found.version)
    made.cluster.clock.advance(DAY_MS)

    done = await made.delete()

    assert done.files == 0
    assert await log(made) == before


async def test_the_log_of_a_table_with_a_feature_that_is_not_known_stays() -> None:
    made = await aged(protocol={"protocol": {**PROTOCOL["protocol"], "writerFeatures": ["checkpointProtection"]}})
    before = await log(made)

    found = await made.condemn()

    assert found.files == 0
    assert "needed by the log, or younger than it keeps" in found.kept
    assert await log(made) == before


@pytest.mark.parametrize("damage", ["without a protocol", "no text", "no sidecar"])
async def test_a_checkpoint_that_cannot_be_read_takes_the_place_of_nothing(damage: str) -> None:
    made = await aged()
    server = made.cluster.server()
    if damage == "no sidecar":
        await server.locations.remove(made.at("_delta_log/_sidecars/10.json"))
    else:
        await server.locations.remove(made.at(checkpoint_name(10)))
        await made.write(checkpoint_name(10), data=b"rubbish" if damage == "no text" else lines(METADATA))
    before = await log(made)

    found = await made.condemn()

    assert found.files == 0
    assert found.refusal.startswith("what refers to its files is unknown")
    assert await log(made) == before


async def test_deleted_log_files_take_no_room_on_the_list_that_commits_are_compared_with() -> None:
    made = await aged()
    await made.write("never")
    made.cluster.clock.advance(8 * DAY_MS)

    await made.vacuum()

    swept = await made.cluster.server().swept_files(made.table.uuid).read()
    assert swept
    assert len(swept.value.files) == 1


async def test_a_table_that_lost_only_log_files_compares_its_commits_with_no_list() -> None:
    made = await aged()

    done = await made.vacuum()

    server = made.cluster.server()
    found = await server.delta_table(made.table.uuid).read()
    assert found
    assert done.files
    assert found.value.swept == ""
    assert await server.swept_files(made.table.uuid).read() is None


async def test_the_log_of_an_external_table_is_left_to_its_engine() -> None:
    made = await Vacuumed.external(added("live"))
    await made.write("live", "never", "_delta_log/_sidecars/never.json")
    for version in range(1, 5):
        await made.publish(version, added("live"))
        await made.write(checkpoint_name(version), data=lines(PROTOCOL, METADATA, added("live")))
    made.cluster.clock.advance(90 * DAY_MS)
    before = await log(made)

    done = await made.vacuum()

    assert done.files == 1
    assert await log(made) == before


def test_the_oldest_needed_checkpoint_is_that_of_the_version_which_was_current_at_a_time() -> None:
    named = [LogFile(f"{one:020d}.json", 1, one * 10) for one in range(1, 8)]
    both = [LogFile(f"{one:020d}.checkpoint.parquet", 1, 1_000) for one in (2, 5)]

    found = [oldest_needed([*named, *both], current_ms=time_ms) for time_ms in (5, 19, 20, 49, 50, 1_000)]

    assert [one and one.version for one in found] == [None, None, 2, 2, 5, 5]


def test_a_commit_of_unknown_age_counts_as_young() -> None:
    named = [LogFile(f"{1:020d}.json", 1, 0), LogFile(f"{1:020d}.checkpoint.parquet", 1, 0)]

    assert oldest_needed(named, current_ms=1_000) is None
