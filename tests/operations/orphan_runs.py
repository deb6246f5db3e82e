"""Remove orphans in tests: a table with an orphan, the two runs of maintenance, and writers beside them."""

from collections.abc import Awaitable, Callable
from typing import Final

from sandur.catalog.maintenance.policies import Orphans
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.maintenance.iceberg_files import IcebergFiles
from sandur.operations.maintenance.orphans import Fence, OrphanRemoval, Outcome
from sandur.operations.maintenance.references import references_of
from sandur.operations.tables.commit import commit_table
from sandur.storage.contract import ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import at_snapshot, commit, request, snapshot
from tests.operations.table_files import TableWithFiles, create_table_with_files, files_below, manifest, manifest_list

AGE_MS: Final = 4 * DAY_MS
POLICY: Final = Orphans()
ORPHAN: Final = "data/orphan.parquet"


async def no_fence() -> None:
    """This run never loses its turn."""


async def with_orphan(name: str = "t", **fields: object) -> tuple[Cluster, TableWithFiles]:
    """A table with three snapshots, and a file that nothing refers to; all are older than the minimum age."""
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server(), name, snapshots=3, **fields)
    await cluster.server().locations.create(table.at(ORPHAN), b"orphan")
    cluster.clock.advance(AGE_MS)
    return cluster, table


def removal(cluster: Cluster, run: str, store: ObjectStore | None = None, fence: Fence = no_fence) -> OrphanRemoval:
    server = cluster.server(store)
    return OrphanRemoval(server, run, fence, IcebergFiles(server))


async def condemn(cluster: Cluster, table: TableWithFiles, *, run: str = "first") -> Outcome:
    return await removal(cluster, run).condemn(table.uuid, table.identifier, POLICY)


async def delete(
    cluster: Cluster, table: TableWithFiles, *, run: str = "second", store: ObjectStore | None = None
) -> Outcome:
    return await removal(cluster, run, store).delete(table.uuid, table.identifier, POLICY)


async def condemned(cluster: Cluster, table: TableWithFiles) -> list[str]:
    found = await cluster.server().condemned_files(table.uuid).read()
    return [one.location.removeprefix(f"{table.location}/") for one in found.value.files] if found else []


async def after_the_wait(cluster: Cluster, table: TableWithFiles) -> Outcome:
    """Both runs; a day lies between them."""
    found = await condemn(cluster, table)
    assert not found.refusal
    cluster.clock.advance(DAY_MS)
    return await delete(cluster, table)


async def stage_snapshot(lake: Lake, table: TableWithFiles, number: int, *paths: str, name: str = "slow") -> None:
    """Write the manifest and the manifest list of a snapshot that adds the files; nothing refers to it yet."""
    listed = [table.at(f"metadata/m{one}.avro") for one in range(1, number)]
    await lake.locations.create(table.at(f"metadata/{name}.avro"), manifest(*paths))
    await lake.locations.create(
        table.at(f"metadata/snap-{name}.avro"), manifest_list(*listed, table.at(f"metadata/{name}.avro"))
    )


async def commit_staged(lake: Lake, table: TableWithFiles, number: int, *, name: str = "slow") -> None:
    """Commit the snapshot, as a writer that has written its files before."""
    fields = {**snapshot(number, number - 1), "manifest-list": table.at(f"metadata/snap-{name}.avro")}
    del fields["manifests"]
    change = commit(
        {"action": "add-snapshot", "snapshot": fields},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
        require=(at_snapshot(number - 1),),
    )
    await commit_table(lake, table.identifier, change, request(f"staged {table.identifier} {number} {name}"))
    await lake.background.drain()


async def missing_files(lake: Lake, table: TableWithFiles) -> list[str]:
    """The files that a table refers to and that do not exist."""
    pointer = await lake.pointer(table.uuid).read()
    assert pointer
    named = {one async for batch in references_of(lake, pointer.value) for one in batch if one}
    return sorted([one for one in named if not await lake.locations.exists(one)])


async def has_orphan(cluster: Cluster, table: TableWithFiles) -> bool:
    return ORPHAN in await files_below(cluster.server(), table)


class InterruptedStore(WrappingStore):
    """Lets something else happen right before the call with a number; the first is 1. Keeps its outcome."""

    def __init__(self, inner: ObjectStore, number: int, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._number = number
        self._happens = happens
        self.calls = 0
        self.outcome: object = None

    async def _around(self, call: Call, perform: Callable[[], Awaitable[object]]) -> object:  # type: ignore[override]  # noqa: ARG002 - every call alike
        self.calls += 1
        if self.calls == self._number:
            self.outcome = await self._happens()
        return await perform()
