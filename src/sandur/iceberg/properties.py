"""Properties of tables and views: the keys that are never stored, and numeric values."""

import re
from collections.abc import Collection, Mapping

from sandur.errors import Invalid
from sandur.splicing import shorten

# Keys that clients send or display, and that are never part of a table's properties.
RESERVED_PROPERTIES = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_INT32_MAX = 2**31 - 1


def integer_property(properties: Mapping[str, str], key: str, *, owner: str = "Table") -> int | None:
    """The number under `key`, None if the key is absent; raises `Invalid` if it is not a 32-bit integer."""
    text = properties.get(key)
    if text is None:
        return None
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not -_INT32_MAX - 1 <= number <= _INT32_MAX:
        raise Invalid(f"{owner} property {key} must have integer value: {shorten(text)}")
    return number


def without_keys(properties: Mapping[str, str], removals: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in removals}
