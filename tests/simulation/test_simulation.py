"""Many servers under faults, in virtual time: nothing is lost, repeated or torn, and a seed repeats a run exactly."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.simulation.loop import SimulatedLoop, context_of
from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import Plan, Work, random_plan, rough_plan
from tests.simulation.run import Report, shrink, simulate

SEEDS = range(1, 5)
MUTATION_SEEDS_MAX = 40
WORK_OF_RULE: dict[str, Work] = {"B4": "batches", "B7": "batches", "N2": "creates"}
_ROOT = Path(__file__).parents[2]


def check(report: Report) -> None:
    problems = "\n".join(report.problems)
    assert not report.problems, f"python -m tests.simulation {report.plan.text()}\n{problems}"


@pytest.mark.parametrize("seed", SEEDS)
def test_servers_under_faults_keep_every_promise(seed: int) -> None:
    plan = msgspec.structs.replace(random_plan(seed), groups=1, epochs=5)
    report = simulate(plan)

    check(report)
    assert report.counts["ok"] > 50
    assert report.simulated_seconds > 100


def test_fifty_servers_share_one_store() -> None:
    report = simulate(Plan(seed=50, servers=50, groups=1, epochs=4))

    check(report)
    assert report.counts["starts"] >= 50


def test_batches_of_two_servers_under_faults_make_every_commit_once() -> None:
    report = simulate(Plan(seed=3, servers=2, groups=2, epochs=5, works=("batches", "upkeep"), calm_seconds=4.0))

    check(report)
    assert report.counts["kills"]
    assert report.counts["ok"] > 50


def test_without_faults_no_request_is_left_undecided() -> None:
    report = simulate(Plan(seed=1, servers=3, groups=1, epochs=4, faults=()))

    check(report)
    assert not report.counts["died"] + report.counts["throttled"] + report.counts["messages lost"]


def test_the_same_plan_gives_the_same_run_in_another_process() -> None:
    plan = Plan(seed=7, servers=3, groups=1, epochs=2)
    first, again = simulate(plan), simulate(plan)
    command = [sys.executable, "-m", "tests.simulation", *plan.text().split()]
    other = subprocess.run(
        command, cwd=_ROOT, env={**os.environ, "PYTHONHASHSEED": "4321"}, capture_output=True, text=True, check=True
    )

    assert first == again
    assert first.trace in other.stdout
    assert first.trace != simulate(msgspec.structs.replace(plan, seed=8)).trace


def test_a_failure_shrinks_to_a_small_plan() -> None:
    with MUTATIONS["G4 cached cells are trusted"]():
        failed = simulate(Plan(seed=1, servers=4, groups=2, epochs=3, works=("appends", "delta")))
        smallest = shrink(failed, runs_max=15)

    assert smallest.problems
    assert len(smallest.plan.works) == 1
    assert smallest.plan.groups == 1
    assert smallest.plan.epochs == 1


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("rule", MUTATIONS)
def test_a_rule_left_out_is_found(rule: str) -> None:
    for seed in range(1, MUTATION_SEEDS_MAX + 1):
        with MUTATIONS[rule]():
            report = simulate(rough_plan(seed, WORK_OF_RULE.get(rule[:2], "names")))
        if report.problems:
            return
    pytest.fail(f"{MUTATION_SEEDS_MAX} runs without the rule found nothing")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(1_000, 1_200, 20))
def test_many_random_runs_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 20):
        check(simulate(random_plan(seed)))


def test_a_process_keeps_its_order_and_the_seed_orders_processes() -> None:
    def order(seed: int) -> list[str]:
        loop = SimulatedLoop(seed)
        seen: list[str] = []
        for name in "ab":
            for number in range(5):
                loop.call_soon(seen.append, f"{name}{number}", context=context_of(name))
        loop.run_until_complete(asyncio.sleep(1_000_000))
        assert loop.time() == 1_000_000
        loop.close()
        return seen

    orders = [order(seed) for seed in range(8)]

    assert orders == [order(seed) for seed in range(8)]
    assert len({tuple(one) for one in orders}) > 1
    for one in orders:
        assert [step for step in one if step[0] == "a"] == [f"a{number}" for number in range(5)]


def test_tasks_that_wait_for_each_other_are_reported() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    loop = SimulatedLoop(1)
    waiting = wait_for_nothing()
    with pytest.raises(AssertionError, match="every task waits"):
        loop.run_until_complete(waiting)
    loop.kill("world")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
