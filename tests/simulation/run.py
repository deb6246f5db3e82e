"""One simulated run: clients work on a fleet under faults, then all is judged; and the search for a small case."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import names_scope, namespaces_scope
from sandur.errors import Busy, SandurError, SwapLost
from sandur.operations.idempotency import key_hash_of
from sandur.operations.index.rebuild import rebuild
from sandur.operations.index.truth import list_written_names
from sandur.operations.janitors.events import EVENT_FOLDERS, ensure_events
from sandur.operations.lake import Lake
from sandur.storage.contract import list_all
from tests.fakes.fixed_clock import FixedClock
from tests.operations.invariants import Chain, check_invariants, times_applied
from tests.operations.lakes import make_lake, visit_marks
from tests.operations.principals import add_principals
from tests.operations.requests import set_up_catalog
from tests.simulation.bucket import BEGIN_MS, LATE_SECONDS_MAX
from tests.simulation.fleet import Fleet
from tests.simulation.grants import Grants, principal_names
from tests.simulation.loop import SimulatedLoop
from tests.simulation.names import NameClients, judge_index
from tests.simulation.plan import Plan
from tests.simulation.tables import Appends, Batches, Creates, DeltaWriters
from tests.statemachine.specification import OK, UNSURE, Transact

STEPS_MAX: Final = 20_000_000
_UPKEEP_SECONDS: Final = 120.0

Group = NameClients | Creates | Appends | Batches | DeltaWriters | Grants
_KINDS: Final[Mapping[str, Callable[[Fleet, int], Group]]] = {
    "names": NameClients,
    "creates": Creates,
    "appends": Appends,
    "batches": Batches,
    "delta": DeltaWriters,
    "grants": Grants,
}


class Report(NamedTuple):
    """What happened in a run. Two runs of one plan have equal reports."""

    plan: Plan
    problems: Sequence[str]
    trace: str
    simulated_seconds: float
    steps: int
    calls: int
    calls_max: int
    counts: Mapping[str, int]


def simulate(plan: Plan) -> Report:
    """Run the plan to its end, or until the first problem that stops a client."""
    loop = SimulatedLoop(plan.seed)
    fleet = Fleet(plan, loop)
    try:
        loop.run_until_complete(_run(fleet))
    except Exception as error:  # noqa: BLE001 - a mistake of the program, or an invariant that does not hold
        fleet.problem(f"{type(error).__name__}: {error}", error)
    finally:
        for server in fleet.servers:
            server.link.is_dead = True
            loop.kill(server.process)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    for what in loop.unexpected:
        if not _is_expected(what.get("exception")):
            fleet.problem(f"{what['message']}: {what.get('exception')!r}")
    return Report(
        plan,
        fleet.problems,
        fleet.bucket.trace,
        round(loop.time(), 3),
        fleet.steps,
        fleet.bucket.calls,
        fleet.calls_max,
        Counter(fleet.counts) + Counter({"throttled": fleet.bucket.throttled, "messages lost": fleet.bucket.lost}),
    )


def _is_expected(error: object) -> bool:
    """A task of a dead process is left alone; a SandurError is an answer that no client waited for."""
    return isinstance(error, SandurError | asyncio.CancelledError) or type(error).__name__ == "Died"


async def _run(fleet: Fleet) -> None:
    plan = fleet.plan
    quiet = fleet.quiet_lake()
    await set_up_catalog(quiet)
    if "grants" in plan.works:
        await add_principals(quiet, *principal_names(plan.groups))
    fleet.start()
    groups = [_KINDS[work](fleet, number) for work in plan.works if work in _KINDS for number in range(plan.groups)]
    disturbing = asyncio.create_task(fleet.disturb())
    upkeep = asyncio.create_task(_keep_up(fleet)) if "upkeep" in plan.works else None
    try:
        await asyncio.gather(*(group.run() for group in groups))
    finally:
        disturbing.cancel()
        if upkeep:
            upkeep.cancel()
    await asyncio.sleep(LATE_SECONDS_MAX + 1)
    await fleet.settle()
    await asyncio.sleep(LATE_SECONDS_MAX + 1)
    fleet.steps = fleet.loop.steps
    await _judge(fleet, groups)


async def _keep_up(fleet: Fleet) -> None:
    """Rebuild indexes and reconcile receipts beside the clients, as the jobs of the pipeline do."""
    chance = fleet.chance
    while True:
        await asyncio.sleep(chance.expovariate(1 / _UPKEEP_SECONDS))
        await fleet.send(chance, "upkeep", _rebuild if chance.random() < 0.5 else _reconcile)


async def _rebuild(lake: Lake) -> None:
    for name in await list_written_names(lake, namespaces_scope("main", None)):
        await rebuild(lake, names_scope(Namespace("main", (name,))))


async def _reconcile(lake: Lake) -> None:
    for folder in EVENT_FOLDERS:
        for listed in await list_all(lake.store, folder(lake.layout)):
            with contextlib.suppress(Busy, SwapLost):  # The next round visits it again.
                await ensure_events(lake, listed.key)


async def _judge(fleet: Fleet, groups: Sequence[Group]) -> None:
    """At rest, with nothing in flight: all invariants of the store, and each group's own."""
    clock = FixedClock(BEGIN_MS + int(fleet.loop.time() * 1_000) + 60_000, seed=fleet.plan.seed)
    lake = make_lake(fleet.bucket.memory, clock)
    await visit_marks(lake)
    whole = await check_invariants(lake, files_may_be_gone=True, pointers_may_be_gone=fleet.plan.forgets)
    for group in groups:
        if isinstance(group, NameClients):
            _judge_commits(fleet, group, whole)
        elif not isinstance(group, Grants):
            await group.judge(lake)
        await judge_index(fleet, lake, group.namespace)


def _judge_commits(fleet: Fleet, group: NameClients, whole: Mapping[str, Chain]) -> None:
    """Every acknowledged commit is in the chain once for each of its tables, and no refused one is there."""
    for sent in group.sent:
        parts = len(sent.operation.names) if isinstance(sent.operation, Transact) else 1
        times = times_applied(whole, key_hash_of(sent.request) or sent.request.hash)
        # A table that was dropped hours ago may be gone, with its pointer.
        expected = {0, parts} if sent.result in UNSURE else {parts} if sent.result == OK else {0}
        if times not in expected and not (fleet.plan.forgets and times < parts):
            fleet.problem(f"{sent.operation} was answered with {sent.result} and applied {times} times")


def shrink(report: Report, runs_max: int, run: Callable[[Plan], Report] = simulate) -> Report:
    """A smaller run that fails too: as long as a smaller plan fails, with this seed or the next ones, take it."""
    runs = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for plan in report.plan.smaller():
            for seed in (plan.seed, plan.seed + 1, plan.seed + 2):
                if runs >= runs_max:
                    return report
                runs += 1
                found = run(msgspec.structs.replace(plan, seed=seed))
                if found.problems:
                    report, is_smaller = found, True
                    break
            if is_smaller:
                break
    return report
