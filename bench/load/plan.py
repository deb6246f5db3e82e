"""Sizes and times of the workloads: the full plan, and a quick plan of the same workloads."""

from typing import Final

import msgspec

GROUPS: Final = {
    "load": 0.30,
    "commit": 0.20,
    "hot": 0.10,
    "pairs": 0.06,
    "storm": 0.06,
    "namespaces": 0.04,
    "grow": 0.24,
}
"""The workloads and their shares of the time; later workloads may use what an earlier one leaves."""

HUGE_TABLES: Final = 100_000
_HUGE_FILL_SECONDS: Final = 1_200.0


class Plan(msgspec.Struct, frozen=True):
    """Sizes and times. `server_s` is the total time for each server."""

    rounds: int
    read_s: float
    commit_s: float
    commits: int
    connections: tuple[int, ...]
    writers: tuple[int, ...]
    sizes: tuple[int, ...]
    fill_s: float
    server_s: float


FULL: Final = Plan(
    rounds=3,
    read_s=0.6,
    commit_s=2.0,
    commits=1_000,
    connections=(1, 8, 32),
    writers=(8, 32),
    sizes=(100, 1_000, 10_000),
    fill_s=120.0,
    server_s=200.0,
)
QUICK: Final = Plan(
    rounds=1,
    read_s=0.3,
    commit_s=0.8,
    commits=150,
    connections=(1, 8),
    writers=(8,),
    sizes=(100, 500),
    fill_s=5.0,
    server_s=27.0,
)


def planned(*, quick: bool, huge: bool, rounds: int | None) -> Plan:
    plan = QUICK if quick else FULL
    if huge:
        sizes = (*plan.sizes, HUGE_TABLES)
        seconds = plan.server_s + _HUGE_FILL_SECONDS
        plan = msgspec.structs.replace(plan, sizes=sizes, fill_s=_HUGE_FILL_SECONDS, server_s=seconds)
    return msgspec.structs.replace(plan, rounds=rounds or plan.rounds)
