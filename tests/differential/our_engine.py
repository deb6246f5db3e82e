"""Our engine behind the interface of the compared engines."""

import json
from collections.abc import Callable

from sandur.errors import BadRequest, Conflict
from sandur.iceberg.requests import decode_create_table, decode_table_commit
from sandur.iceberg.table_commit import next_metadata
from sandur.iceberg.table_create import create_table_metadata
from sandur.iceberg.table_metadata import decode_table_metadata, encode_table_metadata
from sandur.iceberg.view_commit import decode_view_commit, next_view_metadata
from sandur.iceberg.view_metadata import decode_view_metadata, encode_view_metadata
from tests.differential.outcomes import Commit, JsonObject, Outcome, Verdict


def commit_table(commit: Commit, *, now_ms: int) -> Outcome:
    """The result of our engine for the request."""

    def built() -> bytes | None:
        request = decode_table_commit(json.dumps(commit.request).encode())
        base = None
        if commit.base is not None:
            base = decode_table_metadata(commit.base_text, metadata_location=commit.base_location)
        metadata = next_metadata(base, request.requirements, request.updates, now_ms=now_ms)
        return None if metadata is base else encode_table_metadata(metadata)

    return _attempt(built)


def commit_view(commit: Commit, *, now_ms: int) -> Outcome:
    """The result of our engine for a request that changes or creates a view."""

    def built() -> bytes | None:
        request = decode_view_commit(json.dumps(commit.request).encode())
        base = None
        if commit.base is not None:
            base = decode_view_metadata(commit.base_text, metadata_location=commit.base_location)
        metadata = next_view_metadata(base, request.requirements, request.updates, now_ms=now_ms)
        return None if metadata is base else encode_view_metadata(metadata)

    return _attempt(built)


def create_table(request: JsonObject, *, table_uuid: str, now_ms: int) -> Outcome:
    """The metadata of a new table, from the parts of a create request."""

    def built() -> bytes:
        wanted = decode_create_table(json.dumps(request).encode())
        metadata = create_table_metadata(wanted, location=request["location"], table_uuid=table_uuid, now_ms=now_ms)
        return encode_table_metadata(metadata)

    return _attempt(built)


def _attempt(build: Callable[[], bytes | None]) -> Outcome:
    """None means that the metadata did not change."""
    try:
        text = build()
    except Conflict as conflict:
        return Outcome(Verdict.CONFLICT, message=str(conflict))
    except BadRequest as refusal:
        return Outcome(Verdict.REFUSED, message=str(refusal))
    return (
        Outcome(Verdict.UNCHANGED) if text is None else Outcome(Verdict.CHANGED, metadata=json.loads(text), text=text)
    )
