"""Workloads over a growing namespace: the cost of one more table, and of listing all."""

import statistics
from typing import Final

from bench.load.loader import Result
from bench.load.run import Run
from bench.load.target import Target

_FILL_CONNECTIONS: Final = 16
_CREATES: Final = 90
_REACHED_SHARE_MIN: Final = 0.9
_IGNORED: Final = "pageSize is ignored"


def create_row(size: int) -> str:
    return f"create table beside {size:,}, 4 conn"


def list_row(size: int, label: str = "all") -> str:
    return f"list {size:,} tables, {label}"


def grow(run: Run) -> None:
    """Fill a namespace to each size in turn, and measure creates and lists there."""
    before = {target.name: target.namespace for target in run.targets}
    for target in run.targets:
        target.namespace += "_grow"
        target.make_namespace(target.namespace)
    for size in run.plan.sizes:
        if run.spent() > run.deadline:
            run.skipped.append(f"{size:,} tables")
            continue
        reached = _fill(run, size)
        for _, target in run.in_turns():
            if reached[target.name]:
                _add_tables(run, target, create_row(size), _CREATES // run.plan.rounds, 4, run.plan.commit_s)
        for _, target in run.in_turns():
            if reached[target.name]:
                _list(run, target, size)
    for target in run.targets:
        target.namespace = before[target.name]
        _note_growth(run, target)


def _list(run: Run, target: Target, size: int) -> None:
    path = f"/namespaces/{target.namespace}/tables"
    for page, label in ((0, "all"), (100, "by pages of 100")):
        row = list_row(size, label)
        got = run.job(row, target, "walk", path=path, page_size=page, seconds=run.plan.read_s)
        _check_listing(run, target, got, page)


def _fill(run: Run, size: int) -> dict[str, bool]:
    """Fill every server to that size, in slices by turns. Returns which servers got far enough."""
    used = dict.fromkeys((target.name for target in run.targets), 0.0)
    limit = run.plan.fill_s
    while waiting := [target for target in run.targets if target.tables < size and used[target.name] < limit]:
        for target in waiting:
            count = min(size - target.tables, max(100, size // 5))
            row = f"fill to {size:,} tables, {_FILL_CONNECTIONS} conn"
            got = _add_tables(run, target, row, count, _FILL_CONNECTIONS, limit - used[target.name])
            used[target.name] += got.seconds if got.is_good else limit
    for target in run.targets:
        if target.tables < size:
            spent = f"{used[target.name]:.0f} s"
            run.notes[target.name].append(f"{target.tables:,} of {size:,} tables after {spent}")
    return {target.name: target.tables >= size * _REACHED_SHARE_MIN for target in run.targets}


def _add_tables(run: Run, target: Target, row: str, count: int, connections: int, seconds: float) -> Result:
    stem = f"t{run.turn}_{target.tables}"
    got = run.job(row, target, "tables", stem=stem, count=count, workers=connections, seconds=seconds)
    target.tables += got.ok
    target.is_sure = target.is_sure and not got.failed and not got.error
    return got


def _check_listing(run: Run, target: Target, got: Result, page: int) -> None:
    if not got.is_good:
        return
    found, pages = got.extra.items, got.extra.pages
    if target.is_sure and found != target.tables:
        got.broken.append(f"listing shows {found:,} of {target.tables:,} tables")
    if not page and pages > 1:
        got.broken.append(f"a listing without pageToken came in {pages} pages")
    if page and found > page and pages == 1 and _IGNORED not in run.notes[target.name]:
        run.notes[target.name].append(_IGNORED)


def _note_growth(run: Run, target: Target) -> None:
    """Record how the cost of one more table grew with the size."""
    costs = {}
    for size in run.plan.sizes:
        results = run.rows.get(create_row(size), {}).get(target.name, [])
        costs[size] = [(result.server_cpu_ms, 1 / result.rate) for result in results if result.is_good]
    known = {size: pairs for size, pairs in costs.items() if pairs}
    if len(known) > 1:
        small, large = (
            [statistics.median(column) for column in zip(*known[size], strict=True)]
            for size in (min(known), max(known))
        )
        run.notes[target.name].append(
            f"a table beside {max(known):,} costs {large[1] / small[1]:.2f} of the time "
            f"and {large[0] / max(small[0], 1e-3):.2f} of the CPU of one beside {min(known):,}"
        )
