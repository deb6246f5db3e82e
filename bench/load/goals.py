"""Goals relative to the peer, and whether they were reached; for the unsynced server, like the peer."""

from collections.abc import Iterator
from typing import NamedTuple

from bench.load.figures import Figure, Figures, rate_ratio, render_number
from bench.load.growth import list_row
from bench.load.plan import Plan


class Goal(NamedTuple):
    """A goal of one server, and the measured value; `is_met` is None if nothing was measured."""

    name: str
    server: str
    found: str
    goal: str
    is_met: bool | None


def goals_of(figures: Figures, plan: Plan, server: str, peer: str) -> list[Goal]:
    """Every goal; those that the run did not measure have no value."""
    connections, writers = plan.connections[-1], plan.writers[0]
    ratios = (
        (f"loadTable 1 snap, plain, {connections} conn", 4.0),
        (f"loadTable 500 snap, plain, {connections} conn", 50.0),
        (f"commit set-properties, 20 tables, {writers} writers", 3.0),
        ("hot table, uuid only, 8 writers", 2.5),
        (list_row(10_000), 40.0),
    )
    found = [_ratio(figures, row, server, peer, at_least) for row, at_least in ratios]
    return [*found, *_promises(figures, server)]


def _ratio(figures: Figures, row: str, server: str, peer: str, at_least: float) -> Goal:
    by_server = figures.get(row, {})
    ratio = rate_ratio(by_server.get(server), by_server.get(peer))
    text = "–" if ratio is None else f"{render_number(ratio)}×"
    return Goal(row, server, text, f"≥ {at_least:g}× the peer", None if ratio is None else ratio >= at_least)


def _promises(figures: Figures, server: str) -> Iterator[Goal]:
    hot = figures.get("hot table, uuid only, 8 writers", {}).get(server)
    if hot:
        yield Goal("hot table: false conflicts", server, f"{hot.conflict_share:.1%}", "0", not hot.status.get("409"))
    pairs = figures.get("two-table transaction, one pair, 4 writers", {}).get(server)
    if pairs:
        refused = sum(times for code, times in pairs.status.items() if int(code) >= 400)
        torn = (pairs.torn_looks or 0) + (pairs.torn_at_end or 0)
        yield Goal("two-table transactions", server, f"{render_number(pairs.rate)}/s", "≥ 150/s", pairs.rate >= 150)
        yield Goal("two-table transactions: refused", server, str(refused), "0", refused == 0)
        yield Goal("two-table transactions: half seen", server, f"{torn} of {pairs.looks}", "0", torn == 0)
    storm = figures.get("retry storm, every 5th answer dropped, 4 writers", {}).get(server)
    if storm:
        yield Goal("retried: doubled", server, f"{storm.doubled} of {storm.dropped}", "0", storm.doubled == 0)
    lost = _lost(figures, server)
    if lost is not None:
        yield Goal("acknowledged and lost, everywhere", server, str(lost), "0", lost == 0)


def _lost(figures: Figures, server: str) -> int | None:
    mine: list[Figure] = [by_server[server] for by_server in figures.values() if server in by_server]
    known = [figure.lost for figure in mine if figure.lost is not None]
    return sum(known) if known else None
