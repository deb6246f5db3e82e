"""A catalog under concurrent clients, servers that die and restart, janitors, and time."""

import asyncio
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.statemachine.clients import NAMES, Catalog, ClientCall
from tests.statemachine.specification import Commit, Create, Drop, Load, Operation, Rename, Transact

AT_ONCE_MAX: Final = 4
SERVERS: Final = 3
DAYS_MS: Final = 3 * 86_400_000

names = st.sampled_from(NAMES)
pairs = st.permutations(NAMES).map(lambda order: order[:2])


class CatalogMachine(RuleBasedStateMachine):
    """Requests are collected and then sent concurrently; at rest, the model must explain everything."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.waiting: list[ClientCall] = []
        self.number = 0

    @initialize(seed=st.integers(0, 2**16))
    def open(self, seed: int) -> None:
        self.catalog = Catalog(seed)
        self.loop.run_until_complete(self.catalog.open(SERVERS))
        self.catalog.sent.clear()
        first = [ClientCall(Create(name, f"first {name}"), -index - 2) for index, name in enumerate(NAMES[:2])]
        self.loop.run_until_complete(self.catalog.act(first))

    def _collect(self, operation: Operation, *, is_keyed: bool, dies_at: int | None) -> None:
        if len(self.waiting) < AT_ONCE_MAX:
            self.waiting.append(ClientCall(operation, self.number, is_keyed=is_keyed, dies_at=dies_at))
        self.number += 1

    @rule(name=names, is_keyed=st.booleans(), dies_at=st.none() | st.integers(1, 24))
    def create(self, name: str, is_keyed: bool, dies_at: int | None) -> None:  # noqa: FBT001 - Hypothesis gives names
        self._collect(Create(name, f"new{self.number}"), is_keyed=is_keyed, dies_at=dies_at)

    @rule(name=names, is_keyed=st.booleans(), dies_at=st.none() | st.integers(1, 12))
    def commit(self, name: str, is_keyed: bool, dies_at: int | None) -> None:  # noqa: FBT001 - as above
        self._collect(Commit(name, f"c{self.number}"), is_keyed=is_keyed, dies_at=dies_at)

    @rule(name=names, is_keyed=st.booleans(), dies_at=st.none() | st.integers(1, 14))
    def drop(self, name: str, is_keyed: bool, dies_at: int | None) -> None:  # noqa: FBT001 - as above
        self._collect(Drop(name), is_keyed=is_keyed, dies_at=dies_at)

    @rule(pair=pairs, is_keyed=st.booleans(), dies_at=st.none() | st.integers(1, 22))
    def rename(self, pair: list[str], is_keyed: bool, dies_at: int | None) -> None:  # noqa: FBT001 - as above
        self._collect(Rename(*pair), is_keyed=is_keyed, dies_at=dies_at)

    @rule(pair=pairs, is_keyed=st.booleans(), dies_at=st.none() | st.integers(1, 24))
    def transact(self, pair: list[str], is_keyed: bool, dies_at: int | None) -> None:  # noqa: FBT001 - as above
        self._collect(Transact(tuple(pair), f"x{self.number}"), is_keyed=is_keyed, dies_at=dies_at)

    @rule(name=names)
    def load(self, name: str) -> None:
        self._collect(Load(name), is_keyed=False, dies_at=None)

    @precondition(lambda self: self.waiting)
    @rule(with_janitors=st.booleans())
    def act(self, with_janitors: bool) -> None:  # noqa: FBT001 - as above
        calls, self.waiting = self.waiting, []
        self.loop.run_until_complete(self.catalog.act(calls, with_janitors=with_janitors))

    @rule(index=st.integers(0, SERVERS - 1))
    def restart(self, index: int) -> None:
        self.catalog.restart(index)

    @rule(milliseconds=st.sampled_from([1_000, 700_000, DAYS_MS]))
    def wait(self, milliseconds: int) -> None:
        self.catalog.clock.advance(milliseconds)

    def teardown(self) -> None:
        if self.waiting:
            self.loop.run_until_complete(self.catalog.act(self.waiting))
        self.loop.close()


def _run(examples: int, steps: int, profile: settings | None = None) -> None:
    run_state_machine_as_test(
        CatalogMachine,
        settings=settings(
            profile,
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_catalog_behaves_like_a_sequential_one() -> None:
    _run(examples=60, steps=20)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_the_catalog_behaves_like_a_sequential_one_in_a_long_run() -> None:
    _run(examples=3_000, steps=40, profile=settings.get_profile("by-chance"))
