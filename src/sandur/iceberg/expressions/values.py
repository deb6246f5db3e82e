"""Single values of Iceberg types: parsed from JSON literals, written as JSON, and read from the bytes of bounds.

In Python, int, long, date, time and all timestamps are ints (days, microseconds or nanoseconds). A decimal is its
unscaled int. UUID, fixed and binary are bytes.
"""

import math
import re
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Final, NamedTuple

import msgspec

from sandur.errors import BadRequest
from sandur.iceberg.types import BYTES, FLOATS, INTEGERS, TIMESTAMPS, UUID_PATTERN, Primitive
from sandur.splicing import encode, shorten

Value = bool | int | float | str | bytes
_INFINITIES: Final = {"Infinity": math.inf, "-Infinity": -math.inf}
"""The words that Java writes."""

Json = bool | int | float | str | None | list["Json"] | dict[str, "Json"]

PRECISION_IN_64_BITS: Final = 18
DATE_BYTES: Final = 4

MICROS_PER_DAY: Final = 86_400_000_000
_MICROS_PER_SECOND: Final = 1_000_000
_SECONDS_PER_DAY: Final = 86_400
_DAYS_PER_CYCLE: Final = 146_097  # The calendar repeats every 400 years.
_YEARS_PER_CYCLE: Final = 400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_RANGES: Final = {"int": 31, "date": 31}
_TIME: Final = re.compile(r"([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?\Z")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?\Z"
)
_HEX: Final = re.compile(r"([0-9a-fA-F]{2})*\Z")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
_EXACT: Final = Context(prec=200)
_DECIMAL_DIGITS_MAX: Final = 100
_HIGHEST: Final = {"float": float.fromhex("0x1.fffffep+127"), "double": float.fromhex("0x1.fffffffffffffp+1023")}


class ColumnLiteral(NamedTuple):
    """A literal as the nearest value of a column's type.

    `side` is 0 if the literal is that value, -1 if it is below, and 1 if it is above. Then no value equals the literal,
    but all values can be compared with it.
    """

    value: Value
    side: int = 0


def parse_literal(column: Primitive, given: Json, *, nanos: bool = False) -> ColumnLiteral:
    """A JSON literal as a value of a type; BadRequest if it does not fit the type.

    For a column of nanoseconds, a number counts microseconds as in Java, unless `nanos` is set.
    """
    found = read_literal(column, given, nanos=nanos)
    if found is None:
        text = shorten(encode(given).decode())
        raise BadRequest(f"Invalid value for conversion to type {column.text}: {text}")
    return found


def read_literal(column: Primitive, given: Json, *, nanos: bool = False) -> ColumnLiteral | None:  # noqa: PLR0911 - one line per family
    """Like `parse_literal`, but None if the literal does not fit the type."""
    name = column.name
    if name == "boolean":
        return ColumnLiteral(given) if isinstance(given, bool) else None
    if isinstance(given, bool) or given is None or isinstance(given, list | dict):
        return None
    if name == "string":
        return ColumnLiteral(given) if isinstance(given, str) else None
    if name in BYTES:
        return _parse_bytes(column, given)
    if name == "decimal":
        return _parse_decimal(column, given)
    if name in FLOATS:
        return _parse_float(name, given)
    if name in INTEGERS:
        return _parse_integer(name, given, nanos=nanos)
    return None


def _parse_bytes(column: Primitive, given: Json) -> ColumnLiteral | None:
    if not isinstance(given, str):
        return None
    if column.name == "uuid":
        return ColumnLiteral(bytes.fromhex(given.replace("-", ""))) if UUID_PATTERN.fullmatch(given) else None
    if not _HEX.match(given) or (column.name == "fixed" and len(given) != 2 * column.length):
        return None
    return ColumnLiteral(bytes.fromhex(given))


def _parse_decimal(column: Primitive, given: Json) -> ColumnLiteral | None:
    try:
        number = Decimal(str(given))
    except InvalidOperation:
        return None
    if not number.is_finite() or max(abs(number.adjusted()), len(number.as_tuple().digits)) > _DECIMAL_DIGITS_MAX:
        return None
    scaled = _EXACT.scaleb(number, column.scale)
    # A truncated value can have more digits than the column, so only the array type limits the range.
    reach = 1 << 62 if column.precision <= PRECISION_IN_64_BITS else 10**_EXACT.prec
    nearest = max(-reach, min(int(scaled), reach))
    return ColumnLiteral(nearest, (scaled > nearest) - (scaled < nearest))


def _parse_float(name: str, given: Json) -> ColumnLiteral | None:
    if isinstance(given, str):
        if given in _INFINITIES:
            return ColumnLiteral(_INFINITIES[given])
        # PyIceberg parses "amount < 2.0" as a decimal and sends it as text for any column.
        return _parse_float(name, float(given)) if _NUMBER.match(given) else None
    if not isinstance(given, int | float):
        return None
    try:
        number = float(given)
        number = struct.unpack("<f", struct.pack("<f", number))[0] if name == "float" else number
    except OverflowError:
        number = math.inf if given > 0 else -math.inf
    if math.isfinite(number):
        return ColumnLiteral(number)
    # A number above the highest is not infinity. Only infinity is above it.
    return ColumnLiteral(math.copysign(_HIGHEST[name], number), 1 if number > 0 else -1)


def _parse_integer(name: str, given: Json, *, nanos: bool) -> ColumnLiteral | None:
    if isinstance(given, str):
        number = _parse_temporal(name, given)
    elif isinstance(given, int):
        number = given * 1000 if name.endswith("_ns") and not nanos else given
    else:
        number = int(given) if isinstance(given, float) and given.is_integer() and name in {"int", "long"} else None
    if number is None:
        return None
    half = 1 << _RANGES.get(name, 63)
    nearest = max(-half, min(number, half - 1))
    return ColumnLiteral(nearest, (number > nearest) - (number < nearest))


def _parse_temporal(name: str, text: str) -> int | None:
    try:
        match name:
            case "date":
                return (date.fromisoformat(text) - _EPOCH_DAY).days
            case "time":
                return _parse_time(text)
            case _ if name in TIMESTAMPS:
                nanos = _parse_timestamp(text, has_zone="tz" in name)
                return nanos if nanos is None or name.endswith("_ns") else nanos // 1000
            case _:
                return None
    except (ValueError, OverflowError):
        return None


def _parse_time(text: str) -> int | None:
    match = _TIME.match(text)
    if match is None:
        return None
    at = time.fromisoformat(match[1])
    return ((at.hour * 60 + at.minute) * 60 + at.second) * _MICROS_PER_SECOND + _nanos(match[2]) // 1000


def _parse_timestamp(text: str, *, has_zone: bool) -> int | None:
    match = _TIMESTAMP.match(text)
    if match is None or (match[3] is not None) != has_zone:
        return None
    zone = "+00:00" if match[3] in {None, "Z"} else match[3]
    at = datetime.fromisoformat(match[1] + zone)
    return (at - _EPOCH) // _MICROSECOND * 1000 + _nanos(match[2])


def _nanos(fraction: str | None) -> int:
    return int((fraction or "0").ljust(9, "0"))


def partition_value_to_json(column: Primitive, value: Value) -> Json:
    """Like `value_to_json`, but every date and timestamp is a text: clients read partition values in no other form."""
    if column.name == "date":
        return _iso_day(int(value))
    return _iso_timestamp(column, int(value)) if column.name in TIMESTAMPS else value_to_json(column, value)


def value_to_json(column: Primitive, value: Value) -> Json:  # noqa: PLR0911 - one line per type
    """The value as a JSON literal: ISO texts for dates and times, texts for decimals, upper-case hex for bytes.

    Dates and times outside of the years 1 to 9999 are numbers, because not all clients can parse their texts.
    """
    match column.name:
        case "decimal":
            return f"{_EXACT.scaleb(Decimal(int(value)), -column.scale):f}"
        case "time":
            return _clock_text(*divmod(int(value), _MICROS_PER_SECOND), digits=6)
        case name if name == "date" or name in TIMESTAMPS:
            has_short_year = _has_short_year(int(value) // units_per_day(name))
            return partition_value_to_json(column, value) if has_short_year else int(value)
        case "uuid" if isinstance(value, bytes):
            text = value.hex()
            return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        case "boolean":
            return bool(value)
        case "float" | "double":
            number = float(value)
            # JSON has no infinity, but all clients read 1e999 as infinity.
            return number if math.isfinite(number) else msgspec.Raw(b"1e999" if number > 0 else b"-1e999")  # type: ignore[return-value] # Encoded as it is.
        case "int" | "long":
            return int(value)
        case _:
            return value if not isinstance(value, bytes) else value.hex().upper()


def _has_short_year(days: int) -> bool:
    """Whether a day is in the years 1 to 9999."""
    return (date.min - _EPOCH_DAY).days <= days <= (date.max - _EPOCH_DAY).days


def _iso_day(days: int) -> str:
    """A day of any year, with a sign if the year is negative or has more than four digits."""
    year, month, day = calendar_day(days)
    sign = "-" if year < 0 else "+" if year > date.max.year else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def calendar_day(days: int) -> tuple[int, int, int]:
    """The year, the month and the day of the month, also of years that a `date` cannot hold."""
    cycles = 0 if _has_short_year(days) else (days - _DAYS_PER_CYCLE) // _DAYS_PER_CYCLE
    at = _EPOCH_DAY + timedelta(days=days - cycles * _DAYS_PER_CYCLE)
    return at.year + cycles * _YEARS_PER_CYCLE, at.month, at.day


def _clock_text(seconds: int, fraction: int, *, digits: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"


def _iso_timestamp(column: Primitive, count: int) -> str:
    digits = 9 if column.name.endswith("_ns") else 6
    seconds, fraction = divmod(count, 10**digits)
    days, second = divmod(seconds, _SECONDS_PER_DAY)
    return f"{_iso_day(days)}T{_clock_text(second, fraction, digits=digits)}{'+00:00' if 'tz' in column.name else ''}"


def value_from_bytes(column: Primitive, data: bytes) -> Value | None:
    """A value from its binary form; None if the bytes do not fit the type. Older, narrower types are promoted."""
    if column.name in BYTES:
        return data
    if column.name == "boolean":
        return data != b"\x00" if data else None
    if column.name in FLOATS:
        form = {4: "<f", 8: "<d"}.get(len(data))
        return None if form is None else float(struct.unpack(form, data)[0])
    if column.name != "string":
        return _integer_from(column, data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _integer_from(column: Primitive, data: bytes) -> int | None:
    if column.name == "decimal":
        number = int.from_bytes(data, signed=True)
        return number if data and (column.precision > PRECISION_IN_64_BITS or _fits_64_bits(number)) else None
    if column.name not in INTEGERS or len(data) not in {4, 8}:
        return None
    days_factor = units_per_day(column.name) if len(data) == DATE_BYTES else 1
    number = int.from_bytes(data, "little", signed=True) * days_factor
    return number if _fits_64_bits(number) else None


def units_per_day(name: str) -> int:
    """The length of a day in a timestamp's unit; 1 for all other types."""
    return MICROS_PER_DAY * (1000 if name.endswith("_ns") else 1) if name.startswith("timestamp") else 1


def _fits_64_bits(number: int) -> bool:
    return -1 << 63 <= number < 1 << 63
