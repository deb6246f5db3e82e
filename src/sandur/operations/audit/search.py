"""Search the audit trail on the store: by time, principal, operation, securable and decision, page by page."""

import datetime as dt
import re
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.audit import AuditFilter, AuditRecord
from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.clock import uuid_v7
from sandur.errors import BadRequest
from sandur.operations.access import authorize_metastore
from sandur.operations.audit.trail import BATCH_SPAN_MS, date_of
from sandur.operations.lake import Lake
from sandur.settings import seconds_of
from sandur.splicing import NOT_JSON
from sandur.storage.cell import gather_all
from sandur.storage.contract import get_many

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1_000
OBJECTS_PER_PAGE_MAX: Final = 500
"""A page that reads this many objects ends, however few records it has found."""
_OBJECTS_AT_ONCE: Final = 50
_BATCH_BYTES_MAX: Final = 64 << 20
_GZIP: Final = 31
_ID_CHARS: Final = 36
_WHOLE: Final = -1
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
_DIGITS_MAX: Final = 15
_AGO: Final = re.compile(r"([0-9]{1,6})([smhd])\Z")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LINES: Final = re.compile(r"-1\Z|[0-9]{1,6}\Z")

_decoder: Final = msgspec.json.Decoder(AuditRecord)


class AuditPage(NamedTuple):
    """A part of a search, oldest first. Without `next_token` it is the last part. `damaged` cannot be read."""

    records: Sequence[AuditRecord]
    next_token: str | None
    damaged: Sequence[str]


class DamagedBatch(ValueError):
    """An object of the trail is not what was written there."""


async def search_audit(
    lake: Lake, wanted: AuditFilter, *, page_size: int | None = None, page_token: str | None = None
) -> AuditPage:
    """The records that the filter selects, from the position of the token on, for who administers the workspace.

    A page may be empty and still have a next one, because a page reads a bounded number of objects.
    """
    size = checked_size(page_size)
    # A start such as "the last day" moves between two pages of one search; the token has the position.
    what = ("audit", *map(str, wanted[1:]))
    key, lines = _position(lake, wanted, what, page_token)
    folder = lake.layout.audit_folder()
    _, listed = await gather_all(
        (authorize_metastore(lake), lake.store.list(folder, after=key, limit=OBJECTS_PER_PAGE_MAX))
    )
    last_id = uuid_v7(wanted.until_ms + 1, 0)
    names = [one.key for one in listed if _batch_id(one.key) < last_id]
    keys = [key, *names] if lines != _WHOLE else names
    found: list[AuditRecord] = []
    damaged: list[str] = []
    for start in range(0, len(keys), _OBJECTS_AT_ONCE):
        some = keys[start : start + _OBJECTS_AT_ONCE]
        for name, stored in zip(some, await get_many(lake.store, some), strict=True):
            skipped = lines if name == key and lines != _WHOLE else 0
            try:
                batch = decode_batch(stored.data) if stored else ()
            except DamagedBatch:
                damaged.append(name)
                continue
            for place, record in enumerate(batch[skipped:], start=skipped + 1):
                if wanted.matches(record):
                    found.append(record)
                if len(found) == size:
                    return AuditPage(found, _token(lake, what, name, place), damaged)
    has_more = len(listed) == OBJECTS_PER_PAGE_MAX and len(names) == len(listed)
    return AuditPage(found, _token(lake, what, listed[-1].key, _WHOLE) if has_more else None, damaged)


def time_of(text: str, now_ms: int) -> int:
    """A time: milliseconds since 1970, ISO 8601 (without a zone: UTC), or how long ago, as `2h` or `PT2H`."""
    if text.isascii() and text.isdigit():
        return min(int(text[:_DIGITS_MAX]), LAST_MS)
    if ago := _AGO.match(text):
        return max(now_ms - int(ago[1]) * _UNIT_MS[ago[2]], 0)
    if text.startswith("P"):
        return max(now_ms - seconds_of(text) * 1_000, 0)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"Invalid time {text[:40]!r}: expected 2026-01-31T12:00:00Z, PT2H or 2h (ago)") from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return min(max(round(zoned.timestamp() * 1_000), 0), LAST_MS)


def checked_size(page_size: int | None) -> int:
    """The bounded page size, or the default; BadRequest below 1."""
    if page_size is None:
        return PAGE_SIZE_DEFAULT
    if page_size < 1:
        raise BadRequest(f"Invalid page size: {page_size}, expected at least 1")
    return min(page_size, PAGE_SIZE_MAX)


def decode_batch(data: bytes) -> Sequence[AuditRecord]:
    """The records of an object. Raises DamagedBatch if it cannot be decoded, or is larger than any batch."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        lines = unpacker.decompress(data, _BATCH_BYTES_MAX)
        if not unpacker.eof:
            raise DamagedBatch("it is cut off, or larger than any batch")
        return [_decoder.decode(line) for line in lines.splitlines()]
    except (zlib.error, *NOT_JSON) as error:
        raise DamagedBatch(str(error)) from error


def _position(lake: Lake, wanted: AuditFilter, what: Sequence[str], page_token: str | None) -> tuple[str, int]:
    """The key to continue after, and how many lines of it were read; all of them at the start of a search."""
    if page_token is None:
        start_ms = max(wanted.since_ms - BATCH_SPAN_MS, 0)
        return lake.layout.audit(date_of(start_ms), uuid_v7(start_ms, 0)), _WHOLE
    name, _, lines = decode_page_token(page_token, what).rpartition(" ")
    if not _LINES.match(lines):
        raise BadRequest(f"Invalid page token: {page_token[:100]!r}")
    return f"{lake.layout.audit_folder()}{name}", int(lines)


def _token(lake: Lake, what: Sequence[str], key: str, lines: int) -> str:
    return encode_page_token(what, f"{key.removeprefix(lake.layout.audit_folder())} {lines}")


def _batch_id(key: str) -> str:
    return key.rpartition("/")[2][:_ID_CHARS]
