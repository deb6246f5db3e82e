"""Run the simulation: `python -m tests.simulation --seconds 60`, or one plan again, as a failure prints it."""

import argparse
import logging
import sys
import time
from collections import Counter
from typing import Final

import msgspec

from tests.simulation.plan import FAULTS, WORKS, Plan, random_plan
from tests.simulation.run import Report, shrink, simulate

SHRINK_RUNS_MAX: Final = 60
_SHOWN: Final = (
    "starts", "kills", "partitions", "storms", "throttled", "messages lost", "janitor rounds", "requests", "ok",
    "OutcomeUnknown", "died", "Busy", "Conflict", "VersionTaken", "NotFound", "AlreadyExists", "NotEmpty", "Hidden",
)  # fmt: skip


def main() -> int:
    options = _options()
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        report = simulate(_plan(options))
        _print(f"trace {report.trace}, {report.simulated_seconds:g} simulated seconds, {report.calls} store calls")
        return _fail(report) if report.problems else 0
    return _search(options)


def _search(options: argparse.Namespace) -> int:
    """Run random plans until the time or the seeds are used up, or one fails."""
    began, cpu = time.monotonic(), time.process_time()
    total: Counter[str] = Counter()
    servers: Counter[int] = Counter()
    simulated = steps = calls = most = runs = 0
    first = options.first
    _print(f"seeds from {first} on")
    while runs < (options.seeds or sys.maxsize) and time.monotonic() - began < (options.seconds or float("inf")):
        report = simulate(random_plan(first + runs))
        runs += 1
        if report.problems:
            smallest = shrink(report, SHRINK_RUNS_MAX)
            _print(f"seed {report.plan.seed} fails; the smallest plan that fails too:")
            return _fail(smallest)
        total.update(report.counts)
        servers[report.plan.servers] += 1
        simulated, steps, calls = simulated + int(report.simulated_seconds), steps + report.steps, calls + report.calls
        most = max(most, report.calls_max)
        if runs % 10 == 0:
            _print(f"{runs} runs, {simulated / 3_600:.1f} simulated hours, {time.monotonic() - began:.0f} s")
    _print(f"\n| | |\n|---|---|\n| seeds | {first}–{first + runs - 1} |")
    _print(f"| simulated | {simulated / 3_600:,.1f} hours in {time.process_time() - cpu:,.0f} s of CPU time |")
    _print(f"| servers per run | {', '.join(f'{count}: {times} runs' for count, times in sorted(servers.items()))} |")
    _print(f"| steps of the event loop | {steps:,} |\n| store calls | {calls:,}, at most {most} for one request |")
    for name in _SHOWN:
        _print(f"| {name} | {total[name]:,} |")
    _print("| problems | 0 |")
    return 0


def _fail(report: Report) -> int:
    for problem in report.problems[:20]:
        _print(problem)
    _print(f"{len(report.problems)} problems. Repeat with:\n  python -m tests.simulation {report.plan.text()}")
    return 1


def _plan(options: argparse.Namespace) -> Plan:
    if options.servers is None:
        return random_plan(options.seed)
    return msgspec.convert(
        {
            "seed": options.seed,
            "servers": options.servers,
            "groups": options.groups,
            "epochs": options.epochs,
            "clients": options.clients,
            "calm_seconds": options.calm_seconds,
            "faults": [] if options.faults == "none" else options.faults.split(","),
            "works": options.works.split(","),
            "forgets": options.forgets,
        },
        Plan,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time")
    parser.add_argument("--seeds", type=int, default=0, help="stop after this many runs")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one seed, with its own plan or with the plan below")
    parser.add_argument("--servers", type=int)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--calm-seconds", type=float, default=8.0)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--forgets", action="store_true")
    options = parser.parse_args()
    if options.seed is None and not options.seconds and not options.seeds:
        options.seconds = 60
    return options


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
