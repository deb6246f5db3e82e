"""Transforms of partition and sort fields: their spelling and which types they accept."""

import re

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.raw_json import shortened
from sandur.iceberg.types import Primitive

_WITH_WIDTH = re.compile(r"(bucket|truncate)\[([0-9]{1,10})\]", re.IGNORECASE)
_PLAIN = frozenset({"identity", "year", "month", "day", "hour", "void"})
_WIDTH_MAX = 2**31 - 1
_WIDTH_NAMES = {"bucket": "number of buckets", "truncate": "truncate width"}

_TIMESTAMPS = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_DATES = _TIMESTAMPS | {"date"}
_ACCEPTED = {
    "bucket": _DATES | {"int", "long", "time", "string", "binary", "fixed", "decimal", "uuid"},
    "truncate": frozenset({"int", "long", "string", "binary", "decimal"}),
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMESTAMPS,
}
_REFUSED_BY_IDENTITY = frozenset({"variant", "geometry", "geography"})


class Transform(msgspec.Struct, frozen=True):
    """A transform; `name` is empty for one that is not known, which is kept as it was given."""

    name: str
    text: str

    @property
    def is_void(self) -> bool:
        return self.name == "void"

    def accepts(self, source: Primitive) -> bool:
        """Whether the transform can be applied to a column of this type; an unknown transform is trusted."""
        if self.name == "identity":
            return source.name not in _REFUSED_BY_IDENTITY
        accepted = _ACCEPTED.get(self.name)
        return accepted is None or source.name in accepted


def transform(text: str) -> Transform:
    """The transform that `text` spells; raises `Invalid` for a bucket or truncate without a positive width."""
    lowered = text.lower()
    if lowered in _PLAIN:
        return Transform(name=lowered, text=lowered)
    match = _WITH_WIDTH.fullmatch(text)
    if match is None:
        return Transform(name="", text=text)
    name, width = match[1].lower(), int(match[2])
    if not 0 < width <= _WIDTH_MAX:
        raise Invalid(f"Invalid {_WIDTH_NAMES[name]}: {shortened(match[2])} (must be > 0)")
    return Transform(name=name, text=f"{name}[{width}]")
