"""Events as readers of the feed see them: one form for commits and changes of the catalog, filters, and positions."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from sandur.catalog.events import EventKind, ObjectType, Source
from sandur.catalog.identifiers import LEVELS_MAX, Format, Identifier, is_uuid
from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.errors import BadRequest

FeedKind = Literal["committed"] | EventKind


def _texts(literal: object) -> tuple[str, ...]:
    """The texts of a literal, or of a union of literals."""
    return tuple(text for part in get_args(literal) for text in ((part,) if isinstance(part, str) else _texts(part)))


KINDS: Final = _texts(FeedKind)
OBJECT_TYPES: Final = _texts(ObjectType)

FILTER_ENTRIES_MAX: Final = 100
_QUOTED_CHARS_MAX: Final = 100
_LIST: Final = "events"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, or a change of the catalog. Its receipt determines everything but the name of a committed object.

    `id` is the id of the receipt's event, the same wherever and however often it is read. `commit_key` names the event
    in its chain, and `previous` the event before it; None for the first. `object_id` is the uuid that survives a
    rename. `identifier` is the name after a change; for a commit, the name that the object has now, None if that is
    unknown. `version`, `snapshot_id`, `operation` and `refs` belong to commits.
    """

    id: str
    kind: FeedKind
    object_type: ObjectType
    object_id: str
    commit_key: str
    previous: str | None
    time_ms: int
    format: Format | None = None
    identifier: Identifier | None = None
    renamed_from: Identifier | None = None
    details: tuple[str, ...] = ()
    version: int | None = None
    snapshot_id: int | None = None
    operation: str = ""
    refs: dict[str, int] = {}
    source: Source = Source()

    @property
    def type(self) -> str:
        return f"{self.object_type}.{self.kind}"


def path_of(identifier: Identifier) -> tuple[str, ...]:
    """Catalog, levels and name; a catalog and a namespace have no name."""
    path = (identifier.catalog, *identifier.levels)
    return (*path, identifier.name) if identifier.name else path


def event_json(event: Event) -> Mapping[str, object]:
    """The event as Sandur's own API and webhooks show it; what does not apply is left out."""
    named = event.identifier
    source = event.source
    fields: dict[str, object] = {
        "id": event.id,
        "type": event.type,
        "time": time_text(event.time_ms),
        "object_type": event.object_type,
        "object_id": event.object_id,
        "catalog": named.catalog if named else None,
        "namespace": named.levels if named and named.levels else None,
        "name": (named.name or None) if named else None,
        "renamed_from": path_of(event.renamed_from) if event.renamed_from else None,
        "format": event.format,
        "operation": event.operation or None,
        "version": event.version,
        "snapshot_id": event.snapshot_id,
        "refs": event.refs or None,
        "details": event.details or None,
        "commit_key": event.commit_key,
        "previous": event.previous,
        "source": {
            name: value
            for name, value in (
                ("kind", source.kind),
                ("principal", source.principal),
                ("client", source.client),
                ("run_id", source.run_id),
                ("task_id", source.task_id),
                ("trace_id", source.trace_id),
            )
            if value
        },
    }
    return {name: value for name, value in fields.items() if value is not None}


_LAST_MS: Final = 253_402_300_799_999


def time_text(time_ms: int) -> str:
    """A time after RFC 3339, in UTC. A file of another catalog may carry any number: it is brought into range."""
    bounded = min(max(time_ms, 0), _LAST_MS)
    moment = dt.datetime.fromtimestamp(bounded // 1_000, dt.UTC).replace(microsecond=bounded % 1_000 * 1_000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EventFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which events a reader wants; an empty field wants all.

    `names` are paths from the catalog down: a path selects its object and everything inside it. `since_ms` is about the
    time of the change.
    """

    names: tuple[tuple[str, ...], ...] = ()
    uuids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    object_types: tuple[str, ...] = ()
    since_ms: int = 0

    def may_match(self, event: Event) -> bool:
        """Whether the event is wanted as far as its name does not matter."""
        return (
            event.time_ms >= self.since_ms
            and (not self.kinds or event.kind in self.kinds)
            # A receipt of a commit does not say whether it is of a table or a view.
            and (not self.object_types or event.kind == "committed" or event.object_type in self.object_types)
        )

    def matches(self, event: Event) -> bool:
        """Whether the event is wanted; its name is known if anybody may know it."""
        if not self.may_match(event) or (self.object_types and event.object_type not in self.object_types):
            return False
        if not self.names and not self.uuids:
            return True
        paths = [path_of(one) for one in (event.identifier, event.renamed_from) if one]
        is_named = any(path[: len(wanted)] == wanted for path in paths for wanted in self.names)
        return is_named or event.object_id in self.uuids

    @property
    def texts(self) -> Sequence[str]:
        """What a continuation token is bound to. It carries the time: `2h` ago differs between requests."""
        return (_LIST, msgspec.json.encode(replace(self, since_ms=0)).decode())


def filter_of(
    *,
    catalogs: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    tables: Sequence[str] = (),
    kinds: Sequence[str] = (),
    object_types: Sequence[str] = (),
    since_ms: int = 0,
) -> EventFilter:
    """The filter of what a client names: full names with dots; a table also by its uuid."""
    named = [
        *((one,) for one in catalogs),
        *(tuple(one.split(".")) for one in (*namespaces, *tables) if not is_uuid(one)),
    ]
    return EventFilter(
        names=tuple(named),
        uuids=tuple(one for one in tables if is_uuid(one)),
        kinds=tuple(kinds),
        object_types=tuple(object_types),
        since_ms=since_ms,
    )


def checked_filter(wanted: EventFilter) -> EventFilter:
    """The filter in a canonical form; raises BadRequest if a kind or type does not exist, or if it is too long."""
    for what, given, known in (("kind", wanted.kinds, KINDS), ("object type", wanted.object_types, OBJECT_TYPES)):
        for one in given:
            if one not in known:
                raise BadRequest(f"Invalid {what} {one[:_QUOTED_CHARS_MAX]!r}: expected one of {', '.join(known)}")
    for path in wanted.names:
        if not path or not all(path) or len(path) > LEVELS_MAX + 2:
            raise BadRequest(
                f"Invalid name {'.'.join(path)[:_QUOTED_CHARS_MAX]!r}: expected catalog[.namespace[.name]]"
            )
    if max(map(len, (wanted.names, wanted.uuids, wanted.kinds, wanted.object_types))) > FILTER_ENTRIES_MAX:
        raise BadRequest(f"Invalid filter: at most {FILTER_ENTRIES_MAX} names, ids, kinds and types are allowed")
    return EventFilter(
        names=tuple(sorted(set(wanted.names))),
        uuids=tuple(sorted({uuid.lower() for uuid in wanted.uuids})),
        kinds=tuple(sorted(set(wanted.kinds))),
        object_types=tuple(sorted(set(wanted.object_types))),
        since_ms=max(wanted.since_ms, 0),
    )


class Position(NamedTuple):
    """A place in the feed: everything before entry `entry` is read, and `offset` receipts of that entry."""

    entry: int
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.entry}.{self.offset}"


START: Final = Position(1)
_DIGITS_MAX: Final = 18
_NUMBERS: Final = 3


def encode_position(position: Position, wanted: EventFilter) -> str:
    """The continuation token of a position: opaque, bound to the filter, and valid on every server."""
    return encode_page_token(wanted.texts, f"{position}.{wanted.since_ms}")


def decode_position(token: str, wanted: EventFilter) -> tuple[Position, EventFilter]:
    """The position of a token, and the filter with its time; raises BadRequest if it belongs to another filter."""
    numbers = decode_page_token(token, wanted.texts).split(".")
    is_valid = all(text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX for text in numbers)
    if not is_valid or len(numbers) != _NUMBERS:
        raise BadRequest(f"Invalid page token: {token[:_QUOTED_CHARS_MAX]!r}")
    entry, offset, since_ms = map(int, numbers)
    return Position(max(entry, START.entry), offset), replace(wanted, since_ms=since_ms)
