"""The list index: its entries per scope, and its segments, which keep the cost of an update independent of its size.

A small index is one manifest with all entries. A large one is a manifest that lists segments, each with the entries
from its first key up to the first key of the next. An update then changes one segment, and the manifest only when a
segment is split.
"""

import bisect
import hashlib
import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace
from sandur.catalog.record_versions import Record

Collection = Literal["catalogs", "schemas", "tables"]

INLINE_MAX: Final = 256
SEGMENT_MAX: Final = 128
PACKED: Final = 96
"""The number of entries in a newly written segment, which leaves room for more."""

PART_BYTES_MAX: Final = 192 << 10
"""The largest size of a manifest or a segment: an entry contains the columns of its table, which can be many."""
_PACKED_BYTES: Final = PART_BYTES_MAX * PACKED // SEGMENT_MAX

_SEPARATOR: Final = "\x1f"
_OVERHEAD_BYTES: Final = 200

_name = operator.attrgetter("name")
_first = operator.attrgetter("first")

NO_INFO: Final = msgspec.Raw(b"null")


class Scope(NamedTuple):
    """The content of an index: all catalogs, the direct children of a catalog or namespace, or the names in one."""

    collection: Collection
    catalog: str = ""
    levels: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return _SEPARATOR.join((self.collection, self.catalog, *self.levels))

    @property
    def hash(self) -> str:
        """A short hash of the scope, for keys."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.catalog, self.levels)


CATALOGS: Final = Scope("catalogs")


class Place(NamedTuple):
    """The position of an entry, present or not: its scope and its name."""

    scope: Scope
    name: str


def names_scope(namespace: Namespace) -> Scope:
    """The scope of the names in a namespace."""
    return Scope("tables", namespace.catalog, namespace.levels)


def namespaces_scope(catalog: str, parent: Namespace | None) -> Scope:
    """The scope of the direct children of a namespace, or of the first level of a catalog."""
    return Scope("schemas", catalog, parent.levels if parent else ())


def place_of(thing: Identifier | Namespace) -> Place:
    """The position of the entry of a name or a namespace."""
    match thing:
        case Identifier():
            return Place(Scope("tables", thing.catalog, thing.levels), thing.name)
        case Namespace():
            return Place(namespaces_scope(thing.catalog, thing.parent), thing.levels[-1])
        case _:
            assert_never(thing)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry with everything that lists contain; `info` is its JSON in the lists of Unity Catalog.

    `object_id` is the id that grants name, if it is not the uuid.
    """

    name: str
    kind: Kind | Literal["namespace", "catalog"]
    uuid: str
    object_id: str = ""
    owner_id: str = ""
    format: Format | Literal[""] = ""
    created_ms: int = 0
    updated_ms: int = 0
    info: msgspec.Raw = NO_INFO

    @property
    def size_bytes(self) -> int:
        return memoryview(self.info).nbytes + _OVERHEAD_BYTES

    @property
    def without_info(self) -> "Entry":
        """The entry for lists of names. The info keeps the object in memory that it was read from."""
        return self if self.info is NO_INFO else replace(self, info=NO_INFO)


class SegmentRef(msgspec.Struct, frozen=True):
    """A segment and its first key; the first key of the first segment is empty."""

    first: str
    id: str


class Manifest(Record, frozen=True, kw_only=True):
    """An index: its entries sorted by name, or the segments that hold them.

    `version` is the version of this format, not of the object.
    """

    version: Literal[1]
    updated_at_epoch_ms: int
    entries: tuple[Entry, ...]
    segments: tuple[SegmentRef, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether the manifest is well-formed; otherwise readers ignore the index."""
        if not self.segments:
            return are_sound(self.entries)
        firsts = [ref.first for ref in self.segments]
        rises = all(one < two for one, two in itertools.pairwise(firsts))
        return rises and not firsts[0] and not self.entries


class Split(msgspec.Struct, frozen=True):
    """The split of a sealed segment: names from `cut` on go to the right. Both halves have new ids."""

    cut: str
    left: str
    right: str


class Segment(Record, frozen=True, kw_only=True):
    """A part of an index. Once it is sealed (`split`) it never changes, so that any server can finish the split.

    `scope` names the index, for a janitor that finds only the segment.
    """

    scope: Scope
    updated_at_epoch_ms: int
    entries: tuple[Entry, ...]
    split: Split | None = None

    @property
    def is_sound(self) -> bool:
        return are_sound(self.entries)


class Mark(msgspec.Struct, frozen=True):
    """I1: the index may be wrong about an entry.

    `uuid` is that of the table whose record changes, which may have another name by then (I5); empty if a name changes.
    """

    collection: Collection
    catalog: str
    levels: tuple[str, ...]
    name: str
    uuid: str = ""

    @property
    def place(self) -> Place:
        return Place(Scope(self.collection, self.catalog, self.levels), self.name)


def are_sound(entries: Sequence[Entry]) -> bool:
    """Whether the entries are sorted and complete; entries of an older format have no info."""
    return is_sorted(entries) and all(entry.info is not NO_INFO for entry in entries)


def is_sorted(entries: Sequence[Entry]) -> bool:
    names = [entry.name for entry in entries]
    return all(map(operator.lt, names, names[1:]))


def merge_entries(entries: Sequence[Entry], truth: Mapping[str, Entry | None]) -> tuple[Entry, ...]:
    """The entries with the true entries of some names in place of the old ones; None removes a name."""
    kept = [entry for entry in entries if entry.name not in truth]
    kept += [entry for entry in truth.values() if entry is not None]
    return tuple(sorted(kept, key=_name))


def entries_after(entries: Sequence[Entry], last: str | None) -> Sequence[Entry]:
    """The entries whose names come after `last`; all entries if it is None."""
    return entries if last is None else entries[bisect.bisect_right(entries, last, key=_name) :]


def entry_named(entries: Sequence[Entry], name: str) -> Entry | None:
    """The entry of a name; None if the entries do not have it."""
    at = bisect.bisect_left(entries, name, key=_name)
    return entries[at] if at < len(entries) and entries[at].name == name else None


def segment_at(segments: Sequence[SegmentRef], name: str) -> int:
    """The position of the segment a name belongs to."""
    return bisect.bisect_right(segments, name, key=_first) - 1


def needs_segments(entries: Sequence[Entry]) -> bool:
    """Whether the entries are too many or too large for one manifest."""
    return len(entries) > INLINE_MAX or _is_too_large(entries)


def is_full(entries: Sequence[Entry]) -> bool:
    """Whether a segment with these entries has to be split."""
    return len(entries) > SEGMENT_MAX or _is_too_large(entries)


def _is_too_large(entries: Sequence[Entry]) -> bool:
    return _are_too_large([entry.size_bytes for entry in entries])


def _are_too_large(sizes_bytes: Sequence[int]) -> bool:
    return len(sizes_bytes) > 1 and sum(sizes_bytes) > PART_BYTES_MAX


def pack_segments(entries: Sequence[Entry], *, is_begin: bool = True) -> Sequence[tuple[str, tuple[Entry, ...]]]:
    """The entries divided into segments with room to grow: the first key and the entries of each.

    `is_begin`: the index begins with these entries.
    """
    starts = _packed_starts(entry.size_bytes for entry in entries)
    return [
        ("" if is_begin and not start else entries[start].name, tuple(entries[start:end]))
        for start, end in itertools.pairwise([*starts, len(entries)])
    ]


def count_segments(sizes_bytes: Sequence[int]) -> int:
    """How many segments entries of these sizes are packed into; 0 if one manifest holds them."""
    if len(sizes_bytes) <= INLINE_MAX and not _are_too_large(sizes_bytes):
        return 0
    return sum(1 for _ in _packed_starts(sizes_bytes))


def _packed_starts(sizes_bytes: Iterable[int]) -> Iterator[int]:
    """The position of the first entry of each packed segment."""
    count = packed_bytes = 0
    for position, size_bytes in enumerate(sizes_bytes):
        packed_bytes += size_bytes
        if not position or count == PACKED or packed_bytes > _PACKED_BYTES:
            yield position
            count, packed_bytes = 0, size_bytes
        count += 1


def split_key(entries: Sequence[Entry]) -> str:
    """The name at which a full segment is split: the middle one."""
    return entries[len(entries) // 2].name


def split_entries(segment: Segment, split: Split) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """The entries of the two successors of a sealed segment; every server computes the same."""
    at = bisect.bisect_left(segment.entries, split.cut, key=_name)
    return segment.entries[:at], segment.entries[at:]


def after_split(segments: Sequence[SegmentRef], sealed_id: str, split: Split) -> tuple[SegmentRef, ...] | None:
    """The segments with both successors in place of the sealed one; None if it is no longer among them."""
    for position, ref in enumerate(segments):
        if ref.id == sealed_id:
            successors = (SegmentRef(ref.first, split.left), SegmentRef(split.cut, split.right))
            return (*segments[:position], *successors, *segments[position + 1 :])
    return None


def group_by_segment(names: Iterable[str], segments: Sequence[SegmentRef]) -> Mapping[int, Sequence[str]]:
    """The names in each segment, by the position of the segment; positions without names are absent."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        found[segment_at(segments, name)].append(name)
    return found
