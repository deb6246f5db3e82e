"""Single values of Iceberg types: from JSON literals, to JSON, and from the bytes in which bounds are kept.

In Python a boolean is a bool; int, long, date, time and all timestamps are ints (days, microseconds or nanoseconds);
float and double are floats; a decimal is its unscaled int; a string is a str; uuid, fixed and binary are bytes.
"""

import math
import re
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import msgspec

from sandur.errors import BadRequest
from sandur.iceberg.types import Primitive
from sandur.splicing import encode, shorten

Value = bool | int | float | str | bytes
_INFINITIES: Final = {"Infinity": math.inf, "-Infinity": -math.inf}
"""As Java writes them."""

Json = bool | int | float | str | None | list["Json"] | dict[str, "Json"]

INTEGERS: Final = frozenset(
    {"int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
)
FLOATS: Final = frozenset({"float", "double"})
BYTES: Final = frozenset({"uuid", "fixed", "binary"})
PRECISION_IN_64_BITS: Final = 18
DATE_BYTES: Final = 4
COMPARABLE: Final = INTEGERS | FLOATS | BYTES | {"boolean", "decimal", "string"}

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
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_HEX: Final = re.compile(r"([0-9a-fA-F]{2})*\Z")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
_EXACT: Final = Context(prec=200)
_DECIMAL_DIGITS_MAX: Final = 100
_HIGHEST: Final = {"float": float.fromhex("0x1.fffffep+127"), "double": float.fromhex("0x1.fffffffffffffp+1023")}


class Found(NamedTuple):
    """A literal as a column sees it.

    `side` is 0 for a value of the type itself. It is -1 when the literal lies right below the value, or below all
    values, and 1 when it lies above: nothing is equal to it then, but everything compares with it.
    """

    value: Value
    side: int = 0


def literal(column: Primitive, given: Json, *, nanos: bool = False) -> Found:
    """What a JSON literal is for a column of that type; BadRequest when it is nothing.

    A number for a column of nanoseconds counts microseconds, as in Java, unless `nanos` says otherwise.
    """
    found = _literal(column, given, nanos=nanos)
    if found is None:
        shown = shorten(encode(given).decode())
        raise BadRequest(f"Invalid value for conversion to type {column.text}: {shown}")
    return found


def _literal(column: Primitive, given: Json, *, nanos: bool) -> Found | None:  # noqa: PLR0911 - one line per family
    name = column.name
    if name == "boolean":
        return Found(given) if isinstance(given, bool) else None
    if isinstance(given, bool) or given is None or isinstance(given, list | dict):
        return None
    if name == "string":
        return Found(given) if isinstance(given, str) else None
    if name in BYTES:
        return _bytes_literal(column, given)
    if name == "decimal":
        return _decimal_literal(column, given)
    if name in FLOATS:
        return _float_literal(name, given)
    if name in INTEGERS:
        return _integer_literal(name, given, nanos=nanos)
    return None


def _bytes_literal(column: Primitive, given: Json) -> Found | None:
    if not isinstance(given, str):
        return None
    if column.name == "uuid":
        return Found(bytes.fromhex(given.replace("-", ""))) if _UUID.match(given) else None
    if not _HEX.match(given) or (column.name == "fixed" and len(given) != 2 * column.length):
        return None
    return Found(bytes.fromhex(given))


def _decimal_literal(column: Primitive, given: Json) -> Found | None:
    try:
        number = Decimal(str(given))
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > _DECIMAL_DIGITS_MAX:
        return None
    if len(number.as_tuple().digits) > _DECIMAL_DIGITS_MAX:
        return None
    scaled = _EXACT.scaleb(number, column.scale)
    # Truncating goes beyond the digits of a column, so that only what cannot be kept is out of reach.
    reach = 1 << 62 if column.precision <= PRECISION_IN_64_BITS else 10**_EXACT.prec
    nearest = max(-reach, min(int(scaled), reach))
    if scaled == nearest:
        return Found(nearest)
    return Found(nearest, 1 if scaled > nearest else -1)


def _float_literal(name: str, given: Json) -> Found | None:
    if isinstance(given, str):
        if given in _INFINITIES:
            return Found(_INFINITIES[given])
        # PyIceberg reads "amount < 2.0" as a decimal and sends its text, whatever the column is.
        return _float_literal(name, float(given)) if _NUMBER.match(given) else None
    if not isinstance(given, int | float):
        return None
    try:
        number = float(given)
        number = struct.unpack("<f", struct.pack("<f", number))[0] if name == "float" else number
    except OverflowError:
        number = math.inf if given > 0 else -math.inf
    # A number beyond the highest is not infinity, which is all that lies beyond it.
    return (
        Found(number)
        if math.isfinite(number)
        else Found(math.copysign(_HIGHEST[name], number), 1 if number > 0 else -1)
    )


def _integer_literal(name: str, given: Json, *, nanos: bool) -> Found | None:
    if isinstance(given, str):
        number = _temporal(name, given)
    elif isinstance(given, int):
        number = given * 1000 if name.endswith("_ns") and not nanos else given
    else:
        number = int(given) if isinstance(given, float) and given.is_integer() and name in {"int", "long"} else None
    if number is None:
        return None
    half = 1 << _RANGES.get(name, 63)
    if number >= half:
        return Found(half - 1, 1)
    return Found(-half, -1) if number < -half else Found(number)


def _temporal(name: str, text: str) -> int | None:
    try:
        match name:
            case "date":
                return (date.fromisoformat(text) - _EPOCH_DAY).days
            case "time":
                return _time_micros(text)
            case "timestamp" | "timestamp_ns" | "timestamptz" | "timestamptz_ns":
                nanos = _timestamp_nanos(text, has_zone="tz" in name)
                return nanos if nanos is None or name.endswith("_ns") else nanos // 1000
            case _:
                return None
    except (ValueError, OverflowError):
        return None


def _time_micros(text: str) -> int | None:
    match = _TIME.match(text)
    if match is None:
        return None
    at = time.fromisoformat(match[1])
    return ((at.hour * 60 + at.minute) * 60 + at.second) * _MICROS_PER_SECOND + _nanos(match[2]) // 1000


def _timestamp_nanos(text: str, *, has_zone: bool) -> int | None:
    match = _TIMESTAMP.match(text)
    if match is None or (match[3] is not None) != has_zone:
        return None
    zone = "+00:00" if match[3] in {None, "Z"} else match[3]
    at = datetime.fromisoformat(match[1] + zone)
    return (at - _EPOCH) // _MICROSECOND * 1000 + _nanos(match[2])


def _nanos(fraction: str | None) -> int:
    return int((fraction or "0").ljust(9, "0"))


def _number(value: float) -> Json:
    """The number; for infinity, for which JSON has no word, one so large that all clients read it as such."""
    written: Any = value if math.isfinite(value) else msgspec.Raw(b"1e999" if value > 0 else b"-1e999")
    found: Json = written
    return found


def spelled_in_full(column: Primitive, value: Value) -> Json:
    """The value as `spelled`, but every date and time as a text: clients read partition values in no other form."""
    match column.name:
        case "date":
            return _iso_day(int(value))
        case "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns":
            return _iso_timestamp(column, int(value))
        case _:
            return spelled(column, value)


def spelled(column: Primitive, value: Value) -> Json:  # noqa: PLR0911 - one line per type
    """The value as JSON, in the form that clients bind: ISO texts, decimals as texts, bytes as upper-case hex.

    Beyond the years that all clients can name, dates and times are numbers, which they bind as well.
    """
    match column.name:
        case "decimal":
            return _decimal_text(int(value), column.scale)
        case "date":
            return _iso_day(int(value)) if is_near(int(value)) else int(value)
        case "time":
            return _time_text(int(value))
        case "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns":
            days = int(value) // units_per_day(column.name)
            return _iso_timestamp(column, int(value)) if is_near(days) else int(value)
        case "uuid" if isinstance(value, bytes):
            text = value.hex()
            return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        case "fixed" | "binary" if isinstance(value, bytes):
            return value.hex().upper()
        case "boolean":
            return bool(value)
        case "float" | "double":
            return _number(float(value))
        case "int" | "long":
            return int(value)
        case _:
            return value if not isinstance(value, bytes) else value.hex().upper()


def _decimal_text(unscaled: int, scale: int) -> str:
    if scale == 0:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def is_near(days: int) -> bool:
    """Whether a day lies in a year of four digits, after the year 0."""
    return (date.min - _EPOCH_DAY).days <= days <= (date.max - _EPOCH_DAY).days


def _iso_day(days: int) -> str:
    """A day of any year, with a sign where it has more than four digits, or lies before the year 0."""
    cycles = 0 if is_near(days) else (days - _DAYS_PER_CYCLE) // _DAYS_PER_CYCLE
    at = _EPOCH_DAY + timedelta(days=days - cycles * _DAYS_PER_CYCLE)
    year = at.year + cycles * _YEARS_PER_CYCLE
    sign = "-" if year < 0 else "+" if year > date.max.year else ""
    return f"{sign}{abs(year):04d}-{at.month:02d}-{at.day:02d}"


def _time_text(micros: int) -> str:
    seconds, fraction = divmod(micros, _MICROS_PER_SECOND)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


def _iso_timestamp(column: Primitive, count: int) -> str:
    digits = 9 if column.name.endswith("_ns") else 6
    seconds, fraction = divmod(count, 10**digits)
    days, second = divmod(seconds, _SECONDS_PER_DAY)
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{fraction:0{digits}d}"
    return f"{_iso_day(days)}T{clock}{'+00:00' if 'tz' in column.name else ''}"


def from_bytes(column: Primitive, data: bytes) -> Value | None:  # noqa: PLR0911 - one line per family
    """The value in its binary form; None when these bytes are none of the type. Older, narrower types are promoted."""
    name = column.name
    if name == "string":
        return data.decode("utf-8", "surrogateescape") if _is_utf8(data) else None
    if name in BYTES:
        return data
    if name == "decimal":
        number = int.from_bytes(data, signed=True)
        return number if data and (column.precision > PRECISION_IN_64_BITS or _is_of_64_bits(number)) else None
    if name == "boolean":
        return data != b"\x00" if data else None
    if name in FLOATS:
        return _float_from(data)
    if name in INTEGERS and len(data) in {4, 8}:
        number = int.from_bytes(data, "little", signed=True) * (units_per_day(name) if len(data) == DATE_BYTES else 1)
        return number if _is_of_64_bits(number) else None
    return None


def units_per_day(name: str) -> int:
    """How much a day is in a timestamp's unit; 1 for all other types."""
    return MICROS_PER_DAY * (1000 if name.endswith("_ns") else 1) if name.startswith("timestamp") else 1


def _is_of_64_bits(number: int) -> bool:
    return -1 << 63 <= number < 1 << 63


def _float_from(data: bytes) -> float | None:
    forms = {4: "<f", 8: "<d"}
    found: float | None = struct.unpack(forms[len(data)], data)[0] if len(data) in forms else None
    return found


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
