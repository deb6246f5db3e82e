"""The versions of stored records (V1–V5): which of them this program reads, and which it writes."""

from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

R = TypeVar("R", bound="Record")


class FormatVersion(NamedTuple):
    """A version of records. A minor only adds fields, which may be ignored; a major may change anything."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


FIRST: Final = FormatVersion(1, 0)
"""The version of a record that names none, and of a store without a format."""

WITH_EVENTS: Final = FormatVersion(2, 0)
"""From this version on, records carry events, and a dropped table may come back."""

WITH_RENAMES: Final = FormatVersion(3, 0)
"""From this version on, catalogs and namespaces may be renamed."""

WITH_BATCHES: Final = FormatVersion(4, 0)
"""From this version on, one swap of a pointer may make several commits. An older server would lose their proof."""

NEWEST: Final = WITH_BATCHES
"""The version of new stores. Older stores get it by `sandur upgrade` (V4)."""

MINORS: Final = {version.major: version.minor for version in (FIRST, WITH_EVENTS, WITH_RENAMES, NEWEST)}
"""The newest minor that this program knows, by major."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a cell. Every write sets a new `event_id`, which makes every body unique (G1).

    `v` and `m` are the version that wrote it, major and minor. From version 2 on, `event_id` is a list of one id: the
    first release drops the fields that it does not know, and must not be able to decode such a record (V1).

    `unknown_fields` are those that a later minor added; they are kept by every change of the record (V2). They are
    fields of the record itself when it is stored.
    """

    v: int = FIRST.major
    m: int = FIRST.minor
    event_id: str | tuple[str, ...] = ""
    unknown_fields: dict[str, msgspec.Raw] | None = None


def in_place_of(before: R | None, after: R) -> R:
    """The record `after`, which replaces `before` and keeps what a later minor added to it (V2)."""
    if before is None:
        return after
    return msgspec.structs.replace(after, v=before.v, m=before.m, unknown_fields=before.unknown_fields)


class StoreFormat(Record, frozen=True, kw_only=True):
    """The version in which servers write the records of a store (V3). It never goes down.

    `raising`: `sandur upgrade` still brings older records to this version.
    """

    major: int
    minor: int
    state: Literal["steady", "raising"]
    changed_ms: int = 0


FIRST_FORMAT: Final = StoreFormat(major=FIRST.major, minor=FIRST.minor, state="steady")
"""The format of a store without one."""
