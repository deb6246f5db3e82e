"""The janitor of marks adds the index entries that a dead operation did not add."""

from sandur.operations.index import update
from sandur.operations.index.lists import list_names
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import HOUR_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    create,
    identifier_of,
    request,
    table,
)

T, U = identifier_of("t"), identifier_of("u")


async def test_a_name_without_an_index_entry_is_listed_after_a_minute() -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "first")
    await cluster.kill_when(
        lambda server: create_table(server, NAMESPACE, table("t"), request("create")),
        lambda server: table_exists(server, T),
    )
    assert await listed(cluster) == ["first"]
    cluster.clock.advance(60_000)

    await cluster.sweep()

    assert await listed(cluster) == ["first", "t"]


async def listed(cluster: Cluster) -> list[str]:
    page = await list_names(cluster.server(), NAMESPACE, kind="table", page_token=None, page_size=None)
    return [identifier.name for identifier in page.entries]


async def test_a_mark_is_deleted_after_an_hour() -> None:
    cluster = await Cluster.with_catalog()
    await update.mark(cluster.server(), T, "an operation that stalls")
    cluster.clock.advance(HOUR_MS - 1)
    await cluster.sweep()
    assert await cluster.keys(cluster.server().layout.marks_folder())

    cluster.clock.advance(1)

    assert (await cluster.sweep())["marks_removed"] == 1
    assert not await cluster.keys(cluster.server().layout.marks_folder())


async def test_a_damaged_mark_does_not_stop_the_others() -> None:
    cluster = await Cluster.with_catalog()
    layout = cluster.server().layout
    await cluster.store.put(layout.mark("0", "broken"), b"not a mark", expected=ABSENT)
    await update.mark(cluster.server(), T, "fine")
    cluster.clock.advance(HOUR_MS)

    assert (await cluster.sweep())["marks_removed"] == 2
