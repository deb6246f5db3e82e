"""Days of the audit trail are kept for the retention, and then removed as a whole."""

from sandur.operations.janitors.sweep import DAY_MS
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import Cluster

HOUR_MS = 3_600_000


async def test_a_day_is_removed_as_a_whole_when_the_retention_has_passed_since_its_end() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    layout = server.layout
    keys = [layout.audit("2026-01-01", "a"), layout.audit("2026-01-01", "b"), layout.audit("2026-01-02", "c")]
    await server.store.put(keys[0], b"morning", expected=ABSENT)
    cluster.clock.advance(23 * HOUR_MS)
    await server.store.put(keys[1], b"evening", expected=ABSENT)
    cluster.clock.advance(2 * HOUR_MS)
    await server.store.put(keys[2], b"next day", expected=ABSENT)

    cluster.clock.advance(90 * DAY_MS - 1 * HOUR_MS - 1)
    before = await cluster.sweep()
    kept = await cluster.keys(layout.audit_folder())
    cluster.clock.advance(1)
    after = await cluster.sweep()

    assert "audit_removed" not in before
    assert kept == keys
    assert after["audit_removed"] == 2
    assert await cluster.keys(layout.audit_folder()) == keys[2:]
    assert cluster.errors == []


async def test_an_object_that_the_trail_did_not_write_stays() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    foreign = f"{server.layout.audit_folder()}notes/readme.txt"
    await server.store.put(foreign, b"?", expected=ABSENT)
    cluster.clock.advance(1_000 * DAY_MS)

    await cluster.sweep()

    assert await cluster.keys(server.layout.audit_folder()) == [foreign]
