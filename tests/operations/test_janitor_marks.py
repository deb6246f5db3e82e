"""The janitor of marks adds the index entries that a dead operation did not add."""

from sandur.operations.index import update
from sandur.operations.index.lists import list_names
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import HOUR_MS, Shore
from tests.operations.requests import (
    NAMESPACE,
    called,
    create,
    request,
    table,
)

T, U = called("t"), called("u")


async def test_a_name_without_an_index_entry_is_listed_after_a_minute() -> None:
    shore = await Shore.furnished()
    await create(shore.server(), "first")
    await shore.dies_when(
        lambda server: create_table(server, NAMESPACE, table("t"), request("create")),
        lambda server: table_exists(server, T),
    )
    assert await listed(shore) == ["first"]
    shore.clock.advance(60_000)

    await shore.sweep()

    assert await listed(shore) == ["first", "t"]


async def listed(shore: Shore) -> list[str]:
    page = await list_names(shore.server(), NAMESPACE, kind="table", page_token=None, page_size=None)
    return [identifier.name for identifier in page.entries]


async def test_a_mark_is_deleted_after_an_hour() -> None:
    shore = await Shore.furnished()
    await update.mark(shore.server(), T, "an operation that stalls")
    shore.clock.advance(HOUR_MS - 1)
    await shore.sweep()
    assert await shore.keys(shore.server().layout.marks_folder())

    shore.clock.advance(1)

    assert (await shore.sweep())["marks_removed"] == 1
    assert not await shore.keys(shore.server().layout.marks_folder())


async def test_a_damaged_mark_does_not_stop_the_others() -> None:
    shore = await Shore.furnished()
    layout = shore.server().layout
    await shore.store.put(layout.mark("0", "broken"), b"not a mark", expected=ABSENT)
    await update.mark(shore.server(), T, "fine")
    shore.clock.advance(HOUR_MS)

    assert (await shore.sweep())["marks_removed"] == 2
