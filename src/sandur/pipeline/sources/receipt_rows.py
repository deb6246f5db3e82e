"""Convert receipts to rows of `events` and back; a damaged receipt becomes a row with a `problem`."""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec.structs import asdict

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import AttemptedFile
from sandur.clock import uuid_v7
from sandur.errors import BadRequest
from sandur.operations.receipts import (
    CatalogReceipt,
    DeltaReceipt,
    Receipt,
    catalog_receipt_key,
    commit_key,
    delta_commit_key,
    delta_receipt_key,
    receipt_key,
)
from sandur.splicing import NOT_JSON
from sandur.storage.layout import Layout, ReceiptKey

BODY_CHARACTERS_MAX: Final = 4_000
DETAIL_CHARACTERS_MAX: Final = 500
_INT64: Final = range(-(1 << 63), 1 << 63)
_NUMBERS: Final = ("snapshot_id", "metadata_version", "last_sequence_number", "version", "committed_at_ms")
_HASH: Final = re.compile(r"[0-9a-f]{64}\Z")
_PLAIN_NAME: Final = re.compile(r"[0-9a-f]{64}\.json\Z")
_DAY_MS: Final = 86_400_000
_DAYS_REMEMBERED_MAX: Final = 1_000

CORRUPT: Final = "corrupt"
UNKNOWN: Final = "unknown"
MISPLACED: Final = "misplaced"
CATALOG_CHANGED: Final = "catalog_changed"

Row = Mapping[str, object]
R = TypeVar("R", Receipt, DeltaReceipt, CatalogReceipt)


class _Envelope(msgspec.Struct):
    """The fields that every event has."""

    event_type: str
    event_version: int


class _Wrong(Exception):
    def __init__(self, problem: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem


def row_of(layout: Layout, key: str, data: bytes) -> Row:
    """The row of an event. An event that cannot be decoded, or is stored under a wrong key, has a `problem`.

    The content of a receipt determines its key; a copy under another key is misplaced. So the same copy counts,
    whichever is read first.
    """
    try:
        return _decode(layout, key, data)
    except _Wrong as wrong:
        return {
            "key": key,
            "problem": wrong.problem,
            "detail": str(wrong)[:DETAIL_CHARACTERS_MAX],
            "body": data.decode(errors="replace")[:BODY_CHARACTERS_MAX],
            "size_bytes": len(data),
        }


def _decode(layout: Layout, key: str, data: bytes) -> Row:
    try:
        place = _place(layout, key)
    except BadRequest as error:
        raise _Wrong(CORRUPT, str(error)) from error
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except NOT_JSON as error:
        raise _Wrong(CORRUPT, f"not an event: {error}") from error
    decode = _DECODERS.get((place.family, envelope.event_type, envelope.event_version))
    if decode is None:
        raise _Wrong(UNKNOWN, f"{place.family} event {envelope.event_type} version {envelope.event_version}")
    return {"key": key, "date": place.date, "state": place.state, "size_bytes": len(data), **decode(layout, key, data)}


def _place(layout: Layout, key: str) -> ReceiptKey:
    """The parts of a key; the folder is parsed once for all keys in it."""
    folder, _, name = key.rpartition("/")
    if not _PLAIN_NAME.match(name):
        return layout.parse_receipt(key)
    return _in_folder(layout, folder)._replace(commit_key=name.removesuffix(".json"))


@functools.lru_cache(_DAYS_REMEMBERED_MAX)
def _in_folder(layout: Layout, folder: str) -> ReceiptKey:
    return layout.parse_receipt(f"{folder}/any.json")


def _decoded(data: bytes, kind: type[R]) -> R:
    try:
        receipt = msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        raise _Wrong(CORRUPT, f"not a receipt: {error}") from error
    if any((getattr(receipt, name, 0) or 0) not in _INT64 for name in _NUMBERS):
        raise _Wrong(CORRUPT, "a number has more than 64 bits")
    return receipt


def _iceberg_commit(layout: Layout, key: str, data: bytes) -> Row:
    receipt = _decoded(data, Receipt)
    if receipt.operation != "register" and receipt.commit_key != commit_key(receipt.metadata_location):
        raise _Wrong(MISPLACED, "its key is not the hash of its metadata location")
    if not _HASH.match(receipt.commit_key) or receipt.event_id != _event_id(receipt):
        raise _Wrong(MISPLACED, "its id is not derived from its time and its key")
    expected = key_of(layout, receipt.commit_key, receipt.committed_at_ms)
    if key != expected:
        raise _Wrong(MISPLACED, f"it belongs to {expected}")
    return {
        **asdict(receipt),
        "refs_json": None if receipt.refs is msgspec.UNSET else msgspec.json.encode(receipt.refs).decode(),
        "spec_id": None if receipt.spec_id is msgspec.UNSET else receipt.spec_id,
        "format": "iceberg",
        "committed_at": receipt.committed_at_ms,
        **_source_columns(receipt.source),
    }


def _delta_commit(layout: Layout, key: str, data: bytes) -> Row:
    """The row of a Delta commit; its metadata file is the log file of the version."""
    receipt = _decoded(data, DeltaReceipt)
    if receipt.commit_key != delta_commit_key(receipt.table_uuid, receipt.version, receipt.file_name):
        raise _Wrong(MISPLACED, "its key is not the hash of its table, version and file")
    if receipt.event_id != _event_id(receipt) or key != delta_receipt_key(layout, receipt):
        raise _Wrong(MISPLACED, "it is stored under another key than its content determines")
    return {
        **asdict(receipt),
        "format": "delta",
        "metadata_location": delta_file(receipt.table_location, receipt.version, receipt.file_name),
        "operation": "" if receipt.version else "create",
        "metadata_version": receipt.version,
        "last_sequence_number": receipt.version,
        "committed_at": receipt.committed_at_ms,
        **_source_columns(receipt.source),
    }


def _catalog_change(layout: Layout, key: str, data: bytes) -> Row:
    """The row of a change of the catalog."""
    receipt = _decoded(data, CatalogReceipt)
    if not _HASH.match(receipt.commit_key) or receipt.event_id != _event_id(receipt):
        raise _Wrong(MISPLACED, "its id is not derived from its time and its key")
    if key != catalog_receipt_key(layout, receipt):
        raise _Wrong(MISPLACED, "it is stored under another key than its content determines")
    return {
        **asdict(receipt),
        "change": receipt.kind,
        "committed_at": receipt.committed_at_ms,
        "details_json": msgspec.json.encode(receipt.details).decode() if receipt.details else None,
        **_name_columns(receipt.identifier),
        **{f"previous_{column}": value for column, value in _name_columns(receipt.renamed_from).items()},
        **_source_columns(receipt.source),
    }


def _name_columns(identifier: Identifier | None) -> Row:
    """A name as columns. A catalog has neither namespace nor name, a namespace no name."""
    if identifier is None:
        return {}
    namespace = str(identifier.namespace) or None
    return {"catalog": identifier.catalog, "namespace": namespace, "name": identifier.name or None}


def delta_file(location: str, version: int, staged_name: str = "") -> str:
    """The log file of a Delta version: the staged file if `staged_name` is given, otherwise the published one."""
    folder = f"{location.rstrip('/')}/_delta_log"
    return f"{folder}/_staged_commits/{staged_name}" if staged_name else f"{folder}/{version:020d}.json"


def _source_columns(source: Source) -> Row:
    return {**asdict(source), "source": source.kind}


def _event_id(receipt: Receipt | DeltaReceipt | CatalogReceipt) -> str:
    return uuid_v7(receipt.committed_at_ms, int(receipt.commit_key, 16))


def key_of(layout: Layout, key: str, committed_at_ms: int) -> str:
    """The object key of the receipt with this commit key and time."""
    return layout.receipt(_date(layout, committed_at_ms // _DAY_MS), "iceberg", key)


@functools.lru_cache(_DAYS_REMEMBERED_MAX)
def _date(layout: Layout, day: int) -> str:
    # Only the date is derived: the key of a registered file hashes more than the receipt contains.
    return layout.parse_receipt(receipt_key(layout, AttemptedFile("", day * _DAY_MS))).date


def receipt_of_row(row: Mapping[str, object]) -> Receipt:
    """The receipt of a row of `commits`, equal to the last bit."""
    source = {name: row[name] for name in ("principal", "client", "run_id", "task_id")}
    source["principal_id"] = row["principal_id"] or ""
    named = {name: row[name] for name in _PLAIN_FIELDS}
    if row["refs_json"] is not None:
        named["refs"] = msgspec.json.decode(str(row["refs_json"]))
    if row["spec_id"] is not None:
        named["spec_id"] = row["spec_id"]
    return msgspec.convert({**named, "source": {"kind": row["source"], **source}}, Receipt)


_PLAIN_FIELDS: Final = tuple(
    name
    for name in Receipt.__struct_fields__
    if name not in {"event_type", "event_version", "source", "refs", "spec_id"}
)


_DECODERS: Final[Mapping[tuple[str, str, int], Callable[[Layout, str, bytes], Row]]] = {
    ("iceberg", "iceberg_commit_committed", 1): _iceberg_commit,
    ("delta", "delta_commit_committed", 1): _delta_commit,
    ("catalog", CATALOG_CHANGED, 1): _catalog_change,
}
"""Decoders by folder, event type and version; every other event goes to `quarantine`."""
