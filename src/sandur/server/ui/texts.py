"""Numbers, sizes and times as people read them. Times are in UTC."""

import datetime as dt
import re
from functools import lru_cache
from typing import Final, Literal

from markupsafe import Markup

from sandur.iceberg.table_diff import Change

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_STEP: Final = 1_000
_ONE_DIGIT_BELOW: Final = 10
_AGES: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last time that Python formats."""
_TIMES_MAX: Final = 4_096


def count_text(number: float | None) -> str:
    """A number with separators; a dash if it is not known."""
    return "–" if number is None else f"{number:,}"


def bytes_text(size: int | None) -> str:
    """A size with its unit, such as `1.2 MB`; a dash if it is not known."""
    if size is None:
        return "–"
    value, unit = float(abs(size)), 0
    while round(value) >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    digits = f"{value:.1f}" if unit and round(value, 1) < _ONE_DIGIT_BELOW else f"{value:.0f}"
    return f"{'-' if size < 0 else ''}{digits} {_UNITS[unit]}"


def signed_text(added: int | None, removed: int | None) -> str:
    """What was added and removed, such as `+12` and `-3`; empty if nothing is known."""
    parts = [f"+{added:,}" if added else "", f"\N{MINUS SIGN}{removed:,}" if removed else ""]
    return " ".join(part for part in parts if part)


@lru_cache(_TIMES_MAX)
def time_text(time_ms: int | None) -> str:
    """A time to the second; a dash if there is none."""
    return _moment(time_ms).strftime("%Y-%m-%d %H:%M:%S") if time_ms else "–"


@lru_cache(_TIMES_MAX)
def iso_text(time_ms: int) -> str:
    """A time for programs."""
    return _moment(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_text(time_ms: int | None, now_ms: int) -> str:
    """How long ago a time was, or how far ahead it is; empty if there is none."""
    if not time_ms:
        return ""
    apart = abs(now_ms - time_ms)
    for unit_ms, unit in _AGES:
        if apart >= unit_ms:
            number = apart // unit_ms
            length = f"{number} {unit}{'' if number == 1 else 's'}"
            return f"{length} ago" if time_ms <= now_ms else f"in {length}"
    return "just now"


def moment_html(time_ms: int | None, now_ms: int) -> Markup:
    """A time as an element, with how long ago it was; a dash if there is none. Long lists have one in each row."""
    if not time_ms:
        return _NO_TIME
    age = age_text(time_ms, now_ms)
    return Markup(f'<time datetime="{iso_text(time_ms)}" title="{age}">{time_text(time_ms)}</time>')  # noqa: S704 - numbers only


_NO_TIME: Final = Markup("–")


def duration_text(period: str) -> str:
    """A duration in words, such as `5 days` for P5D; as it is if it has several parts."""
    found = _DURATION.fullmatch(period)
    if not found:
        return period
    number = found[1] or found[2]
    unit = _DURATION_UNITS[f"T{found[3]}" if found[3] else "D"]
    return f"{number} {unit}{'' if number == '1' else 's'}"


_DURATION: Final = re.compile(r"P(?:(\d+)D|T(\d+)([HMS]))")
_DURATION_UNITS: Final = {"D": "day", "TH": "hour", "TM": "minute", "TS": "second"}


def side_text(change: Change, side: Literal["before", "after"]) -> str:
    """One side of a difference; totals as people read numbers. A sign says what was removed or added in between."""
    text: str = change.before if side == "before" else change.after
    number = text.lstrip("+-")
    if change.area != "total" or not number.isdecimal():
        return text
    if number != text and not int(number):
        return ""
    shown = bytes_text(int(number)) if change.name == "bytes" else count_text(int(number))
    return shown if number == text else f"{shown} {'added' if text.startswith('+') else 'removed'}"


def file_name(path: str) -> str:
    """The path of a file below the folder `data` of its table; its last two parts if there is no such folder."""
    _, found, below = path.rpartition("/data/")
    return below if found else "/".join(path.rsplit("/", 2)[-2:])


def cut_text(text: str, chars_max: int) -> str:
    """The beginning of a text, with an ellipsis if there is more."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _moment(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(min(max(time_ms, 0), _LAST_MS) / 1_000, tz=dt.UTC)
