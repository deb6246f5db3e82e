"""Tables and volumes never share a place: creations refuse it, also at the same moment, and a purge holds back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Request, Securable
from sandur.errors import Busy, Invalid, SandurError
from sandur.operations.containers.drop import drop_catalog
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.delta.tables import NewTable, create_external, drop_table, stage_table
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.register import register_table
from sandur.operations.tables.views import create_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.securables import create_volume, drop_securable
from sandur.storage.contract import ABSENT, ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.delta_requests import create_managed
from tests.operations.janitor_runs import HOUR_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    commit,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_location,
    set_property,
    table,
    view,
)
from tests.operations.table_files import TableWithFiles, create_table_with_files, current_location, files_below
from tests.operations.test_purge import DELAY_MS, drop, orders, purged

T = TypeVar("T")

VOLUME: Final = identifier_of("v")
PLACES: Final = ("lake/place", "lake/place/below", "lake")
CALLS_MAX: Final = 200


async def make_volume(lake: Lake, place: str, sent: Request | None = None, name: Identifier = VOLUME) -> Securable:
    """An external volume at a place below the root of the catalog."""
    location = f"{lake.area}/main/{place}"
    made = await create_volume(
        lake, name, volume_type="EXTERNAL", location=location, comment=None, request=sent or request(f"volume {place}")
    )
    await lake.background.drain()
    return made


async def older_volume(lake: Lake, location: str) -> None:
    """A volume as an earlier version of the server let it be created: at any place."""
    record = Securable(
        uuid="older", table_uuid="older", state="live", kind="volume", location=location, volume_type="EXTERNAL"
    )
    await lake.securable("older").create(record)


async def place_namespace(lake: Lake, place: str) -> None:
    location = {"location": f"{lake.area}/main/{place}"}
    await update_namespace_properties(lake, NAMESPACE, removals=(), updates=location, request=request("place"))


async def external_delta(lake: Lake, place: str, name: str = "d") -> None:
    wanted = NewTable(identifier=identifier_of(name), table_type="EXTERNAL", location=f"{lake.area}/main/{place}")
    await create_external(lake, wanted, request=request(f"delta {place}"))
    await lake.background.drain()


@pytest.mark.parametrize("place", PLACES)
async def test_a_volume_is_refused_at_below_and_above_an_iceberg_table(place: str) -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t", location=f"{cluster.server().area}/main/lake/place")

    with pytest.raises(Invalid, match=r"overlaps table main\.a\.t at "):
        await make_volume(cluster.server(), place)

    await make_volume(cluster.server(), "lake/place2")


@pytest.mark.parametrize("place", PLACES)
async def test_a_volume_is_refused_at_below_and_above_an_external_delta_table(place: str) -> None:
    cluster = await Cluster.with_catalog()
    await external_delta(cluster.server(), "lake/place")

    with pytest.raises(Invalid, match=r"overlaps table main\.a\.d at "):
        await make_volume(cluster.server(), place)


async def test_a_volume_is_refused_at_below_and_above_a_managed_delta_table() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await place_namespace(server, "team")
    managed = await create_managed(server)
    place = managed.location.partition("/main/")[2]

    for inside in (place, f"{place}/files"):
        with pytest.raises(Invalid, match="__unitystorage is reserved for managed tables"):
            await make_volume(server, inside)
    with pytest.raises(Invalid, match=r"overlaps table main\.a\.d at "):
        await make_volume(server, "team")


@pytest.mark.parametrize("place", PLACES)
async def test_tables_and_views_are_refused_at_below_and_above_a_volume(place: str) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await make_volume(server, "lake/place")
    location = f"{server.area}/main/{place}"
    creation = create_commit(server.clock.new_uuid(), set_location(location))
    before = await cluster.keys("")

    with pytest.raises(Invalid, match=r"overlaps volume main\.a\.v at "):
        await create_table(server, NAMESPACE, table("t", location=location), request("table"))
    with pytest.raises(Invalid, match=r"overlaps volume main\.a\.v at "):
        await create_table(server, NAMESPACE, table("t", location=location, stage_create=True), request("stage"))
    with pytest.raises(Invalid, match=r"overlaps volume main\.a\.v at "):
        await external_delta(server, place)
    with pytest.raises(Invalid, match=r"overlaps volume main\.a\.v at "):
        await create_view(server, NAMESPACE, view("w", location=location), request("view"))
    with pytest.raises(Invalid, match=r"overlaps volume main\.a\.v at "):
        await commit_table(server, identifier_of("t"), creation, request("commit"))
    with pytest.raises(Invalid, match=r"overlaps volume main\.a\.v at "):
        await commit_transaction(server, "main", [(identifier_of("t"), creation)], request("transaction"))

    await server.background.drain()
    assert [key for key in await cluster.keys("tables/") if key not in before] == []
    await create(server, "t", location=f"{server.area}/main/lake/place2")


async def test_a_default_location_below_a_volume_is_refused() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await make_volume(server, "a")

    with pytest.raises(Invalid, match="overlaps volume"):
        await create(server, "t")
    await drop_securable(server, VOLUME, "volume", request("drop"))
    await make_volume(server, "__all")
    await create(server, "t")


async def test_a_stage_of_a_managed_delta_table_below_a_volume_is_refused() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await place_namespace(server, "team")
    await make_volume(server, "team")

    with pytest.raises(Invalid, match="overlaps volume"):
        await stage_table(server, identifier_of("d"))


async def test_a_commit_cannot_move_a_table_to_a_volume() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t")
    await make_volume(server, "lake/place")
    below = f"{server.area}/main/lake/place/t"

    for update in (set_location(below), set_property("write.data.path", below)):
        with pytest.raises(Invalid, match="overlaps volume"):
            await commit_table(server, identifier_of("t"), commit(update), keyed_request(str(update)))
        with pytest.raises(Invalid, match="overlaps volume"):
            await commit_table(server, identifier_of("t"), commit(update), keyed_request(str(update)))
        with pytest.raises(Invalid, match="overlaps volume"):
            await commit_transaction(server, "main", [(identifier_of("t"), commit(update))], request(f"all {update}"))
    assert (await load(server, identifier_of("t"))).metadata


async def test_a_table_within_a_volume_cannot_be_registered() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server, location=f"{server.area}/main/lake/place/t")
    head = await current_location(server, made)
    await drop(server, made, purge=False)
    await make_volume(server, "lake/place")

    for overwrite in (False, True):
        with pytest.raises(Invalid, match="overlaps volume"):
            await register_table(
                server, NAMESPACE, "again", head, overwrite=overwrite, request=request(f"register {overwrite}")
            )


async def test_a_dropped_volume_frees_its_place_and_a_dropped_table_too() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    location = f"{server.area}/main/lake/place"
    await make_volume(server, "lake/place")
    await drop_securable(server, VOLUME, "volume", request("drop"))
    made = await create_table_with_files(server, location=location)
    await drop(server, made, purge=False)

    await make_volume(server, "lake/place", request("again"))


async def test_a_damaged_volume_does_not_stop_the_creation_of_tables_but_every_purge() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server)
    await cluster.store.put(server.layout.securable("broken"), b"{", expected=ABSENT)
    await create(server, "t2")
    before = await files_below(server, made)

    assert (await purged(cluster, made))["purge_failed"] == 1
    assert any("is not a Securable" in error for error in cluster.errors)
    assert await files_below(server, made) == before


@pytest.mark.parametrize("inside", ["", "/files"])
async def test_the_files_of_a_volume_in_a_managed_delta_table_survive_the_drop_of_the_table(inside: str) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    managed = await create_managed(server)
    await older_volume(server, managed.location + inside)
    file = f"{managed.location}{inside}/report.csv"
    await server.locations.create(file, b"x")

    await drop_table(server, identifier_of("d"), request=request("drop"))
    cluster.clock.advance(DELAY_MS)
    swept = await cluster.sweep()

    assert swept["purge_blocked"] == 1
    assert any("volume older may need the files" in error for error in cluster.errors)
    assert await server.locations.exists(file)


async def test_the_files_of_a_volume_survive_the_drop_of_the_catalog_around_a_managed_table() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    managed = await create_managed(server)
    await older_volume(server, f"{managed.location}/files")
    await server.locations.create(f"{managed.location}/files/report.csv", b"x")

    cluster.settings["default_catalog"] = "another"
    await drop_catalog(cluster.server(), "main", force=True, request=request("drop"))
    cluster.clock.advance(DELAY_MS)

    assert (await cluster.sweep())["purge_blocked"] == 1
    assert await server.locations.exists(f"{managed.location}/files/report.csv")


@pytest.mark.parametrize("place", PLACES)
async def test_no_file_of_an_iceberg_table_is_purged_at_below_or_above_a_volume(place: str) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server, location=f"{server.area}/main/lake/place")
    await older_volume(server, f"{server.area}/main/{place}")
    before = await files_below(server, made)

    assert (await purged(cluster, made))["purge_blocked"] == 1
    assert await files_below(server, made) == before


async def test_an_abandoned_stage_with_a_volume_in_it_is_kept() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    stage = await stage_table(server, identifier_of("d"))
    await older_volume(server, f"{stage.location}/files")
    await server.locations.create(f"{stage.location}/files/report.csv", b"x")
    cluster.clock.advance(100 * HOUR_MS)

    await cluster.sweep()

    assert await server.locations.exists(f"{stage.location}/files/report.csv")


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_volume_waits_for_the_purge_of_a_dropped_table_at_its_place(key: str | None) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server, location=f"{server.area}/main/lake/place")
    await drop(server, made)

    for place in PLACES:
        with pytest.raises(Busy, match=r"the files of the dropped table a\.t are being purged"):
            await make_volume(server, place, request(f"volume {place}", key=key and f"{key} {place}"))

    cluster.clock.advance(DELAY_MS)
    assert (await cluster.sweep())["purge_removed"] == 1
    assert await files_below(server, made) == []
    await make_volume(server, PLACES[0], request(f"volume {PLACES[0]}", key=key and f"{key} {PLACES[0]}"))


class InterruptedStore(WrappingStore):
    """A store that runs a hook once, before the call with that number."""

    def __init__(self, inner: ObjectStore, at: int, hook: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._left = at
        self._hook = hook

    @property
    def is_over(self) -> bool:
        """Whether there were fewer calls than that."""
        return self._left > 0

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        del call
        self._left -= 1
        if self._left == 0:
            await self._hook()
        return await perform()


async def outcome(work: Awaitable[object]) -> str:
    try:
        await work
    except SandurError as error:
        return type(error).__name__
    return "ok"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("first", ["iceberg", "delta", "volume"])
async def test_of_a_table_and_a_volume_at_the_same_moment_at_most_one_is_created(place: str, first: str) -> None:
    """The second creation runs as a whole before each call of the first one."""
    for at in range(1, CALLS_MAX):
        cluster = await Cluster.with_catalog()
        area = cluster.server().area
        done: list[str] = []

        async def run(what: str, server: Lake, area: str = area) -> str:
            if what == "iceberg":
                sent = request("table")
                return await outcome(
                    create_table(server, NAMESPACE, table("t", location=f"{area}/main/lake/place"), sent)
                )
            if what == "delta":
                return await outcome(external_delta(server, "lake/place"))
            return await outcome(make_volume(server, place))

        async def second(cluster: Cluster = cluster, done: list[str] = done) -> None:
            server = cluster.server()
            done.append(await run("iceberg" if first == "volume" else "volume", server))
            await server.background.drain()

        store = InterruptedStore(cluster.store, at, second)
        server = cluster.server(store)
        answer = await run(first, server)
        await server.background.drain()

        if store.is_over:
            assert answer == "ok"
            return
        assert sorted([answer, *done]) == ["Invalid", "ok"], f"before call {at}: {answer}, {done}"
    raise AssertionError("the creation has too many calls")


@pytest.mark.parametrize("first", ["volume", "purge"])
async def test_a_purge_deletes_no_file_of_a_volume_that_was_created_at_the_same_moment(first: str) -> None:
    """Each runs as a whole before each call of the other. The files at the time of the creation stay for good."""
    for at in range(1, CALLS_MAX):
        cluster = await Cluster.with_catalog()
        made = await create_table_with_files(cluster.server(), location=f"{cluster.server().area}/main/lake/place")
        await drop(cluster.server(), made)
        cluster.clock.advance(DELAY_MS)
        owned: list[str] = []

        async def create_it(
            server: Lake, cluster: Cluster = cluster, made: TableWithFiles = made, owned: list[str] = owned
        ) -> str:
            answer = await outcome(make_volume(server, "lake/place"))
            if answer == "ok":
                owned += await files_below(cluster.server(), made)
            return answer

        async def purge(store: ObjectStore | None = None, cluster: Cluster = cluster) -> str:
            await cluster.sweep(store)
            return "ok"

        async def second(cluster: Cluster = cluster) -> None:
            await (purge() if first == "volume" else create_it(cluster.server()))

        store = InterruptedStore(cluster.store, at, second)
        answer = await (create_it(cluster.server(store)) if first == "volume" else purge(store))
        await cluster.sweep()
        await cluster.sweep()

        assert set(owned) <= set(await files_below(cluster.server(), made)), f"before call {at}"
        assert [order.blocked for order in await orders(cluster)] == []
        if store.is_over:
            assert (answer, owned) == (("Busy", []) if first == "volume" else ("ok", []))
            return
    raise AssertionError("too many calls")


async def test_creations_in_parallel_never_share_a_place() -> None:
    for seed in range(40):
        cluster = await Cluster.with_catalog(seed)
        location = f"{cluster.server().area}/main/lake/place"
        work = [
            outcome(create_table(cluster.server(), NAMESPACE, table("t", location=location), request("table"))),
            outcome(make_volume(cluster.server(), "lake/place/below")),
        ]

        answers = await asyncio.gather(*work)

        assert answers.count("ok") <= 1, f"seed {seed}: {answers}"
