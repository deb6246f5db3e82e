"""Plots as SVG: steps over time, and bars. Every plot says in words what it shows."""

from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup

from sandur.server.ui.texts import time_text

_WIDTH: Final = 640
_HEIGHT: Final = 170
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 12
_BOTTOM: Final = 26
_POINTS_MAX: Final = 1_000
_LABELS_MAX: Final = 6
_LABEL_CHARS: Final = 12

Point = tuple[int, int]
"""A time in milliseconds, and a value."""


def step_plot(
    points: Sequence[Point], *, label: str, text: Callable[[int], str], line: int = 1, mark_ms: int | None = None
) -> Markup:
    """A line that stays at a value until the next one; empty without two points. `mark_ms` draws a vertical line."""
    shown = points[-_POINTS_MAX:]
    if len(shown) < 2:  # noqa: PLR2004 - a line has two ends
        return Markup("")
    first, last = shown[0][0], max(shown[-1][0], shown[0][0] + 1)
    top = max(value for _, value in shown) or 1

    def x(time_ms: int) -> float:
        return _LEFT + (time_ms - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: int) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    path = [f"M{x(shown[0][0]):.1f} {y(shown[0][1]):.1f}"]
    path += [f"H{x(time_ms):.1f}V{y(value):.1f}" for time_ms, value in shown[1:]]
    area = f"{''.join(path)}V{_HEIGHT - _BOTTOM}H{x(shown[0][0]):.1f}Z"
    mark = ""
    if mark_ms is not None and first <= mark_ms <= last:
        mark = f'<path class="now" d="M{x(mark_ms):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
    return _framed(
        label,
        Markup('<path class="area-{0}" d="{1}"/><path class="line-{0}" d="{2}"/>').format(line, area, "".join(path))
        + Markup(mark),  # noqa: S704 - only numbers
        low="0",
        high=text(top),
        ends=(time_text(first)[:10], time_text(last)[:10]),
    )


def bar_plot(bars: Sequence[tuple[str, int]], *, label: str, text: Callable[[int], str]) -> Markup:
    """One bar for each value; empty without any."""
    if not bars or not any(value for _, value in bars):
        return Markup("")
    top = max(value for _, value in bars)
    space = (_WIDTH - _LEFT - _RIGHT) / len(bars)
    every = -(-len(bars) // _LABELS_MAX)
    drawn = []
    for place, (name, value) in enumerate(bars):
        height = value / top * (_HEIGHT - _TOP - _BOTTOM)
        left = _LEFT + place * space
        drawn.append(
            Markup('<rect class="bar" x="{}" y="{}" width="{}" height="{}" rx="2"><title>{}: {}</title></rect>').format(
                f"{left + space * 0.1:.1f}",
                f"{_HEIGHT - _BOTTOM - height:.1f}",
                f"{space * 0.8:.1f}",
                f"{height:.1f}",
                name,
                text(value),
            )
        )
        if place % every == 0:
            drawn.append(
                Markup('<text x="{}" y="{}">{}</text>').format(f"{left:.1f}", _HEIGHT - 8, name[:_LABEL_CHARS])
            )
    return _framed(label, Markup("").join(drawn), low="0", high=text(top))


def _framed(label: str, drawing: Markup, *, low: str, high: str, ends: tuple[str, str] | None = None) -> Markup:
    bottom = _HEIGHT - _BOTTOM
    middle = (_TOP + bottom) // 2
    lines = f"M{_LEFT} {_TOP}H{_WIDTH - _RIGHT}M{_LEFT} {middle}H{_WIDTH - _RIGHT}"
    axes = Markup('<path class="grid" d="{}"/><path class="axis" d="M{} {}H{}"/>').format(
        lines, _LEFT, bottom, _WIDTH - _RIGHT
    )
    texts = Markup(
        '<text x="{0}" y="{1}" text-anchor="end">{2}</text><text x="{0}" y="{3}" text-anchor="end">{4}</text>'
    )
    scale = texts.format(_LEFT - 6, _TOP + 8, high, bottom, low)
    times = Markup("")
    if ends:
        times = Markup('<text x="{0}" y="{1}">{2}</text><text x="{3}" y="{1}" text-anchor="end">{4}</text>').format(
            _LEFT, _HEIGHT - 8, ends[0], _WIDTH - _RIGHT, ends[1]
        )
    return Markup(
        '<svg class="plot" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">{}{}{}{}</svg>'
    ).format(label, _WIDTH, _HEIGHT, _WIDTH, _HEIGHT, axes, scale, times, drawing)
