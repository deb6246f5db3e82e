"""Numbers, sizes and times as people read them. Times are in UTC."""

import datetime as dt
from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_STEP: Final = 1_000
_ONE_DIGIT_BELOW: Final = 10
_AGES: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last time that Python formats."""


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


def time_text(time_ms: int | None) -> str:
    """A time to the second; a dash if there is none."""
    return _moment(time_ms).strftime("%Y-%m-%d %H:%M:%S") if time_ms else "–"


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


def cut_text(text: str, chars_max: int) -> str:
    """The beginning of a text, with an ellipsis if there is more."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _moment(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(min(max(time_ms, 0), _LAST_MS) / 1_000, tz=dt.UTC)
