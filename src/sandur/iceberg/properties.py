"""Properties of tables and views: which keys are never stored, and numbers in them."""

import re
from collections.abc import Mapping

from sandur.errors import Invalid
from sandur.splicing import shorten

# Keys that clients use to ask for or to show something; they are never part of a table's properties.
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
    """The number under `key`, or nothing if the key is absent; raises `Invalid` if it is no 32-bit integer."""
    text = properties.get(key)
    if text is None:
        return None
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not -_INT32_MAX - 1 <= number <= _INT32_MAX:
        raise Invalid(f"{owner} property {key} must have integer value: {shorten(text)}")
    return number
