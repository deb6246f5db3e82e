"""VACUUM of Delta tables in two runs: what the log needs stays, and no commit adds what was deleted."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from sandur.catalog.maintenance.policies import Orphans, Policy
from sandur.catalog.records import DeltaTable, Uniform
from sandur.delta.log_state import RETENTION
from sandur.delta.requests import DeltaChange
from sandur.errors import Invalid
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.tables import NewTable, create_external
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.maintenance.delta_files import DeltaFiles
from sandur.operations.maintenance.orphans import OrphanRemoval, Outcome
from sandur.storage.contract import ObjectStore
from tests.operations.delta_requests import D, add, create_managed, write_staged
from tests.operations.janitor_runs import Cluster
from tests.operations.orphan_runs import InterruptedStore, no_fence
from tests.operations.requests import copy_store, request

POLICY: Final = Orphans()
PROTOCOL: Final = {"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "catalogManaged"]}}
VECTOR: Final = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
VECTOR_PATH: Final = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def added(path: str, **fields: object) -> dict[str, object]:
    return {"add": {"path": path, **fields}}


def removed(path: str, at_ms: int) -> dict[str, object]:
    return {"remove": {"path": path, "deletionTimestamp": at_ms}}


def lines(*actions: Mapping[str, object]) -> bytes:
    return "\n".join(map(json.dumps, actions)).encode()


class Vacuumed:
    """A Delta table with data files and a log, and runs of VACUUM over it."""

    def __init__(self, cluster: Cluster, table: DeltaTable) -> None:
        self.cluster = cluster
        self.table = table

    @classmethod
    async def managed(cls, *first: Mapping[str, object]) -> "Vacuumed":
        cluster = await Cluster.with_catalog()
        server = cluster.server()
        made = cls(cluster, await create_managed(server))
        await server.background.drain()
        await made.publish(0, PROTOCOL, *first)
        return made

    @classmethod
    async def external(cls, *first: Mapping[str, object]) -> "Vacuumed":
        cluster = await Cluster.with_catalog()
        server = cluster.server()
        new = NewTable(identifier=D, table_type="EXTERNAL", location=f"{server.area}/main/outside")
        made = cls(cluster, await create_external(server, new, request=request("external")))
        await server.background.drain()
        await made.publish(0, {"protocol": {"minReaderVersion": 1}}, *first)
        return made

    def copy(self) -> "Vacuumed":
        cluster = Cluster()
        cluster.store, cluster.clock = copy_store(self.cluster.store, self.cluster.clock)
        return Vacuumed(cluster, self.table)

    def at(self, path: str) -> str:
        return f"{self.table.location}/{path}"

    async def write(self, *paths: str, data: bytes = b"x") -> None:
        for path in paths:
            await self.cluster.server().locations.create(self.at(path), data)

    async def publish(self, version: int, *actions: Mapping[str, object]) -> None:
        await self.write(f"_delta_log/{version:020d}.json", data=lines(*actions))

    async def commit(self, version: int, *actions: Mapping[str, object], name: str = "") -> None:
        name = name or f"{version:020d}.one.json"
        server = self.cluster.server()
        await write_staged(server, self.table, name, lines(*actions))
        self.table = await add(server, self.table, version, name)

    async def files(self) -> list[str]:
        server = self.cluster.server()
        _, key = server.locations.holder(self.at("_"))
        folder = key.removesuffix("_")
        found = [one.key.removeprefix(folder) for one in await self.cluster.store.list(folder)]
        return [one for one in found if not one.startswith("_delta_log/0")]

    def removal(self, run: str, store: ObjectStore | None = None) -> OrphanRemoval:
        server = self.cluster.server(store)
        return OrphanRemoval(server, run, no_fence, DeltaFiles(server, Policy()))

    async def condemn(self, run: str = "first", store: ObjectStore | None = None) -> Outcome:
        return await self.removal(run, store).condemn(self.table.uuid, D, POLICY)

    async def delete(self, run: str = "second", store: ObjectStore | None = None) -> Outcome:
        return await self.removal(run, store).delete(self.table.uuid, D, POLICY)

    async def vacuum(self) -> Outcome:
        found = await self.condemn()
        assert not found.refusal
        self.cluster.clock.advance(DAY_MS)
        return await self.delete()


async def test_files_that_the_log_does_not_need_are_deleted_and_all_others_stay() -> None:
    made = await Vacuumed.managed(added("live"), added("with-vector", deletionVector=VECTOR))
    now_ms = made.cluster.clock.now_ms()
    await made.write(
        "live", "with-vector", VECTOR_PATH, "old", "young", "never", "p=1/old", "_hidden", "_change_data/c"
    )
    await made.commit(1, removed("old", now_ms), removed("p=1/old", now_ms), removed("young", now_ms + 8 * DAY_MS))
    made.cluster.clock.advance(8 * DAY_MS)
    await made.write("just-written")

    done = await made.vacuum()

    assert done.files == 4
    assert await made.files() == [
        "_delta_log/_staged_commits/00000000000000000001.one.json",
        "_hidden",
        VECTOR_PATH,
        "just-written",
        "live",
        "with-vector",
        "young",
    ]


async def test_staged_commits_are_deleted_once_they_are_published_and_not_tracked() -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live")
    for version in (1, 2):
        await made.commit(version, added("live"))
        await made.publish(version, added("live"))
    await made.commit(3, added("live"))
    report = DeltaChange(asserted_uuid=made.table.uuid, published=2)
    made.table = await update_table(made.cluster.server(), D, report, request("published"))
    assert [one.version for one in made.table.commits] == [3]
    made.cluster.clock.advance(8 * DAY_MS)

    await made.vacuum()

    assert [one for one in await made.files() if "_staged" in one] == [f"_delta_log/_staged_commits/{3:020d}.one.json"]


async def test_a_table_that_keeps_removed_files_longer_is_obeyed() -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live", "old")
    server = made.cluster.server()
    found = await server.delta_table(made.table.uuid).read()
    assert found
    longer = replace(found.value, properties={RETENTION: "interval 30 days"})
    await server.delta_table(made.table.uuid).swap(longer, expected=found.version)
    made.cluster.clock.advance(29 * DAY_MS)

    early = await made.condemn()
    made.cluster.clock.advance(DAY_MS)
    late = await made.condemn()

    assert (early.files, late.files) == (0, 1)


def checkpoint(rows: Sequence[Mapping[str, Any]]) -> bytes:
    file = pa.struct({"path": pa.string(), "size": pa.int64(), "deletionTimestamp": pa.int64()})
    schema = pa.schema(
        {
            "add": file,
            "remove": file,
            "sidecar": pa.struct({"path": pa.string()}),
            "protocol": pa.struct({"minReaderVersion": pa.int32()}),
            "metaData": pa.struct({"configuration": pa.map_(pa.string(), pa.string())}),
        }
    )
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), sink)
    return sink.getvalue()


@pytest.mark.parametrize("form", ["one file", "two parts", "with a sidecar", "as json"])
async def test_a_checkpoint_stands_for_the_commits_before_it(form: str) -> None:
    made = await Vacuumed.managed()
    await made.write("a", "b", "c", "gone")
    name = f"_delta_log/{5:020d}.checkpoint"
    match form:
        case "one file":
            await made.write(f"{name}.parquet", data=checkpoint([added("a"), added("b")]))
        case "two parts":
            await made.write(f"{name}.0000000001.0000000002.parquet", data=checkpoint([added("a")]))
            await made.write(f"{name}.0000000002.0000000002.parquet", data=checkpoint([added("b")]))
        case "with a sidecar":
            top: list[Mapping[str, Any]] = [{"sidecar": {"path": "s.parquet"}}, {"protocol": {"minReaderVersion": 3}}]
            await made.write(f"{name}.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", data=checkpoint(top))
            await made.write("_delta_log/_sidecars/s.parquet", data=checkpoint([added("a"), added("b")]))
        case _:
            data = lines({"checkpointMetadata": {"version": 5}}, added("a"), added("b"))
            await made.write(f"{name}.80a083e8-7026-4e79-81be-64bd76c43a11.json", data=data)
    server = made.cluster.server()
    found = await server.delta_table(made.table.uuid).read()
    assert found
    await server.delta_table(made.table.uuid).swap(replace(found.value, last_version=6), expected=found.version)
    await made.publish(6, added("c"))
    made.cluster.clock.advance(8 * DAY_MS)

    done = await made.vacuum()

    assert done.files == 1
    assert {"a", "b", "c"} <= set(await made.files())


@pytest.mark.parametrize("damage", ["missing", "not json", "missing sidecar"])
async def test_nothing_is_deleted_while_the_log_cannot_be_read(damage: str) -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live", "old")
    await made.commit(1, added("live"))
    staged = made.at(f"_delta_log/_staged_commits/{1:020d}.one.json")
    server = made.cluster.server()
    if damage == "missing sidecar":
        top = checkpoint([{"sidecar": {"path": "s.parquet"}}])
        await made.write(f"_delta_log/{0:020d}.checkpoint.parquet", data=top)
    else:
        await server.locations.remove(staged)
        if damage == "not json":
            await server.locations.create(staged, b"{")
    made.cluster.clock.advance(8 * DAY_MS)

    found = await made.condemn()

    assert found.refusal.startswith("what refers to its files is unknown")


@pytest.mark.parametrize(
    ("live", "twins"),
    [
        (["p=a%20b/part-0"], ["p=a b/part-0", "p=a%20b/part-0"]),
        (["p=caf\u00e9/part-0", "p=cafe\u0301/part-0"], ["p=caf\u00e9/part-0", "p=cafe\u0301/part-0"]),
    ],
)
async def test_two_files_whose_names_may_mean_one_both_stay(live: list[str], twins: list[str]) -> None:
    made = await Vacuumed.managed(*map(added, live))
    await made.write(*twins, "old")
    made.cluster.clock.advance(8 * DAY_MS)

    found = await made.condemn()

    assert (found.refusal, found.files, found.kept["referred to"]) == ("", 1, 2)


@pytest.mark.parametrize(
    "part", ["p=a%253Fb", "url=http%253A%252F%252Fx.org", "p=%25231", "p=a b", "p=a%2520b", "p=%25E3%2580%2580"]
)
async def test_a_table_with_odd_partition_values_is_vacuumed(part: str) -> None:
    made = await Vacuumed.managed(added(f"{part}/live"))
    await made.write(f"{unquote(part)}/live", "old")
    made.cluster.clock.advance(8 * DAY_MS)

    found = await made.condemn()

    assert (found.refusal, found.files) == ("", 1)
    assert (await made.delete()).files == 0
    made.cluster.clock.advance(DAY_MS)
    await made.delete()
    assert await made.files() == [f"{unquote(part)}/live"]


async def test_a_log_that_names_files_in_another_way_than_the_store_is_left_alone() -> None:
    made = await Vacuumed.managed(added("live"), added("more"))
    await made.write("LIVE", "MORE")
    made.cluster.clock.advance(8 * DAY_MS)

    found = await made.condemn()

    assert found.refusal == "its log names files in another way than the store does"


async def test_a_commit_that_adds_a_deleted_file_is_refused() -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live", "slow")
    made.cluster.clock.advance(8 * DAY_MS)
    assert (await made.vacuum()).files == 1

    with pytest.raises(Invalid, match="slow was written long before this commit, and was deleted"):
        await made.commit(1, added("slow"))

    await made.commit(1, added("live"), name=f"{1:020d}.two.json")


async def test_a_slow_commit_before_the_deletion_keeps_its_file() -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live", "slow")
    made.cluster.clock.advance(8 * DAY_MS)
    await made.condemn()
    await made.commit(1, added("slow"))
    made.cluster.clock.advance(DAY_MS)

    done = await made.delete()

    assert (done.files, done.kept) == (0, {"referred to": 1})
    assert "slow" in await made.files()


async def test_a_slow_commit_at_any_moment_of_the_deletion_keeps_its_file_or_is_refused() -> None:
    """The commit happens before every single call of the deleting run in turn."""
    origin = await Vacuumed.managed(added("live"))
    await origin.write("live", "slow")
    origin.cluster.clock.advance(8 * DAY_MS)
    await origin.condemn()
    origin.cluster.clock.advance(DAY_MS)
    outcomes = set()

    for number in range(1, 1_000):
        made = origin.copy()

        async def happens(made: Vacuumed = made) -> str:
            try:
                await made.commit(1, added("slow"))
            except Invalid:
                return "refused"
            return "committed"

        store = InterruptedStore(made.cluster.store, number, happens)
        await made.delete(store=store)
        if store.outcome is None:
            break
        outcomes.add(store.outcome)
        assert "live" in await made.files()
        assert store.outcome == "refused" or "slow" in await made.files(), number
    else:
        pytest.fail("the deletion never ends")
    assert outcomes == {"committed", "refused"}
    assert number > 10


async def test_an_external_table_is_vacuumed_by_its_log_alone() -> None:
    made = await Vacuumed.external(added("live"))
    await made.publish(1, added("also"))
    await made.write("live", "also", "old")
    made.cluster.clock.advance(8 * DAY_MS)

    done = await made.vacuum()

    assert (done.files, done.refusal) == (1, "")
    assert await made.files() == ["also", "live"]


@pytest.mark.parametrize("form", ["a commit", "a checkpoint"])
async def test_an_external_table_whose_log_keeps_removed_files_longer_is_obeyed(form: str) -> None:
    """An engine that writes to the table by its path changes the log, and not the record of the catalog."""
    longer = {"metaData": {"configuration": {RETENTION: "interval 30 days"}}}
    made = await Vacuumed.external(added("live"))
    await made.write("live", "removed", "never")
    gone = removed("removed", made.cluster.clock.now_ms())
    if form == "a commit":
        await made.publish(1, longer, gone)
    else:
        await made.write(f"_delta_log/{1:020d}.checkpoint.parquet", data=checkpoint([longer, gone, added("live")]))
    made.cluster.clock.advance(29 * DAY_MS)

    early = await made.condemn()
    made.cluster.clock.advance(2 * DAY_MS)
    late = await made.condemn()

    assert (early.files, early.kept["younger than the minimum age"]) == (0, 1)
    assert late.files == 2


async def test_an_external_table_whose_log_says_that_it_has_iceberg_metadata_is_left_alone() -> None:
    uniform = {"metaData": {"configuration": {"delta.universalFormat.enabledFormats": "iceberg"}}}
    made = await Vacuumed.external(added("live"), uniform)
    await made.write("live", "old")
    made.cluster.clock.advance(8 * DAY_MS)

    assert (await made.condemn()).refusal == "it has Iceberg metadata, which names files of its own"


@pytest.mark.parametrize("text", ["false", "FALSE", "no", "0", "off", "true "])
@pytest.mark.parametrize("where", ["the record", "a commit", "a checkpoint"])
async def test_a_delta_table_that_forbids_it_is_left_alone_by_both_runs(where: str, text: str) -> None:
    made = await Vacuumed.external(added("live"))
    await made.write("live", "old")
    made.cluster.clock.advance(8 * DAY_MS)
    await made.condemn()
    properties = {"gc.enabled": text}
    match where:
        case "the record":
            cell = made.cluster.server().delta_table(made.table.uuid)
            found = await cell.read()
            assert found
            await cell.swap(replace(found.value, properties=properties), expected=found.version)
        case "a commit":
            await made.publish(1, {"metaData": {"configuration": properties}})
        case _:
            rows: list[Mapping[str, Any]] = [{"metaData": {"configuration": properties}}, added("live")]
            await made.write(f"_delta_log/{1:020d}.checkpoint.parquet", data=checkpoint(rows))
    made.cluster.clock.advance(DAY_MS)

    refused = await made.condemn()
    done = await made.delete()

    assert refused.refusal == done.refusal == "it has gc.enabled=false"
    assert "old" in await made.files()


async def test_a_delta_table_that_allows_it_in_capitals_is_vacuumed() -> None:
    made = await Vacuumed.external(added("live"))
    await made.publish(1, {"metaData": {"configuration": {"gc.enabled": "TRUE"}}})
    await made.write("live", "old")
    made.cluster.clock.advance(8 * DAY_MS)

    assert (await made.vacuum()).files == 1


async def test_tables_with_iceberg_metadata_and_other_formats_are_left_alone() -> None:
    made = await Vacuumed.managed(added("live"))
    server = made.cluster.server()
    cell = server.delta_table(made.table.uuid)
    found = await cell.read()
    assert found
    uniform = Uniform(metadata_location="x", converted_delta_version=0, converted_delta_timestamp_ms=0)
    iceberg = await cell.swap(replace(found.value, uniform=uniform), expected=found.version)

    assert (await made.condemn()).refusal == "it has Iceberg metadata, which names files of its own"
    await cell.swap(replace(found.value, data_source_format="PARQUET"), expected=iceberg.version)
    assert "which only its engine maintains" in (await made.condemn()).refusal
