"""Thousands of seeded interleavings of clients on a few names: each is linearizable."""

import random  # noqa: TID251 - seeded, and the seed is printed on failure

import pytest

from tests.statemachine.clients import NAMES, Catalog, ClientCall, random_operation
from tests.statemachine.specification import Commit, Create, Drop, Load, Operation, Rename, Transact

_SEEDS = range(60)
_MANY_SEEDS = range(1_000, 3_000)
_DEATHS_MAX = 24


async def _random_history(seed: int) -> None:
    chance = random.Random(seed)
    catalog = Catalog(seed)
    await catalog.open(servers=3)
    await catalog.act([ClientCall(Create(name, f"first {name}"), -index - 2) for index, name in enumerate(NAMES[:2])])
    numbers = iter(range(100))
    for _ in range(3):
        calls = []
        for _ in range(chance.randint(2, 5)):
            number = next(numbers)
            dies_at = chance.randint(1, _DEATHS_MAX) if chance.random() < 0.2 else None
            is_keyed = chance.random() < 0.6
            calls.append(ClientCall(random_operation(chance, number), number, is_keyed=is_keyed, dies_at=dies_at))
        await catalog.act(calls)
        catalog.restart(chance.randrange(3))


@pytest.mark.parametrize("seed", _SEEDS)
async def test_a_random_history_is_linearizable(seed: int) -> None:
    await _random_history(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", _MANY_SEEDS)
async def test_thousands_of_random_histories_are_linearizable(seed: int) -> None:
    await _random_history(seed)


_T, _U = Create("t", "a"), Create("u", "b")
_RACES: dict[str, tuple[tuple[Operation, ...], tuple[Operation, ...]]] = {
    "two creators of one name": ((), (Create("t", "a"), Create("t", "b"), Load("t"))),
    "drop against commit": ((_T,), (Drop("t"), Commit("t", "c"), Commit("t", "d"), Load("t"))),
    "drop against drop": ((_T,), (Drop("t"), Drop("t"), Load("t"))),
    "drop against create": ((_T,), (Drop("t"), Create("t", "b"), Load("t"))),
    "rename against drop of the old name": ((_T,), (Rename("t", "u"), Drop("t"), Load("t"), Load("u"))),
    "rename against drop of the new name": ((_T,), (Rename("t", "u"), Drop("u"), Load("u"))),
    "rename against create of the old name": ((_T,), (Rename("t", "u"), Create("t", "b"), Load("t"), Load("u"))),
    "rename against create of the new name": ((_T,), (Rename("t", "u"), Create("u", "b"), Load("u"))),
    "rename against rename back": ((_T,), (Rename("t", "u"), Rename("u", "t"), Load("t"), Load("u"))),
    "rename against rename elsewhere": ((_T,), (Rename("t", "u"), Rename("t", "w"), Load("u"), Load("w"))),
    "two renames to one name": ((_T, _U), (Rename("t", "w"), Rename("u", "w"), Load("w"))),
    "rename against commit": ((_T,), (Rename("t", "u"), Commit("t", "c"), Commit("u", "d"), Load("u"))),
    "transactions in opposite order": (
        (_T, _U),
        (Transact(("t", "u"), "x"), Transact(("u", "t"), "y"), Load("t"), Load("u")),
    ),
    "transaction against commits": (
        (_T, _U),
        (Transact(("t", "u"), "x"), Commit("t", "c"), Commit("u", "d"), Load("t")),
    ),
    "transaction against drop": ((_T, _U), (Transact(("t", "u"), "x"), Drop("t"), Load("u"), Load("t"))),
    "transaction against rename": ((_T, _U), (Transact(("t", "u"), "x"), Rename("t", "w"), Load("u"), Load("w"))),
}


async def _race(name: str, seed: int) -> Catalog:
    before, at_once = _RACES[name]
    catalog = Catalog(seed)
    await catalog.open(servers=3)
    await catalog.act([ClientCall(operation, -number - 2) for number, operation in enumerate(before)])
    # Some have a key: an undecided request is then retried, also at another server.
    calls = [
        ClientCall(operation, number, is_keyed=(seed >> number) % 2 == 0) for number, operation in enumerate(at_once)
    ]
    await catalog.act(calls)
    return catalog


@pytest.mark.parametrize("name", _RACES)
async def test_a_race_is_linearizable(name: str) -> None:
    for seed in range(16):
        await _race(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", _RACES)
async def test_a_race_is_linearizable_in_many_interleavings(name: str) -> None:
    for seed in range(1_000, 1_400):
        await _race(name, seed)
