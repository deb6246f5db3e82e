"""The drop of a catalog: children prevent it, and the creator of a child cancels it."""

import asyncio

import pytest

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Request
from sandur.errors import AlreadyExists, Busy, Invalid, NotEmpty, NotFound, SandurError
from sandur.operations.containers.catalogs import create_catalog, list_catalogs, load_catalog, update_catalog
from sandur.operations.containers.drop import drop_catalog
from sandur.operations.containers.namespaces import NamespaceCreation, create_namespace, namespace_exists
from sandur.operations.lake import Lake
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.operations.requests import keyed_request, request

NAMESPACE = Namespace("c", ("s",))


async def create(server: Lake, label: str = "make", *, asked: Request | None = None) -> str:
    made = await create_catalog(server, "c", root=None, properties={}, request=asked or request(label))
    return made.id


async def drop(server: Lake, label: str = "drop", *, force: bool = False) -> None:
    await drop_catalog(server, "c", force=force, request=request(label))


async def test_a_dropped_catalog_is_gone_and_can_be_created_again() -> None:
    server = make_lake()
    first = await create(server)

    await drop(server)

    with pytest.raises(NotFound):
        await load_catalog(server, "c")
    with pytest.raises(NotFound):
        await create_namespace(server, NAMESPACE, {}, request("namespace"))
    assert await list_catalogs(server) == []
    assert await create(server, "again") != first


async def test_a_new_catalog_has_no_namespace_of_the_old_one() -> None:
    server = make_lake()
    await create(server)
    await create_namespace(server, NAMESPACE, {}, request("namespace"))

    with pytest.raises(NotEmpty):
        await drop(server)
    await drop(server, "by force", force=True)
    await create(server, "again")

    assert not await namespace_exists(server, NAMESPACE)


async def test_the_default_catalog_cannot_be_dropped() -> None:
    server = make_lake()
    await load_catalog(server, "main")

    with pytest.raises(Invalid):
        await drop_catalog(server, "main", force=True, request=request("drop main"))


async def test_a_replayed_drop_keeps_a_later_catalog_of_that_name() -> None:
    server = make_lake()
    await create(server)
    asked = keyed_request("drop")
    await drop_catalog(server, "c", force=False, request=asked)
    await server.background.drain()
    await create(server, "again")

    await drop_catalog(server, "c", force=False, request=asked)

    assert (await load_catalog(server, "c")).name == "c"


async def test_a_retried_creation_is_recognized_after_a_change_and_a_drop() -> None:
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    asked = keyed_request("make")
    first = await create(make_lake(store, clock), asked=asked)
    other = make_lake(store, clock)
    await update_catalog(other, "c", comment="x", properties=None, request=request("update"))
    await drop(other)

    again = await create(make_lake(store, clock), asked=asked)

    assert again == first
    with pytest.raises(NotFound):
        await load_catalog(make_lake(store, clock), "c")


@pytest.mark.parametrize("force", [False, True], ids=["if empty", "by force"])
@pytest.mark.parametrize("seed", range(60))
async def test_a_namespace_created_during_a_drop_cancels_the_drop_or_is_refused(seed: int, *, force: bool) -> None:
    clock = FixedClock(seed=seed)
    store = MemoryStore(seed=seed, clock=clock)
    one, other = make_lake(store, clock), make_lake(store, clock)
    await create(one)
    await one.background.drain()

    made, dropped = await asyncio.gather(_create_error(one), _drop_error(other, force=force))
    await asyncio.gather(one.background.drain(), other.background.drain())

    fresh = make_lake(store, clock)
    is_there = await _exists(fresh)
    assert isinstance(made, NotFound | Busy | type(None)), made
    assert isinstance(dropped, NotEmpty | Busy | type(None)), dropped
    if made is None and not force:
        assert is_there
    if dropped is None:
        assert not is_there
        assert not await namespace_exists(fresh, NAMESPACE)
    if is_there and made is None and not force:
        assert await namespace_exists(fresh, NAMESPACE)


@pytest.mark.parametrize("seed", range(30))
async def test_exactly_one_of_several_concurrent_creations_succeeds(seed: int) -> None:
    clock = FixedClock(seed=seed)
    store = MemoryStore(seed=seed, clock=clock)
    servers = [make_lake(store, clock) for _ in range(4)]

    answers = await asyncio.gather(
        *(create(server, f"make {number}") for number, server in enumerate(servers)), return_exceptions=True
    )

    assert len([answer for answer in answers if isinstance(answer, str)]) == 1
    assert all(isinstance(answer, str | AlreadyExists) for answer in answers)


async def _create_error(server: Lake) -> SandurError | None:
    try:
        await NamespaceCreation(server, NAMESPACE, {}, request("namespace")).run()
    except SandurError as error:
        return error
    return None


async def _drop_error(server: Lake, *, force: bool) -> SandurError | None:
    try:
        await drop(server, force=force)
    except SandurError as error:
        return error
    return None


async def _exists(server: Lake) -> bool:
    try:
        await load_catalog(server, "c")
    except NotFound:
        return False
    return True
