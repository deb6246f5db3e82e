"""What bounds a VACUUM: the time of the store, and the number of files."""

import pytest

from sandur.catalog.locations import canonical_address
from sandur.catalog.maintenance.policies import Policy
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.maintenance import delta_files
from sandur.operations.maintenance import orphans as removals
from sandur.operations.maintenance.delta_files import DeltaClones, DeltaFiles
from sandur.operations.maintenance.orphans import OrphanRemoval
from sandur.storage.contract import LIST_LIMIT_MAX
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import D
from tests.operations.lakes import make_lake
from tests.operations.orphan_runs import no_fence
from tests.operations.test_vacuum import POLICY, VECTOR, Vacuumed, added, checkpoint, removed


async def test_a_driver_whose_clock_is_ahead_keeps_files_that_were_removed_within_the_retention() -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live", "removed")
    made.cluster.clock.advance(20 * DAY_MS)
    await made.commit(1, removed("removed", made.cluster.clock.now_ms()))
    lake = make_lake(made.cluster.store, FixedClock(made.cluster.clock.now_ms() + 40 * DAY_MS))

    found = await OrphanRemoval(lake, "first", no_fence, DeltaFiles(lake, Policy())).condemn(made.table.uuid, D, POLICY)

    assert (found.files, found.kept["referred to"]) == (0, 2)


async def test_a_table_with_too_many_files_is_left_alone_before_all_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live", *(f"old-{number}" for number in range(LIST_LIMIT_MAX + 10)))
    made.cluster.clock.advance(8 * DAY_MS)
    monkeypatch.setattr(removals, "FILES_MAX", 900)
    spy = SpyStore(made.cluster.store)

    refused = await made.condemn(store=spy)

    _, key = made.cluster.server().locations.holder(made.at("_"))
    assert refused.refusal == "it has at least 1,000 files, and a run keeps at most 900 in memory"
    assert spy.keys("list") == [key.removesuffix("_")]


@pytest.mark.parametrize(("form", "at_least"), [("commits", 14), ("a checkpoint", 11)])
async def test_a_log_with_too_many_files_is_not_read_to_its_end(
    form: str, at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await Vacuumed.external(added("live"))
    if form == "commits":
        for number in range(1, 40):
            await made.publish(number, added(f"live-{number}"))
    else:
        rows = [added(f"live-{number}") for number in range(40)]
        await made.write(f"_delta_log/{1:020d}.checkpoint.parquet", data=checkpoint(rows))
    await made.write("old")
    made.cluster.clock.advance(8 * DAY_MS)
    monkeypatch.setattr(delta_files, "FILES_MAX", 10)
    monkeypatch.setattr(delta_files, "_ACTIONS_AT_ONCE", 5)

    found = await made.condemn()

    text = f"table {made.table.uuid}: its log names at least {at_least} files, and a run keeps at most 10 in memory"
    assert found.refusal == f"what refers to its files is unknown: {text}"


async def test_a_large_table_is_no_obstacle_for_others_if_it_names_no_files_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await Vacuumed.managed(*(added(f"live-{number}") for number in range(40)))
    clones = DeltaClones(made.cluster.server())
    monkeypatch.setattr(delta_files, "FILES_MAX", 10)

    assert await clones.user_of("other", canonical_address("file:/elsewhere")) == ""


@pytest.mark.parametrize("actions_at_once", [1, 3, 1_000])
async def test_a_log_that_is_read_in_parts_has_the_same_files(
    actions_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await Vacuumed.external(added("a"), added("b"))
    await made.publish(1, removed("a", 5), added("c", deletionVector=VECTOR))
    await made.publish(2, added("a"), removed("b", 6), {"metaData": {"configuration": {"p": "1"}}})
    monkeypatch.setattr(delta_files, "_ACTIONS_AT_ONCE", actions_at_once)

    state = await delta_files.read_log(made.cluster.server(), made.table)

    assert state
    assert sorted(path for path, _ in state.live) == ["a", "c"]
    assert sorted(path for path, _ in state.removed) == ["b"]
    assert state.properties == {"p": "1"}
