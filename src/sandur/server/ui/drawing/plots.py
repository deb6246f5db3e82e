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

_TAIL: Final = 0.03
"""The share of the plot behind the last point: a step at the end would not be seen without it."""
_DATE_CHARS: Final = 10

Point = tuple[float, int]
"""A place on the horizontal axis, such as a time in milliseconds, and a value."""


def step_plot(points: Sequence[tuple[int, int]], *, label: str, text: Callable[[int], str], line: int = 1) -> Markup:
    """Values over time: a line that stays at a value until the next one; empty without two points."""
    shown = points[-_POINTS_MAX:]
    if len(shown) < 2:  # noqa: PLR2004 - a line has two ends
        return Markup("")
    # The clocks of writers differ, so the last time may be before the first one.
    first, last = min(place for place, _ in shown), max(place for place, _ in shown)
    end = last + max((last - first) * _TAIL, 1.0)
    return _framed(label, _steps(shown, first, end, line), low="0", high=text(_top(shown)), ends=_ends(first, last))


def version_plot(
    points: Sequence[tuple[int, int]],
    versions: tuple[int, int],
    *,
    label: str,
    text: Callable[[int], str],
    line: int = 1,
    at: int | None = None,
) -> Markup:
    """Values by version, above a slider from the first of the versions to the last; empty without two points.

    Each version is in the middle of its step. `at` is the version that is marked; a script moves the mark.
    """
    first, last = versions
    shown = [(place - 0.5, value) for place, value in points if first <= place <= last]
    if len(shown) < 2:  # noqa: PLR2004 - as above
        return Markup("")
    drawing = _steps([(max(place, first), value) for place, value in shown], first, last, line)
    width = _WIDTH - _LEFT - _RIGHT
    if at is not None and first <= at <= last:
        place = f"{(at - first) / (last - first) * width:.1f}"
        mark = Markup('<path class="now" data-width="{}" transform="translate({} 0)" d="M{} {}V{}"/>')
        drawing += mark.format(width, place, _LEFT, _TOP, _HEIGHT - _BOTTOM)
    ends = (f"version {first}", f"version {last}")
    return _framed(label, drawing, low="0", high=text(_top(shown)), ends=ends)


def _top(points: Sequence[Point]) -> int:
    return max(value for _, value in points) or 1


def _ends(first: int, last: int) -> tuple[str, str]:
    """The first and the last time: dates, or times of day if both are on one day."""
    texts = time_text(first), time_text(last)
    is_one_day = texts[0][:_DATE_CHARS] == texts[1][:_DATE_CHARS]
    return texts if is_one_day else (texts[0][:_DATE_CHARS], texts[1][:_DATE_CHARS])


def _steps(points: Sequence[Point], first: float, end: float, line: int) -> Markup:
    top = _top(points)

    def x(place: float) -> str:
        return f"{_LEFT + (place - first) / (end - first) * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def y(value: int) -> str:
        return f"{_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    start = f"M{x(points[0][0])} {y(points[0][1])}"
    path = f"{start}{''.join(f'H{x(place)}V{y(value)}' for place, value in points[1:])}H{x(end)}"
    area = f"{path}V{_HEIGHT - _BOTTOM}H{x(points[0][0])}Z"
    return Markup('<path class="area-{0}" d="{1}"/><path class="line-{0}" d="{2}"/>').format(line, area, path)


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
