"""The list index: what it keeps for every scope, and how it is cut into segments so that no update grows with it.

A small index is one manifest with all entries. A large one is a manifest that lists segments, each with the entries
from its first key up to the first key of the next; an update then touches one segment, and the manifest only when a
segment is split.
"""

import bisect
import hashlib
import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace
from sandur.catalog.records import Record

Collection = Literal["catalogs", "schemas", "tables"]

INLINE_MAX: Final = 256
SEGMENT_MAX: Final = 128
PACKED: Final = 96
"""How many entries a segment gets when it is written anew: it is not full at once."""

PART_BYTES_MAX: Final = 192 << 10
"""How large a manifest or a segment may be: an entry tells all about a table, and some tables have many columns."""
_PACKED_BYTES: Final = PART_BYTES_MAX * PACKED // SEGMENT_MAX

_SEPARATOR: Final = "\x1f"
_OVERHEAD_BYTES: Final = 200

NO_INFO: Final = msgspec.Raw(b"null")


class Scope(NamedTuple):
    """What one index lists: all catalogs, the namespaces right below something, or the names in a namespace."""

    collection: Collection
    catalog: str = ""
    levels: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return _SEPARATOR.join((self.collection, self.catalog, *self.levels))

    @property
    def hash(self) -> str:
        """What stands for the scope where its text would be too long."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.catalog, self.levels)


CATALOGS: Final = Scope("catalogs")


class Place(NamedTuple):
    """An entry of an index, whether or not there is one: its scope and its key in it."""

    scope: Scope
    name: str


def names_scope(namespace: Namespace) -> Scope:
    """The scope of the tables, views and other things in a namespace."""
    return Scope("tables", namespace.catalog, namespace.levels)


def namespaces_scope(catalog: str, parent: Namespace | None) -> Scope:
    """The scope of the namespaces right below another, or of the first level."""
    return Scope("schemas", catalog, parent.levels if parent else ())


def place_of(thing: Identifier | Namespace) -> Place:
    """Where a name or a namespace is listed."""
    match thing:
        case Identifier():
            return Place(names_scope(thing.namespace), thing.name)
        case Namespace():
            return Place(namespaces_scope(thing.catalog, thing.parent), thing.levels[-1])
        case _:
            assert_never(thing)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is listed, with all that a list says about it: `info` is what Unity Catalog's lists show."""

    name: str
    kind: Kind | Literal["namespace", "catalog"]
    uuid: str
    format: Format | Literal[""] = ""
    created_ms: int = 0
    updated_ms: int = 0
    info: msgspec.Raw = NO_INFO

    @property
    def size_bytes(self) -> int:
        return memoryview(self.info).nbytes + _OVERHEAD_BYTES


class SegmentRef(msgspec.Struct, frozen=True):
    """A segment, and the key from which on entries belong to it; the first one's is empty."""

    first: str
    id: str


class Manifest(Record, frozen=True, kw_only=True):
    """An index: its entries sorted by name, or the segments that hold them.

    `version` is that of this form, not that of the object.
    """

    version: Literal[1]
    updated_at_epoch_ms: int
    entries: tuple[Entry, ...]
    segments: tuple[SegmentRef, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether it is what we would write; anything else is as good as no index."""
        if not self.segments:
            return are_sound(self.entries)
        firsts = [ref.first for ref in self.segments]
        rises = all(one < two for one, two in itertools.pairwise(firsts))
        return rises and not firsts[0] and not self.entries


class Split(msgspec.Struct, frozen=True):
    """How a sealed segment is cut: who is at `cut` or behind it goes right. The ids of both halves are fresh."""

    cut: str
    left: str
    right: str


class Segment(Record, frozen=True, kw_only=True):
    """A part of an index. Once it is sealed (`split`) it never changes: anyone may finish the split (see `halves`).

    `scope` says of which index, for whoever finds only the segment.
    """

    scope: Scope
    updated_at_epoch_ms: int
    entries: tuple[Entry, ...]
    split: Split | None = None

    @property
    def is_sound(self) -> bool:
        return are_sound(self.entries)


class Mark(msgspec.Struct, frozen=True):
    """I1: that the index may not say the truth about an entry yet."""

    collection: Collection
    catalog: str
    levels: tuple[str, ...]
    name: str

    @property
    def place(self) -> Place:
        return Place(Scope(self.collection, self.catalog, self.levels), self.name)


def are_sound(entries: Sequence[Entry]) -> bool:
    """Whether the entries are sorted, and each says all that lists show: an older form of them does not."""
    return is_sorted(entries) and all(entry.info is not NO_INFO for entry in entries)


def is_sorted(entries: Sequence[Entry]) -> bool:
    names = [entry.name for entry in entries]
    return all(map(operator.lt, names, names[1:]))


def merge_entries(entries: Sequence[Entry], truth: Mapping[str, Entry | None]) -> tuple[Entry, ...]:
    """The entries with what is true about some names in place of what was said; None: there is nothing."""
    kept = [entry for entry in entries if entry.name not in truth]
    kept += [entry for entry in truth.values() if entry is not None]
    return tuple(sorted(kept, key=_name))


def entries_after(entries: Sequence[Entry], last: str | None) -> Sequence[Entry]:
    """The entries whose names come after `last`; all of them when it is None."""
    return entries if last is None else entries[bisect.bisect_right(entries, last, key=_name) :]


def segment_at(segments: Sequence[SegmentRef], name: str) -> int:
    """The position of the segment a name belongs to."""
    return bisect.bisect_right(segments, name, key=_first) - 1


def needs_segments(entries: Sequence[Entry]) -> bool:
    """Whether the entries are too many, or say too much, for one manifest."""
    return len(entries) > INLINE_MAX or _is_too_large(entries)


def is_full(entries: Sequence[Entry]) -> bool:
    """Whether a segment with these entries has to be split."""
    return len(entries) > SEGMENT_MAX or _is_too_large(entries)


def _is_too_large(entries: Sequence[Entry]) -> bool:
    return len(entries) > 1 and sum(entry.size_bytes for entry in entries) > PART_BYTES_MAX


def pack_segments(entries: Sequence[Entry]) -> Sequence[tuple[str, tuple[Entry, ...]]]:
    """Entries cut into segments that have room to grow: the first key of each, and what is in it."""
    parts: list[list[Entry]] = []
    size_bytes = 0
    for entry in entries:
        size_bytes += entry.size_bytes
        if not parts or len(parts[-1]) == PACKED or size_bytes > _PACKED_BYTES:
            parts.append([])
            size_bytes = entry.size_bytes
        parts[-1].append(entry)
    return [("" if not position else part[0].name, tuple(part)) for position, part in enumerate(parts)]


def split_key(entries: Sequence[Entry]) -> str:
    """Where a full segment is cut: in the middle."""
    return entries[len(entries) // 2].name


def split_entries(segment: Segment, split: Split) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """What the two successors of a sealed segment begin with: the same, whoever writes them."""
    at = bisect.bisect_left(segment.entries, split.cut, key=_name)
    return segment.entries[:at], segment.entries[at:]


def after_split(segments: Sequence[SegmentRef], sealed_id: str, split: Split) -> tuple[SegmentRef, ...] | None:
    """The segments with both successors in place of the sealed one; None when it is not among them any more."""
    for position, ref in enumerate(segments):
        if ref.id == sealed_id:
            successors = (SegmentRef(ref.first, split.left), SegmentRef(split.cut, split.right))
            return (*segments[:position], *successors, *segments[position + 1 :])
    return None


def group_by_segment(names: Iterable[str], segments: Sequence[SegmentRef]) -> Mapping[int, Sequence[str]]:
    """The names that belong to each segment, by its position; positions without names are not there."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        found[segment_at(segments, name)].append(name)
    return found


def _name(entry: Entry) -> str:
    return entry.name


def _first(ref: SegmentRef) -> str:
    return ref.first
