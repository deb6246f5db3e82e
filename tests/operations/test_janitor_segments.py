"""Segments that no index names are deleted; the others stay."""

from sandur.catalog.index import INLINE_MAX
from sandur.operations.index.rebuild import new_segment_id, rebuild, segment_of
from sandur.operations.janitors.sweep import DAY_MS
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import Cluster
from tests.operations.lakes import put_name
from tests.operations.test_index_updates import SCOPE, indexed, segments_of, table


async def cluster_with_segments() -> Cluster:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    for number in range(INLINE_MAX + 1):
        await put_name(server, table(f"t{number:05d}"))
    await rebuild(server, SCOPE)
    return cluster


async def test_segments_of_a_dead_writer_are_deleted_after_a_day() -> None:
    cluster = await cluster_with_segments()
    server = cluster.server()
    used = await segments_of(server)
    left = server.index_segment(SCOPE, new_segment_id(server))
    await left.create(segment_of(server, SCOPE, used[0].value.entries, is_full=False))
    cluster.clock.advance(DAY_MS - 1)
    assert await cluster.sweep() == {}
    cluster.clock.advance(1)

    assert (await cluster.sweep())["segments_removed"] == 1

    assert await segments_of(cluster.server()) == used
    assert len(await indexed(cluster.server())) == INLINE_MAX + 1
    assert len(await cluster.store.list(server.layout.index_segments_folder(SCOPE))) == len(used)


async def test_segments_stay_while_they_may_be_needed() -> None:
    """The index or the segment is damaged: the next reader rebuilds it."""
    cluster = await cluster_with_segments()
    server = cluster.server()
    key = server.layout.list_index(SCOPE)
    found = await cluster.store.get(key)
    assert found is not None
    await cluster.store.put(key, b"{", expected=found.version)
    await cluster.store.put(server.layout.index_segment(SCOPE, "damaged"), b"{", expected=ABSENT)
    before = len(await cluster.store.list(server.layout.index_segments_folder(SCOPE)))
    cluster.clock.advance(DAY_MS)

    await cluster.sweep()

    assert len(await cluster.store.list(server.layout.index_segments_folder(SCOPE))) == before
