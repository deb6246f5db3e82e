"""The first administrator, principals and signing keys, with servers that die, race, and lose answers.

A13: every secret that a server shows is in force, whatever happened on the way.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import pytest
from _pytest.mark.structures import ParameterSet

from sandur.catalog.security.manifest import Authority
from sandur.clock import Clock
from sandur.errors import OutcomeUnknown
from sandur.operations.access import Security
from sandur.operations.identity.bootstrap import bootstrap, recover
from sandur.operations.identity.credentials import matching_secret
from sandur.operations.identity.principals import create_principal
from sandur.operations.identity.signing_keys import SigningKeys
from sandur.operations.lake import Lake
from sandur.storage.contract import ObjectStore, list_all
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import Fate, LossyStore
from tests.operations.lakes import make_lake
from tests.operations.requests import request

CLAIM_TIMEOUT_MS = 600_000


def some(first: int, last: int, *always: int) -> list[ParameterSet]:
    """All numbers of a range; `make crash` runs those that are not always run. Hashing secrets takes long."""
    marks = {number: () if number in always else (pytest.mark.crash,) for number in range(first, last + 1)}
    return [pytest.param(number, marks=mark) for number, mark in marks.items()]


FATES: tuple[Fate, ...] = ("applied", "dropped", "late")
KEY = "0197f22e-79b0-7cc3-98c4-dc0c0c07398f"

Work = Callable[[Lake], Awaitable[str | None]]
"""Work that shows a secret of the principal `admin` or `etl`, or None."""


async def start(lake: Lake) -> str | None:
    made = await bootstrap(lake, "")
    return made.secret if made else None


async def create(lake: Lake) -> str | None:
    return (await create_principal(lake, "etl", "service", (), request("create etl", key=KEY))).client_secret


WORKS: dict[str, tuple[str, Work]] = {
    "bootstrap": ("admin", start),
    "recover": ("admin", lambda lake: recover(lake, "operator")),
    "create": ("etl", create),
}


class World:
    """A store in memory, and servers that start on it."""

    def __init__(self, seed: int | None = None) -> None:
        self.clock = FixedClock(seed=seed or 0)
        self.store = MemoryStore(seed=seed, clock=self.clock)

    def server(self, store: ObjectStore | None = None) -> Lake:
        return make_lake(store or self.store, self.clock)

    async def authority(self) -> Authority:
        return await self.server().feature(Security).read()

    async def is_in_force(self, name: str, secret: str) -> bool:
        principal = (await self.authority()).principal_named(name)
        found = await matching_secret(secret, principal.secrets if principal else (), self.clock.now_ms())
        return found is not None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", some(1, 20, 4, 7))
@pytest.mark.parametrize("name", WORKS)
async def test_whoever_is_killed_the_work_is_repeated_and_its_secret_is_in_force(
    name: str, dies_at: int, *, after: bool
) -> None:
    world = World()
    principal, work = WORKS[name]
    server = world.server(DyingStore(world.store, dies_at=dies_at, after=after))
    with contextlib.suppress(Died):
        if shown := await work(server):
            assert await world.is_in_force(principal, shown)
    await server.background.drain()
    world.clock.advance(CLAIM_TIMEOUT_MS)

    again = await work(world.server())

    if again:
        assert await world.is_in_force(principal, again)
    else:  # It happened before the death, and the secret was not printed.
        assert (await world.authority()).principal_named(principal)
        assert await world.is_in_force("admin", await recover(world.server(), "operator"))
    named = [one for one in (await world.authority()).principals() if one.name == principal]
    assert len(named) == 1


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("loses_at", some(1, 6, 2))
@pytest.mark.parametrize("name", WORKS)
async def test_a_lost_answer_never_shows_a_secret_that_is_not_in_force(name: str, loses_at: int, fate: Fate) -> None:
    world = World()
    principal, work = WORKS[name]
    store = LossyStore(world.store, loses_at=loses_at, fate=fate)
    server = world.server(store)

    shown = None
    with contextlib.suppress(OutcomeUnknown):
        shown = await work(server)
    await server.background.drain()
    await store.deliver()

    if shown:
        assert await world.is_in_force(principal, shown)


@pytest.mark.parametrize("seed", some(0, 7, 3))
async def test_of_several_servers_that_start_at_once_one_makes_the_administrator(seed: int) -> None:
    world = World(seed)

    shown = [one for one in await asyncio.gather(*(start(world.server()) for _ in range(4))) if one]

    assert len(shown) == 1
    assert await world.is_in_force("admin", shown[0])
    assert [one.name for one in (await world.authority()).principals()] == ["admin"]


@pytest.mark.parametrize("seed", some(0, 3, 1))
async def test_recoveries_at_once_leave_one_secret_that_was_shown(seed: int) -> None:
    world = World(seed)

    shown = await asyncio.gather(*(recover(world.server(), "operator") for _ in range(3)))

    in_force = [await world.is_in_force("admin", one) for one in shown]
    assert in_force.count(True) == 1


async def test_a_recovery_ends_secrets_keys_and_tokens_of_before() -> None:
    world = World()
    first = await start(world.server())
    before = (await world.authority()).principal_named("admin")

    second = await recover(world.server(), "operator")
    after = (await world.authority()).principal_named("admin")

    assert first
    assert before
    assert after
    assert (after.id, after.token_epoch) == (before.id, before.token_epoch + 1)
    assert not await world.is_in_force("admin", first)
    assert await world.is_in_force("admin", second)
    assert (await world.authority()).manifest.owner == after.id


async def test_a_given_secret_changes_nothing_once_there_is_an_administrator() -> None:
    world = World()
    first = await bootstrap(world.server(), "the first secret")
    number = (await world.authority()).manifest.number

    again = await bootstrap(world.server(), "another secret")

    assert first == ("the first secret", False)
    assert (again, (await world.authority()).manifest.number) == (None, number)
    assert await world.is_in_force("admin", "the first secret")


async def rings(stores: Sequence[ObjectStore], clock: Clock) -> set[str]:
    found = await asyncio.gather(*(SigningKeys(store, clock).refresh() for store in stores))
    return {keys.ring.id + keys.ring.keys[-1].id for keys in found}


@pytest.mark.parametrize("seed", range(8))
async def test_servers_that_start_at_once_sign_with_the_same_key(seed: int) -> None:
    world = World(seed)

    assert len(await rings([world.store] * 4, world.clock)) == 1


@pytest.mark.parametrize("fate", FATES)
async def test_a_key_whose_creation_was_not_answered_is_used_by_all_or_by_none(fate: Fate) -> None:
    world = World()
    store = LossyStore(world.store, loses_at=1, fate=fate)

    with contextlib.suppress(OutcomeUnknown):
        await SigningKeys(store, world.clock).refresh()
    first = await rings([world.store], world.clock)
    await store.deliver()

    assert await rings([world.store] * 2, world.clock) == first
    assert len(await list_all(world.store, "_shared/security/")) == 1


async def test_a_key_is_rotated_once_by_many_servers() -> None:
    world = World(seed=5)
    before = await SigningKeys(world.store, world.clock).refresh()
    world.clock.advance(31 * 24 * 3_600_000)

    await rings([world.store] * 3, world.clock)
    after = await SigningKeys(world.store, world.clock).refresh()

    assert [key.id for key in after.ring.keys[:-1]] == [key.id for key in before.ring.keys]
    assert len(after.ring.keys) == 2
