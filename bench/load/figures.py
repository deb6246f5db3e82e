"""The figures of a server in a workload: medians over the rounds, sums of faults, ratios."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bench.load.loader import Result

_SHOWN_ERRORS_MAX: Final = 2
_FAILED: Final = 500

Figures = Mapping[str, Mapping[str, "Figure"]]
"""By workload and by server."""


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One server in one workload. Counts are None if the workload does not count them."""

    rate: float
    p50_ms: float
    p99_ms: float
    server_cpu_ms: float
    conflict_share: float
    client_cpu: float
    rates: list[float]
    status: dict[str, int]
    lost: int | None = None
    doubled: int | None = None
    looks: int | None = None
    torn_looks: int | None = None
    torn_at_end: int | None = None
    gave_up: int | None = None
    dropped: int | None = None
    refused_after_drop: int | None = None
    broken: list[str] = []
    errors: list[str] = []


def figure_of(results: Sequence[Result]) -> Figure:
    return Figure(
        rate=_median(results, "rate"),
        p50_ms=_median(results, "p50_ms"),
        p99_ms=_median(results, "p99_ms"),
        server_cpu_ms=_median(results, "server_cpu_ms"),
        conflict_share=_median(results, "conflict_share"),
        client_cpu=_median(results, "client_cpu"),
        rates=[round(result.rate, 1) for result in results],
        status=_added([result.status for result in results]),
        lost=_sum([result.extra.lost for result in results]),
        doubled=_sum([result.extra.doubled for result in results]),
        looks=_sum([result.extra.looks for result in results]),
        torn_looks=_sum([result.extra.torn_looks for result in results]),
        torn_at_end=_sum([result.extra.torn_at_end for result in results]),
        gave_up=_sum([result.extra.gave_up for result in results]),
        dropped=_sum([result.extra.dropped for result in results]),
        refused_after_drop=_sum([result.extra.refused_after_drop for result in results]),
        broken=sorted({text for result in results for text in result.broken}),
        errors=_errors(results),
    )


def figures_of(rows: Mapping[str, Mapping[str, Sequence[Result]]]) -> Figures:
    return {row: {name: figure_of(results) for name, results in by.items()} for row, by in rows.items()}


def rate_ratio(mine: Figure | None, theirs: Figure | None) -> float | None:
    """The ratio of the rates; None if one of them is missing."""
    return mine.rate / theirs.rate if mine and theirs and mine.rate and theirs.rate else None


def cpu_ratio(mine: Figure | None, theirs: Figure | None) -> float | None:
    """The ratio of the other's CPU time per operation to this one's; None if unknown."""
    if not mine or not theirs or not mine.server_cpu_ms or not theirs.server_cpu_ms:
        return None
    return theirs.server_cpu_ms / mine.server_cpu_ms


def cell(figure: Figure | None, of: Figure | None = None) -> str:
    """Rate and CPU time, each with its ratio to the other's, and the faults."""
    if figure is None:
        return "–"
    if not figure.rate:
        return "fails" if figure.errors else "only 409" if figure.status.get("409") else "–"
    faster, cheaper = rate_ratio(figure, of), cpu_ratio(figure, of)
    lines = [f"{render_number(figure.rate)}/s{_times(faster)}"]
    if figure.server_cpu_ms:
        lines.append(f"{render_number(figure.server_cpu_ms)} ms{_times(cheaper)}")
    failed = sum(times for code, times in figure.status.items() if int(code) >= _FAILED)
    if failed:
        lines.append(f"{failed} × 5xx")
    if figure.conflict_share:
        lines.append(f"{figure.conflict_share:.1%} conflicts")
    return "\n".join([*lines, *(["✗ broken"] if figure.broken else [])])


def render_number(number: float) -> str:
    """A number with three significant digits: the figures are not more precise."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def findings(figures: Figures) -> list[str]:
    """Broken promises and failures, as text."""
    said = []
    for row, by_server in figures.items():
        for name, figure in by_server.items():
            said += [f"{name}: ✗ {row}: {text}" for text in figure.broken[:3]]
            said += [f"{name}: {row}: {text}" for text in figure.errors[:_SHOWN_ERRORS_MAX]]
    return said


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" {render_number(ratio)}×"


def _median(results: Sequence[Result], field: str) -> float:
    values = [float(getattr(result, field)) for result in results if result.is_good]
    return round(statistics.median(values), 3) if values else 0.0


def _sum(found: Sequence[int | None]) -> int | None:
    known = [count for count in found if count is not None]
    return sum(known) if known else None


def _added(statuses: Sequence[Mapping[str, int]]) -> dict[str, int]:
    together: dict[str, int] = {}
    for status in statuses:
        for code, times in status.items():
            together[code] = together.get(code, 0) + times
    return together


def _errors(results: Sequence[Result]) -> list[str]:
    errors = sorted({result.error for result in results if result.error})
    errors += sorted({text for result in results for text in result.failed})
    return errors + sorted({result.example for result in results if result.example})[:_SHOWN_ERRORS_MAX]
