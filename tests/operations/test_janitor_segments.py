"""Segments that no index names are deleted; the others stay."""

from sandur.catalog.index import INLINE_MAX
from sandur.operations.index.rebuild import rebuild, write_segments
from sandur.operations.janitors.sweep import DAY_MS
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import Shore
from tests.operations.lakes import put_name
from tests.operations.test_index_updates import SCOPE, indexed, segments_of, table


async def grown() -> Shore:
    shore = await Shore.furnished()
    server = shore.server()
    for number in range(INLINE_MAX + 1):
        await put_name(server, table(f"t{number:05d}"))
    await rebuild(server, SCOPE)
    return shore


async def test_segments_of_a_dead_writer_are_deleted_after_a_day() -> None:
    shore = await grown()
    server = shore.server()
    used = await segments_of(server)
    await write_segments(server, SCOPE, used[0].value.entries)
    shore.clock.advance(DAY_MS - 1)
    assert await shore.sweep() == {}
    shore.clock.advance(1)

    assert (await shore.sweep())["segments_removed"] == 1

    assert await segments_of(shore.server()) == used
    assert len(await indexed(shore.server())) == INLINE_MAX + 1
    assert len(await shore.store.list(server.layout.index_segments_folder(SCOPE))) == len(used)


async def test_segments_stay_while_they_may_be_needed() -> None:
    """The index or the segment is damaged: the next reader rebuilds it."""
    shore = await grown()
    server = shore.server()
    key = server.layout.list_index(SCOPE)
    found = await shore.store.get(key)
    assert found is not None
    await shore.store.put(key, b"{", expected=found.version)
    await shore.store.put(server.layout.index_segment(SCOPE, "damaged"), b"{", expected=ABSENT)
    before = len(await shore.store.list(server.layout.index_segments_folder(SCOPE)))
    shore.clock.advance(DAY_MS)

    await shore.sweep()

    assert len(await shore.store.list(server.layout.index_segments_folder(SCOPE))) == before
