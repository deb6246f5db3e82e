"""Janitors on every store: listings agree with reads, and every workspace is found."""

from sandur.clock import SystemClock
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.janitors.sweep import list_layouts
from sandur.operations.lake import Lake
from sandur.operations.tables.drop import drop_name
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.locations import Locations
from tests.fakes.fixed_clock import FixedClock
from tests.operations.janitor_runs import LONG_MS, ReportedErrors
from tests.operations.requests import create, identifier_of, load, request, set_up_catalog
from tests.operations.table_files import create_table_with_files, files_below


def _server(store: ObjectStore, *, ahead_ms: int = 0) -> Lake:
    """A server with a fixed clock, ahead of the clock of the store."""
    return Lake(
        store=store,
        layout=Layout(),
        clock=FixedClock(SystemClock().now_ms() + ahead_ms),
        settings=Settings(),
        locations=Locations("memory://store", store, open_store=lambda _: store),
    )


async def test_expired_objects_are_deleted_and_needed_ones_stay(store: ObjectStore) -> None:
    server = _server(store)
    await set_up_catalog(server)
    purged = await create_table_with_files(server, "purged", snapshots=1)
    kept = await create(server, "kept")
    await drop_name(server, purged.identifier, kind="table", purge=True, request=request("drop"))
    await server.background.drain()
    errors = ReportedErrors()

    young = await run_janitors(_server(store), {}, on_error=errors)
    old = await run_janitors(_server(store, ahead_ms=LONG_MS), {}, on_error=errors)
    later = await run_janitors(_server(store, ahead_ms=2 * LONG_MS), {}, on_error=errors)

    assert errors == []
    assert not any(outcome.endswith("removed") and times for outcome, times in young.counts.items())
    assert (old.counts["names_removed"], old.counts["purge_removed"]) == (1, 1)
    assert later.counts["pointers_removed"] == 1
    assert await files_below(server, purged) == []
    assert (await load(_server(store), identifier_of("kept"))).table_uuid == kept.table_uuid


async def test_every_workspace_is_found(store: ObjectStore) -> None:
    layouts = [Layout(tenant, lake) for tenant in ("a", "a-b", "a0") for lake in ("w", "w-1", "w0")]
    for layout in layouts:
        for name in ("x", "y"):
            await store.put(layout.catalog(name), b"{}", expected=ABSENT)
    for key in ("_probe/x", "tables/a/b/c", "zzz"):
        await store.put(key, b"x", expected=ABSENT)

    found = [layout async for layout in list_layouts(store, Settings())]

    assert sorted(found) == sorted(layouts)
