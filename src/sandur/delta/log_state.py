"""Which files a Delta log needs: the live files, those removed a short while ago, and their deletion vectors.

Actions are folded in the order of the log, from a checkpoint on. The files that are not needed are what VACUUM removes.
"""

import base64
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from sandur.delta.protocol import READER_FEATURES, READER_VERSION
from sandur.errors import Invalid
from sandur.splicing import NOT_JSON

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85: Final = str.maketrans(_Z85, _B85)
_ENCODED_UUID_CHARS: Final = 20
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_UNITS_MS: Final = {
    **dict.fromkeys(("millisecond", "milliseconds"), 1),
    **dict.fromkeys(("second", "seconds"), 1_000),
    **dict.fromkeys(("minute", "minutes"), 60_000),
    **dict.fromkeys(("hour", "hours"), 3_600_000),
    **dict.fromkeys(("day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000),
}
_DIGITS_MAX: Final = 18
RETENTION: Final = "delta.deletedFileRetentionDuration"
LOG_RETENTION: Final = "delta.logRetentionDuration"
CLEANS_LOG: Final = "delta.enableExpiredLogCleanup"
UNIFORM_FORMATS: Final = "delta.universalFormat.enabledFormats"
_LOG_RETENTION_MS: Final = 30 * 86_400_000


class DeletionVector(msgspec.Struct, frozen=True, rename="camel"):
    """Where the deletion vector of a file is: in the log (`i`), in a file of the table (`u`), or at a path (`p`).

    `cardinality` is the number of deleted rows.
    """

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    cardinality: int = 0


class FileAction(msgspec.Struct, frozen=True, rename="camel"):
    """An `add`, `remove` or `cdc`; only a remove has a time."""

    path: str
    deletion_timestamp: int | None = None
    deletion_vector: DeletionVector | None = None


class Sidecar(msgspec.Struct, frozen=True):
    path: str


class LogProtocol(msgspec.Struct, frozen=True, rename="camel"):
    min_reader_version: int = 1
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class LogMetadata(msgspec.Struct, frozen=True):
    configuration: dict[str, Any] | None = None


class Action(msgspec.Struct, frozen=True, rename={"metadata": "metaData"}):
    """One line of a log; other actions say nothing about files."""

    add: FileAction | None = None
    remove: FileAction | None = None
    cdc: FileAction | None = None
    sidecar: Sidecar | None = None
    protocol: LogProtocol | None = None
    metadata: LogMetadata | None = None


A = TypeVar("A")


class LogState(NamedTuple):
    """The files of a table by path and deletion vector: live ones, removed ones, and those of the change feed.

    `properties` is the configuration of the table, `features` what its protocol requires of writers.
    """

    live: Mapping[tuple[str, str], FileAction]
    removed: Mapping[tuple[str, str], FileAction]
    changes: frozenset[str] = frozenset()
    properties: Mapping[str, Any] = {}
    features: frozenset[str] = frozenset()


EMPTY: Final = LogState({}, {})


def read_actions(data: bytes, *, location: str) -> Iterator[Action]:
    """The actions of a commit; Invalid if a line is not an action, because it might add a file."""
    return decode_lines(data, Action, location=location)


def decode_lines(data: bytes, kind: type[A], *, location: str) -> Iterator[A]:
    """The lines of a commit; Invalid if one cannot be decoded."""
    decoder = msgspec.json.Decoder(kind)
    for line in data.splitlines():
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except NOT_JSON as error:
            raise Invalid(f"file {location}: cannot be read as a Delta commit: {error}") from error


def decode_rows(rows: Iterable[Mapping[str, Any]], kind: type[A], *, location: str) -> Iterator[A]:
    """The rows of a checkpoint; Invalid if one cannot be decoded."""
    for row in rows:
        try:
            yield msgspec.convert({name: value for name, value in row.items() if value is not None}, kind)
        except msgspec.ValidationError as error:
            raise Invalid(f"file {location}: cannot be read as a Delta checkpoint: {error}") from error


def folded(before: LogState, actions: Iterable[Action]) -> LogState:
    """The state after some actions; Invalid if the table needs a reader that knows more than this one."""
    live, removed, changes = dict(before.live), dict(before.removed), set(before.changes)
    properties, features = before.properties, before.features
    for action in actions:
        if action.protocol:
            _check_protocol(action.protocol)
            features = frozenset(action.protocol.writer_features or ())
        if action.add:
            live[_key(action.add)] = action.add
            removed.pop(_key(action.add), None)
        if action.remove:
            live.pop(_key(action.remove), None)
            removed[_key(action.remove)] = action.remove
        if action.cdc:
            changes.add(action.cdc.path)
        if action.metadata:
            properties = action.metadata.configuration or {}
    return LogState(live, removed, frozenset(changes), properties, features)


def _key(action: FileAction) -> tuple[str, str]:
    vector = action.deletion_vector
    return action.path, f"{vector.storage_type}{vector.path_or_inline_dv}@{vector.offset}" if vector else ""


def _check_protocol(protocol: LogProtocol) -> None:
    unknown = sorted(set(protocol.reader_features or ()) - READER_FEATURES)
    if protocol.min_reader_version > READER_VERSION or unknown:
        raise Invalid(f"the table needs a reader of version {protocol.min_reader_version} with {unknown}")


def needed_files(state: LogState, location: str, *, removed_after_ms: int) -> Iterator[str]:
    """The locations of all files that a reader may need. A file that was removed at an unknown time counts as young."""
    for action in state.live.values():
        yield from named_files(action, location)
    for action in state.removed.values():
        if not action.deletion_timestamp or action.deletion_timestamp > removed_after_ms:
            yield from named_files(action, location)
    for path in state.changes:
        yield absolute(path, location)


def added_files(actions: Iterable[Action], location: str) -> Sequence[str]:
    """The locations of the files that a commit adds."""
    files = (one for action in actions for one in (action.add, action.cdc) if one)
    return [named for one in files for named in named_files(one, location)]


def named_files(action: FileAction, location: str) -> Iterator[str]:
    """A data file, and the file of its deletion vector."""
    yield absolute(action.path, location)
    vector = action.deletion_vector
    match vector.storage_type if vector else "i":
        case "i":
            return
        case "p":
            yield vector.path_or_inline_dv if vector else ""
        case "u":
            yield absolute(_vector_path(vector.path_or_inline_dv if vector else ""), location)
        case other:
            raise Invalid(f"a deletion vector has the storage type {other!r}, which is not known")


def _vector_path(encoded: str) -> str:
    """The path of a deletion vector: an optional folder, and a uuid in Z85 (20 characters) that names the file."""
    prefix, name = encoded[:-_ENCODED_UUID_CHARS], encoded[-_ENCODED_UUID_CHARS:]
    try:
        found = uuid.UUID(bytes=base64.b85decode(name.translate(_TO_B85)))
    except ValueError as error:
        raise Invalid(f"a deletion vector has the name {encoded!r}, which is not known: {error}") from error
    return f"{prefix}/deletion_vector_{found}.bin" if prefix else f"deletion_vector_{found}.bin"


def is_absolute(path: str) -> bool:
    """Whether a path names its place itself, as those of shallow clones do."""
    return path.startswith("/") or _SCHEME.match(path) is not None


def absolute(path: str, location: str) -> str:
    return path if is_absolute(path) else f"{location.rstrip('/')}/{path}"


def is_foreign(file: FileAction) -> bool:
    """Whether a file, or its deletion vector, names its place itself."""
    return is_absolute(file.path) or (file.deletion_vector is not None and file.deletion_vector.storage_type == "p")


def foreign_files(state: LogState) -> Sequence[str]:
    """The files elsewhere that a log names: a shallow clone names those of its source."""
    named = [one for one in (*state.live.values(), *state.removed.values()) if is_foreign(one)]
    found = [one.path for one in named if is_absolute(one.path)]
    vectors = [one.deletion_vector for one in named if one.deletion_vector]
    return [*found, *(one.path_or_inline_dv for one in vectors if one.storage_type == "p")]


def is_uniform(properties: Mapping[str, Any]) -> bool:
    """Whether the writers of the table also write Iceberg metadata."""
    return "iceberg" in str(properties.get(UNIFORM_FORMATS, "")).lower()


def retention_ms(properties: Mapping[str, Any]) -> int | None:
    """The table's own retention of removed files; None if it sets none. Invalid if it cannot be read."""
    return _interval_ms(properties, RETENTION)


def log_retention_ms(properties: Mapping[str, Any]) -> int | None:
    """How long the versions of a table can be read; None if its log is never cleaned. Invalid if it cannot be read."""
    if str(properties.get(CLEANS_LOG, "true")).lower() != "true":
        return None
    interval_ms = _interval_ms(properties, LOG_RETENTION)
    return _LOG_RETENTION_MS if interval_ms is None else interval_ms


def _interval_ms(properties: Mapping[str, Any], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    words = str(text).lower().removeprefix("interval").split()
    if not words or len(words) % 2:
        raise Invalid(f"property {name}={text}: it is not an interval such as `interval 7 days`")
    total = 0
    for number, unit in zip(words[::2], words[1::2], strict=True):
        if not number.isdecimal() or len(number) > _DIGITS_MAX or unit not in _UNITS_MS:
            raise Invalid(f"property {name}={text}: it is not an interval such as `interval 7 days`")
        total += int(number) * _UNITS_MS[unit]
    return total
